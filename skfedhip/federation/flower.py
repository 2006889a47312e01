"""An estimator as a Flower app: the same numbers as ``fit``, the rows where they are.

Needs the extra ``flower``. The two functions here make the apps that ``flwr run`` looks for, in a
simulation as in a deployment.
"""

import json
import logging
import re
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from ..protocol import Schema
from ..utils._files import write_atomically
from ._client import Participant, Unfit
from ._conductor import Conductor, Patience
from ._server import probe_block, stored_schema
from ._wire import decode_broadcast

__all__ = ["make_client_app", "make_server_app"]

_log = logging.getLogger(__name__)
_TASK = "task"  # key of the one record in a message
_KEPT = "kept"  # key of what a client keeps in its context
_APP_FAILED = {1, 2, 6, 7}  # Flower's codes of errors that are the client's own


def make_client_app(estimator, load_data, *, save_model=None, state_dir=None, dtype=None):
    """Make the app that runs where a client's rows are.

    The client sends what the method's ``client_update`` makes of its rows, and nothing else; its
    personal model is made at home and stays there.

    Parameters
    ----------
    estimator : estimator
        A classifier of skfedhip, fitted or not, the same at all clients and at the server. Its
        ``group_column`` is not used: whose the rows are says the client's id.
    load_data : callable
        From Flower's Context to (X, y) or (X, y, sample_weight) of this client: arrays of shape
        (n_k, m), (n_k,), (n_k,), always in the same order.
    save_model : callable, default=None
        Called with (fitted, context) each time the personal model is made; ``fitted`` is the
        estimator that knows this client and the global model. By default it is saved as
        ``model.safetensors`` in the client's ``state_dir``, or nowhere without one.
    state_dir : str or path-like, default=None
        Directory on the client's own disk for what it has to remember after a restart: its state
        between rounds and the message that it would have to repeat to leave. The node's
        ``state-dir``, where its configuration has one, wins. By default it remembers for as long
        as the run and the SuperNode last.
    dtype : {"float32"} or None, default=None
        Whether to send float64 numbers in half the bytes, with 7 digits instead of 16.

    Returns
    -------
    flwr.clientapp.ClientApp
        The app, for a project's ``pyproject.toml`` to name.

    Notes
    -----
    A client is known by the ``client-id`` of its node's configuration, or in a simulation by its
    ``partition-id``; never by the node id, which changes at every start.

    Examples
    --------
    >>> from skfedhip import FedHiPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> from skfedhip.federation.flower import make_client_app
    >>> X, y, clients = make_federated_classification(random_state=0)
    >>> def load_data(context):
    ...     own = clients == context.node_config["partition-id"]
    ...     return X[own], y[own]
    >>> app = make_client_app(FedHiPClassifier(alpha=5.0), load_data)
    """
    _check_estimator(estimator)
    if not callable(load_data):
        raise TypeError(
            f"load_data must be a callable, got {type(load_data).__name__}; pass a function that "
            "takes Flower's context and returns (X, y)."
        )
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        client = _client_id(context)
        home = context.node_config.get("state-dir", state_dir)
        home = None if home is None else Path(home)
        participant = Participant(
            estimator, client, lambda: load_data(context), kept=_recall(context, home), dtype=dtype
        )
        request = dict(message.content[_TASK])
        try:
            reply = participant.answer(request.pop(_TASK), request)
        except Unfit as error:
            reply = {"client": client, "unfit": str(error)}
        _remember(context, home, participant.kept)
        if participant.fitted is not None:
            if save_model is not None:
                save_model(participant.fitted, context)
            elif home is not None:
                participant.fitted.save(home / "model.safetensors")
        return Message(RecordDict({_TASK: ConfigRecord(reply)}), reply_to=message)

    app.query()(answer)
    app.train()(answer)
    return app


