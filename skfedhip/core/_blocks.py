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
    class_factor : ndarray of shape (d,), default=None
        What the weights of each class are multiplied by in fitting.
    whole : ndarray of shape (K, d), default=None
        Class weights of all rows of the clients, where the block is a piece of them.
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
            offsets=np.concatenate([[0], np.cumsum(counts[present])]),
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

    def pieces(self, max_rows):
        """Cut a block whose rows are too many to gather at once; a client may span pieces."""
        if self.n_rows <= max_rows:
            return [self]
        starts = range(0, self.n_rows, max_rows)
        pieces = (self._rows(start, min(start + max_rows, self.n_rows)) for start in starts)
        whole = self.class_weights
        return [replace(piece, whole=whole) for piece in pieces]

    @property
    def row_index(self):
        """The block's rows as positions in X, shape (n,)."""
        if isinstance(self.rows, slice):
            return np.arange(self.rows.start, self.rows.stop)
        return self.rows

    def clients(self, index):
        """The block of the clients at ``index`` (increasing positions)."""
        if len(index) == len(self.client_ids):
            return self
        counts = self.counts[index]
        block = self._chosen(ragged_arange(self.offsets[:-1][index], counts))
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return replace(block, client_ids=self.client_ids[index], offsets=offsets)

    def select(self, mask):
        """The rows of the block where ``mask`` (n,) is true; clients may be left without any."""
        offsets = np.concatenate([[0], np.cumsum(mask)])[self.offsets]
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
    whole : ndarray of shape (K, d), default=None
        Class weights of all rows of the clients, where the block is a piece of them.
    codes, root, drop, sample_weight : ndarray of shape (n,) or None
        Of rows that are rows still, not the root of a Gram matrix: class codes, √w, how much of
        the row leaving it out takes away (min(w, 1) / w before class factors), and weights before
        class factors. The last two are None where all weights are 1.
    """

    rows: np.ndarray
    targets: np.ndarray | sparse.csr_array
    class_weights: np.ndarray
    client_ids: np.ndarray
    offsets: np.ndarray
    codes: np.ndarray | None = None
    root: np.ndarray | None = None
    drop: np.ndarray | None = None
    sample_weight: np.ndarray | None = None
    whole: np.ndarray | None = None

    @property
    def n_rows(self):
        return int(self.offsets[-1])

    @property
    def counts(self):
        """Rows of each client, shape (K,)."""
        return np.diff(self.offsets)

    @property
    def one_hot(self):
        """Labels of rows that are rows still, one-hot, shape (n, d)."""
        return (self.codes[:, None] == np.arange(self.targets.shape[1])).astype(float)

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
        labels = {name: getattr(self, name) for name in _ROW_LABELS}
        return DesignBlock(
            self.rows[chosen],
            self.targets[chosen],
            self.class_weights[index],
            self.client_ids[index],
            offsets,
            **{name: None if each is None else each[chosen] for name, each in labels.items()},
        )

    def stacked(self, other):
        """More rows of the one client of this block."""
        return replace(
            self,
            rows=np.concatenate([self.rows, other.rows]),
            targets=np.concatenate([self.dense_targets(), other.dense_targets()]),
            class_weights=self.class_weights + other.class_weights,
            offsets=np.array([0, self.n_rows + other.n_rows]),
            **dict.fromkeys(_ROW_LABELS),
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
            **dict.fromkeys(_ROW_LABELS),
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


_ROW_LABELS = ("codes", "root", "drop", "sample_weight")


def _dropped(sample_weight):
    return None if sample_weight is None else np.minimum(sample_weight, 1.0) / sample_weight


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
