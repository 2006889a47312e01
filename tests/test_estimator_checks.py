"""scikit-learn's own battery passes whole, with and without an id column, and really runs."""

import inspect
from collections import Counter

import pytest
from _data import SETTINGS
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import has_fit_parameter

from skfedhip import analytic, feature_extraction, gradient, preprocessing

# scikit-learn 1.9 runs 63 for classifiers with sample_weight, 55 without, and 47 to 54 for others.
LEAST_CHECKS = {(True, True): 60, (True, False): 54, (False, True): 45, (False, False): 45}
MAY_BE_SKIPPED = {"check_array_api_input"}  # runs where SCIPY_ARRAY_API is set


def everything():
    """Every public estimator but the federated ones' methods, in all forms of the id column."""
    for module in (analytic, gradient, preprocessing, feature_extraction):
        for name in module.__all__:
            cls, settings = getattr(module, name), SETTINGS.get(name, {})
            # The battery makes tables of numbers, which are no images.
            if not issubclass(cls, BaseEstimator) or not get_tags(cls()).input_tags.two_d_array:
                continue
            yield pytest.param(cls(**settings), id=name)
            # The gradient classifiers share the shell that takes the column out.
            shared = module is gradient and cls is not gradient.FedCPClassifier
            if "group_column" in inspect.signature(cls).parameters and not shared:
                for column in (0, -1):
                    clf = cls(group_column=column, **settings)
                    yield pytest.param(clf, id=f"{name}-{column}")


@pytest.mark.filterwarnings("ignore::skfedhip.exceptions.MissingGroupsWarning")
@pytest.mark.filterwarnings("ignore:group_column=.* holds fractions:UserWarning")
@pytest.mark.parametrize("estimator", [*everything()])
def test_every_check_passes(estimator):
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    bad = [
        f"{result['check_name']}: {result['status']}: {result['exception']}"
        for result in results
        if result["status"] != "passed" and result["check_name"] not in MAY_BE_SKIPPED
    ]
    assert not bad
    assert Counter(result["expected_to_fail"] for result in results) == {False: len(results)}
    weighs = has_fit_parameter(estimator, "sample_weight")
    assert len(results) >= LEAST_CHECKS[is_classifier(estimator), weighs]
