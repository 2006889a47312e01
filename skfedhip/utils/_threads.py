"""One BLAS thread where many small LAPACK calls are made, also from several threads at once."""

import threading
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

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


@cache
def _controller():
    return ThreadpoolController()
