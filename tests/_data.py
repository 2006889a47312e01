"""Small federations, every public estimator, and comparisons that several test files share."""

import inspect
from dataclasses import astuple, dataclass, replace
from functools import partial

import numpy as np

from skfedhip import analytic, gradient

SETTINGS = {
    "AnaPFLClassifier": {"n_components": 12, "random_state": 0},
    "AnaPFLClassifierCV": {
        "n_components": 12,
        "random_state": 0,
        "gammas": [0.01, 1.0],
        "betas": [0.3, 3.0, 30.0],
        "lams": [0.2, 0.5, 0.8],
    },
    "FedHiPClassifierCV": {"alphas": [0.0, 1.0, 10.0, 100.0], "betas": [0.1, 1.0, 10.0]},
    **{
        name: {"n_rounds": 3, "lr": 0.4, "feature_extractor": gradient.MLP((8,))}
        for name in gradient.__all__
        if name.endswith("Classifier")
    },
}
SETTINGS["PFedMeClassifier"] |= {"lam": 2.0, "inner_lr": 0.4}  # lr · lam < 2, and long steps
"""Parameters that make an estimator quick, or its random numbers repeat, in tests."""

CHOSEN = {
    "AnaPFLClassifierCV": {"gammas": [0.1], "betas": [2.0], "lams": [0.7]},
    "FedHiPClassifierCV": {"alphas": [5.0], "betas": [0.5]},
}
"""Parameters that leave an estimator that tunes itself nothing to choose."""

FURTHER_VARIANTS = {
    "AnaPFLClassifier": [{"shared_refinement": True}],
    "FedHiPClassifier": [
        {"solver": "direct", "fit_intercept": True},
        {"solver": "residual", "fit_intercept": True},
    ],
    "FedHiPClassifierCV": [{"alpha_per_client": True}],
}
"""Parameters that choose another way of computing, which the laws must hold for as well."""


def estimator(name, **params):
    """An estimator of ``skfedhip.analytic``, silent about missing ids unless told otherwise."""
    quiet = {"missing_groups": "global", "local_classes_only": False}
    return getattr(analytic, name)(**{**quiet, **SETTINGS.get(name, {}), **params})


def variants():
    """(test id, factory of estimators) for every estimator, with and without an intercept."""
    for name in analytic.__all__:
        known = inspect.signature(getattr(analytic, name)).parameters
        intercepts = [{"fit_intercept": on} for on in (False, True) if "fit_intercept" in known]
        for params in [*(intercepts or [{}]), *FURTHER_VARIANTS.get(name, [])]:
            words = "-".join(f"{key}={value}" for key, value in params.items())
            yield f"{name}-{words}", partial(estimator, name, **params)


@dataclass(frozen=True)
class Federation:
    """Rows of several clients, in no order."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    weight: np.ndarray

    def rows(self, index):
        return Federation(self.X[index], self.y[index], self.groups[index], self.weight[index])

    def of(self, *clients):
        return self.rows(np.isin(self.groups, clients))

    def and_(self, other):
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Federation(*(np.concatenate(pair) for pair in pairs))

    def without(self, *clients):
        return self.rows(~np.isin(self.groups, clients))

    def renamed(self, names):
        groups = np.array([names[client] for client in self.groups.tolist()])
        return replace(self, groups=groups)

    def fit(self, clf, **weights):
        """Fit a classifier, with the federation's weights unless told otherwise."""
        weights = weights or {"sample_weight": self.weight}
        return clf.fit(self.X, self.y, groups=self.groups, **weights)

    def feed(self, clf, **params):
        """Add the rows to a classifier's stream."""
        return clf.partial_fit(
            self.X, self.y, groups=self.groups, sample_weight=self.weight, **params
        )

    def personalize(self, clf):
        return clf.personalize(self.X, self.y, groups=self.groups, sample_weight=self.weight)

    def batches(self, labels):
        """The rows, cut by a label a row, in the order in which the labels come."""
        seen = dict.fromkeys(np.asarray(labels).tolist())
        return [self.rows(np.asarray(labels) == label) for label in seen]


IDS = (-7, 3, 12, 40, 41, 10**12)
CLASSES = np.array(["cat", "dog", "fox"])


def federation(seed=0, *, ids=IDS, sizes=(1, 2, 5, 12, 30, 60), classes=CLASSES, n_features=6):
    """Clients that differ in concept and size: the first has one row, the second one class, the
    third lacks one, the last has more rows than any design in these tests has columns.
    """
    rng = np.random.default_rng(seed)
    d, groups = len(classes), np.repeat(np.arange(len(ids)), sizes)
    codes = rng.integers(0, d, len(groups))
    codes[groups == 1] = 0
    codes[groups == 2] %= max(d - 1, 1)
    for k in range(3, len(ids)):  # all classes, in unequal numbers
        codes[np.flatnonzero(groups == k)[:d]] = np.arange(d)
    means = rng.normal(size=(d, n_features)) + rng.normal(size=(len(ids), d, n_features))
    X = means[groups, codes] + rng.normal(size=(len(groups), n_features))
    order = rng.permutation(len(groups))
    ids = np.array(ids)
    weight = rng.uniform(0.5, 2.0, len(groups))
    return Federation(X[order], classes[codes][order], ids[groups][order], weight[order])


def assert_close(actual, desired, rtol=1e-10):
    """Equal to ``rtol`` of the largest number that is asked for."""
    desired = np.asarray(desired)
    finite = np.abs(desired[np.isfinite(desired)])
    np.testing.assert_allclose(actual, desired, rtol=0, atol=rtol * finite.max(initial=0.0))


def global_scores(clf, X):
    """What the clients get that the classifier does not know."""
    return clf.decision_function(X, groups=[None] * len(X))


def client_scores(clf, X, client):
    return clf.decision_function(X, groups=[client] * len(X))


def scores_of_all(clf, X):
    """The scores of the same rows by the global model and by every client's, first axis K + 1."""
    owners = [None, *clf.clients_.tolist()]
    groups = [owner for owner in owners for _ in range(len(X))]
    scores = clf.decision_function(np.tile(X, (len(owners), 1)), groups=groups)
    return scores.reshape(len(owners), *X.shape[:1], *scores.shape[1:])


def assert_same_models(actual, desired, X, rtol=1e-10):
    """Two classifiers know the same clients, and hold the same models of them."""
    np.testing.assert_array_equal(actual.clients_, desired.clients_)
    np.testing.assert_array_equal(actual.classes_, desired.classes_)
    for name in ("coef_", "intercept_", "personal_coef_", "personal_intercept_"):
        assert_close(getattr(actual, name), getattr(desired, name), rtol)
    assert_close(scores_of_all(actual, X), scores_of_all(desired, X), rtol)


def found(clf):
    """What a fit has found out beside the models: numbers, by attribute."""
    attributes = {name: value for name, value in vars(clf).items() if not name.startswith("_")}
    results = attributes.get("cv_results_", {})
    attributes |= {f"cv_results_.{key}": value for key, value in results.items()}
    return {
        name: np.asarray(value)
        for name, value in attributes.items()
        if "_." in name or (name.endswith("_") and name not in ("clients_", "cv_results_"))
    }


def assert_same_fits(actual, desired, X, rtol=1e-10):
    """The same models, and whatever else was found: a temperature, penalties, their scores."""
    assert_same_models(actual, desired, X, rtol)
    mine, other = found(actual), found(desired)
    assert mine.keys() == other.keys()
    for name, value in other.items():
        if value.dtype.kind == "f":
            assert_close(mine[name], value, rtol)
        else:
            np.testing.assert_array_equal(mine[name], value)