def make_server_app(
    estimator,
    *,
    classes=None,
    n_features=None,
    dtype=np.float64,
    clients=None,
    min_clients=1,
    round_seconds=600.0,
    late_seconds=0.0,
    state_path=None,
    model_path=None,
    report_path=None,
    on_result=None,
):
    """Make the app that adds up what the clients send.

    A message that is not what a client of this federation can have sent (of another shape or
    class set, with a NaN, a Gram matrix that is not positive semidefinite, a second one of the
    same client, cut short or too long) is left out, and its client named in the report.

    Parameters
    ----------
    estimator : estimator
        As at the clients.
    classes : array-like of shape (d,), default=None
        All class labels; clients with others are refused. By default the union of what the first
        clients say they have.
    n_features : int or tuple of int, default=None
        Columns of a client's X, or the shape of an image; needed along with ``classes``.
    dtype : dtype, default=float64
        Of the coefficients, with ``classes``.
    clients : sequence of client ids, default=None
        Who is to take part. A round waits for them until its time is up, nobody else is let in.
        By default anybody is, and a round waits for those that are there.
    min_clients : int, default=1
        The fewest clients that make a round; below that the run fails, and keeps what it has.
    round_seconds : float, default=600
        The longest that a round waits for an answer.
    late_seconds : float, default=0
        How long the server stays, once all is done, for clients that were lost to come back.
        A closed-form method adds them exactly; the others solve anew and send nothing again.
    state_path : str or path-like, default=None
        File for the server's state, written, whole or not at all, after each accepted message. A
        later run of the same estimator goes on from it: clients that are in it already aren't
        asked again. A second server on the same file is refused.
    model_path : str or path-like, default=None
        File to save the estimator to, with the global model and no clients.
    report_path : str or path-like, default=None
        File for a report as JSON, written anew whenever there is a new result: ``clients``,
        ``lost``, ``refused`` (with the reasons), ``left``, ``updated``, and the bytes that each
        client sent and was sent.
    on_result : callable, default=None
        Called with the estimator, fitted with the global model alone, and the report as a dict,
        each time that all rounds are done: once, and once more for each client that comes back.

    Returns
    -------
    flwr.serverapp.ServerApp
        The app, for a project's ``pyproject.toml`` to name.

    Notes
    -----
    The run configuration may set ``clients``, ``min-clients``, ``round-seconds``,
    ``late-seconds``, ``state-path``, ``model-path`` and ``report-path`` too, and wins; and
    ``forget``, the ids of clients to unlearn. Lists are separated by commas, and ids of digits are
    numbers in them. A client that leaves must be connected: the server keeps sums alone, so it
    sends once more what is to be subtracted, and the server checks that it is the same.

    Examples
    --------
    >>> from skfedhip import FedHiPClassifier
    >>> from skfedhip.federation.flower import make_server_app
    >>> app = make_server_app(FedHiPClassifier(alpha=5.0), min_clients=3)
    """
    _check_estimator(estimator)
    if (classes is None) != (n_features is None):
        raise ValueError("classes and n_features say together what rows look like; pass both.")
    given = None
    if n_features:
        given = Schema.of_rows(np.atleast_1d(n_features), np.unique(classes), np.dtype(dtype))
    options = {
        "clients": None if clients is None else tuple(clients),
        "min-clients": min_clients,
        "round-seconds": round_seconds,
        "late-seconds": late_seconds,
        "state-path": state_path,
        "model-path": model_path,
        "report-path": report_path,
        "forget": (),
    }
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        # Flower's configuration has no null: an empty text says nothing.
        told = {k: v for k, v in context.run_config.items() if k in options and v != ""}
        chosen = options | told
        patience = Patience(
            clients=None if chosen["clients"] is None else _ids(chosen["clients"]),
            min_clients=int(chosen["min-clients"]),
            round_seconds=float(chosen["round-seconds"]),
            late_seconds=float(chosen["late-seconds"]),
        )
        path = chosen["state-path"]
        schema = given or (stored_schema(path) if path else None)
        publish = partial(_publish, chosen, on_result)
        conductor = Conductor(
            estimator, _GridNetwork(grid), patience, schema=schema, path=path, on_report=publish
        )
        conductor.run(forget=_ids(chosen["forget"]))

    return app


def _publish(chosen, on_result, conductor, report):
    """Write the global model and the report."""
    schema, history = conductor.schema, conductor.server.history_for(None)
    history = [decode_broadcast(data) for data in history]
    fitted = conductor.estimator._federated(schema)._finish_globally(
        probe_block(schema), history, conductor.server.server_state
    )
    record = dict(vars(report))
    _log.info("%s", {key: record[key] for key in ("clients", "lost", "refused", "left")})
    if chosen["model-path"]:
        fitted.save(chosen["model-path"])
    if chosen["report-path"]:
        write_atomically(chosen["report-path"], json.dumps(record, indent=2).encode())
    if on_result is not None:
        on_result(fitted, record)


def _check_estimator(estimator):
    if not hasattr(estimator, "_federated"):
        raise TypeError(
            f"{type(estimator).__name__} is no classifier of skfedhip; pass one, such as "
            "FedHiPClassifier."
        )
    if hasattr(estimator, "_check_federated"):
        estimator._check_federated()


def _client_id(context):
    config = context.node_config
    for key in ("client-id", "partition-id"):
        if key in config:
            return config[key]
    raise ValueError(
        "the node has no client-id; start its SuperNode with --node-config \"client-id='name'\"."
    )


def _ids(value):
    """Client ids from a run configuration, where lists are text; digits are numbers there."""
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list | tuple) else (value,)
    parts = [part.strip() for part in value.split(",") if part.strip()]
    return tuple(int(part) if re.fullmatch("-?[0-9]+", part) else part for part in parts)


def _recall(context, home):
    if home is not None and (home / "state.safetensors").exists():
        return (home / "state.safetensors").read_bytes()
    return context.state[_KEPT][_KEPT] if _KEPT in context.state else None


def _remember(context, home, kept):
    if home is None:
        context.state[_KEPT] = ConfigRecord({_KEPT: kept})
    else:
        home.mkdir(parents=True, exist_ok=True)
        write_atomically(home / "state.safetensors", kept)


class _GridNetwork:
    """Flower's Grid as the conductor sees it."""

    def __init__(self, grid):
        self.grid = grid
        self.sent = {}  # message id -> node

    def nodes(self):
        """Ids of the nodes that Flower takes for connected."""
        return list(self.grid.get_node_ids())

    def send(self, node, task, request):
        """Push one message."""
        content = RecordDict({_TASK: ConfigRecord({_TASK: task, **request})})
        kind = MessageType.TRAIN if task in ("update", "finish") else MessageType.QUERY
        message = Message(content, node, kind)
        (message_id,) = self.grid.push_messages([message])
        if message_id is not None:
            self.sent[message_id] = node

    def replies(self):
        """Pull what has come."""
        if not self.sent:
            return
        for message in self.grid.pull_messages(list(self.sent)):
            node = self.sent.pop(message.metadata.reply_to_message_id, None)
            if node is not None:
                yield node, self._content(message)

    @staticmethod
    def _content(message):
        if message.has_error():
            if message.error.code in _APP_FAILED:
                return RuntimeError("its app failed; the log of its SuperNode says why")
            return ConnectionError(message.error.reason)
        if _TASK not in message.content.config_records:
            return RuntimeError("its answer is not that of an app of skfedhip")
        reply = dict(message.content.config_records[_TASK])
        return RuntimeError(reply["unfit"]) if "unfit" in reply else reply
