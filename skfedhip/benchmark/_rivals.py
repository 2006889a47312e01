"""What the speed benchmark compares with: the obvious ways to the same numbers."""

import numpy as np
from scipy.linalg import solve
from sklearn.linear_model import RidgeClassifier


def literal_algorithm(X, y, groups, alpha, beta):
    """Algorithm 1 of the FedHiP paper as it is printed: inverses, recursion and all.

    Returns
    -------
    ndarray of shape (K, d, m)
        Personal models.
    """
    identity = np.eye(X.shape[1])
    clients = [(X[groups == k], _one_hot(y, groups == k)) for k in np.unique(groups)]
    cumulative = fusion = None
    for k, (F, Y) in enumerate(clients, start=1):
        regularized = F.T @ F + beta * identity
        local = np.linalg.inv(regularized) @ (F.T @ Y)
        if cumulative is None:
            cumulative, fusion = regularized, local
        else:
            previous, cumulative = cumulative, cumulative + regularized
            inverse = np.linalg.inv(cumulative)
            fusion = inverse @ previous @ fusion + inverse @ regularized @ local
        np.linalg.inv(cumulative - (k - 1) * beta * identity) @ (cumulative @ fusion)
    models = []
    for F, Y in clients:
        weighted = alpha * F.T @ F + beta * identity
        inverse = np.linalg.inv(cumulative + weighted - len(clients) * beta * identity)
        models.append((inverse @ (cumulative @ fusion + alpha * F.T @ Y)).T)
    return np.array(models)


def direct_solves(X, y, groups, alpha, beta):
    """The sums once, then one positive-definite solve a client; models of shape (K, d, m)."""
    gram, cross = X.T @ X + beta * np.eye(X.shape[1]), X.T @ _one_hot(y, slice(None))
    models = []
    for k in np.unique(groups):
        own = groups == k
        F, Y = X[own], _one_hot(y, own)
        system = gram + alpha * (F.T @ F)
        models.append(solve(system, cross + alpha * (F.T @ Y), assume_a="pos").T)
    return np.array(models)


def ridge_classifiers(X, y, groups, alpha, beta, clients):
    """A RidgeClassifier for each client in ``clients``, its own rows weighing 1 + alpha."""
    models = []
    for k in clients:
        weight = np.where(groups == k, 1 + alpha, 1.0)
        ridge = RidgeClassifier(alpha=beta, fit_intercept=False, solver="cholesky")
        models.append(ridge.fit(X, y, sample_weight=weight))
    return models


def _one_hot(y, rows):
    return (y[rows, None] == np.unique(y)).astype(float)
