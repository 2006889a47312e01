"""Rows of clients ready for least squares: weighted, with an intercept's column, or compressed."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from ..utils._ids import concatenate_ids
from ._sized import Sized


@dataclass(frozen=True)
class DesignBlock(Sized):
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
    scale : ndarray of shape (K,), default=None
        Norm of each client's rows before they were centered: what rounding is measured by.
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
    scale: np.ndarray | None = None

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
        codes = np.asarray(self.codes)[:, None]
        return (codes == np.arange(self.targets.shape[1])).astype(float)

    def dense_targets(self):
        """Targets as an ndarray of shape (n, d)."""
        targets = self.targets
        return targets if isinstance(targets, np.ndarray) else targets.toarray()

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
        offsets = offsets_of(counts)
        labels = {name: getattr(self, name) for name in _NO_ROW_LABELS}
        return DesignBlock(
            self.rows[chosen],
            self.targets[chosen],
            self.class_weights[index],
            self.client_ids[index],
            offsets,
            **{name: None if each is None else each[chosen] for name, each in labels.items()},
            scale=None if self.scale is None else self.scale[index],
        )

    def unlabelled(self):
        """The block with dense targets and without what only leaving rows out takes."""
        return replace(self, targets=self.dense_targets(), whole=None, **_NO_ROW_LABELS)

    def stacked(self, other):
        """More rows of the one client of this block."""
        return replace(
            self,
            rows=np.concatenate([self.rows, other.rows]),
            targets=np.concatenate([self.dense_targets(), other.dense_targets()]),
            class_weights=self.class_weights + other.class_weights,
            offsets=np.array([0, self.n_rows + other.n_rows]),
            **_NO_ROW_LABELS,
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
            **_NO_ROW_LABELS,
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
            offsets_of(counts),
        )


_NO_ROW_LABELS: dict[str, Any] = {"codes": None, "root": None, "drop": None, "sample_weight": None}


def compress(rows: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
    root: Any = np.linalg.qr(np.hstack([rows, targets]), mode="r")  # numpy types this as a pair
    return np.ascontiguousarray(root[:p, :p]), np.ascontiguousarray(root[:p, p:])


def offsets_of(counts):
    """Where runs of these lengths begin, and where the last ends: (K + 1,)."""
    return np.concatenate([[0], np.cumsum(counts)])


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
