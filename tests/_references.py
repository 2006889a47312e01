"""What every estimator should answer, by the normal equations of its rows: slow and obvious."""

import numpy as np
from oracle import normal_equations

from skfedhip.feature_extraction import RandomFeatures


def affine(F, Y, weight, penalty, fit_intercept):
    """The scores that a ridge fitted on rows F gives to other rows, as a function of these."""
    coef, intercept = normal_equations(F, Y, penalty, weight, fit_intercept=fit_intercept)
    return lambda new: new @ coef.T + intercept


def afl(clf, data, Y, client, X):
    return affine(data.X, Y, data.weight, clf.beta, clf.fit_intercept)(X)


def fedhip(clf, data, Y, client, X):
    """The rows of a client count 1 + alpha times in its model; nobody's do in the global one."""
    weight = data.weight * (1 + clf.alpha * (data.groups == client))
    return affine(data.X, Y, weight, clf.beta, clf.fit_intercept)(X)


def local(clf, data, Y, client, X):
    """A client's rows alone; the global model is the mean of all clients', by weight."""
    if client is None:
        clients = np.unique(data.groups)
        total = [data.of(each).weight.sum() for each in clients]
        return np.average([local(clf, data, Y, each, X) for each in clients], 0, weights=total)
    own = data.groups == client
    return affine(data.X[own], Y[own], data.weight[own], clf.beta, clf.fit_intercept)(X)


def anapfl(clf, data, Y, client, X):
    """A ridge on random features, and a client's own ridge on what it leaves unexplained."""
    shared = RandomFeatures(
        clf.n_components, activation=clf.activation, random_state=clf.random_state
    ).fit(data.X)
    F = shared.transform(data.X)
    scores = affine(F, Y, data.weight, clf.gamma, clf.fit_intercept)
    out = scores(shared.transform(X))
    if client is None:
        return out
    method = clf._fitted_method  # the one thing taken from the package: the client's numbers
    projection = method.refinement_map(X.shape[1], client)
    own = data.groups == client
    residuals = Y[own] - scores(F[own])
    private = method.features(data.X[own], projection)
    refinement = affine(private, residuals, data.weight[own], clf.beta, False)
    return out + clf.lam * refinement(method.features(X, projection))


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
    Y = (data.y[:, None] == clf.classes_).astype(float)
    return REFERENCES[type(clf).__name__](clf, data, Y, client, X)


def reference_of_all(clf, data, X):
    """As ``_data.scores_of_all``: by the global model and by every client's, (K + 1, n, d)."""
    clients = [None, *np.unique(data.groups).tolist()]
    return np.stack([reference_scores(clf, data, client, X) for client in clients])
