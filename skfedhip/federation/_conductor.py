"""How a server leads its clients through the rounds, over any network that can lose some."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from ..protocol import Schema
from ..utils._ids import sort_ids
from ._server import RefusedMessage, Server, offered_schema, schema_to_json
from ._wire import digest


class Network(Protocol):
    """What the conductor needs to reach nodes; a node is whatever answers, a client who it is."""

    def nodes(self):
        """Ids of the nodes that can be reached now."""

    def send(self, node, task, request):
        """Ask a node for something; returns at once."""

    def replies(self):
        """Answers that have come since the last call: pairs of node and a dict, or an Exception."""


@dataclass(frozen=True)
class Patience:
    """How long a server waits, and for whom.

    Attributes
    ----------
    clients : tuple of client ids or None
        Who is to take part; nobody else is let in. None lets anybody in.
    min_clients : int
        The fewest clients that make a round.
    round_seconds : float
        The longest that a round waits for answers; then it goes on without the others.
    late_seconds : float
        How long, once all is done, the server waits for clients that were lost to come back.
    poll_seconds : float
        Pause between looks at the network.
    """

    clients: tuple | None = None
    min_clients: int = 1
    round_seconds: float = 600.0
    late_seconds: float = 0.0
    poll_seconds: float = 0.2


@dataclass
class Report:
    """How a federation went.

    Attributes
    ----------
    clients : list
        Whose rows are in the result.
    lost : list
        Clients that were known, or expected, and have nothing in it, or that fell silent between
        rounds: they did not answer in time.
    refused : dict
        From client to why its message was left out.
    left : list
        Clients that were forgotten.
    updated : list
        Clients that have confirmed their new personal model.
    bytes_up, bytes_down : dict
        What each client sent, and was sent, in this run, headers included.
    """

    clients: list = field(default_factory=list)
    lost: list = field(default_factory=list)
    refused: dict = field(default_factory=dict)
    left: list = field(default_factory=list)
    updated: list = field(default_factory=list)
    bytes_up: Counter = field(default_factory=Counter)
    bytes_down: Counter = field(default_factory=Counter)


class Conductor:
    """Leads the clients of one network through a federation.

    Parameters
    ----------
    estimator : estimator
        As at all clients.
    network : Network
    patience : Patience
    schema : Schema, default=None
        Features and classes; by default the classes that the first clients say they have, and the
        shape of rows and kind of labels that most of them have.
    path : str or path-like, default=None
        File of the server's state.
    on_report : callable, default=None
        Called with the conductor and the Report each time that all rounds are done.
    """

    def __init__(
        self, estimator, network, patience, *, schema=None, path=None, on_report=lambda *_: None
    ):
        self.estimator, self.network, self.patience = estimator, network, patience
        self.path, self.schema, self.server = path, schema, None
        self.on_report = on_report
        self.roster = {}  # node -> client; a client that was started anew has several nodes
        self.known = set(patience.clients or ())  # clients that were here, or should be
        self.missed = (
            set()
        )  # clients that did not answer when they were asked, and have not come back
        self.gone = set()  # nodes that failed, are not welcome, or let a round pass in silence
        self.pending = {}  # node -> task that it was asked for
        self.told = {}  # node -> digest of the last message down that it has answered
        self.offers = {}  # client -> schema, until there is one for all
        self.again = {}  # client -> what a leaving client sent once more
        self.report = Report()

    def run(self, forget=()):
        """Go through all rounds, and through them again for clients that come back in time.

        Parameters
        ----------
        forget : sequence of client ids
            Clients to unlearn.

        Returns
        -------
        Report
        """
        if self.schema is None:
            self._agree()
        method = self.estimator._federated(self.schema)._fitted_method
        self.server = Server(method, self.schema, path=self.path)
        if self.server.finished or forget:
            self._wait(lambda: self._all_greeted() and {*self.roster.values()} >= {*forget})
        self._forget(forget)
        if self.server.finished and self._newcomers():
            self.server.reopen()
        self._rounds()
        self._finish()
        self.on_report(self, self._closed_report())
        late = time.monotonic() + self.patience.late_seconds
        while self.server.stays_open and self._absent() and time.monotonic() < late:
            self._look()
            if self._newcomers():
                self.server.reopen()
                self._rounds()
                self._finish()
                self.on_report(self, self._closed_report())
            time.sleep(self.patience.poll_seconds)
        return self._closed_report()

    # Who is there.

    def _agree(self):
        """Find the clients, and make the schema out of what they say."""
        self._wait(self._all_greeted)
        if len(self.offers) < self.patience.min_clients:
            raise RuntimeError(
                f"{len(self.offers)} clients said which classes they have, "
                f"{self.patience.min_clients} are needed; see that they are connected, or pass "
                "classes and n_features."
            )
        offers = list(self.offers.values())
        votes = Counter(map(_kind_of_rows, offers))
        agreeing = [o for o in offers if _kind_of_rows(o) == votes.most_common(1)[0][0]]
        classes = sort_ids({label for each in agreeing for label in each.classes.tolist()})
        dtype = Counter(each.dtype for each in agreeing).most_common(1)[0][0]
        self.schema = Schema.of_rows(agreeing[0].row_shape, classes, dtype)

    def _all_greeted(self):
        here = set(self.roster.values())
        enough = len(here) >= self.patience.min_clients and here >= self.known - self.missed
        return enough and set(self.network.nodes()) <= {*self.roster, *self.gone}

    def _absent(self):
        """Clients that are expected, or were here, and have nothing in the result."""
        server = self.server
        absent = self.known - {*server.members, *server.roster}
        if not server.stays_open:  # one round is no more than a part
            absent |= self.known & self.missed
        return absent - server.left - set(self.report.refused)

    def _newcomers(self):
        """Clients that can be reached now and would be added."""
        return set(self.roster.values()) & self._absent() if self.server.stays_open else set()

    # Talking.

    def _ask(self, node, task, **request):
        if self.schema is not None:
            request["schema"] = schema_to_json(self.schema)
        if self.server is not None:
            request["federation"] = self.server.federation
        if node in self.roster:
            size = sum(map(len, request.get("broadcasts", ())))
            self.report.bytes_down[self.roster[node]] += size
        self.pending[node] = task
        self.network.send(node, task, request)

    def _look(self):
        """Greet new nodes, take what has come, and give up on nodes that are gone."""
        nodes = self.network.nodes()
        known = {*self.roster, *self.gone, *self.pending}
        for node in nodes:
            if node not in known:
                self._ask(node, "hello")
        for node, reply in self.network.replies():
            task = self.pending.pop(node, None)
            if task is None:
                self.gone.discard(node)  # too late, but it is there: it is greeted anew
            elif isinstance(reply, Exception):
                self._drop(node, None if isinstance(reply, ConnectionError) else str(reply))
            else:
                self._take(node, task, reply)
        for node in set(self.pending) - set(nodes):
            self._drop(node)

    def _drop(self, node, reason=None):
        """Expect nothing more of a node; with a reason, its client is refused."""
        self.pending.pop(node, None)
        self.gone.add(node)
        client = self.roster.pop(node, f"node {node}")
        if client in self.known - {*self.roster.values(), *(self.patience.clients or ())}:
            self.missed.add(client)  # the round still waits for those that were named
        if reason is not None:
            self.report.refused[client] = reason

    def _wait(self, done, ask=lambda: None):
        """Look until it is done or the round's time is up; who is silent until then is lost."""
        end = time.monotonic() + self.patience.round_seconds
        while time.monotonic() < end:
            self._look()
            ask()
            if done():
                return
            time.sleep(self.patience.poll_seconds)
        for node, task in list(self.pending.items()):
            self._drop(node)
            if task == "hello":  # not waited for any longer, but heard when it comes
                self.pending[node] = task
        self.missed |= self.known - {*self.roster.values()}

    def _take(self, node, task, reply):
        client = reply.get("client")
        if task == "hello":
            self._greet(node, client, reply)
        elif client != self.roster.get(node):
            self._drop(node, f"its node called itself {client!r} all of a sudden")
        elif task == "finish":
            self.report.updated = [*dict.fromkeys([*self.report.updated, client])]
        elif task == "again":
            self.again[client] = _bytes(reply.get("update"))
        else:
            self._count(node, client, reply)

    def _greet(self, node, client, reply):
        allowed = self.patience.clients
        is_id = isinstance(client, str | int)
        if not is_id or (allowed and client not in allowed):
            self.gone.add(node)
            key = client if is_id else repr(client)
            self.report.refused[key] = "it is not one of the expected clients"
            return
        if self.schema is None:
            try:
                self.offers[client] = offered_schema(reply.get("schema"))
            except ValueError:
                self.gone.add(node)
                self.report.refused[client] = "it did not say which classes and features it has"
                return
        self.gone.discard(node)
        self.roster[node] = client
        self.known.add(client)
        self.missed.discard(client)

    def _count(self, node, client, reply):
        data, now = _bytes(reply.get("update")), digest(self.server.history_for(client)[-1])
        self.report.bytes_up[client] += len(data)
        if reply.get("round") != self.server.round or reply.get("to") != now:
            return  # an answer to what is no longer asked
        self.told[node] = now
        try:
            self.server.receive(client, data)
        except RefusedMessage as error:
            self.report.refused[client] = str(error)

    # Rounds.

    def _rounds(self):
        while not self.server.finished:
            if self.server.draws:
                self._enroll()
            self._wait(self._round_is_full, self._ask_for_updates)
            n = len(self.server.tally.digests)
            if n < self._n_needed():
                self._give_up(f"has the updates of {n} clients, {self._n_needed()} are needed")
            self.server.advance()

    def _enroll(self):
        """Let the server draw a round's cohort from those who are here."""
        self._wait(self._all_greeted)
        here = {*self.roster.values()} - self.server.left - set(self.report.refused)
        if len(here) < self.patience.min_clients:
            self._give_up(f"finds {len(here)} clients, {self.patience.min_clients} are needed")
        self.server.enroll(here)

    def _n_needed(self):
        """How many updates a round takes; of a cohort as many may be lost as of all clients."""
        needed = self.patience.min_clients
        if not self.server.draws:
            return needed
        can_be_lost = len(self.server.roster) - needed
        return max(1, len(self.server.cohort) - can_be_lost)

    def _give_up(self, why):
        raise RuntimeError(
            f"round {self.server.round} {why}; those that came are kept: run again when more are "
            "connected."
        )

    def _wants(self, client):
        return self.server.wants(client) and client not in self.report.refused

    def _round_is_full(self):
        if len(self.server.tally.digests) < self._n_needed():
            return False
        expected = {*self.roster.values(), *(self.patience.clients or ())} - self.missed
        greeting = set(self.network.nodes()) - {*self.roster, *self.gone}
        return not greeting and not any(self._wants(client) for client in expected)

    def _ask_for_updates(self):
        for node, client in self.roster.items():
            if node not in self.pending and self._wants(client):
                last = self.server.history_for(client)[-1]
                self._ask(node, "update", round=self.server.round, broadcasts=[last])

    def _finish(self):
        """Let every client make its personal model."""
        out = self.server.left | set(self.report.refused)
        asked = set()
        self.report.updated = []

        def ask():
            for node, client in self.roster.items():
                if node not in asked and node not in self.pending and client not in out:
                    before, last = self.server.history_for(client)
                    # Where rounds depend on each other, all that counts is in the last message.
                    known = not self.server.stays_open or self.told.get(node) == digest(before)
                    asked.add(node)
                    self._ask(node, "finish", broadcasts=[last] if known else [before, last])

        def done():
            return not set(self.roster.values()) - out - set(self.report.updated)

        self._wait(done, ask)

    def _forget(self, clients):
        leaving = set(clients) - self.server.left
        nodes = {client: node for node, client in self.roster.items()}
        if leaving - set(nodes):
            raise RuntimeError(
                f"clients {sorted(leaving - set(nodes), key=repr)} are not connected; a client "
                "that leaves has to send once more what is to be subtracted."
            )
        if leaving:
            self.server.reopen()
        for client in leaving:
            history = self.server.history_for(client)
            self._ask(nodes[client], "again", round=0, broadcasts=history)
        self._wait(lambda: not self.pending)
        for client in leaving:
            try:
                self.server.forget(client, self.again.pop(client, b""))
            except RefusedMessage as error:
                raise RuntimeError(f"client {client!r} can't be forgotten: {error}.") from error

    def _closed_report(self):
        report = self.report
        report.clients = list(self.server.members)
        report.lost = sorted(self._absent(), key=repr)
        report.left = sorted(self.server.left, key=repr)
        return report


def _kind_of_rows(schema):
    """What clients must agree on: the shape of rows, and whether labels are numbers."""
    return schema.row_shape, schema.classes.dtype.kind in "iufb"


def _bytes(value):
    """What should be bytes, or none."""
    return value if isinstance(value, bytes) else b""
