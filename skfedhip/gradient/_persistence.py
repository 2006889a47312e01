"""Saving and loading of gradient classifiers; networks by name, other callables not at all."""

import os
from dataclasses import asdict, fields, is_dataclass, replace

import numpy as np
import torch

from ..feature_extraction._device import resolve_device
from ..persistence import PersistenceMixin
from ..utils._files import only_of, prefixed
from ..utils._warn import warn_user
from ._checkpoint import Checkpoint, describe, to_numpy, to_torch
from ._monitor import models_of
from ._networks import CNN, MLP, FastText, Network, ResNet18

_NETWORKS = {network.__name__: network for network in (CNN, MLP, FastText, ResNet18)}

_MADE_ANEW = {"network", "roster", "device", "dtype", "init_params"}
"""Fields of a method that are kept elsewhere."""


class GradientPersistence(PersistenceMixin):
    """``save`` and ``load`` of a gradient classifier: where its rounds ended, and its models."""

    @classmethod
    def load(cls, path, *, feature_extractor=None):
        """Read an estimator that :meth:`save` wrote.

        Parameters
        ----------
        path : str or path-like
            File to read.
        feature_extractor : callable, default=None
            What the estimator had as such, where it was a callable of the user's own: no file can
            hold that. The networks of :mod:`skfedhip.gradient` are in the file.

        Returns
        -------
        object
            The fitted estimator.

        Raises
        ------
        ValueError
            If the file is damaged, of another format, or holds another class of estimator; or if
            ``feature_extractor`` is missing, or makes other parameters than those in the file.
        """
        return cls._read(path, feature_extractor=feature_extractor)

    def _to_file(self):
        best, last = self._models["best"], self._models["last"]
        states = self._federation.states[0]
        checkpoint = self._checkpoint_of(
            self._federation, states, self._losses, self._history, best
        )
        header, tensors = checkpoint.to_file()
        header["network"] = _network_to_json(self._factory)
        header["input_shape"] = list(self._network.input_shape)
        header["method"] = _values(self._fitted_method)
        tensors["seen"] = self._seen
        tensors |= prefixed("own", to_numpy(last.own)) | prefixed("told", self._told)
        given = {name: np.asarray(value) for name, value in (self.init_params or {}).items()}
        return header, tensors | prefixed("init_params", given)

    def _from_file(self, header, tensors, feature_extractor=None):
        params = header["params"]
        self.feature_extractor, self._factory = (
            _network_from_json(stored, feature_extractor)
            for stored in (params["feature_extractor"], header["network"])
        )
        if params["init_params"] is not None:
            self.init_params = only_of("init_params", tensors)
        shape, n_classes = tuple(header["input_shape"]), len(self.classes_)
        self._network = Network(self._factory, shape, n_classes, self._seed)
        try:
            resolve_device(self.device)
        except ValueError:
            warn_user(
                f"there is no device {self.device!r} here; going on with 'auto'.", UserWarning
            )
            self.device = "auto"
        method = self._make_method(self.clients_)
        self._fitted_method = _with_values(method, header["method"])
        saved = Checkpoint.from_file(header, tensors)
        self._seen, self._told = tensors["seen"], only_of("told", tensors)
        self._take_up(saved, self.clients_)
        own = to_torch(only_of("own", tensors))
        last = models_of(self._fitted_method, self._federation, own)
        self._models = {"last": last, "best": saved.best}
        self._check_network(last.shared)
        self._publish()

    def _check_network(self, shared):
        """Check a network that came from the user against the parameters in the file."""
        made, found = (
            {n: tuple(t.shape) for n, t in tensors.items() if n.startswith("extractor.")}
            for tensors in (self._network.initial(torch.float32), shared)
        )
        if made != found:
            raise ValueError(
                f"feature_extractor makes the parameters {made}, and those in the file are "
                f"{found}; pass the one that was fitted."
            )

    def _params_to_json(self):
        params = super()._params_to_json()
        params["feature_extractor"] = _network_to_json(self.feature_extractor)
        if self.init_params is not None:
            params["init_params"] = sorted(self.init_params)
        if self.checkpoint is not None:
            params["checkpoint"] = os.fspath(self.checkpoint)
        if isinstance(self.device, torch.device):
            params["device"] = str(self.device)
        return params

    @classmethod
    def _params_from_json(cls, params):
        return _tuples(params)


def _network_to_json(factory):
    if isinstance(factory, str):
        return factory
    name = type(factory).__name__
    if _NETWORKS.get(name) is type(factory):
        return {"network": name, "parameters": asdict(factory)}
    return {"callable": describe(factory)}


def _network_from_json(stored, given):
    if isinstance(stored, str):
        return stored
    if "network" in stored:
        return _NETWORKS[stored["network"]](**_tuples(stored["parameters"]))
    if given is None:
        raise ValueError(
            f"the estimator was fitted with feature_extractor={stored['callable']}, which no file "
            "can hold; pass it as load(path, feature_extractor=...)."
        )
    return given


def _values(made):
    """What JSON can hold of a method, its parts' values under their names."""
    named = {field.name: getattr(made, field.name) for field in fields(made)}
    return {
        name: _values(value) if is_dataclass(value) else value
        for name, value in named.items()
        if name not in _MADE_ANEW
    }


def _with_values(made, values):
    """A method with other values, as :func:`_values` gave them."""
    parts = {n: _with_values(getattr(made, n), v) for n, v in values.items() if isinstance(v, dict)}
    return replace(made, **{**_tuples(values), **parts})


def _tuples(values):
    """JSON has lists where we had tuples."""
    return {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
