"""A network in this process, whose nodes can fall silent, lie, and come back."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from skfedhip.federation._client import Participant
from skfedhip.federation._conductor import Conductor, Patience
from skfedhip.federation._server import Server


@dataclass
class LocalNetwork:
    """Nodes are numbered; each is a Participant that remembers only what it packs."""

    estimator: object
    rows: dict  # client -> (X, y, weight)
    replace: dict = field(default_factory=dict)  # client -> from (task, reply) to the reply sent
    silent: dict = field(default_factory=dict)  # client -> tasks that its node never answers
    dtype: str | None = None

    def __post_init__(self):
        self.clients, self.kept, self.queue, self.fitted, self.log = {}, {}, [], {}, []
        for client in self.rows:
            self.join(client)

    def join(self, client):
        """A node, with nothing remembered, of this client."""
        self.clients[len(self.log) + 100 * (len(self.clients) + 1)] = client

    def kill(self, client):
        for node in [node for node, each in self.clients.items() if each == client]:
            del self.clients[node]
            self.kept.pop(node, None)

    def nodes(self):
        return list(self.clients)

    def send(self, node, task, request):
        self.queue.append((node, task, request))

    def replies(self):
        queue, self.queue = self.queue, []
        for node, task, request in queue:
            client = self.clients.get(node)
            if client is None or task in self.silent.get(client, ()):
                continue
            self.log.append((client, task, request.get("round")))
            participant = Participant(
                self.estimator,
                client,
                lambda client=client: self.rows[client],
                kept=self.kept.get(node),
                dtype=self.dtype,
            )
            reply = participant.answer(task, request)
            self.kept[node] = participant.kept
            if participant.fitted is not None:
                self.fitted[client] = participant.fitted
            yield node, self.replace.get(client, lambda task, reply: reply)(task, reply)


def rows_of(data):
    """The rows of a federation's clients, by client."""
    clients = np.unique(data.groups).tolist()
    return {c: (own.X, own.y, own.weight) for c in clients for own in [data.of(c)]}


def conduct(network, *, schema=None, path=None, forget=(), **patience):
    """Lead a network quickly; returns the conductor and the report."""
    waits = {"poll_seconds": 0.0, "round_seconds": 0.2, **patience}
    conductor = Conductor(network.estimator, network, Patience(**waits), schema=schema, path=path)
    return conductor, conductor.run(forget)


class Killed(Exception):  # noqa: N818
    pass


def conduct_until_killed(after, monkeypatch, network, **how):
    """Conduct with a server that dies once it has written its state ``after`` times."""
    save, saved = Server.save, []

    def save_and_die(self):
        save(self)
        saved.append(self)
        if len(saved) == after:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Server, "save", save_and_die)
        with pytest.raises(Killed):
            conduct(network, **how)
