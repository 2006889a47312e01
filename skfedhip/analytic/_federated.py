"""What a federation outside of this process asks of a closed-form classifier."""

from numbers import Integral

import numpy as np
from sklearn.base import clone

from ..protocol import Empty
from ..utils._weights import check_weight


class FederatedMixin:
    """The two ends of a closed-form classifier whose clients are in different places.

    Any estimator with these methods runs in a federation:

    * ``_federated(schema)``: a copy for one place, its method in ``_fitted_method``;
    * ``_client_block(X, y, client, sample_weight)``: the rows of this place as a block;
    * ``_finish_federated(block, broadcasts, state, traffic)``: the copy, fitted, from the last
      messages down (two at most, in order), what the client kept, which may be None, and the bytes
      that it sent and received, each of shape (1,);
    * ``_finish_globally(block, broadcasts, server_state)``: the same with the global model alone,
      for the server, which has no rows: ``block`` holds made-up ones.
    """

    def _federated(self, schema):
        """A copy of the estimator that knows its schema and has yet to see rows."""
        self._check_federated()
        clf = clone(self).set_params(group_column=None, retain_statistics=False)
        clf._validate_params()
        clf._start(np.empty((0, schema.n_features), schema.dtype), schema.classes, retain=False)
        clf.n_features_in_ = schema.n_features
        return clf

    def _check_federated(self):
        """Refuse parameters whose meaning takes rows of several places."""
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs the class counts of all clients before the first "
                "message; pass a dict of weights instead."
            )
        if not isinstance(getattr(self, "random_state", 0), Integral):
            raise ValueError(
                f"all places must draw the same random features, got random_state="
                f"{self.random_state!r}; pass an int."
            )

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
