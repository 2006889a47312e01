"""What the server of a federation knows: sums and digests, whatever the network."""

import dataclasses
import json
import secrets
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ..core import ClientBlock
from ..privacy import GaussianMechanism
from ..protocol import ClientUpdate, Empty, Schema
from ..utils._files import labels_from_json, labels_to_json, write_atomically
from ..utils._ids import as_ids, sort_ids
from ._store import pack, unpack
from ._wire import RefusedMessage, decode_update, digest, encode

_LEAST_LEFT = 1e-6  # of the largest number of a sum, so that a difference has ten digits
_PLAIN = bool | int | float | str | tuple | GaussianMechanism | None


def schema_to_json(schema):
    """A schema as one line of text."""
    return json.dumps(
        {
            "shape": schema.row_shape,
            "classes": labels_to_json(schema.classes),
            "dtype": np.dtype(schema.dtype).str,
        }
    )


def schema_from_json(text):
    """The schema that :func:`schema_to_json` wrote."""
    stored = json.loads(text)
    classes = labels_from_json(stored["classes"])
    return Schema.of_rows(stored["shape"], classes, np.dtype(stored["dtype"]))


def offered_schema(text):
    """The schema that a stranger says its rows have.

    Raises
    ------
    ValueError
        If it is none of any rows.
    """
    try:
        schema = schema_from_json(text)
        classes = as_ids(schema.classes, len(schema.classes))
    except Exception as error:  # whatever a parser says of a foreign text
        raise ValueError(f"it is no schema ({type(error).__name__}: {error})") from error
    if classes.dtype.kind == "O" or schema.dtype.kind != "f" or min(schema.row_shape) < 1:
        raise ValueError("it is not of rows of numbers with labels of one kind")
    return replace(schema, classes=classes)


def settings_of(method):
    """What a method's numbers depend on, but for how many rounds, as far as text can say it."""
    given = dataclasses.fields(method) if dataclasses.is_dataclass(method) else ()
    pairs = ((field.name, getattr(method, field.name)) for field in given)
    plain = {name: value for name, value in pairs if isinstance(value, _PLAIN)}
    plain.pop("n_rounds", None)
    return {"method": type(method).__name__} | {n: repr(value) for n, value in plain.items()}


def probe_block(schema):
    """Made-up rows of a client: two of each class."""
    codes = np.repeat(np.arange(schema.n_classes), 2)
    X = np.random.default_rng(0).standard_normal((len(codes), schema.n_features))
    ids = np.array(["probe"])
    owners = np.zeros(len(codes), dtype=np.intp)
    X = X.astype(schema.dtype)
    return ClientBlock.from_arrays(X, codes, owners, ids, schema.n_classes)


@dataclass
class Tally:
    """The sum of a round's updates, and of each client the digest of what it sent."""

    total: ClientUpdate | None = None
    digests: dict = field(default_factory=dict)

    def add(self, client, update, mark):
        """Add an accepted update."""
        with np.errstate(all="ignore"):
            total = update if self.total is None else self.total + update
        if not all(np.isfinite(a).all() for a in total.arrays().values() if a.dtype.kind == "f"):
            raise RefusedMessage("the sum of all clients overflows with it")
        self.total = total
        self.digests[client] = mark


