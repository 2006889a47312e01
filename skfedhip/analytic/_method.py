"""What all closed-form methods share: their messages, and how a block becomes least squares."""

from dataclasses import dataclass, fields
from functools import cached_property, reduce
from operator import add

import numpy as np

from ..core import (
    ClientBlock,
    DesignBlock,
    PersonalModels,
    RidgeFactor,
    RidgeStatistics,
    best_temperature,
    classes_left,
    complement,
    left_out,
    ridge_root,
    rows_per_block,
    scores_from_errors,
    shift_origin,
    temperature_losses,
)
from ..privacy import GaussianMechanism
from ..protocol import Broadcast, ClientUpdate, Empty
from ..utils._threads import single_blas_thread
from ._private import private_sums, private_update
from ._updates import FactorUpdate, RidgeUpdate


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
        return self.solve("beta")

    def solve(self, penalty_name):
        """Compute ``root``; warnings call the penalty by its name."""
        weight = None if self.mean is None else self.statistics.weight
        gram, beta = self.statistics.gram, float(self.beta)
        return ridge_root(gram, beta, weight=weight, name=penalty_name)

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
class LossUpdate(ClientUpdate):
    """Log-losses of rows that were left out, summed, at each temperature."""

    losses: np.ndarray

    def __add__(self, other):
        return LossUpdate(self.losses + other.losses)

    def check(self, expected, eps):
        """Check the shape, and that these are losses."""
        self.check_like(expected)
        if (self.losses < 0).any():
            raise ValueError("a log-loss is negative")


@dataclass(frozen=True)
class Temperature(Broadcast):
    """What scores are divided by before the softmax."""

    temperature: np.ndarray


