"""What a client does when the server asks, whatever the network; its rows never leave."""

import numpy as np
from sklearn.utils.multiclass import unique_labels

from ..protocol import Schema
from ..utils._threads import single_blas_thread
from ._server import schema_from_json, schema_to_json
from ._store import pack, unpack
from ._wire import decode_broadcast, digest, encode


class Unfit(ValueError):  # noqa: N818 - the client's reason not to answer
    """A client's rows are not what the federation is about; the text names no row."""


_NOTHING = {"federation": None, "state": None, "sent": {}, "heard": [], "down": 0, "up": 0}


class Participant:
    """One client of a federation: an estimator, the client's own rows, and what it keeps.

    Parameters
    ----------
    estimator : estimator
        As at all other clients and at the server.
    client : str or int
        The client's id.
    load_rows : callable
        Without arguments; returns (X, y) or (X, y, sample_weight).
    kept : bytes, default=None
        What ``kept`` was after the last task, in this process or an earlier one.
    dtype : {"float32"} or None
        Whether to send float64 numbers in half the bytes.

    Attributes
    ----------
    kept : bytes
        What the client has to find again at its next task: the method's state, its messages and
        the server's.
    fitted : estimator or None
        After the task "finish", the estimator with the client's personal model.
    """

    def __init__(self, estimator, client, load_rows, *, kept=None, dtype=None):
        self.estimator, self.client, self.load_rows, self.dtype = (
            estimator,
            client,
            load_rows,
            dtype,
        )
        self._memory = unpack(kept) if kept else dict(_NOTHING)
        self.fitted = None

    @property
    def kept(self):
        """The client's memory as bytes."""
        return pack(self._memory)

    def answer(self, task, request):
        """Do what the server asks.

        Parameters
        ----------
        task : {"hello", "update", "again", "finish"}
        request : dict
            Strings, ints, bytes and lists of bytes: the federation's name, the schema, the round,
            and messages down.

        Returns
        -------
        dict
            Strings, ints, floats and bytes.
        """
        federation = request.get("federation", self._memory["federation"])
        if federation != self._memory["federation"]:  # what was kept is of another one
            self._memory = _NOTHING | {"federation": federation}
        return {"client": self.client} | getattr(self, f"_on_{task}")(request)

    def _on_hello(self, request):
        """Who is here; and the classes and features, where the server does not know them yet."""
        if request.get("schema"):
            return {}
        if getattr(self.estimator, "privacy", None) is not None:
            raise ValueError(
                "with privacy= a client doesn't say which classes it has; pass classes and "
                "n_features to make_server_app."
            )
        X, y, _ = self._rows()
        dtype = X.dtype if X.dtype == np.float32 else np.dtype(np.float64)
        schema = Schema.of_rows(X.shape[1:], unique_labels(y), dtype)
        return {"schema": schema_to_json(schema)}

    def _on_update(self, request):
        """The client's update of a round; asked the same twice, it sends the same twice."""
        round_, data = request["round"], request["broadcasts"][-1]
        key = digest(data)
        known = self._memory["sent"].get(round_)
        self._memory["down"] += len(data)
        self._memory["heard"] = [data]
        if known is None or known[0] != key:
            update, self._memory["state"] = self._updated(request, decode_broadcast(data))
            known = [key, encode(update, dtype=self.dtype)]
            # The first round's message is what a client that leaves has to send again.
            kept = {r: each for r, each in self._memory["sent"].items() if r == 0}
            self._memory["sent"] = kept | {round_: known}
        self._memory["up"] += len(known[1])
        return {"update": known[1], "round": round_, "to": key}

    def _updated(self, request, broadcast):
        """What the method makes of the client's rows: an update, and what to keep."""
        clf, block = self._prepared(request)
        with single_blas_thread():  # so that the numbers are the same to the bit, always
            try:
                return clf._fitted_method.client_update(block, broadcast, self._memory["state"])
            except FloatingPointError as error:
                raise Unfit(str(error)) from error

    def _on_again(self, request):
        """What the client sent in the first round, so that the server can subtract it."""
        return self._on_update(request | {"round": 0})

    def _on_finish(self, request):
        """The personal model, which stays here."""
        clf, block = self._prepared(request)
        self._memory["down"] += sum(map(len, request["broadcasts"]))
        # The one before the last has come with the last round already, unless it had to come now.
        history = [*self._memory["heard"], *request["broadcasts"]][-2:]
        history = [decode_broadcast(data) for data in history]
        traffic = [np.array([self._memory[way]]) for way in ("up", "down")]
        with single_blas_thread():
            self.fitted = clf._finish_federated(block, history, self._memory["state"], traffic)
        return {"n_rows": block.n_rows}

    def _prepared(self, request):
        """The estimator's copy, and the client's rows as a block."""
        schema = schema_from_json(request["schema"])
        X, y, weight = self._rows()
        if X.shape[1:] != schema.row_shape:
            raise Unfit(
                f"its rows have shape {X.shape}, those of the federation "
                f"{(len(X), *schema.row_shape)}"
            )
        if not np.isin(y, schema.classes).all():
            raise Unfit("it has rows of classes that are not among the federation's")
        clf = self.estimator._federated(schema)
        return clf, clf._client_block(X, y, self.client, *weight)

    def _rows(self):
        """X, y, and a list of what weights there are."""
        rows = self.load_rows()
        if not isinstance(rows, tuple | list) or len(rows) not in (2, 3):
            raise TypeError(
                "the client's rows must come as (X, y) or (X, y, sample_weight), got "
                f"{type(rows).__name__}; let load_data return that."
            )
        X, y, *weight = rows
        return np.asarray(X), y, weight
