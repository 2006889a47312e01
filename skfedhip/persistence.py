"""Saving and loading of classifiers: one safetensors file with a JSON header, no pickles."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .utils._files import labels_from_json, labels_to_json, read_tensors, write_tensors

_FORMAT = 1


class PersistenceMixin:
    """``save`` and ``load``; a subclass says what its models are made of.

    It implements ``_to_file()``, which gives a header and arrays, and ``_from_file(header,
    tensors)``, which takes them back in an estimator that has what all have in common.
    """

    def save(self, path):
        """Write the fitted estimator to one file, atomically and without pickle.

        Parameters
        ----------
        path : str or path-like
            File to write, by custom ``name.safetensors``: named arrays, and a JSON header with
            parameters, class labels and client ids.

        Raises
        ------
        ValueError
            If a parameter, label or id can't be written as JSON, such as a callable.
        """
        check_is_fitted(self)
        header, tensors = self._to_file()
        write_tensors(path, {**self._common_header(), **header}, tensors)

    @classmethod
    def load(cls, path):
        """Read an estimator that :meth:`save` wrote.

        Parameters
        ----------
        path : str or path-like
            File to read.

        Returns
        -------
        object
            The fitted estimator.

        Raises
        ------
        ValueError
            If the file is damaged, of another format, or holds another class of estimator.
        """
        return cls._read(path)

    @classmethod
    def _read(cls, path, **given):
        header, tensors = read_tensors(path, _FORMAT)
        found = header.get("estimator")
        if found is None:
            raise ValueError(f"{path} holds no estimator; pass a path that save wrote.")
        if found != cls.__name__:
            raise ValueError(
                f"{path} was saved by {found}, not by {cls.__name__}; load it with {found}.load."
            )
        try:
            estimator = cls._with_common(header)
            estimator._from_file(header, tensors, **given)
        except (IndexError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is damaged: it lacks, or has wrongly, {error}; save it anew."
            ) from error
        return estimator

    def _common_header(self):
        return {
            "format": _FORMAT,
            "estimator": type(self).__name__,
            "params": self._params_to_json(),
            "classes": labels_to_json(self.classes_),
            "clients": labels_to_json(self.clients_),
            "n_features_in": self.n_features_in_,
            "feature_names_in": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
            "seed": getattr(self, "_seed", None),
        }

    @classmethod
    def _with_common(cls, header):
        estimator = cls(**cls._params_from_json(header["params"]))
        estimator.classes_ = labels_from_json(header["classes"])
        estimator.clients_ = labels_from_json(header["clients"])
        estimator.n_features_in_ = header["n_features_in"]
        if header["feature_names_in"]:
            estimator.feature_names_in_ = np.array(header["feature_names_in"], dtype=object)
        if header["seed"] is not None:
            estimator._seed = header["seed"]
        return estimator

    def _params_to_json(self):
        """Parameters as JSON can hold them."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in self.get_params(deep=False).items()
        }

    @classmethod
    def _params_from_json(cls, params):
        """What :meth:`_params_to_json` took apart."""
        return params
