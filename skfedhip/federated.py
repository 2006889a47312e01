"""What a federation outside of this process asks of a classifier."""

from numbers import Integral

from sklearn.base import clone


class FederatedMixin:
    """The two ends of a classifier whose clients are in different places.

    Any estimator with these methods runs in a federation:

    * ``_federated(schema)``: a copy for one place, its method in ``_fitted_method``;
    * ``_client_block(X, y, client, sample_weight)``: the rows of this place as a block;
    * ``_finish_federated(block, broadcasts, state, traffic)``: the copy, fitted, from the last
      messages down (two at most, in order), what the client kept, which may be None, and the bytes
      that it sent and received, each of shape (1,);
    * ``_finish_globally(block, broadcasts, server_state)``: the same with the global model alone,
      for the server, which has no rows: ``block`` holds made-up ones.

    A subclass implements the last three, and ``_begin(schema)``, which readies an estimator for
    rows that it has yet to see. On a cluster the estimator itself is fitted, by

    * ``_check_apart(weighted)``, which refuses parameters that take all rows in one place, and
      weights of rows where it takes none;
    * ``_begin_apart(like, classes, totals)``: from an array of no rows, and the classes with the
      sums of their weights, the factor of each class or None, the width of the rows that are
      worked on, and the method that makes roots of Gram matrices of clients in several
      partitions, None where a client's rows must be in one place;
    * ``_fit_apart(clients, blocks)``, which runs the method on blocks that are elsewhere.
    """

    def _federated(self, schema):
        """A copy of the estimator that knows its schema and has yet to see rows."""
        self._check_federated()
        clf = clone(self).set_params(group_column=None)
        clf._validate_params()
        clf._begin(schema)
        clf.n_features_in_ = schema.row_shape[0]
        return clf

    def _check_federated(self):
        """Refuse parameters whose meaning takes rows of several places."""
        if not isinstance(getattr(self, "random_state", 0), Integral):
            raise ValueError(
                f"all places must draw the same random numbers, got random_state="
                f"{self.random_state!r}; pass an int."
            )
