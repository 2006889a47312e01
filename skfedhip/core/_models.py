"""Linear models of many clients, kept in the smaller of two exact forms."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..utils._ids import concatenate_ids
from ._blocks import rows_per_block
from ._design import group_rows
from ._sized import Sized


@dataclass(frozen=True)
class DenseModels(Sized):
    """Coefficients of K clients, shape (K, d, p)."""

    coefs: np.ndarray

    def __len__(self):
        return len(self.coefs)

    def coef(self, slot):
        """One client's coefficients, shape (d, p)."""
        return self.coefs[slot]

    def scores(self, slot, rows, lead):
        """Scores (n, d) of rows (n, m) by one client's model."""
        return affine(rows, self.coefs[slot], lead)


@dataclass(frozen=True)
class FactoredModels(Sized):
    """Models of K clients as corrections to a shared one: client k adds weights_kᵀ rows_k.

    Attributes
    ----------
    base : ndarray of shape (d, p)
        The shared model that is corrected.
    rows : ndarray of shape (n, p)
    weights : ndarray of shape (n, d)
    offsets : ndarray of shape (K + 1,)
        Client k owns rows offsets[k]:offsets[k + 1]; with none, its model is the shared one.
    """

    base: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray

    def __len__(self):
        return len(self.offsets) - 1

    def coef(self, slot):
        """One client's coefficients, shape (d, p)."""
        own = slice(self.offsets[slot], self.offsets[slot + 1])
        return self.base + self.weights[own].T @ self.rows[own]

    def scores(self, slot, rows, lead):
        """Scores (n, d) of rows (n, m) by one client's model."""
        own = slice(self.offsets[slot], self.offsets[slot + 1])
        shared = affine(rows, self.base, lead)
        return shared + affine(rows, self.rows[own], lead) @ self.weights[own]


def factors_are_smaller(counts, n_classes, width):
    """Whether n rows and their weights are fewer numbers than coefficients of shape (d, p)."""
    return counts * (width + n_classes) < n_classes * width


def shift_origin(coef, mean):
    """Turn coefficients about ``mean``, shape (..., p), into ones about zero, in place."""
    if mean is not None:
        coef[..., 0] -= coef[..., 1:] @ mean
    return coef


