"""Methods that an estimator has only while it can carry them out."""

from functools import update_wrapper
from types import MethodType


class available_while:  # noqa: N801 - a decorator, like scikit-learn's available_if
    """Make a method raise on access, so that ``hasattr`` is False, while ``check`` raises.

    Unlike ``sklearn.utils.metaestimators.available_if`` it shows the check's own error, which must
    be an AttributeError.
    """

    def __init__(self, check):
        self.check = check

    def __call__(self, function):
        self.function = function
        update_wrapper(self, function)
        return self

    def __get__(self, instance, owner=None):
        if instance is None:
            return self.function
        self.check(instance)
        return MethodType(self.function, instance)
