"""What closed-form classifiers are made of, as named arrays and JSON."""

from dataclasses import asdict, replace

import numpy as np

from ..core import DenseModels, DesignBlock, FactoredModels, PersonalModels, RetainedClients
from ..persistence import PersistenceMixin
from ..privacy import GaussianMechanism
from ..utils._files import only_of, prefixed
from ._method import broadcast_from_arrays


class AnalyticPersistence(PersistenceMixin):
    """``save`` and ``load`` of a closed-form classifier."""

    def _to_file(self):
        models = self._solved_models()
        tensors = prefixed("models", _models_to_arrays(models))
        tensors |= prefixed("broadcast", self._broadcast.arrays())
        header = {
            "method": self._fitted_method.to_json(),
            "dtype": self._dtype.str,
            "n_features": self._n_features,
            "temperature": self.temperature_,
            "bytes": [each.tolist() for each in self._traffic()],
            "guests": None,
        }
        tuned, header["tuned"] = self._tuning_to_arrays()
        tensors |= prefixed("tuned", tuned)
        if self._retained is not None:
            tensors |= prefixed("retained", self._retained_to_arrays())
            header["guests"] = [c in self._retained.guests for c in self.clients_.tolist()]
        return header, tensors

    def _from_file(self, header, tensors):
        self._dtype = np.dtype(header["dtype"])
        self._n_features = header["n_features"]
        self.temperature_ = header["temperature"]
        self._bytes = tuple(np.array(each, dtype=np.int64) for each in header["bytes"])
        self._tuning_from_arrays(only_of("tuned", tensors), header["tuned"])
        self._fitted_method = replace(self._method(), **header["method"])
        self._broadcast = broadcast_from_arrays(only_of("broadcast", tensors))
        self._models = _models_from_arrays(only_of("models", tensors), self.clients_)
        self._retained = None
        if header["guests"] is not None:
            self._retained = _retained_from_arrays(
                only_of("retained", tensors), self.clients_, header["guests"]
            )

    def _tuning_to_arrays(self):
        """What a search found, as arrays and as JSON."""
        return {}, {}

    def _tuning_from_arrays(self, arrays, values):
        """Take back what :meth:`_tuning_to_arrays` gave."""

    def _params_to_json(self):
        params = super()._params_to_json()
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
