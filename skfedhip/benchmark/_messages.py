"""The message layer on one core: bytes of a client, and what a server does with very many."""

import time
import tracemalloc

import numpy as np
from threadpoolctl import threadpool_limits

from skfedhip import FedHiPClassifier

from ..core import ClientBlock
from ..federation._server import Server
from ..federation._wire import encode
from ..protocol import Schema

_DISTINCT = 20  # messages that are made; further clients repeat them


def update_bytes(sizes):
    """Bytes of one client's first message, header included."""
    return len(_messages(sizes, 1)[0])


def receive_all(sizes):
    """Seconds in which a server takes the messages of all clients, on one core."""
    messages = _messages(sizes, _DISTINCT)
    with threadpool_limits(1, "blas"):
        server = _server(sizes)
        server.receive("first", messages[0])  # imports, and the shape that is expected
        start = time.perf_counter()
        for client in range(sizes.K):
            server.receive(client, messages[client % _DISTINCT])
        return time.perf_counter() - start


def server_memory(sizes):
    """Bytes that a server holds after a tenth of the clients, and after all."""
    messages, held = _messages(sizes, _DISTINCT), []
    tracemalloc.start()
    server = _server(sizes)
    for client in range(sizes.K):
        server.receive(client, messages[client % _DISTINCT])
        if client + 1 in (max(1, sizes.K // 10), sizes.K):
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return held


def _schema(sizes):
    return Schema(sizes.m, np.arange(sizes.d), np.dtype(float))


def _server(sizes):
    return Server(_method(sizes), _schema(sizes))


def _method(sizes):
    return FedHiPClassifier()._federated(_schema(sizes))._fitted_method


def _messages(sizes, count):
    """First messages of some clients, each with its share of the rows."""
    rng, method = np.random.default_rng(0), _method(sizes)
    n_rows, out = sizes.n // sizes.K, []
    for client in range(count):
        X, y = rng.standard_normal((n_rows, sizes.m)), rng.integers(0, sizes.d, n_rows)
        ids, owners = np.array([client]), np.zeros(n_rows, dtype=np.intp)
        block = ClientBlock.from_arrays(X, y, owners, ids, sizes.d)
        first = method.initialize(_schema(sizes))
        out.append(encode(method.client_update(block, first, None)[0]))
    return out