@dataclass(frozen=True)
class ClosedFormMethod:
    """Statistics up, their sum down; then losses up, and the softmax's temperature down.

    A block is a ClientBlock, or the DesignBlock that a client kept of its rows; leaving rows out
    takes rows, so a method that runs on the latter does not calibrate.

    Attributes
    ----------
    fit_intercept : bool
    local_classes_only : bool
    calibrate : bool
        Whether to spend the second round on the temperature.
    privacy : GaussianMechanism or None
        What protects the statistics; then there must be no second round.
    """

    fit_intercept: bool = False
    local_classes_only: bool = False
    calibrate: bool = True
    privacy: GaussianMechanism | None = None

    @property
    def n_rounds(self):
        """Two, or one without calibration."""
        return 1 + self.calibrate

    @property
    def revisable(self):
        """Whether sums may be told again after a client has come or gone.

        A server that adds the noise would add it anew, and tell the same rows twice.
        """
        return self.privacy is None or self.privacy.where == "client"

    def initialize(self, schema):
        """Nothing to say: the first message of a closed form goes up."""
        return Empty()

    def client_update(self, block, broadcast, state):
        """Statistics of the block's rows; in the second round losses, and models to keep."""
        if isinstance(broadcast, Empty):
            return self.smallest_update(block), state
        models, losses = self.solve(block, broadcast)
        return LossUpdate(losses), models

    def smallest_update(self, block):
        """Statistics of the block's rows; those of one client in the smaller form."""
        if self.privacy is not None:
            return private_update(self, block)
        if len(block.client_ids) > 1 or self.is_large(block):
            return self.statistics_update(block)
        design = self.shared_design(block)
        intercept = self.fit_intercept
        if design.n_rows < design.rows.shape[1] - intercept:
            return FactorUpdate(RidgeFactor.from_design(design, fit_intercept=intercept))
        return RidgeUpdate(RidgeStatistics.from_design(design, fit_intercept=intercept))

    def statistics_update(self, block):
        """Statistics of the block's rows."""
        parts = (
            RidgeStatistics.from_design(design, fit_intercept=self.fit_intercept)
            for design in self.designs(block, self.shared_design)
        )
        return RidgeUpdate(reduce(add, parts))

    def aggregate(self, updates, broadcast, server_state):
        """The sum of all statistics; in the second round the best temperature."""
        total = reduce(add, updates)
        if isinstance(total, LossUpdate):
            return Temperature(np.asarray(best_temperature(total.losses))), server_state
        if self.privacy is not None:
            return self.solved_sums(private_sums(self, total)), total
        return self.solved_sums(total.statistics), total

    def solved_sums(self, statistics):
        """The message down that is made of the sums, with the global model solved."""
        sums = RidgeSum(statistics, np.asarray(self.global_penalty, dtype=float))
        with single_blas_thread():  # scipy's BLAS would wait for numpy's idle threads
            # Here, before jobs would each find them: the values of the cached properties.
            vars(sums)["root"] = sums.solve(self.penalty_name)
            sums.coef  # noqa: B018
        return sums

    def personalize(self, block, broadcast, state):
        """Personal models of the block's clients, solved now unless an earlier round has."""
        return self.solve(block, broadcast)[0] if state is None else state

    penalty_name = "beta"

    @property
    def global_penalty(self):
        """Penalty of the global ridge."""
        return self.beta

    def solve(self, block, broadcast):
        """Personal models of a block's clients, and the losses of their rows left out."""
        parts = [block]
        if isinstance(block, ClientBlock) and len(block.client_ids) > 1:
            parts = block.cut(self.max_rows(block))
        return PersonalModels.merge_solved([self.solve_block(part, broadcast) for part in parts])

    def solve_block(self, block, broadcast):
        """:meth:`solve` for one client, or several whose rows can be held at once."""
        raise NotImplementedError

    def solve_globally(self, block, broadcast):
        """The global model for every client."""
        base = shift_origin(broadcast.coef.copy(), broadcast.mean)
        losses = 0.0
        if self.calibrate:
            for design in self.designs(block, self.shared_design):
                centered = design.centered(broadcast.mean)
                leverage = broadcast.root.leverage(centered.rows)
                left = complement(leverage)
                losses += self.losses(design, centered.residuals(broadcast.coef), left)
        return PersonalModels.shared(base, block), losses

    def leaves_out(self, broadcast):
        """Whether the answer to a message holds losses of rows left out."""
        return self.calibrate and not isinstance(broadcast, Empty)

    def client_solution(self, design, broadcast):
        """What leaving rows out of a client takes, where they lie in several places.

        Parameters
        ----------
        design : DesignBlock
            Of one client: all its rows, or the root of their Gram matrix.
        broadcast : Broadcast

        Returns
        -------
        object
            For :meth:`losses_apart`, which is called where the rows are.
        """

    def losses_apart(self, piece, solution, broadcast):
        """Losses (26,) of a piece of a client, a ClientBlock that knows its ``whole``."""
        return self.solve_globally(piece, broadcast)[1]

    def update_apart(self, losses):
        """What the losses of pieces of clients add to the clients' update."""
        return LossUpdate(losses)

    def losses(self, design, residuals, left):
        """Losses (26,) of a DesignBlock's rows left out; 0.0 without calibration.

        Parameters
        ----------
        design : DesignBlock
        residuals : ndarray of shape (n, d)
            Weighted residuals of the personal models; overwritten.
        left : ndarray of shape (n,)
            1 - leverage of whole rows, of which ``design.drop`` is left out.
        """
        return self.losses_of_errors(design, left_out(residuals, left, design.drop))

    def losses_of_errors(self, design, errors):
        """Losses (26,) from the weighted errors (n, d) of rows left out."""
        scores = scores_from_errors(errors / design.root[:, None], design.one_hot)
        if self.local_classes_only:
            scores[~classes_left(design)] = -np.inf
        return temperature_losses(scores, design.codes, design.sample_weight)

    def row_array(self, design):
        """An array for a number a row of a DesignBlock, or None where none is asked for."""
        return np.empty(len(design.rows)) if self.calibrate else None

    def design_width(self, n_features):
        """Columns of a design row made of ``n_features`` features."""
        return n_features + self.fit_intercept

    def to_json(self):
        """The fields but privacy, as keywords that :func:`dataclasses.replace` takes."""
        names = [field.name for field in fields(self) if field.name != "privacy"]
        return {name: getattr(self, name) for name in names}

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
        return (design(piece) for piece in block.pieces(self.max_rows(block)))

    def is_large(self, block):
        """Whether a block's rows are more than are held at once."""
        return isinstance(block, ClientBlock) and block.n_rows > self.max_rows(block)

    def max_rows(self, block):
        """Rows of a ClientBlock that are held at once."""
        return rows_per_block(self.design_width(block.X.shape[1]))

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
