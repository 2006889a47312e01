"""Rows of clients: as the caller holds them, and ready for least squares."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ..utils._ids import concatenate_ids

BLOCK_BYTES = 2**24
"""Gathered float64 rows that one unit of work holds at a time (16 MB)."""


def rows_per_block(width):
    """How many float64 rows of ``width`` numbers make one unit of work."""
    return max(1, BLOCK_BYTES // (8 * max(1, width)))


@dataclass(frozen=True)
class ClientBlock:
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
    """

    X: np.ndarray
    rows: slice | np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None
    client_ids: np.ndarray
    offsets: np.ndarray
    n_classes: int

    @classmethod
    def from_arrays(cls, X, y, client_codes, client_ids, n_classes, sample_weight=None):
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
        """
        if sample_weight is not None:
            kept = np.flatnonzero(sample_weight)
            order = kept[np.argsort(client_codes[kept], kind="stable")]
        else:
            order = np.argsort(client_codes, kind="stable")
        counts = np.bincount(client_codes[order], minlength=len(client_ids))
        present = counts > 0
        in_order = len(order) == len(X) and bool(np.all(order[1:] > order[:-1]))
        return cls(
            X=X,
            rows=slice(0, len(X)) if in_order else order,
            y=y[order],
            sample_weight=None if sample_weight is None else sample_weight[order],
            client_ids=client_ids[present],
            offsets=np.concatenate([[0], np.cumsum(counts[present])]),
            n_classes=n_classes,
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
    def class_weights(self):
        """Sum of weights per client and class, shape (K, d)."""
        n_clients, d = len(self.client_ids), self.n_classes
        cell = np.repeat(np.arange(n_clients), self.counts) * d + self.y
        weights = np.bincount(cell, self.sample_weight, n_clients * d)
        return weights.astype(float).reshape(n_clients, d)

    def cut(self, max_rows):
        """Cut into blocks of whole clients, ``max_rows`` rows or one client at most."""
        starts = _cut_points(self.offsets, max_rows)
        return [self._clients(i, j) for i, j in itertools.pairwise(starts)]

    def pieces(self, max_rows):
        """Cut a block whose rows are too many to gather at once; a client may span pieces."""
        if self.n_rows <= max_rows:
            return [self]
        starts = range(0, self.n_rows, max_rows)
        return [self._rows(start, min(start + max_rows, self.n_rows)) for start in starts]

    def _clients(self, first, last):
        block = self._rows(self.offsets[first], self.offsets[last])
        offsets = self.offsets[first : last + 1] - self.offsets[first]
        return replace(block, client_ids=self.client_ids[first:last], offsets=offsets)

    def _rows(self, start, stop):
        start, stop = int(start), int(stop)
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
        root = None if self.sample_weight is None else np.sqrt(self.sample_weight)
        rows = np.empty((n, width + fit_intercept))
        rows[:, int(fit_intercept) :] = features
        if fit_intercept:
            rows[:, 0] = 1.0
        if root is not None:
            rows *= root[:, None]
        values = np.ones(n) if root is None else root
        targets = sparse.csr_array((values, self.y, np.arange(n + 1)), shape=(n, self.n_classes))
        return DesignBlock(rows, targets, self.class_weights, self.client_ids, self.offsets)


@dataclass(frozen=True)
class DesignBlock:
    """Weighted least-squares rows of one or more clients, each a contiguous run.

    Either the rows themselves or, where a client has more rows than columns, the root of its Gram
    matrix: any (rows, targets) with the same rowsᵀrows and rowsᵀtargets gives the same models.

    Attributes
    ----------
    rows : ndarray of shape (n, p)
        √w·[1 | f], float64; without an intercept √w·f.
    targets : csr_array or ndarray of shape (n, d)
        √w·y, y one-hot.
    class_weights : ndarray of shape (K, d)
        Sum of weights per client and class.
    client_ids : ndarray of shape (K,)
    offsets : ndarray of shape (K + 1,)
    """

    rows: np.ndarray
    targets: np.ndarray | sparse.csr_array
    class_weights: np.ndarray
    client_ids: np.ndarray
    offsets: np.ndarray

    @property
    def n_rows(self):
        return int(self.offsets[-1])

    @property
    def counts(self):
        """Rows of each client, shape (K,)."""
        return np.diff(self.offsets)

    def dense_targets(self):
        """Targets as an ndarray of shape (n, d)."""
        return self.targets.toarray() if sparse.issparse(self.targets) else self.targets

    def residuals(self, coef):
        """What ``coef``, shape (d, p), leaves unexplained: targets - rows coefᵀ, shape (n, d)."""
        return self.targets - self.rows @ coef.T

    def centered(self, mean):
        """Rows about ``mean``, shape (p - 1,); the intercept's column comes first and stays."""
        if mean is None:
            return self
        rows = self.rows.copy()
        rows[:, 1:] -= np.outer(rows[:, 0], mean)
        return replace(self, rows=rows)

    def clients(self, index):
        """The block of the clients at ``index`` (increasing positions)."""
        if len(index) == len(self.client_ids):
            return self
        counts = self.counts[index]
        chosen = ragged_arange(self.offsets[:-1][index], counts)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return DesignBlock(
            self.rows[chosen],
            self.targets[chosen],
            self.class_weights[index],
            self.client_ids[index],
            offsets,
        )

    def stacked(self, other):
        """More rows of the one client of this block."""
        return replace(
            self,
            rows=np.concatenate([self.rows, other.rows]),
            targets=np.concatenate([self.dense_targets(), other.dense_targets()]),
            class_weights=self.class_weights + other.class_weights,
            offsets=np.array([0, self.n_rows + other.n_rows]),
        )

    def compressed(self):
        """The block with at most as many rows a client as there are columns."""
        if not len(self.counts) or self.counts.max() <= self.rows.shape[1]:
            return self
        targets = self.dense_targets()
        parts = [
            compress(self.rows[start:stop], targets[start:stop])
            for start, stop in itertools.pairwise(self.offsets)
        ]
        return replace(
            self,
            rows=np.concatenate([rows for rows, _ in parts]),
            targets=np.concatenate([own for _, own in parts]),
            offsets=np.cumsum([0, *(len(rows) for rows, _ in parts)]),
        )

    @classmethod
    def concatenate(cls, blocks):
        """One block of the clients of several."""
        blocks = list(blocks)
        if len(blocks) == 1:
            return blocks[0]
        counts = np.concatenate([block.counts for block in blocks])
        return cls(
            np.concatenate([block.rows for block in blocks]),
            np.concatenate([block.dense_targets() for block in blocks]),
            np.concatenate([block.class_weights for block in blocks]),
            concatenate_ids(block.client_ids for block in blocks),
            np.concatenate([[0], np.cumsum(counts)]),
        )


