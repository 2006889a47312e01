"""Tuning in a few rounds: statistics up, scores of rows that are held out up, the best down."""

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np

from ..core import RidgeStatistics, Rotation
from ..protocol import Broadcast, ClientUpdate, Empty
from ..utils._ids import concatenate_ids, lookup_ids
from ._method import ClosedFormMethod

TIE = 1e-12
_LARGER_IS_SIMPLER = {"beta": True, "gamma": True, "alpha": False, "lam": False}


@dataclass(frozen=True)
class SearchUpdate(ClientUpdate):
    """Statistics of all rows, and of those that each fold does not train on."""

    total: RidgeStatistics
    held: tuple

    def __add__(self, other):
        held = tuple(a + b for a, b in zip(self.held, other.held, strict=True))
        return SearchUpdate(self.total + other.total, held)


@dataclass(frozen=True)
class SearchSums(Broadcast):
    """Statistics of the federation, and of the training rows of each fold."""

    total: RidgeStatistics
    folds: tuple

    @cached_property
    def rotations(self):
        """Eigenbases of the folds, or of all rows where rows are left out one by one."""
        return [Rotation.from_statistics(each) for each in self.folds or (self.total,)]


@dataclass(frozen=True)
class ScoreUpdate(ClientUpdate):
    """Clients' mean scores, summed over clients; never rows.

    Attributes
    ----------
    scores : ndarray of shape (s, ..., masks, t)
        Of each split and grid point, times the client's weight.
    squares : ndarray of the same shape
        Of the means.
    weights : ndarray of shape (s,)
        Sum of the clients' weights.
    own : ndarray of shape (..., masks, t)
        Scores at each client's own best value of the free axis, 0 where there is none, times its
        weight.
    own_weight : ndarray of shape ()
        Sum of these weights.
    """

    scores: np.ndarray
    squares: np.ndarray
    weights: np.ndarray
    own: np.ndarray
    own_weight: np.ndarray

    def __add__(self, other):
        pairs = zip(self.arrays().items(), other.arrays().values(), strict=True)
        return ScoreUpdate(**{name: mine + theirs for (name, mine), theirs in pairs})


@dataclass(frozen=True)
class Choice(Broadcast):
    """The best grid point.

    Attributes
    ----------
    index : ndarray of shape (number of axes,)
        Its position on each axis.
    mask : ndarray of shape ()
        Position of the best restriction to own classes.
    temperature : ndarray of shape ()
        Position of the best temperature, for the log-loss.
    """

    index: np.ndarray
    mask: np.ndarray
    temperature: np.ndarray


