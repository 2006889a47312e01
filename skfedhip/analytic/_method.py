"""What all closed-form methods share: their messages, and how a block becomes least squares."""

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np

from ..core import DesignBlock, RidgeStatistics, ridge_root, rows_per_block
from ..protocol import Broadcast, ClientUpdate, Empty
from ..utils._threads import single_blas_thread


@dataclass(frozen=True)
class RidgeUpdate(ClientUpdate):
    """Statistics of clients' rows; what one client sends is what many send, added up."""

    statistics: RidgeStatistics

    def __add__(self, other):
        return RidgeUpdate(self.statistics + other.statistics)


@dataclass(frozen=True)
class RidgeSum(Broadcast):
    """The federation's statistics, from which every client solves for itself.

    Attributes
    ----------
    statistics : RidgeStatistics
    beta : ndarray of shape ()
        Penalty of the global ridge.
    """

    statistics: RidgeStatistics
    beta: np.ndarray

    @property
    def mean(self):
        """Origin of the statistics, shape (m,); None without an intercept."""
        return self.statistics.mean

    @cached_property
    def root(self):
        """Root of (A + βI)⁻¹, bordered where there is an intercept."""
        weight = None if self.mean is None else self.statistics.weight
        return ridge_root(self.statistics.gram, float(self.beta), weight=weight)

    @cached_property
    def coef(self):
        """Global model about the mean, shape (d, p)."""
        return self.root.solve(_bordered_cross(self.statistics))

    @cached_property
    def penalized_gram(self):
        """A + βI, shape (p, p), bordered where there is an intercept."""
        m, lead = self.statistics.n_features, int(self.mean is not None)
        out = np.zeros((m + lead, m + lead))
        out[lead:, lead:] = self.statistics.gram
        out[lead:, lead:] += float(self.beta) * np.eye(m)
        if lead:
            out[0, 0] = self.statistics.weight
        return out


def _bordered_cross(statistics):
    if statistics.mean is None:
        return statistics.cross
    return np.hstack([statistics.class_weights[:, None], statistics.cross])


@dataclass(frozen=True)
class GlobalModel(Broadcast):
    """A global model alone, coefficients of shape (d, p)."""

    coef: np.ndarray


@dataclass(frozen=True)
class ClosedFormMethod:
    """One round: statistics up, their sum down. A subclass says what clients make of the sum.

    A block is a ClientBlock, or the DesignBlock that a client kept of its rows.
    """

    fit_intercept: bool = False
    n_rounds = 1

    def initialize(self, schema):
        """Nothing to say: the first message of a closed form goes up."""
        return Empty()

    def client_update(self, block, broadcast, state):
        """Statistics of the block's rows."""
        parts = (
            RidgeStatistics.from_design(design, fit_intercept=self.fit_intercept)
            for design in self.designs(block, self.shared_design)
        )
        return RidgeUpdate(reduce(add, parts)), state

    def aggregate(self, updates, broadcast, server_state):
        """The sum of all statistics, factored for whoever reads it in this process."""
        total = reduce(add, updates, server_state) if server_state else reduce(add, updates)
        with single_blas_thread():  # scipy's BLAS would wait for numpy's idle threads
            return self.broadcast_sum(total.statistics), total

    def broadcast_sum(self, statistics):
        """The message down that is made of the federation's statistics."""
        raise NotImplementedError

    def design_width(self, n_features):
        """Columns of a design row made of ``n_features`` features."""
        return n_features + self.fit_intercept

    @property
    def design_key(self):
        """What the columns of a design depend on."""
        return (self.fit_intercept,)

    def design(self, block):
        """A block's rows as one DesignBlock, with all that the method fits."""
        if isinstance(block, DesignBlock):
            return block
        return block.design(fit_intercept=self.fit_intercept)

    def shared_design(self, block):
        """A block's rows as one DesignBlock, with what the shared statistics are made of."""
        return self.design(block)

    def designs(self, block, design):
        """The block as DesignBlocks of a bounded number of rows; a client may span several."""
        if isinstance(block, DesignBlock):
            return iter((design(block),))
        max_rows = rows_per_block(self.design_width(block.X.shape[1]))
        return (design(piece) for piece in block.pieces(max_rows))

    def whole_design(self, block):
        """The block as one DesignBlock; a client too large for that is compressed on the way."""
        designs = self.designs(block, self.design)
        total = next(designs)
        for design in designs:
            total = total.stacked(design).compressed()
        return total


def broadcast_from_arrays(arrays):
    """The message down that ``Broadcast.arrays`` took apart."""
    if "coef" in arrays:
        return GlobalModel(arrays["coef"])
    parts = {name.removeprefix("statistics."): array for name, array in arrays.items()}
    return RidgeSum(beta=parts.pop("beta"), statistics=RidgeStatistics(**parts))
