"""What every estimator should answer, by the normal equations of all rows: slow and obvious."""

import numpy as np

from skfedhip.feature_extraction import RandomFeatures


def ridge(F, Y, weight, penalty, *, intercept):
    """Coefficients (p, d) that minimise Σ w ‖y - fᵀP‖² + penalty ‖P‖², the intercept free."""
    free = np.full(F.shape[1], float(penalty))
    free[: int(intercept)] = 0.0  # the first column, where it is one of ones
    return np.linalg.solve(F.T @ (weight[:, None] * F) + np.diag(free), F.T @ (weight[:, None] * Y))


def with_ones(F, intercept):
    return np.hstack([np.ones((len(F), int(intercept))), F])


def one_hot(y, classes):
    return (np.asarray(y)[:, None] == classes).astype(float)


def afl(clf, data, Y, client, X):
    F, new = (with_ones(rows, clf.fit_intercept) for rows in (data.X, X))
    return new @ ridge(F, Y, data.weight, clf.beta, intercept=clf.fit_intercept)


def fedhip(clf, data, Y, client, X):
    """Client's rows count 1 + alpha times; nobody's do in the global model."""
    F, new = (with_ones(rows, clf.fit_intercept) for rows in (data.X, X))
    weight = data.weight * (1 + clf.alpha * (data.groups == client))
    return new @ ridge(F, Y, weight, clf.beta, intercept=clf.fit_intercept)


def local(clf, data, Y, client, X):
    """Client's rows alone; the global model is the mean of all clients', by weight."""
    if client is None:
        clients = np.unique(data.groups)
        total = [data.weight[data.groups == each].sum() for each in clients]
        return np.average([local(clf, data, Y, each, X) for each in clients], 0, weights=total)
    own = data.groups == client
    F, new = (with_ones(rows, clf.fit_intercept) for rows in (data.X[own], X))
    return new @ ridge(F, Y[own], data.weight[own], clf.beta, intercept=clf.fit_intercept)


def anapfl(clf, data, Y, client, X):
    """A ridge on random features, and client's own ridge on what it leaves unexplained."""
    shared = RandomFeatures(
        clf.n_components, activation=clf.activation, random_state=clf.random_state
    ).fit(data.X)
    F, new = (with_ones(shared.transform(rows), clf.fit_intercept) for rows in (data.X, X))
    G = ridge(F, Y, data.weight, clf.gamma, intercept=clf.fit_intercept)
    if client is None:
        return new @ G
    own = data.groups == client
    method = clf._fitted_method  # the one thing taken from the package: client's random numbers
    projection = method.refinement_map(X.shape[1], client)
    private, private_new = (method.features(rows, projection) for rows in (data.X[own], X))
    residuals = Y[own] - F[own] @ G
    W = ridge(private, residuals, data.weight[own], clf.beta, intercept=False)
    return new @ G + clf.lam * private_new @ W


REFERENCES = {
    "AFLClassifier": afl,
    "AnaPFLClassifier": anapfl,
    "FedHiPClassifier": fedhip,
    "LocalRidgeClassifier": local,
}


def reference_scores(clf, data, client, X):
    """Scores (n, d) of rows by the model of ``client``, or by the global one for None.

    Parameters
    ----------
    clf : estimator
        Fitted; its parameters and classes are read.
    data : Federation
        The rows that it was fitted on.
    client : scalar or None
    X : ndarray of shape (n, m)
    """
    Y = one_hot(data.y, clf.classes_)
    return REFERENCES[type(clf).__name__](clf, data, Y, client, X)


def reference_of_all(clf, data, X):
    """As ``_data.scores_of_all``."""
    clients = [None, *np.unique(data.groups).tolist()]
    return np.stack([reference_scores(clf, data, client, X) for client in clients])
