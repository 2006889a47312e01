"""Slow, obvious references: papers' algorithms word for word, and random federations to try."""

from pathlib import Path

import numpy as np
from numpy.linalg import inv
from numpy.testing import assert_allclose

DATA = Path(__file__).parent / "data"


def algorithm_1(F, Y, alpha, beta):
    """Algorithm 1 of the FedHiP paper, client by client, with its names and explicit inverses.

    Parameters
    ----------
    F, Y : list of ndarray
        Features (n_k, m) and one-hot labels (n_k, d) of the clients 1..K.

    Returns
    -------
    G, P : list of ndarray of shape (m, d)
        Global models G_1..G_K, one a step of the server's loop, and personal ones P_1..P_K.
    """
    K, m, d = len(F), F[0].shape[1], Y[0].shape[1]
    I = np.eye(m)  # noqa: E741
    # Phase 1: analytic local training (5)-(7)
    C = [F_k.T @ F_k + beta * I for F_k in F]
    L = [inv(C_k) @ F_k.T @ Y_k for C_k, F_k, Y_k in zip(C, F, Y, strict=True)]
    # Phase 2: analytic global aggregation (9)-(12)
    S, M, G = np.zeros((m, m)), np.zeros((m, d)), []
    for k in range(1, K + 1):
        S_before, S = S, S + C[k - 1]
        mu, nu = inv(S) @ S_before, inv(S) @ C[k - 1]
        M = mu @ M + nu @ L[k - 1]
        G.append(inv(S - (k - 1) * beta * I) @ S @ M)
    # Phase 3: analytic local personalization (13)-(14)
    P = []
    for F_k, Y_k in zip(F, Y, strict=True):
        C_tilde = alpha * F_k.T @ F_k + beta * I
        P.append(inv(S + C_tilde - K * beta * I) @ (S @ M + alpha * F_k.T @ Y_k))
    return G, P


def normal_equations(F, Y, beta, weight=None, *, fit_intercept=False):
    """Ridge coefficients (d, m) and intercepts (d,): a column of ones without a penalty in front.

    Targets Y (n, d) may be one-hot labels or anything else; beta is a number > 0.
    """
    weight = np.ones(len(F)) if weight is None else weight
    rows = np.column_stack([np.ones(len(F)), F]) if fit_intercept else F
    penalty = beta * np.eye(rows.shape[1])
    if fit_intercept:
        penalty[0, 0] = 0.0
    W = np.diag(weight)
    solution = np.linalg.solve(rows.T @ W @ rows + penalty, rows.T @ W @ Y).T
    return (solution[:, 1:], solution[:, 0]) if fit_intercept else (solution, np.zeros(Y.shape[1]))


def personal_rows(groups, client, alpha):
    """Weights of FedHiP's objective for one client: 1 for everybody's rows, 1 + α for its own."""
    return 1.0 + alpha * (groups == client)


def one_hot(y, n_classes):
    """Indicator matrix (n, d) of codes."""
    return np.eye(n_classes)[y]


def statistics_size(n_features, n_classes, fit_intercept=False):
    """Numbers in a triangle of a Gram matrix, class sums and weights, and perhaps a mean."""
    triangle = n_features * (n_features + 1) // 2
    return triangle + n_classes * n_features + n_classes + fit_intercept * n_features


def by_client(array, groups):
    """The rows of each client, in the order of sorted ids."""
    return [array[groups == client] for client in np.unique(groups)]


def random_federation(counts, n_features, n_classes, seed=0, *, one_class=False):
    """Rows of clients of given sizes in shuffled order, ids not contiguous: X, y, groups.

    Every class occurs somewhere; with ``one_class`` each client has only one.
    """
    rng = np.random.default_rng(seed)
    ids = 3 * rng.permutation(len(counts)) - 7
    groups = np.repeat(ids, counts)
    y = rng.permutation(np.arange(len(groups)) % n_classes)
    if one_class:
        y = np.repeat(np.arange(len(counts)) % n_classes, counts)
    X = rng.normal(size=(len(groups), n_features)) + rng.normal(size=(n_classes, n_features))[y]
    order = rng.permutation(len(groups))
    return X[order], y[order], groups[order]


def public_shape(coef):
    """Coefficients (..., d, m) as scikit-learn shapes them: for two classes their difference."""
    return coef[..., 1:, :] - coef[..., :1, :] if coef.shape[-2] == 2 else coef


def public_scores(scores):
    """Scores (n, d) as decision_function returns them."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def assert_models(clf, coefs, intercepts, X, groups, rtol=1e-9):
    """A fitted classifier's personal models, and its scores by them, are (K, d, m) and (K, d)."""
    atol = rtol * max(1.0, np.abs(coefs).max())  # labels are 0 and 1, so 1 is no small number
    assert_allclose(clf.personal_coef_, public_shape(coefs), rtol=0, atol=atol)
    k = np.searchsorted(clf.clients_, groups)
    scores = np.einsum("nm,ndm->nd", X, coefs[k]) + intercepts[k]
    atol = rtol * max(1.0, np.abs(scores).max())
    assert_allclose(clf.decision_function(X, groups=groups), public_scores(scores), 0, atol)
    intercepts = public_shape(intercepts[:, :, None])[:, :, 0]
    assert_allclose(clf.personal_intercept_, intercepts, rtol=0, atol=atol)
