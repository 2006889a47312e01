"""Rows of clients as the caller holds them, cut into units of work."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ._design import DesignBlock, offsets_of, ragged_arange
from ._sized import Sized

BLOCK_BYTES = 2**24
"""Gathered float64 rows that one unit of work holds at a time (16 MB)."""


def rows_per_block(width):
    """How many float64 rows of ``width`` numbers make one unit of work."""
    return max(1, BLOCK_BYTES // (8 * max(1, width)))


@dataclass(frozen=True)
class ClientBlock(Sized):
    """Rows of one or more clients, ordered so that each client is one contiguous run.

    The caller's ``X`` is shared and never copied as a whole: ``rows`` says which of its rows, in
    which order, belong to the block, and :meth:`features` gathers them when they are needed.

    Attributes
    ----------
    X : ndarray of shape (N, m)
        All feature rows of the caller.
    rows : slice or ndarray of shape (n,)
        The block's rows of ``X``.
    y : ndarray of shape (n,)
        Class codes 0..d-1, in block order.
    sample_weight : ndarray of shape (n,) or None
        Positive weights, in block order; None means all ones.
    client_ids : ndarray of shape (K,)
        One id a client.
    offsets : ndarray of shape (K + 1,)
        Client k owns the block rows ``offsets[k]:offsets[k + 1]``.
    n_classes : int
        d, the size of the global class set.
    class_factor : ndarray of shape (d,), default=None
        What the weights of each class are multiplied by in fitting.
    whole : ndarray of shape (K, d), default=None
        Class weights of all rows of the clients, where the block is a piece of them.
    origin : ndarray of shape (N,), default=None
        Positions that the rows of X had in the array that they were taken out of.
    """

    X: np.ndarray
    rows: slice | np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None
    client_ids: np.ndarray
    offsets: np.ndarray
    n_classes: int
    class_factor: np.ndarray | None = None
    whole: np.ndarray | None = None
    origin: np.ndarray | None = None

    @classmethod
    def from_arrays(
        cls, X, y, client_codes, client_ids, n_classes, sample_weight=None, class_factor=None
    ):
        """Order rows by client with one stable sort.

        Parameters
        ----------
        X : ndarray of shape (N, m)
        y : ndarray of shape (N,)
            Class codes.
        client_codes : ndarray of shape (N,)
            Index into ``client_ids``, row by row.
        client_ids : ndarray of shape (K,)
        n_classes : int
        sample_weight : ndarray of shape (N,), default=None
            Rows of weight 0 are left out, and so are clients that have no other rows.
        class_factor : ndarray of shape (d,), default=None
            Likewise for classes of factor 0.
        """
        kept = np.arange(len(X)) if sample_weight is None else np.flatnonzero(sample_weight)
        if class_factor is not None:
            kept = kept[class_factor[y[kept]] > 0]
        order = kept[np.argsort(client_codes[kept], kind="stable")]
        counts = np.bincount(client_codes[order], minlength=len(client_ids))
        present = counts > 0
        in_order = len(order) == len(X) and bool(np.all(order[1:] > order[:-1]))
        return cls(
            X=X,
            rows=slice(0, len(X)) if in_order else order,
            y=y[order],
            sample_weight=None if sample_weight is None else sample_weight[order],
            client_ids=client_ids[present],
            offsets=offsets_of(counts[present]),
            n_classes=n_classes,
            class_factor=class_factor,
        )

    @property
    def n_rows(self):
        return int(self.offsets[-1])

    @property
    def counts(self):
        """Rows of each client, shape (K,)."""
        return np.diff(self.offsets)

    def features(self):
        """Gather the rows, shape (n, m); a view where they lie in order already."""
        return self.X[self.rows]

    @property
    def weights(self):
        """What each row weighs in fitting, shape (n,), or None for all ones."""
        if self.class_factor is None:
            return self.sample_weight
        factor = self.class_factor[self.y]
        return factor if self.sample_weight is None else factor * self.sample_weight

    @property
    def class_weights(self):
        """Sum of weights per client and class, shape (K, d)."""
        n_clients, d = len(self.client_ids), self.n_classes
        cell = np.repeat(np.arange(n_clients), self.counts) * d + self.y
        weights = np.bincount(cell, self.weights, n_clients * d)
        return weights.astype(float).reshape(n_clients, d)

    @property
    def sample_weight_sums(self):
        """Sum of weights per client before class factors, shape (K,)."""
        if self.sample_weight is None:
            return self.counts.astype(float)
        return np.bincount(
            np.repeat(np.arange(len(self.client_ids)), self.counts),
            self.sample_weight,
            len(self.client_ids),
        )

    def cut(self, max_rows):
        """Cut into blocks of whole clients, ``max_rows`` rows or one client at most."""
        starts = _cut_points(self.offsets, max_rows)
        return [self._clients(i, j) for i, j in itertools.pairwise(starts)]

    def cut_clients(self, n_clients):
        """Cut into blocks of ``n_clients`` clients, the last one maybe of fewer."""
        n = len(self.client_ids)
        return [self._clients(i, min(i + n_clients, n)) for i in range(0, n, n_clients)]

    def pieces(self, max_rows):
        """Cut a block whose rows are too many to gather at once; a client may span pieces."""
        if self.n_rows <= max_rows:
            return [self]
        starts = range(0, self.n_rows, max_rows)
        pieces = (self._rows(start, min(start + max_rows, self.n_rows)) for start in starts)
        whole = self.class_weights if self.whole is None else self.whole
        return [replace(piece, whole=whole) for piece in pieces]

    @property
    def row_index(self):
        """The block's rows as positions in X, shape (n,)."""
        if isinstance(self.rows, slice):
            return np.arange(self.rows.start, self.rows.stop)
        return self.rows

    @property
    def positions(self):
        """The block's rows as positions in the caller's own array, shape (n,)."""
        return self.row_index if self.origin is None else self.origin[self.row_index]

    def detached(self):
        """The block with an X of its own rows alone."""
        if isinstance(self.rows, slice) and self.n_rows == len(self.X):
            return self
        rows = slice(0, self.n_rows)
        return replace(self, X=self.features(), rows=rows, origin=self.positions)

    def __getstate__(self):
        return vars(self.detached())  # other processes get the block's rows, not all of X

    def clients(self, index):
        """The block of the clients at ``index``, in that order."""
        if np.array_equal(index, np.arange(len(self.client_ids))):
            return self
        counts = self.counts[index]
        block = self._chosen(ragged_arange(self.offsets[:-1][index], counts))
        offsets = offsets_of(counts)
        return replace(block, client_ids=self.client_ids[index], offsets=offsets)

    def select(self, mask):
        """The rows of the block where ``mask`` (n,) is true; clients may be left without any."""
        offsets = offsets_of(mask)[self.offsets]
        return replace(self._chosen(np.flatnonzero(mask)), offsets=offsets)

    def _chosen(self, chosen):
        weight = None if self.sample_weight is None else self.sample_weight[chosen]
        return replace(self, rows=self.row_index[chosen], y=self.y[chosen], sample_weight=weight)

    def _clients(self, first, last):
        block = self._rows(self.offsets[first], self.offsets[last])
        offsets = self.offsets[first : last + 1] - self.offsets[first]
        return replace(block, client_ids=self.client_ids[first:last], offsets=offsets)

    def _rows(self, start, stop):
        start, stop = int(start), int(stop)
        rows: slice | np.ndarray
        if isinstance(self.rows, slice):
            rows = slice(self.rows.start + start, self.rows.start + stop)
        else:
            rows = self.rows[start:stop]
        weight = None if self.sample_weight is None else self.sample_weight[start:stop]
        offsets = np.clip(self.offsets, start, stop) - start
        return replace(self, rows=rows, y=self.y[start:stop], sample_weight=weight, offsets=offsets)

    def design(self, *, fit_intercept=False, feature_map=None):
        """The block's rows and targets as one weighted least-squares problem (a DesignBlock).

        Each row is multiplied by the root of its weight; with an intercept, a first column holds
        these roots. ``feature_map`` maps (n, m) float64 rows to the features that are fitted.
        """
        features = self.features()
        if feature_map is not None:
            features = feature_map(features)
        n, width = features.shape
        root = None if self.weights is None else np.sqrt(self.weights)
        rows = np.empty((n, width + fit_intercept))
        rows[:, int(fit_intercept) :] = features
        if fit_intercept:
            rows[:, 0] = 1.0
        if root is not None:
            rows *= root[:, None]
        values = np.ones(n) if root is None else root
        targets = sparse.csr_array((values, self.y, np.arange(n + 1)), shape=(n, self.n_classes))
        return DesignBlock(
            rows,
            targets,
            self.class_weights,
            self.client_ids,
            self.offsets,
            codes=self.y,
            root=values,
            drop=_dropped(self.sample_weight),
            sample_weight=self.sample_weight,
            whole=self.whole,
        )


def _dropped(sample_weight):
    return None if sample_weight is None else np.minimum(sample_weight, 1.0) / sample_weight


def _cut_points(offsets, max_rows):
    """Client indices at which to cut, so that blocks have at most max_rows rows where they can."""
    points = [0]
    while points[-1] < len(offsets) - 1:
        limit = offsets[points[-1]] + max_rows
        points.append(max(points[-1] + 1, int(np.searchsorted(offsets, limit, side="right")) - 1))
    return points
