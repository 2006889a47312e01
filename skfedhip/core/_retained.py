"""What a client keeps of its rows so that they can be added to, or forgotten, later."""

from dataclasses import dataclass, field

from ._design import DesignBlock


@dataclass
class RetainedClients:
    """Every client's design rows, or the root of their Gram matrix once that is smaller.

    A client never keeps more than min(n_k, p) × (p + d) numbers, p the columns of its design.

    Attributes
    ----------
    clients : dict
        From id to a DesignBlock of that one client.
    guests : set
        Ids that have a personal model and no part in the shared one.
    """

    clients: dict = field(default_factory=dict)
    guests: set = field(default_factory=set)

    def copy(self):
        """A copy that can change on its own; the clients' arrays are shared."""
        return RetainedClients(dict(self.clients), set(self.guests))

    def add(self, design):
        """Add the rows of a block to those of its clients."""
        design = design.unlabelled()
        for k, client in enumerate(design.client_ids.tolist()):
            own = design.clients([k])  # a copy: a slice would keep the whole block alive
            if client in self.clients:
                own = self.clients[client].stacked(own)
            self.clients[client] = own.compressed()

    def remove(self, client_ids):
        """Forget clients for good."""
        for client in client_ids:
            del self.clients[client]
            self.guests.discard(client)

    def blocks(self, client_ids, max_rows):
        """The rows of the clients, in the order given, as blocks of about ``max_rows`` rows."""
        batch: list[DesignBlock] = []
        blocks, n = [], 0
        for client in client_ids:
            kept = self.clients[client]
            if batch and n + kept.n_rows > max_rows:
                blocks.append(DesignBlock.concatenate(batch))
                batch, n = [], 0
            batch.append(kept)
            n += kept.n_rows
        return [*blocks, DesignBlock.concatenate(batch)] if batch else blocks
