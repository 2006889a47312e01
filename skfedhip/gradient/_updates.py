"""What clients of a gradient method send up, alone and summed."""

from dataclasses import dataclass, replace

import numpy as np

from ..protocol import ClientUpdate


def total_of(updates):
    """The sum of updates; those of models are added in place, since a new sum for each is slow."""
    total, mine = None, False
    for update in updates:
        if total is None or not total.weight:
            total = update
        elif update.weight and mine:
            total = total.grown_by(update)
        elif update.weight:
            total = total + update
            mine = isinstance(total, ModelUpdate)
    return total


@dataclass(frozen=True)
class ModelUpdate(ClientUpdate):
    """Weighted sums of what clients send up; their number and losses go along.

    Attributes
    ----------
    sums : dict of ndarray
        Parameters times their client's weight, float64, by name.
    weight : ndarray of shape ()
        Sum of the weights.
    loss : ndarray of shape (2,)
        Sum of the losses of all rows that were trained on, and how many clients' rows there are.
    itemsize : ndarray of shape ()
        Bytes of a number in a client's own message.
    """

    sums: dict
    weight: np.ndarray
    loss: np.ndarray
    itemsize: np.ndarray

    def __add__(self, other):
        if not self.weight or not other.weight:
            return self if self.weight else other
        mine, theirs = self.sums, other.sums
        sums = {name: mine[name] + theirs[name] for name in mine}
        weight, loss = self.weight + other.weight, self.loss + other.loss
        return ModelUpdate(sums, weight, loss, self.itemsize)

    def grown_by(self, other):
        """The sum in the place of this one, which is used up."""
        other.add_to(self.sums)
        return replace(self, weight=self.weight + other.weight, loss=self.loss + other.loss)

    def add_to(self, sums):
        """Add what this one is the sum of to other sums, in place."""
        for name, own in self.sums.items():
            sums[name] += own

    def is_finite(self):
        """Whether all its numbers are, and so those of each client."""
        return all(np.isfinite(array).all() for array in (self.loss, *self.sums.values()))

    @property
    def nbytes(self):
        """Size of one client's message, whose numbers are in the precision of the model."""
        numbers = sum(array.size for array in self.sums.values())
        return numbers * int(self.itemsize) + self.weight.nbytes + self.loss.nbytes

    def means(self, dtype_of):
        """The weighted means, each in the dtype of the array of its name in ``dtype_of``."""
        return {
            name: _as(total / self.weight, dtype_of[name].dtype)
            for name, total in self.sums.items()
        }


def _as(array, dtype):
    return (np.rint(array) if np.issubdtype(dtype, np.integer) else array).astype(dtype)


@dataclass(frozen=True)
class ClientModel(ClientUpdate):
    """What one client sends up: its numbers as they are.

    Attributes
    ----------
    parameters : dict of ndarray
        In the precision of the model, by name.
    weight : ndarray of shape ()
        What the client counts.
    loss : ndarray of shape (2,)
        Sum of the losses of its rows, and how many rows there are.
    """

    parameters: dict
    weight: np.ndarray
    loss: np.ndarray

    def __add__(self, other):
        return self.summed + other

    @property
    def sums(self):
        """Parameters times the weight, float64, by name."""
        return {name: self.weight * array.astype(float) for name, array in self.parameters.items()}

    def add_to(self, sums):
        """Add the weighted parameters to sums, in place."""
        for name, own in self.parameters.items():
            sums[name] += np.float64(self.weight) * own

    @property
    def itemsize(self):
        """Bytes of a number in the precision of the model."""
        floats = (a.itemsize for a in self.parameters.values() if a.dtype.kind == "f")
        return np.asarray(next(floats))

    @property
    def summed(self):
        """The sum over this client alone."""
        return ModelUpdate(self.sums, self.weight, self.loss, self.itemsize)

    def is_finite(self):
        """Whether all its numbers are."""
        arrays = (self.loss, *self.parameters.values())
        return all(np.isfinite(array).all() for array in arrays)

    def means(self, dtype_of):
        """As those of the sum."""
        return self.summed.means(dtype_of)

    def check(self, expected, eps):
        """Check shapes, and that weight, rows and losses can be some client's."""
        self.check_like(expected)
        n_rows = float(self.loss[1])
        if n_rows < 1 or n_rows != round(n_rows) or float(self.weight) not in (1.0, n_rows):
            raise ValueError(
                f"a weight of {float(self.weight):g} and {n_rows:g} rows are not those of a client"
            )
