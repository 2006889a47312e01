"""The shell of the classifiers that tune themselves: search, then fit with the best."""

from abc import abstractmethod
from numbers import Integral

import numpy as np
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import column_or_1d

from ..base import run_on_blocks
from ..core import TEMPERATURES
from ..exceptions import GridEdgeWarning, StatisticsDroppedError
from ..model_selection import ClientKFold
from ..protocol import Schema
from ..utils._warn import warn_user
from ._classifier import ClosedFormClassifier
from ._search import TIE, ClientChoices, split_scores

GRID = ["array-like", None]

COMMON_CONSTRAINTS = {
    "scoring": [StrOptions({"accuracy", "neg_log_loss", "neg_mean_squared_error"})],
    "average": [StrOptions({"macro", "weighted"})],
    "cv": [
        Interval(Integral, 2, None, closed="left"),
        HasMethods(["split"]),
        HasMethods(["__iter__"]),
        None,
    ],
    "local_classes_only": [StrOptions({"auto"}), "boolean"],
    "store_cv_results": ["boolean"],
}


class TunedClassifier(ClosedFormClassifier):
    """Base of the closed-form classifiers that choose their own penalties.

    A subclass names its axes in the order of its search's tables (``_axes``), and makes the
    search method and, once the best is known, the method itself.
    """

    _axes = ()

    _highest = {}
    """Values beyond which an axis has nothing to offer."""

    @abstractmethod
    def _search(self, **how):
        """The search method."""

    def _adopt(self, choices):
        """Take what the clients chose for themselves."""

    def _check_can_stream(self):
        if not hasattr(self, "classes_"):
            raise StatisticsDroppedError(
                f"{type(self).__name__} tunes itself on all rows together: call fit first, with "
                "retain_statistics=True, and partial_fit goes on with what it chose."
            )
        super()._check_can_stream()

    def _check_federated(self):
        name = type(self).__name__
        raise TypeError(
            f"{name} can't tune itself over a network; tune it on rows of one place and pass "
            f"{name.removesuffix('CV')} with the parameters that it found."
        )

    def _check_apart(self, weighted):
        super()._check_apart(weighted)
        if self.cv is not None:
            raise ValueError(
                f"cv={self.cv!r} deals all rows into folds, which takes all labels in one place; "
                "pass cv=None, which leaves rows out one by one and is exact on partitions too."
            )

    def _begin_apart(self, like, classes, totals):
        factor, width, _ = super()._begin_apart(like, classes, totals)
        return factor, width, None  # a search leaves out rows, not roots of them

    def _restricts_classes(self):
        return getattr(self, "local_classes_only_", self.local_classes_only is True)

    def _prepare(self, X, y, ids):
        """Training and test masks of the folds, over the rows of X."""
        self._folds = ()
        if self.cv is None:
            return
        cv = ClientKFold(self.cv) if isinstance(self.cv, Integral) else check_cv(self.cv)
        folds = []
        for train, test in cv.split(X, y, ids):
            masks = np.zeros((2, len(y)), dtype=bool)
            masks[0, train] = masks[1, test] = True
            if not masks.any(axis=1).all():
                raise ValueError(
                    f"split {len(folds)} of cv has no training rows or no test rows; every split "
                    "needs both."
                )
            folds.append((masks[0], masks[1]))
        if not folds:
            raise ValueError("cv gives no splits; pass None for leave-one-out, or some splits.")
        self._folds = tuple(folds)

    def _start(self, X, classes, *, retain):
        for name in (*self._found, "cv_results_"):
            self.__dict__.pop(name, None)
        super()._start(X, classes, retain=retain)

    def _first_solve(self, blocks):
        known, traffic = self._tune(blocks)
        self._solve(blocks, calibrate=True, known=known)
        self._bytes = tuple(map(np.add, self._bytes, traffic))
        del self._folds

    def _tune(self, blocks):
        """Search the grid and adopt the best.

        Returns the sums that the clients have by then, and the bytes that went up and down.
        """
        axes = tuple((name, self._axis_values(name)) for name in self._axes)
        masks = (False, True) if self.local_classes_only == "auto" else (self.local_classes_only,)
        search = self._search(
            fit_intercept=self.fit_intercept,
            calibrate=False,
            axes=axes,
            scoring=self.scoring,
            average=self.average,
            masks=masks,
            folds=self._folds,
            keep_tables=self.store_cv_results,
        )
        schema = Schema(self._n_features, self.classes_, self._dtype)
        result = run_on_blocks(search, blocks, schema, self.n_jobs)
        _, sums, choice = result.broadcasts
        grid = search.grid(sums.total)
        for name, values, at in zip(self._axes, grid, choice.index, strict=True):
            setattr(self, f"{name}s_", values)
            setattr(self, f"{name}_", float(values[at]))
        self.local_classes_only_ = bool(masks[choice.mask])
        scores = self._report(result.state.server_state, grid, choice)
        self._warn_at_edges(grid, scores, choice.index)
        if search.keeps:
            choices = ClientChoices.merge(result.models, self.clients_)
            if self.store_cv_results:
                self.client_cv_scores_ = choices.scores
            self._adopt(choices)
        self._fitted_method = self._method()
        known = self._fitted_method.solved_sums(sums.total)
        return known, (result.bytes_up, result.bytes_down)

    def _tuning_to_arrays(self):
        arrays, values = {}, {}
        for name in self._found:
            value = getattr(self, name, None)
            if isinstance(value, np.ndarray):
                arrays[name] = value
            elif value is not None:
                values[name] = value
        results = dict(self.cv_results_)
        values["params"] = results.pop("params")
        return arrays | {f"cv_results_.{key}": value for key, value in results.items()}, values

    def _tuning_from_arrays(self, arrays, values):
        results = {"params": values.pop("params")}
        for name, value in arrays.items():
            if name.startswith("cv_results_."):
                results[name.removeprefix("cv_results_.")] = value
            else:
                setattr(self, name, value)
        for name, value in values.items():
            setattr(self, name, value)
        self.cv_results_ = results

    @property
    def _found(self):
        """Names of what a search leaves behind, beside ``cv_results_``."""
        axes = [f"{name}{ending}" for name in self._axes for ending in ("_", "s_")]
        scores = ["best_score_", "client_cv_scores_", "search_temperature_"]
        return [*axes, *scores, "local_classes_only_"]

    def _axis_values(self, name):
        values = getattr(self, f"{name}s")
        if values is None:
            return None
        values = column_or_1d(np.atleast_1d(np.asarray(values, dtype=float)))
        if not len(values) or not np.all((values >= 0) & (values < np.inf)):
            raise ValueError(
                f"{name}s must be finite numbers >= 0, at least one, got {values.tolist()}."
            )
        return tuple(values.tolist())

    def _warn_at_edges(self, grid, scores, best):
        """Warn where the best value ends its grid, and the one beside it is worse."""
        for axis, (name, values) in enumerate(zip(self._axes, grid, strict=True)):
            at, last = int(best[axis]), len(values) - 1
            if last == 0 or at not in (0, last) or values[at] in (0.0, self._highest.get(name)):
                continue
            beside = [*best]
            beside[axis] = 1 if at == 0 else last - 1
            if scores[tuple(beside)] < scores[tuple(best)] - TIE:
                warn_user(
                    f"the best {name}, {values[at]:.3g}, lies at the edge of its grid from "
                    f"{values[0]:.3g} to {values[-1]:.3g}; pass wider {name}s.",
                    GridEdgeWarning,
                )

    def _report(self, total, grid, choice):
        """``best_score_`` and ``cv_results_``, in the order of GridSearchCV's ParameterGrid.

        Returns the mean scores over the grid.
        """
        at = (..., int(choice.mask), int(choice.temperature))
        scores, squares = split_scores(total)[at], total.squares[at]
        weights = total.weights.reshape(-1, *[1] * (scores.ndim - 1))
        if len(scores) > 1:
            spread = scores.std(axis=0)
        else:
            spread = np.sqrt(np.maximum(squares / weights - scores**2, 0.0))[0]
        order = np.argsort(self._axes)
        flat = lambda table: table.transpose(order).ravel()  # noqa: E731
        mean = scores.mean(axis=0)
        self.best_score_ = float(mean[tuple(choice.index)])
        params = dict(zip(self._axes, grid, strict=True))
        results = {"params": list(ParameterGrid({k: v.tolist() for k, v in params.items()}))}
        for name in sorted(self._axes):
            results[f"param_{name}"] = np.array([each[name] for each in results["params"]])
        for i, split in enumerate(scores):
            results[f"split{i}_test_score"] = flat(split)
        results["mean_test_score"], results["std_test_score"] = flat(mean), flat(spread)
        ranks = np.sort(-results["mean_test_score"])
        results["rank_test_score"] = 1 + np.searchsorted(ranks, -results["mean_test_score"])
        self.cv_results_ = results
        if self.scoring == "neg_log_loss":
            self.search_temperature_ = float(TEMPERATURES[choice.temperature])
        return mean