@dataclass(frozen=True)
class GridSearch(ClosedFormMethod):
    """Scores held-out rows for every grid point and takes the best.

    Attributes
    ----------
    axes : tuple of (str, tuple or None)
        Parameters in the order of the tables and their values; None for a default that the
        statistics suggest.
    scoring : {"accuracy", "neg_log_loss", "neg_mean_squared_error"}
    average : {"macro", "weighted"}
        Whether clients count equally or by their rows.
    masks : tuple of bool
        Restrictions to own classes to try.
    folds : tuple of (ndarray, ndarray)
        Training and test masks over the rows of X; without any, rows are left out one by one.
    free : int or None
        The axis of which each client takes its own best value.
    keep_tables : bool
        Whether ``personalize`` returns every client's scores.
    """

    axes: tuple = ()
    scoring: str = "accuracy"
    average: str = "macro"
    masks: tuple = (False,)
    folds: tuple = ()
    free: int | None = None
    keep_tables: bool = False
    n_rounds = 2

    @property
    def keeps(self):
        """Whether clients keep their scores, for themselves or for the caller."""
        return self.keep_tables or self.free is not None

    def default_axis(self, name, statistics):
        """Values of an axis that was not given."""
        raise NotImplementedError

    def tables(self, block, rotation, mean, grid, held_out=None):
        """Sums of scores (K, ..., masks, t): rows of ``block`` left out, or of ``held_out``."""
        raise NotImplementedError

    def grid(self, statistics):
        """Values of all axes, ascending."""
        return [
            np.unique(self.default_axis(name, statistics) if values is None else values)
            for name, values in self.axes
        ]

    def client_update(self, block, broadcast, state):
        """Statistics; in the second round, mean scores."""
        if isinstance(broadcast, Empty):
            held = (block.select(~train[block.positions]) for train, _ in self.folds)
            held = tuple(self.statistics_update(each).statistics for each in held)
            return SearchUpdate(self.statistics_update(block).statistics, held), state
        means, weights = self._client_means(block, broadcast)
        weighted = _beside(weights, means)
        own, own_weight = np.zeros(1), weights.max(axis=0)
        if self.free is not None:
            best = _over_splits(means, weights).max(axis=1 + self.free)
            own = (best * _beside(own_weight, best)).sum(axis=0)
        update = ScoreUpdate(
            scores=(means * weighted).sum(axis=1),
            squares=(means**2 * weighted).sum(axis=1),
            weights=weights.sum(axis=1),
            own=own,
            own_weight=own_weight.sum(),
        )
        return update, (block.client_ids, means, weights) if self.keeps else ()

    def _client_means(self, block, sums):
        """Mean scores (s, K, ..., masks, t) of each split and client, and weights (s, K)."""
        grid = self.grid(sums.total)
        if not self.folds:
            (rotation,) = sums.rotations
            tables = [self.tables(block, rotation, sums.total.mean, grid)]
            totals = [block.sample_weight_sums]
        else:
            tables, totals = [], []
            for (train, test), rotation, fold in zip(
                self.folds, sums.rotations, sums.folds, strict=True
            ):
                seen, unseen = (block.select(mask[block.positions]) for mask in (train, test))
                tables.append(self.tables(seen, rotation, fold.mean, grid, held_out=unseen))
                totals.append(unseen.sample_weight_sums)
        tables, totals = np.stack(tables), np.stack(totals)
        means = tables / _beside(np.where(totals > 0, totals, 1.0), tables)
        return means, (totals if self.average == "weighted" else (totals > 0).astype(float))

    def aggregate(self, updates, broadcast, server_state):
        """The sums; in the second round the best grid point."""
        total = reduce(add, updates)
        if isinstance(total, SearchUpdate):
            folds = tuple(total.total - held for held in total.held)
            sums = SearchSums(total.total, folds)
            sums.rotations  # noqa: B018 - found here, before jobs would each find them
            return sums, sums
        surface = split_scores(total).mean(axis=0)
        grid = self.grid(server_state.total)
        if self.free is None:
            return self._choose(surface, grid), total
        own = np.expand_dims(total.own / total.own_weight, self.free)
        choice = self._choose(own, grid)
        # Newcomers have no value of their own: they take what is best for all.
        at = [*choice.index, choice.mask, choice.temperature]
        at[self.free] = slice(None)
        index = choice.index.copy()
        index[self.free] = np.argmax(surface[tuple(at)] >= surface[tuple(at)].max() - TIE)
        return Choice(index, choice.mask, choice.temperature), total

    def _choose(self, surface, grid):
        """Best point of a surface (..., masks, t); among equals the simplest."""
        points = np.argwhere(surface >= surface.max() - TIE)
        keys = [points[:, -1]]
        for axis, (name, _) in enumerate(self.axes):
            values = grid[axis][points[:, axis]]
            keys.append(-values if _LARGER_IS_SIMPLER[name] else values)
        keys.append(points[:, -2])  # the last key counts first: no mask before any penalty
        best = points[np.lexsort(keys)[0]]
        return Choice(best[:-2], best[-2], best[-1])

    def personalize(self, block, broadcast, state):
        """What the block's clients take of the free axis, and their scores where kept."""
        if not state:
            return ClientChoices()
        client_ids, *scores = state
        means = _over_splits(*scores)[..., int(broadcast.mask), int(broadcast.temperature)]
        own = None
        if self.free is not None:
            at = [slice(None), *broadcast.index]
            at[1 + self.free] = slice(None)
            scores = means[tuple(at)]
            own = np.argmax(scores >= scores.max(axis=1, keepdims=True) - TIE, axis=1)
        return ClientChoices(client_ids, own, means)


@dataclass(frozen=True)
class ClientChoices:
    """What clients know after the search and keep to themselves.

    Attributes
    ----------
    client_ids : ndarray of shape (K,) or None
    own : ndarray of shape (K,) or None
        Position of each client's own value on the free axis.
    scores : ndarray of shape (K, ...) or None
        Each client's mean score at every grid point.
    """

    client_ids: np.ndarray | None = None
    own: np.ndarray | None = None
    scores: np.ndarray | None = None

    @classmethod
    def merge(cls, choices, clients):
        """What all ``clients`` know, in their order, from the blocks' choices in any."""
        ids = concatenate_ids(each.client_ids for each in choices)
        order = np.argsort(lookup_ids(clients, ids))
        scores = np.concatenate([each.scores for each in choices])[order]
        if choices[0].own is None:
            return cls(clients, None, scores)
        return cls(clients, np.concatenate([each.own for each in choices])[order], scores)


def split_scores(total):
    """Mean scores over clients (s, ..., masks, t) of a ScoreUpdate of them all."""
    return total.scores / _beside(np.maximum(total.weights, np.finfo(float).tiny), total.scores)


def _over_splits(means, weights):
    """Each client's mean (K, ...) over the splits in which it has rows."""
    present = _beside(weights > 0, means)
    return (means * present).sum(axis=0) / np.maximum(present.sum(axis=0), 1)


def _beside(array, other):
    """``array`` with trailing axes, so that it broadcasts over the leading axes of ``other``."""
    return array.reshape(*array.shape, *[1] * (other.ndim - array.ndim))
