"""One BLAS thread where many small LAPACK calls are made, also from several threads at once."""

import threading
from contextlib import contextmanager, nullcontext
from functools import cache

SMALL = 2**24
"""Multiplications of a call that one thread makes in a few milliseconds."""

_lock = threading.Lock()
_limited = False


@contextmanager
def single_blas_thread():
    """Limit BLAS to one thread in this process while the caller is inside.

    Where threads overlap, only the first to enter limits, and restores when it leaves:
    threadpoolctl lets no thread change what another living thread has set, so threads that took
    turns would leave BLAS limited for good. A thread that is inside still may then meet more BLAS
    threads, which costs time and nothing else.
    """
    global _limited
    with _lock:
        owns = not _limited
        if owns:
            _limited = True
            limit = _controller().limit(limits=1, user_api="blas")
            limit.__enter__()
    try:
        yield
    finally:
        if owns:
            with _lock:
                limit.__exit__(None, None, None)
                _limited = False


def few_blas_threads(work):
    """One BLAS thread for so many multiplications, unless they are enough for more threads.

    Idle threads of OpenBLAS spin, so that on a busy machine each of many small products and
    factorizations waits for the scheduler, up to a hundred times as long as it takes.
    """
    return single_blas_thread() if work <= SMALL else nullcontext()


@cache
def _controller():
    from threadpoolctl import ThreadpoolController  # not before it is needed, as core imports this

    return ThreadpoolController()
