"""Where every client is worked on: in its partition, or in a home for those that span several."""

import numpy as np
from dask.delayed import delayed

from ..core import rows_per_block
from ._cluster import (
    ClusterBlocks,
    Source,
    gather_rows,
    local_blocks,
    merge_retained,
    root_blocks,
    take_roots,
    take_rows,
    tree,
)
from ._partitions import Reader, encode_clients


def plan_blocks(reader, n_features, partitions, censuses, *, width, compress_with=None):
    """Sorted ids of all clients, and their blocks on the cluster.

    Parameters
    ----------
    reader : Reader
    n_features : int
    partitions : list of Delayed
        From :func:`cut`.
    censuses : list of Census
    width : int
        Columns of the rows that are worked on.
    compress_with : ClosedFormMethod, default=None
        Makes roots of Gram matrices of clients that span partitions; without it, all their rows
        go to one place.

    Returns
    -------
    clients : ndarray of shape (K,)
    ClusterBlocks
    """
    clients, codes = encode_clients(censuses)
    rows = np.bincount(codes, np.concatenate([each.counts for each in censuses]))
    if compress_with is None:
        _check_memory(clients, rows, width)
    spans = np.bincount(codes) > 1
    # A Gram matrix's root or the rows themselves, whichever is smaller, leaves the partition.
    root_bytes = 8 * width * (width + len(reader.classes))
    compressed = spans & (rows * n_features * reader.dtype.itemsize > root_bytes)
    compressed &= compress_with is not None
    max_rows = rows_per_block(width)
    shared = delayed(reader, traverse=False)
    blocks = [
        delayed(Reader.read)(shared, each.counts, partition)
        for each, partition in zip(censuses, partitions, strict=True)
    ]
    owners = np.split(codes, np.cumsum([len(each.clients) for each in censuses])[:-1])
    sources = []
    for block, own in zip(blocks, owners, strict=True):
        index = np.flatnonzero(~spans[own])
        if len(index):
            sources.append(Source(delayed(local_blocks)(block, index, max_rows)))
    for pieces in _homes(spans & ~compressed, rows, max_rows, blocks, owners):
        moved = [delayed(take_rows)(*piece) for piece in pieces]
        sources.append(Source(delayed(gather_rows)(moved, max_rows), kept=True))
    method = delayed(compress_with, traverse=False)
    for pieces in _homes(compressed, np.full(len(rows), width), max_rows, blocks, owners):
        roots = tree(merge_retained, [delayed(take_roots)(method, *p, max_rows) for p in pieces])
        kept = delayed(root_blocks)(roots, max_rows)
        sources.append(Source(kept, kept=True, pieces=pieces))
    return clients, ClusterBlocks(sources, clients.tolist(), rows)


def _homes(mask, sizes, max_rows, blocks, owners):
    """For each home of some clients, the partitions' blocks and which of their clients it takes.

    Clients, of these sizes, share a home until ``max_rows`` are full.
    """
    home = np.full(len(mask), -1)
    home[mask] = (np.cumsum(sizes[mask]) - sizes[mask]) // max_rows
    pieces = {}
    for block, own in zip(blocks, owners, strict=True):
        at = home[own]
        for each in np.unique(at[at >= 0]).tolist():
            pieces.setdefault(each, []).append((block, np.flatnonzero(at == each)))
    return pieces.values()


def _check_memory(clients, rows, width):
    """Refuse a client whose rows alone are more than a worker may hold."""
    limit = _memory_limit()
    largest = int(np.argmax(rows))
    needed = 8 * width * int(rows[largest])
    if needed > limit:
        raise ValueError(
            f"client {clients.tolist()[largest]!r} has {int(rows[largest])} rows, {needed:.2g} "
            f"bytes as features, and must be in one place, but a worker has {limit:.2g}; "
            "tune on a sample in memory and fit here with the best."
        )


def _memory_limit():
    """Bytes of the smallest worker, infinite where nothing limits it."""
    from distributed import get_client

    try:
        workers = get_client().scheduler_info(n_workers=-1)["workers"].values()
    except ValueError:  # no cluster
        return np.inf
    return min((w["memory_limit"] for w in workers if w["memory_limit"]), default=np.inf)
