"""What every estimator should answer, by plain least squares on its rows: slow and obvious."""

import numpy as np

from skfedhip.feature_extraction import RandomFeatures


def affine(F, Y, weight, penalty, fit_intercept):
    """The ridge that minimises Σ w ‖y - b - fᵀP‖² + penalty ‖P‖², as a function of new rows.

    Least squares with the penalty as further rows: accurate where normal equations would not be,
    and of minimum norm without a penalty.
    """
    root = np.sqrt(weight)[:, None]
    mean, share = (
        np.average(each, axis=0, weights=weight) if fit_intercept else np.zeros(each.shape[1])
        for each in (F, Y)
    )
    rows = np.vstack([root * (F - mean), np.sqrt(penalty) * np.eye(F.shape[1])])
    targets = np.vstack([root * (Y - share), np.zeros((F.shape[1], Y.shape[1]))])
    coef = np.linalg.lstsq(rows, targets)[0]
    return lambda new: (new - mean) @ coef + share


def parameter(clf, name):
    """A parameter as it was given, or as it was chosen."""
    return getattr(clf, f"{name}_" if hasattr(clf, f"{name}_") else name)


def alpha_of(clf, client):
    """FedHiP's alpha for a client; in a search, each may have taken one of its own."""
    own = getattr(clf, "client_alpha_", np.empty(0))
    if len(np.unique(own)) > 1:
        return dict(zip(clf.clients_.tolist(), own, strict=True))[client]
    return parameter(clf, "alpha")


def indicators(data, clf):
    return (data.y[:, None] == clf.classes_).astype(float)


def afl(clf, data, own, X):
    Y = indicators(data, clf)
    return affine(data.X, Y, data.weight, parameter(clf, "beta"), clf.fit_intercept)(X)


def fedhip(clf, data, own, X):
    """Everybody's rows once, and the client's own alpha times on top."""
    if own is None:
        return afl(clf, data, own, X)
    F, Y = np.vstack([data.X, own.X]), np.vstack([indicators(each, clf) for each in (data, own)])
    weight = np.concatenate([data.weight, alpha_of(clf, own.groups[0]) * own.weight])
    return affine(F, Y, weight, parameter(clf, "beta"), clf.fit_intercept)(X)


def local(clf, data, own, X):
    """The client's rows alone; the global model is the mean of all clients', by weight."""
    if own is not None:
        return afl(clf, own, own, X)
    clients = [data.of(client) for client in np.unique(data.groups)]
    total = [each.weight.sum() for each in clients]
    return np.average([local(clf, data, each, X) for each in clients], axis=0, weights=total)


def anapfl(clf, data, own, X):
    """A ridge on random features, and the client's own ridge on what it leaves unexplained."""
    shared = RandomFeatures(
        clf.n_components, activation=clf.activation, random_state=clf.random_state
    ).fit(data.X)
    F, Y = shared.transform(data.X), indicators(data, clf)
    scores = affine(F, Y, data.weight, parameter(clf, "gamma"), clf.fit_intercept)
    out = scores(shared.transform(X))
    if own is None:
        return out
    method = clf._fitted_method  # the one thing taken from the package: the client's numbers
    projection = method.refinement_map(X.shape[1], own.groups[0])
    residuals = indicators(own, clf) - scores(shared.transform(own.X))
    private, new = (method.features(rows, projection) for rows in (own.X, X))
    refinement = affine(private, residuals, own.weight, parameter(clf, "beta"), False)
    return out + parameter(clf, "lam") * refinement(new)


REFERENCES = {
    "AFLClassifier": afl,
    "AnaPFLClassifier": anapfl,
    "AnaPFLClassifierCV": anapfl,
    "FedHiPClassifier": fedhip,
    "FedHiPClassifierCV": fedhip,
    "LocalRidgeClassifier": local,
}


def reference_of_all(clf, data, X, guests=None):
    """As ``_data.scores_of_all``: scores by the global model and by every client's (K + 1, n, d).

    Parameters
    ----------
    clf : estimator
        Fitted; its parameters and classes are read.
    data : Federation
        The rows that it was fitted on.
    X : ndarray of shape (n, m)
        Rows to score.
    guests : Federation, default=None
        Rows of the clients that were personalized afterwards.
    """
    score = REFERENCES[type(clf).__name__]
    models = {client: data.of(client) for client in data.groups.tolist()}
    models |= {client: guests.of(client) for client in guests.groups.tolist()} if guests else {}
    owners = [None, *(models[client] for client in sorted(models))]
    return np.stack([score(clf, data, own, X) for own in owners])