def compress(rows, targets):
    """Fewer rows with the same rowsᵀrows and rowsᵀtargets: the root of the Gram matrix.

    Parameters
    ----------
    rows : ndarray of shape (n, p)
    targets : ndarray of shape (n, d)

    Returns
    -------
    rows : ndarray of shape (min(n, p), p)
        R of rows = QR, or the rows themselves where they are few.
    targets : ndarray of shape (min(n, p), d)
        Qᵀtargets.

    Notes
    -----
    A column of ones, where there is one, must come first: R then holds the mean in its first row
    and the root of the centred Gram matrix below, so nothing is lost at large offsets.
    """
    n, p = rows.shape
    if n <= p:
        return rows, targets
    root = np.linalg.qr(np.hstack([rows, targets]), mode="r")[:p]
    return np.ascontiguousarray(root[:, :p]), np.ascontiguousarray(root[:, p:])


def ragged_arange(starts, counts):
    """Concatenate ``arange(start, start + count)`` of all pairs, without a loop.

    >>> ragged_arange(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)


def group_rows(codes, n_groups):
    """Positions of the rows of each group: (order, offsets) with one stable sort."""
    order = np.argsort(codes, kind="stable")
    return order, np.searchsorted(codes[order], np.arange(n_groups + 1))


def _cut_points(offsets, max_rows):
    """Client indices at which to cut, so that blocks have at most max_rows rows where they can."""
    points = [0]
    while points[-1] < len(offsets) - 1:
        limit = offsets[points[-1]] + max_rows
        points.append(max(points[-1] + 1, int(np.searchsorted(offsets, limit, side="right")) - 1))
    return points
