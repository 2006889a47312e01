"""Checkpoints of a run: what it takes to go on as if it had never stopped."""

import hashlib
import json
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import numpy as np
import torch

from ..utils._files import labels_to_json, only_of, prefixed, read_tensors, write_tensors
from ._method import ModelBroadcast, ServerState
from ._models import Models

_FORMAT = 1

_FREE = {
    "n_rounds",
    "tol",
    "patience",
    "model",
    "warm_start",
    "checkpoint",
    "checkpoint_every",
    "group_column",
    "missing_groups",
    "local_classes_only",
    "random_state",
    "device",
    "n_jobs",
    "verbose",
}
"""Parameters that may change between two runs of one checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """A run between two rounds.

    Attributes
    ----------
    broadcast : ModelBroadcast
    server_state : ServerState
    states : dict of Tensor
        What all clients keep, stacked in their order.
    losses, accuracies : list
        Of all rounds so far.
    best : Models or None
    seed : int
    bytes_sent : list of int
        Up and down so far.
    """

    broadcast: ModelBroadcast
    server_state: ServerState
    states: dict
    losses: list
    accuracies: list
    best: Models | None
    seed: int
    bytes_sent: list

    @classmethod
    def of(cls, monitor, state, seed):
        """Where a run stands, from its Monitor and the loop's FederationState."""
        return cls(
            state.broadcast,
            state.server_state,
            monitor.cut.join(state.states),
            monitor.losses,
            monitor.accuracies,
            monitor.best,
            seed,
            [state.bytes_up, state.bytes_down],
        )

    def write(self, path, configuration):
        """Write to one file, whole or not at all."""
        tensors = {
            **prefixed("parameters", self.broadcast.parameters),
            **prefixed("averages", self.server_state.averages),
            **prefixed("memory", self.server_state.memory),
            **prefixed("states", _numpy(self.states)),
            "losses": np.array(self.losses),
            "accuracies": np.array(self.accuracies),
        }
        if self.best is not None:
            tensors |= prefixed("best_shared", _numpy(self.best.shared))
            tensors |= prefixed("best_own", _numpy(self.best.own))
        header = {
            "format": _FORMAT,
            "kind": "checkpoint",
            "configuration": configuration,
            "n_round": int(self.broadcast.n_round),
            "best_round": None if self.best is None else self.best.n_round,
            "seed": self.seed,
            "bytes": self.bytes_sent,
            "loss": self.server_state.loss,
        }
        write_tensors(path, header, tensors)

    @classmethod
    def read(cls, path, configuration):
        """Read a run of this configuration; None where there is no file yet."""
        if not Path(path).exists():
            return None
        header, tensors = read_tensors(path, _FORMAT)
        if header.get("kind") != "checkpoint":
            raise ValueError(f"{path} is not a checkpoint; name another file.")
        # Through JSON and back, as the file's own has been.
        wanted, found = json.loads(json.dumps(configuration)), header["configuration"]
        for key in wanted:
            if wanted[key] != found.get(key):
                raise ValueError(
                    f"the checkpoint {path} is of another configuration: {key} was "
                    f"{_short(found.get(key))} and is {_short(wanted[key])} now; delete the file, "
                    "or name another."
                )
        best = None
        if header["best_round"] is not None:
            shared, own = (_torch(only_of(f"best_{part}", tensors)) for part in ("shared", "own"))
            best = Models(shared, own, header["best_round"])
        return cls(
            ModelBroadcast(only_of("parameters", tensors), np.array(header["n_round"])),
            ServerState(only_of("averages", tensors), header["loss"], only_of("memory", tensors)),
            _torch(only_of("states", tensors)),
            tensors["losses"].tolist(),
            list(tensors["accuracies"]),
            best,
            header["seed"],
            header["bytes"],
        )


def configuration_of(estimator, X, y, ids):
    """What a checkpoint must agree on before a run goes on from it, as JSON can hold it."""
    params, seed = estimator.get_params(deep=False), estimator.random_state
    return {
        "estimator": type(estimator).__name__,
        **{name: describe(value) for name, value in params.items() if name not in _FREE},
        "random_state": describe(seed) if isinstance(seed, Integral) else None,
        "classes": describe(labels_to_json(np.unique(y))),
        "rows": fingerprint(X, y, ids),
    }


def fingerprint(X, y, ids):
    """A hash of the training rows, by which another data set is told."""
    digest = hashlib.blake2b(digest_size=16)
    for array in (X, y, ids):
        values = array if array.dtype.kind != "O" else np.array([repr(v) for v in array.tolist()])
        digest.update(f"{values.dtype.str}{values.shape}".encode())
        digest.update(np.ascontiguousarray(values).view(np.uint8))
    return digest.hexdigest()


def describe(value):
    """A parameter as JSON can hold it, the same in every process."""
    if isinstance(value, dict):
        return {str(key): describe(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return fingerprint(value, np.empty(0), np.empty(0))
    if isinstance(value, tuple | list):
        return [describe(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    named = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{named}" if named else repr(value)


def _short(value):
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def _numpy(tensors):
    return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}


def _torch(arrays):
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
