"""Save and load fitted classifiers: safetensors with a JSON header, no pickles."""

from dataclasses import asdict, replace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..core import DenseModels, DesignBlock, FactoredModels, PersonalModels, RetainedClients
from ..privacy import GaussianMechanism
from ..utils._files import (
    labels_from_json,
    labels_to_json,
    only_of,
    prefixed,
    read_tensors,
    write_tensors,
)
from ._method import broadcast_from_arrays

_FORMAT = 1


class PersistenceMixin:
    """``save`` and ``load`` of a closed-form classifier."""

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
        models = self._solved_models()
        tensors = prefixed("models", _models_to_arrays(models))
        tensors |= prefixed("broadcast", self._broadcast.arrays())
        header = {
            "format": _FORMAT,
            "estimator": type(self).__name__,
            "params": self._params_to_json(),
            "method": self._fitted_method.to_json(),
            "classes": labels_to_json(self.classes_),
            "clients": labels_to_json(self.clients_),
            "dtype": self._dtype.str,
            "n_features": self._n_features,
            "n_features_in": self.n_features_in_,
            "feature_names_in": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
            "temperature": self.temperature_,
            "bytes": [self.bytes_up_, self.bytes_down_],
            "seed": getattr(self, "_seed", None),
            "guests": None,
        }
        tuned, header["tuned"] = self._tuning_to_arrays()
        tensors |= prefixed("tuned", tuned)
        if self._retained is not None:
            tensors |= prefixed("retained", self._retained_to_arrays())
            header["guests"] = [c in self._retained.guests for c in self.clients_.tolist()]
        write_tensors(path, header, tensors)

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
        header, tensors = read_tensors(path, _FORMAT)
        if header["estimator"] != cls.__name__:
            raise ValueError(
                f"{path} holds a {header['estimator']}, not a {cls.__name__}; load it with "
                f"{header['estimator']}.load."
            )
        try:
            return cls._restored(header, tensors)
        except (IndexError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is damaged: it lacks, or has wrongly, {error}; save it anew."
            ) from error

    @classmethod
    def _restored(cls, header, tensors):
        estimator = cls(**cls._params_from_json(header["params"]))
        estimator.classes_ = labels_from_json(header["classes"])
        estimator.clients_ = labels_from_json(header["clients"])
        estimator._dtype = np.dtype(header["dtype"])
        estimator._n_features = header["n_features"]
        estimator.n_features_in_ = header["n_features_in"]
        if header["feature_names_in"]:
            estimator.feature_names_in_ = np.array(header["feature_names_in"], dtype=object)
        estimator.temperature_ = header["temperature"]
        estimator.bytes_up_, estimator.bytes_down_ = header["bytes"]
        if header["seed"] is not None:
            estimator._seed = header["seed"]
        estimator._tuning_from_arrays(only_of("tuned", tensors), header["tuned"])
        estimator._fitted_method = replace(estimator._method(), **header["method"])
        estimator._broadcast = broadcast_from_arrays(only_of("broadcast", tensors))
        estimator._models = _models_from_arrays(only_of("models", tensors), estimator.clients_)
        estimator._retained = None
        if header["guests"] is not None:
            estimator._retained = _retained_from_arrays(
                only_of("retained", tensors), estimator.clients_, header["guests"]
            )
        return estimator

    def _tuning_to_arrays(self):
        """What a search found, as arrays and as JSON."""
        return {}, {}

    def _tuning_from_arrays(self, arrays, values):
        """Take back what :meth:`_tuning_to_arrays` gave."""

    def _params_to_json(self):
        params = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in self.get_params(deep=False).items()
        }
        if isinstance(params["class_weight"], dict):
            params["class_weight"] = [*map(list, params["class_weight"].items())]
        if params.get("privacy") is not None:
            params["privacy"] = asdict(params["privacy"])
        return params

    @classmethod
    def _params_from_json(cls, params):
        if isinstance(params["class_weight"], list):
            params["class_weight"] = dict(params["class_weight"])
        if params.get("privacy") is not None:
            params["privacy"] = GaussianMechanism(**params["privacy"])
        return params

    def _retained_to_arrays(self):
        block = DesignBlock.concatenate(
            self._retained.clients[client] for client in self.clients_.tolist()
        )
        return {
            "rows": block.rows,
            "targets": block.dense_targets(),
            "class_weights": block.class_weights,
            "offsets": block.offsets,
        }


def _retained_from_arrays(arrays, clients, guests):
    block = DesignBlock(**arrays, client_ids=clients)
    retained = RetainedClients()
    retained.add(block)
    retained.guests = {c for c, late in zip(clients.tolist(), guests, strict=True) if late}
    return retained


def _models_to_arrays(models):
    out = {"base": models.base, "seen": models.seen, "part": models.part, "slot": models.slot}
    for i, part in enumerate(models.parts):
        if isinstance(part, DenseModels):
            out[f"{i}.coefs"] = part.coefs
        else:
            out |= {f"{i}.rows": part.rows, f"{i}.weights": part.weights}
            out |= {f"{i}.offsets": part.offsets}
            if part.base is not models.base:
                out[f"{i}.base"] = part.base
    return out


def _models_from_arrays(arrays, clients):
    parts = []
    while own := only_of(str(len(parts)), arrays):
        if "coefs" in own:
            parts.append(DenseModels(own["coefs"]))
        else:
            parts.append(FactoredModels(**{"base": arrays["base"], **own}))
    shared = (arrays[name] for name in ("part", "slot"))
    return PersonalModels(arrays["base"], clients, arrays["seen"], tuple(parts), *shared)
