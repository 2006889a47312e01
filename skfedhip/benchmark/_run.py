"""Which methods are compared, and the comparison: one split, one fit each, scores by client."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from ..analytic import (
    AFLClassifier,
    AnaPFLClassifier,
    AnaPFLClassifierCV,
    FedHiPClassifier,
    FedHiPClassifierCV,
    LocalRidgeClassifier,
)
from ..metrics import ClientScores, client_scores, client_summary
from ..model_selection import ClientShuffleSplit


class Method(NamedTuple):
    """How a method is called in a table, and how its estimator is made from (seed, n_jobs)."""

    label: str
    make: Callable


def _gradient(name, **params):
    """Makes a gradient classifier; torch is loaded where one is."""

    def make(seed, n_jobs):
        from .. import gradient

        return getattr(gradient, name)(random_state=seed, n_jobs=n_jobs, **params)

    return make


METHODS = {
    "local": Method("Local", lambda seed, n_jobs: LocalRidgeClassifier(n_jobs=n_jobs)),
    "afl": Method("AFL", lambda seed, n_jobs: AFLClassifier(n_jobs=n_jobs)),
    "fedhip": Method("FedHiP", lambda seed, n_jobs: FedHiPClassifier(n_jobs=n_jobs)),
    "anapfl": Method(
        "AnaPFL", lambda seed, n_jobs: AnaPFLClassifier(random_state=seed, n_jobs=n_jobs)
    ),
    "fedhip-cv": Method("FedHiP-CV", lambda seed, n_jobs: FedHiPClassifierCV(n_jobs=n_jobs)),
    "anapfl-cv": Method(
        "AnaPFL-CV", lambda seed, n_jobs: AnaPFLClassifierCV(random_state=seed, n_jobs=n_jobs)
    ),
    "fedavg": Method("FedAvg", _gradient("FedAvgClassifier")),
    "fedavg-ft": Method("FedAvg+FT", _gradient("FedAvgClassifier", fine_tune_epochs=5)),
    "fedprox": Method("FedProx", _gradient("FedProxClassifier")),
    "ditto": Method("Ditto", _gradient("DittoClassifier")),
    "fedper": Method("FedPer", _gradient("FedPerClassifier")),
    "fedrep": Method("FedRep", _gradient("FedRepClassifier")),
    "fedala": Method("FedALA", _gradient("FedALAClassifier")),
    "scaffold": Method("SCAFFOLD", _gradient("SCAFFOLDClassifier")),
    "apfl": Method("APFL", _gradient("APFLClassifier")),
    "lg-fedavg": Method("LG-FedAvg", _gradient("LGFedAvgClassifier")),
    "fedrod": Method("FedRoD", _gradient("FedRoDClassifier")),
    "pfedme": Method("pFedMe", _gradient("PFedMeClassifier")),
    "fedphp": Method("FedPHP", _gradient("FedPHPClassifier")),
    "fedamp": Method("FedAMP", _gradient("FedAMPClassifier")),
    "fedfomo": Method("FedFomo", _gradient("FedFomoClassifier")),
    "per-fedavg": Method("Per-FedAvg", _gradient("PerFedAvgClassifier")),
    "fedslr": Method("FedSLR", _gradient("FedSLRClassifier")),
    "fedcp": Method("FedCP", _gradient("FedCPClassifier")),
    "fedcp-gfm": Method("no-GFM", _gradient("FedCPClassifier", lam=0.0)),
    "fedcp-cpn": Method("no-CPN", _gradient("FedCPClassifier", conditional_policy=False)),
    "fedcp-cpn-gfm": Method(
        "no-CPN-GFM", _gradient("FedCPClassifier", conditional_policy=False, lam=0.0)
    ),
    "fedcp-cpn-gh": Method(
        "no-CPN-GH",
        _gradient("FedCPClassifier", conditional_policy=False, global_head=False),
    ),
    "fedcp-bare": Method(
        "bare",
        _gradient("FedCPClassifier", conditional_policy=False, global_head=False, lam=0.0),
    ),
}
"""From a method's name on the command line. Parameters are the defaults of the classes; the names
after fedcp take its policy (CPN), alignment (GFM) or global head (GH) away.
"""

CLOSED_FORM = ["local", "afl", "fedhip", "anapfl", "fedhip-cv", "anapfl-cv"]
"""Those that take seconds; the others take minutes."""

GROUPS = {
    "closed-form": CLOSED_FORM,
    "gradient": [name for name in METHODS if name not in CLOSED_FORM and "fedcp-" not in name],
    "ablation": [name for name in METHODS if name.startswith("fedcp")],
}
"""Names for several methods."""


def make_estimator(method, seed, n_jobs, **params):
    """The estimator of a method, with those of the given parameters that it has."""
    estimator = METHODS[method].make(seed, n_jobs)
    known = estimator.get_params(deep=False)
    given = {name: v for name, v in params.items() if v is not None and name in known}
    return estimator.set_params(**given)


@dataclass(frozen=True)
class Result:
    """What one method did.

    Attributes
    ----------
    name : str
        The key of its estimator.
    estimator : str
        Name of the estimator's class.
    parameters : dict
        The estimator's parameters, and what it chose where it tunes itself.
    scores : ClientScores
        Accuracy of each client on its held-out rows.
    fit_seconds : float
        Time of ``fit``, all clients together.
    bytes_up, bytes_down : ndarray of shape (K,)
        What each client sends and receives.
    """

    name: str
    estimator: str
    parameters: dict
    scores: ClientScores
    fit_seconds: float
    bytes_up: np.ndarray
    bytes_down: np.ndarray

    def record(self):
        """The result as a flat dict of plain values, accuracies summarised over clients.

        Its bytes are those of the client that sends, or receives, most.
        """
        return {
            "method": self.name,
            "estimator": self.estimator,
            "parameters": self.parameters,
            **client_summary(self.scores),
            "fit_seconds": self.fit_seconds,
            "bytes_up": int(self.bytes_up.max()),
            "bytes_down": int(self.bytes_down.max()),
        }


def evaluate(estimators, X, y, groups, *, test_size=0.25, seed=0, progress=False):
    """Fit every estimator on the same rows of each client and score it on the others.

    Parameters
    ----------
    estimators : dict
        From a name to an estimator whose ``fit`` and ``predict`` take ``groups``.
    X : ndarray of shape (n, m)
        Features.
    y : ndarray of shape (n,)
        Class labels.
    groups : ndarray of shape (n,)
        The id of each row's client; each client has at least two rows.
    test_size : float, default=0.25
        Part of each client's rows to hold out.
    seed : int, default=0
        Decides which rows are held out.
    progress : bool, default=False
        Whether to show a bar on stderr, where that is a terminal.

    Returns
    -------
    list of Result
        In the order of ``estimators``.
    """
    splitter = ClientShuffleSplit(test_size=test_size, random_state=seed)
    ((train, test),) = splitter.split(X, y, groups)
    fit_rows, test_rows = ((X[rows], y[rows], groups[rows]) for rows in (train, test))
    results = []
    disable = None if progress else True
    with tqdm(total=len(estimators), unit="method", leave=False, disable=disable) as bar:
        for name, estimator in estimators.items():
            bar.set_description(name)
            results.append(_run_one(name, estimator, fit_rows, test_rows))
            bar.update()
    return results


def _parameters(estimator):
    """The parameters as given, and those that a search chose."""
    chosen = ("alpha", "gamma", "beta", "lam", "local_classes_only")
    found = {name: getattr(estimator, f"{name}_", None) for name in chosen}
    params = estimator.get_params(deep=False)
    return params | {name: value for name, value in found.items() if value is not None}


def _run_one(name, estimator, fit_rows, test_rows):
    X, y, groups = fit_rows
    start = perf_counter()
    estimator.fit(X, y, groups=groups)
    seconds = perf_counter() - start
    X, y, groups = test_rows
    return Result(
        name,
        type(estimator).__name__,
        _parameters(estimator),
        client_scores(y, estimator.predict(X, groups=groups), groups),
        seconds,
        estimator.bytes_up_,
        estimator.bytes_down_,
    )
