"""Personalized federated learning as ordinary scikit-learn estimators.

Public names are imported when first used, so that ``import skfedhip`` stays quick and loads
neither torch nor scikit-learn's heavier parts.
"""

from importlib import import_module

from ._version import __version__

_HOMES = {
    "AFLClassifier": "analytic",
    "AnaPFLClassifier": "analytic",
    "AnaPFLClassifierCV": "analytic",
    "FedHiPClassifier": "analytic",
    "FedHiPClassifierCV": "analytic",
    "LocalRidgeClassifier": "analytic",
    "APFLClassifier": "gradient",
    "DittoClassifier": "gradient",
    "FedALAClassifier": "gradient",
    "FedAMPClassifier": "gradient",
    "FedAvgClassifier": "gradient",
    "FedCPClassifier": "gradient",
    "FedFomoClassifier": "gradient",
    "FedPHPClassifier": "gradient",
    "FedPerClassifier": "gradient",
    "FedProxClassifier": "gradient",
    "FedRepClassifier": "gradient",
    "FedRoDClassifier": "gradient",
    "FedSLRClassifier": "gradient",
    "LGFedAvgClassifier": "gradient",
    "PFedMeClassifier": "gradient",
    "PerFedAvgClassifier": "gradient",
    "SCAFFOLDClassifier": "gradient",
    "FederatedStandardScaler": "preprocessing",
    "GridEdgeWarning": "exceptions",
    "MissingGroupsWarning": "exceptions",
    "SingleClassWarning": "exceptions",
    "StatisticsDroppedError": "exceptions",
}
_MODULES = [
    "analytic",
    "datasets",
    "feature_extraction",
    "federation",
    "gradient",
    "metrics",
    "model_selection",
    "preprocessing",
    "pretraining",
    "privacy",
    "protocol",
]

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name):
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