class Server:
    """The server's side of a federated method, in memory that does not grow with its clients.

    It holds the sum of a round's updates and the digests of the messages. Where the method's first
    message down says nothing (closed forms), what clients send first depends on nobody else: the
    sum of that round is never finished, so that clients can join, and leave, at any time; the
    rounds after it are then gone through again.

    Parameters
    ----------
    method : FederatedMethod
    schema : Schema
    path : str or path-like, default=None
        File to keep the state in; written, whole or not at all, after each accepted message. With
        a state in it already, the server goes on from that. One server may write it at a time.

    Attributes
    ----------
    federation : str
        Names this federation, across restarts: what clients remember is of this one or another.
    round : int
        Which round is being gathered, ``method.n_rounds`` when all are.
    roster : list
        The clients that the cohort of this round is drawn from, where the method draws one.
    heard : dict
        Clients that sent something in any round, as keys, where they can't leave.
    left : set
        Clients that have left; they are not asked again.
    refused : dict
        From client to why its last message was refused.
    """

    def __init__(self, method, schema, *, path=None):
        self.method, self.schema = method, schema
        self.path = None if path is None else Path(path)
        self.round, self.broadcasts, self.server_state = 0, (method.initialize(schema),), None
        self.tally = Tally()
        self.first = self.tally if self.stays_open else None
        self.left, self.refused = set(), {}
        self.roster, self.heard = [], {}
        self.federation = secrets.token_hex(8)
        self._stamp = None if self.path is None else _stamp_of(self.path)
        if self._stamp is not None:
            self._restore()

    @cached_property
    def stays_open(self):
        """Whether clients may join and leave after the first round."""
        return isinstance(self.broadcasts[0], Empty) and getattr(self.method, "revisable", True)

    @property
    def broadcast(self):
        """The last message down."""
        return self.broadcasts[-1]

    @property
    def finished(self):
        """Whether all rounds are done."""
        return self.round >= self.method.n_rounds

    @property
    def members(self):
        """Clients that are part of the result, or were of the last round."""
        return list(self.first.digests if self.first else self.heard)

    @property
    def draws(self):
        """Whether not all clients take part in every round."""
        return hasattr(self.method, "among")

    def enroll(self, clients):
        """Say who is there, before the first message of a round that draws its cohort."""
        if not self.tally.digests:
            self.roster = sort_ids(clients).tolist()
            self._told_anew()
            self.save()

    @cached_property
    def cohort(self):
        """Clients of the roster that take part in this round."""
        roster = sort_ids(self.roster)
        self.method = self.method.among(roster)
        joins = self.method.cohort(roster, self.broadcast.for_client(None))
        return {client for client, takes_part in zip(self.roster, joins, strict=True) if takes_part}

    def wants(self, client):
        """Whether the client is to send something in this round."""
        if client in self.left or self.finished or client in self.tally.digests:
            return False
        if self.draws and client not in self.cohort:
            return False
        return self.round == 0 or self.first is None or client in self.first.digests

    def receive(self, client, data):
        """Check a client's message, and add it to the round.

        Raises
        ------
        RefusedMessage
            If it is refused; then nothing has changed but ``refused``.
        """
        mark = digest(data)
        try:
            if client in self.left:
                raise RefusedMessage("the client has left")
            if self.tally.digests.get(client) == mark:
                return  # sent twice, counted once
            if client in self.tally.digests:
                raise RefusedMessage("another message of this client has been counted already")
            if not self.wants(client):
                raise RefusedMessage("nothing was asked of this client")
            self.tally.add(client, decode_update(data, self._expected), mark)
            if self.first is None:
                self.heard[client] = None
        except RefusedMessage as error:
            self.refused[client] = str(error)
            raise
        self.refused.pop(client, None)
        self.save()

    def advance(self):
        """Close the round: from its sum to the next message down."""
        if self.tally.total is None:
            raise RuntimeError(
                f"no client has sent anything in round {self.round}; nothing to sum."
            )
        before = self.broadcast
        broadcast, self.server_state = self.method.aggregate(
            [self.tally.total], before, self.server_state
        )
        self.broadcasts = (before, broadcast)
        self.round += 1
        if not self.finished:
            self.tally = Tally()
        self._told_anew()
        self.save()

    def reopen(self):
        """Go back to the first round, so that clients can join and leave."""
        if not self.stays_open:
            raise RuntimeError(
                f"{type(self.method).__name__} can't take clients in, or let them go, after its "
                "rounds: what each sent depends on all others. Start anew instead."
            )
        self.round, self.tally, self.server_state = 0, self.first, None
        self.broadcasts = (self.method.initialize(self.schema),)
        self._told_anew()

    def forget(self, client, data):
        """Subtract what a leaving client sent; it has to send the same once more.

        Parameters
        ----------
        client : hashable
        data : bytes
            The client's message of the first round, to the bit.
        """
        self.reopen()
        mark = self.first.digests.get(client)
        if mark is None:
            raise RefusedMessage("nothing of this client has been counted")
        if digest(data) != mark:
            raise RefusedMessage("it is not what the client sent when it was counted")
        if len(self.first.digests) == 1:
            raise RefusedMessage("nobody would be left")
        rest = self.first.total - decode_update(data, self._expected)
        if _largest(rest) < _LEAST_LEFT * _largest(self.first.total):
            raise RefusedMessage(
                "its numbers are so much larger than the others' that these would lose their "
                "digits; start anew without it"
            )
        self.first.total = rest
        del self.first.digests[client]
        self.left.add(client)
        self.save()

    def history_for(self, client):
        """The last messages down that a client may need, two at most, as bytes."""
        own = [each.for_client(client) for each in self.broadcasts]
        if all(mine is each for mine, each in zip(own, self.broadcasts, strict=True)):
            return self._history
        return [encode(each) for each in own]

    @cached_property
    def _history(self):
        return [encode(each) for each in self.broadcasts]

    def _told_anew(self):
        """Forget what was made of the last messages down."""
        for name in ("_expected", "_history", "cohort"):
            vars(self).pop(name, None)

    @cached_property
    def _expected(self):
        """What an update of this round looks like, made of rows that are nobody's."""
        broadcast = self.broadcast.for_client(None)
        if hasattr(self.method, "update_like"):
            return self.method.update_like(self.schema, broadcast)
        return self.method.client_update(probe_block(self.schema), broadcast, None)[0]

    def save(self):
        """Write the state, where a file is given."""
        if self.path is None:
            return
        state = {
            "federation": self.federation,
            "schema": schema_to_json(self.schema),
            "settings": settings_of(self.method),
            "round": self.round,
            "broadcasts": self.broadcasts,
            "server_state": self.server_state,
            "tally": None if self.tally is self.first else self.tally,
            "first": self.first,
            "left": sorted(self.left, key=repr),
            "roster": self.roster,
            "heard": list(self.heard),
        }
        if self._stamp != _stamp_of(self.path):
            raise RuntimeError(
                f"another server has written {self.path} meanwhile, and would lose what this one "
                "adds; let one run at a time, and run again."
            )
        write_atomically(self.path, pack(state))
        self._stamp = _stamp_of(self.path)

    def _restore(self):
        state, known = _stored(self.path)
        if schema_to_json(known) != schema_to_json(self.schema):
            raise ValueError(
                f"{self.path} is of a federation with {known.n_features} features and the classes "
                f"{known.classes.tolist()}; remove it to start anew, or pass these."
            )
        before, now = state["settings"], settings_of(self.method)
        other = [f"{name} {value}" for name, value in before.items() if now.get(name) != value]
        if other:
            raise ValueError(
                f"{self.path} is of a federation with {', '.join(other)}; remove it to start anew, "
                "or pass that estimator."
            )
        self.round, self.server_state = state["round"], state["server_state"]
        self.broadcasts, self.first = state["broadcasts"], state["first"]
        self.tally = self.first if state["tally"] is None else state["tally"]
        self.left, self.federation = set(state["left"]), state["federation"]
        self.roster, self.heard = state["roster"], dict.fromkeys(state["heard"])


def _largest(update):
    """The largest absolute number in an update."""
    return max(np.abs(array).max() for array in update.arrays().values())


def _stamp_of(path):
    """What tells one writing of a file from another, None where there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def stored_schema(path):
    """The schema of the state in a file, None where there is no file."""
    path = Path(path)
    return _stored(path)[1] if path.exists() else None


def _stored(path):
    """The state in a file, and its schema."""
    try:
        state = unpack(path.read_bytes())
        return state, schema_from_json(state["schema"])
    except Exception as error:  # a file of any other origin
        raise ValueError(
            f"{path} holds no state of a server ({type(error).__name__}: {error}); remove it to "
            "start anew."
        ) from error
