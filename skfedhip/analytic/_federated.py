"""A closed-form classifier whose clients are in different places."""

import numpy as np

from ..federated import FederatedMixin
from ..protocol import Empty
from ..utils._weights import check_weight


class AnalyticFederated(FederatedMixin):
    """The two ends of a federation of a closed-form classifier."""

    def _begin(self, schema):
        if schema.image_shape:
            raise ValueError(
                f"{type(self).__name__} takes rows of features, got the shape "
                f"{schema.image_shape}; extract features first."
            )
        self.retain_statistics = False
        rows = np.empty((0, schema.n_features), schema.dtype)
        self._start(rows, schema.classes, retain=False)

    def _check_federated(self):
        super()._check_federated()
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs the class counts of all clients before the first "
                "message; pass a dict of weights instead."
            )

    def _check_apart(self, weighted):
        self._check_protected(weighted)  # else, what all rows are summed up for is exact

    def _begin_apart(self, like, classes, totals):
        self._start(like, classes, retain=False)
        self._prepare(None, None, None)
        factor = None
        if self.class_weight is not None:
            factor = self._class_factors(np.arange(len(classes)), totals)
        method, width = self._fitted_method, self._fitted_method.design_width(like.shape[1])
        # What is clipped is rows; of a root's, one row can move all.
        return factor, width, method if method.privacy is None else None

    def _fit_apart(self, clients, blocks):
        self.clients_ = clients
        if self.retain_statistics:
            self._retained = blocks.retained(self._fitted_method)
        self._first_solve(blocks)

    def _client_block(self, X, y, client, sample_weight=None):
        """The rows of one client."""
        X, y, ids = self._validate_training(np.asarray(X), y, [client] * len(X), reset=False)
        weight = check_weight(sample_weight, X)
        self._check_labels(np.unique(y if weight is None else y[weight > 0]))
        return self._block(X, y, ids, weight)

    def _finish_federated(self, block, broadcasts, state, traffic):
        """The estimator fitted, with the one client's personal model."""
        told = [each for each in broadcasts if not isinstance(each, Empty)]
        found = [getattr(each, "temperature", None) for each in told]
        self.temperature_ = float(next((t for t in found if t is not None), 1.0))
        self._broadcast = told[0]
        # Models that were kept may be of earlier sums.
        models = self._fitted_method.personalize(block, self._broadcast, None)
        self.clients_, self._models = models.client_ids, models
        self._bytes = traffic
        return self

    def _finish_globally(self, block, broadcasts, server_state):
        """The estimator fitted, with the global model alone."""
        self._finish_federated(block, broadcasts, None, tuple(np.zeros((2, 0), dtype=np.int64)))
        self._models = self._models.take(np.zeros(0, dtype=np.intp))
        self.clients_ = self._models.client_ids
        return self
