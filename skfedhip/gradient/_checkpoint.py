"""Checkpoints of a run: what it takes to go on as if it had never stopped, and their files."""

import hashlib
import json
import re
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import numpy as np
import torch

from ..protocol import FederationState
from ..utils._files import (
    check_writable,
    labels_to_json,
    only_of,
    prefixed,
    read_tensors,
    write_tensors,
)
from ._method import ServerState
from ._models import Models
from ._networks import Network

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
    broadcast : dict of ndarray
        The arrays of the last message down.
    server_state : ServerState
    states : dict of Tensor
        What all clients keep, stacked in their order.
    bytes_sent : list of ndarray of shape (K,)
        What clients have sent and received so far.
    losses : list of float
        Of all rounds so far.
    history : dict of ndarray
        What was measured of each client in each round, shape (n_rounds, K).
    best : Models or None
    held_out : str or None
        A hash of the rows that the best round was chosen on.
    seed : int
    """

    broadcast: dict
    server_state: ServerState
    states: dict
    bytes_sent: list
    losses: list
    history: dict
    best: Models | None
    held_out: str | None
    seed: int

    @classmethod
    def of(cls, federation, states, losses, history, **others):
        """Where a run stands, from the loop's FederationState and all clients' states."""
        return cls(
            federation.broadcast.arrays(),
            federation.server_state,
            states,
            [federation.bytes_up, federation.bytes_down],
            losses,
            {name: np.array(rows) for name, rows in history.items()},
            **others,
        )

    def federation(self, first):
        """The FederationState again, of one block; ``first`` is a message of the same kind."""
        broadcast = type(first).from_arrays(self.broadcast)
        return FederationState(broadcast, self.server_state, [self.states], *self.bytes_sent)

    def write(self, path, configuration):
        """Write to one file, whole or not at all."""
        header, tensors = self.to_file()
        kind = {"format": _FORMAT, "kind": "checkpoint", "configuration": configuration}
        write_tensors(path, {**kind, **header}, tensors)

    def to_file(self):
        """Header and arrays of a file."""
        tensors = {
            **prefixed("broadcast", self.broadcast),
            **prefixed("averages", self.server_state.averages),
            **prefixed("memory", self.server_state.memory),
            **prefixed("states", to_numpy(self.states)),
            **prefixed("history", self.history),
            "losses": np.array(self.losses),
        }
        header = {
            "loss": self.server_state.loss,
            "bytes": [each.tolist() for each in self.bytes_sent],
            "best_round": None,
            "held_out": self.held_out,
            "seed": self.seed,
        }
        if self.best is not None:
            header["best_round"] = self.best.n_round
            tensors |= prefixed("best_shared", to_numpy(self.best.shared))
            tensors |= prefixed("best_own", to_numpy(self.best.own))
        return header, tensors

    @classmethod
    def from_file(cls, header, tensors):
        """What :meth:`to_file` took apart."""
        best, memory = None, only_of("memory", tensors)
        if header["best_round"] is not None:
            shared, own = (to_torch(only_of(f"best_{part}", tensors)) for part in ("shared", "own"))
            best = Models(shared, own, header["best_round"])
        return cls(
            only_of("broadcast", tensors),
            ServerState(only_of("averages", tensors), header["loss"], memory),
            to_torch(only_of("states", tensors)),
            [np.array(each, dtype=np.int64) for each in header["bytes"]],
            tensors["losses"].tolist(),
            only_of("history", tensors),
            best,
            header["held_out"],
            header["seed"],
        )

    @classmethod
    def read(cls, path, configuration):
        """Read a run of this configuration; None where there is no file yet."""
        folder = Path(path).parent
        if not folder.is_dir():  # else all would be lost when the first is written
            raise FileNotFoundError(
                f"there is no folder {folder} for the checkpoint; make it first."
            )
        check_writable(folder)
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
        try:
            return cls.from_file(header, tensors)
        except KeyError as error:
            raise ValueError(f"{path} is damaged: it lacks {error}; delete the file.") from error


def configuration_of(estimator, X, y, ids):
    """What a checkpoint must agree on before a run goes on from it, as JSON can hold it."""
    params, seed = estimator.get_params(deep=False), estimator.random_state
    classes = np.unique(y)
    network = Network(estimator.feature_extractor, X.shape[1:], len(classes), 0)
    return {
        "estimator": type(estimator).__name__,
        **{name: describe(value) for name, value in params.items() if name not in _FREE},
        "random_state": describe(seed) if isinstance(seed, Integral) else None,
        "network": network.description,
        "classes": describe(labels_to_json(classes)),
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
    if isinstance(value, torch.Tensor):
        return describe(value.detach().cpu().numpy())
    named = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{named}" if named else re.sub(" at 0x[0-9a-f]+", "", repr(value))


def _short(value):
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def to_numpy(tensors):
    """Tensors as arrays."""
    return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}


def to_torch(arrays):
    """Arrays as tensors, of a file's that can't be written to as well."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
