"""Coefficients as scikit-learn shapes them, and one client's model on its own."""

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.utils.validation import check_is_fitted

from ..utils._ids import as_ids, lookup_ids


class CoefficientsMixin:
    """``coef_`` and its like, and ``export_client``, of a closed-form classifier."""

    def export_client(self, client):
        """One client's model as a plain linear classifier that needs no groups.

        Parameters
        ----------
        client : hashable scalar
            One of ``clients_``.

        Returns
        -------
        RidgeClassifier
            Fitted, with the client's coefficients; it takes the features without any id column.
        """
        check_is_fitted(self)
        k = self._client_position(client)
        coef = self._solved_models().coef(k)
        return self._linear_classifier(coef, k)

    def _client_positions(self, ids):
        """Positions in ``clients_``; an unknown id is an error."""
        positions = lookup_ids(self.clients_, ids)
        if (positions < 0).any():
            unknown = ids.tolist()[np.argmin(positions)]
            raise ValueError(
                f"client {unknown!r} is not one of the {len(self.clients_)} fitted clients; see "
                "clients_."
            )
        return positions

    def _client_position(self, client):
        return self._client_positions(as_ids([client], 1, allow_none=True))[0]

    def _linear_classifier(self, coef, k):
        """A RidgeClassifier with coefficients (d, p), restricted as client k is."""
        coef, intercept = coef[:, self._lead :], self._intercepts(coef)[:, 0]
        if self._restricts_classes():
            allowed = self._seen_classes()[k]
            coef = np.where(allowed[:, None], coef, 0.0)
            intercept = np.where(allowed, intercept, -np.inf)
        # Fitted on anything, so that all that scikit-learn expects is there; then ours.
        linear = RidgeClassifier(fit_intercept=bool(self._lead), solver="cholesky")
        linear.fit(np.eye(len(self.classes_), coef.shape[1]), self.classes_)
        linear.set_params(alpha=self._fitted_method.beta, solver="auto")
        linear.coef_ = self._public(coef)
        linear.intercept_ = self._public(intercept[:, None])[:, 0]
        return linear

    @property
    def coef_(self):
        """Coefficients of the global model, shape (d, m); (1, m) for two classes."""
        return self._public(self._global_coef()[:, self._lead :])

    @property
    def intercept_(self):
        """Intercepts of the global model, shape (d,); (1,) for two classes."""
        return self._public(self._intercepts(self._global_coef()))[:, 0]

    @property
    def personal_coef_(self):
        """Coefficients of every client, shape (K, d, m); (K, 1, m) for two classes."""
        return self._public(self._personal_coefs()[:, :, self._lead :])

    @property
    def personal_intercept_(self):
        """Intercepts of every client, shape (K, d); (K, 1) for two classes."""
        return self._public(self._intercepts(self._personal_coefs()))[:, :, 0]

    @property
    def _lead(self):
        """1 where the first column of coefficients is an intercept, 0 where there is none."""
        self._solved_models()
        return int(self._fitted_method.fit_intercept)

    def _global_coef(self):
        return self._solved_models().base

    def _personal_coefs(self):
        return self._solved_models().coefs()

    def _intercepts(self, coef):
        """Intercepts (..., d, 1) of coefficients (..., d, p)."""
        return coef[..., :1] if self._lead else np.zeros((*coef.shape[:-1], 1))

    def _public(self, coef):
        """Coefficients (..., d, m) as scikit-learn shapes them, in X's dtype."""
        if coef.shape[-2] == 2:
            coef = coef[..., 1:, :] - coef[..., :1, :]
        return coef.astype(self._dtype, copy=False)