@dataclass(frozen=True)
class PersonalModels(Sized):
    """One linear model for each of K clients, and the shared one that answers for all others.

    Attributes
    ----------
    base : ndarray of shape (d, p)
        The shared model; p counts the intercept's column, which comes first.
    client_ids : ndarray of shape (K,)
    seen : ndarray of shape (K, d), bool
        Which classes each client had.
    parts : tuple of DenseModels or FactoredModels
    part, slot : ndarray of shape (K,)
        Client k's model is number ``slot[k]`` of ``parts[part[k]]``.
    """

    base: np.ndarray
    client_ids: np.ndarray
    seen: np.ndarray
    parts: tuple
    part: np.ndarray
    slot: np.ndarray

    @classmethod
    def from_part(cls, base, design, part):
        """Models of the clients of one DesignBlock, all in one form."""
        n = len(design.client_ids)
        zeros, slots = np.zeros(n, dtype=np.intp), np.arange(n)
        return cls(base, design.client_ids, design.class_weights > 0, (part,), zeros, slots)

    @classmethod
    def shared(cls, base, design):
        """Models of the clients of one DesignBlock, all of them the shared one."""
        d, p = base.shape
        offsets = np.zeros(len(design.client_ids) + 1, dtype=np.intp)
        part = FactoredModels(base, np.empty((0, p)), np.empty((0, d)), offsets)
        return cls.from_part(base, design, part)

    @classmethod
    def merge(cls, models):
        """The models of several blocks together; no coefficients are copied."""
        models = list(models)
        first = np.cumsum([0, *(len(each.parts) for each in models)])
        return cls(
            models[0].base,
            concatenate_ids(each.client_ids for each in models),
            np.concatenate([each.seen for each in models]),
            tuple(part for each in models for part in each.parts),
            np.concatenate([each.part + at for each, at in zip(models, first, strict=False)]),
            np.concatenate([each.slot for each in models]),
        )

    @classmethod
    def by_form(cls, design, forms):
        """Models of a DesignBlock whose clients are solved in different ways.

        Parameters
        ----------
        design : DesignBlock
        forms : sequence of (mask, solve)
            Masks of shape (K,) that are true for each client once, and functions from the
            DesignBlock of these clients to their PersonalModels and losses.

        Returns
        -------
        models : PersonalModels
            In the order of the block.
        losses : ndarray or float
            Sum of the losses.
        """
        chosen = [(np.flatnonzero(mask), solve) for mask, solve in forms]
        solved = [solve(design.clients(index)) for index, solve in chosen if len(index)]
        order = np.concatenate([index for index, _ in chosen])
        models, losses = cls.merge_solved(solved)
        return models.take(np.argsort(order)), losses

    @classmethod
    def merge_solved(cls, solved):
        """Merge pairs of (PersonalModels, losses): all models, and the sum of the losses."""
        models, losses = zip(*solved, strict=True)
        return cls.merge(models), sum(losses)

    def __len__(self):
        return len(self.client_ids)

    def take(self, index):
        """The models of the clients at ``index``, in that order."""
        return PersonalModels(
            self.base,
            self.client_ids[index],
            self.seen[index],
            self.parts,
            self.part[index],
            self.slot[index],
        )

    def coef(self, k):
        """Client k's coefficients, shape (d, p)."""
        return self.parts[self.part[k]].coef(self.slot[k])

    def coefs(self):
        """All coefficients, shape (K, d, p), made anew."""
        out = np.empty((len(self), *self.base.shape))
        for k in range(len(self)):
            out[k] = self.coef(k)
        return out

    def client_scores(self, k, rows, lead=0):
        """Scores (n, d) of rows (n, m) by client k's model, by the shared one for k = -1."""
        if k < 0:
            return affine(rows, self.base, lead)
        return self.parts[self.part[k]].scores(self.slot[k], rows, lead)

    def scores(self, X, codes, *, fit_intercept=False):
        """Scores of rows, each by its client's model.

        Parameters
        ----------
        X : ndarray of shape (n, m)
        codes : ndarray of shape (n,)
            Client of each row; -1 for the shared model.
        fit_intercept : bool, default=False
            Whether the first column of the models is an intercept.

        Returns
        -------
        ndarray of shape (n, d), float64
        """
        lead = int(fit_intercept)
        score = partial(self.client_scores, lead=lead)
        return map_client_rows(score, X, codes, len(self.base))


def affine(rows, coef, lead):
    """``rows @ coefᵀ``; with ``lead`` = 1 the first column of coef is an intercept."""
    out = rows @ coef[:, lead:].T
    if lead:
        out += coef[:, 0]
    return out


def map_client_rows(score, X, codes, n_outputs):
    """Call ``score(client, rows)`` on each client's rows of X and put the answers back in order.

    Parameters
    ----------
    score : callable
        From (client, float64 rows of shape (n_k, m)) to an array of shape (n_k, n_outputs). Long
        runs of rows of one client come in pieces.
    X : ndarray of shape (n, m)
    codes : ndarray of shape (n,)
        Client of each row, -1 and up.

    Returns
    -------
    ndarray of shape (n, n_outputs), float64
    """
    out = np.empty((len(X), n_outputs))
    present = np.unique(codes)
    order, offsets = group_rows(np.searchsorted(present, codes), len(present))
    in_order = bool(np.all(order[1:] > order[:-1]))
    step = rows_per_block(X.shape[1])
    for client, start, stop in zip(present, offsets[:-1], offsets[1:], strict=True):
        for first in range(start, stop, step):
            last = min(first + step, stop)
            index = slice(first, last) if in_order else order[first:last]
            out[index] = score(client, X[index].astype(np.float64, copy=False))
    return out
