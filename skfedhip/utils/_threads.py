"""One BLAS thread where many small LAPACK calls are made, also from several threads at once."""

import threading
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_entered = 0
_limit = None


@contextmanager
def single_blas_thread():
    """Limit BLAS to one thread in this process while any caller is inside.

    threadpoolctl's own limiter restores what it found: two threads that enter and leave in turn
    would leave BLAS limited for good. Here the first to enter limits, the last to leave restores.
    """
    global _entered, _limit
    with _lock:
        if _entered == 0:
            _limit = _controller().limit(limits=1, user_api="blas")
            _limit.__enter__()
        _entered += 1
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if _entered == 0:
                _limit.__exit__(None, None, None)
                _limit = None


@cache
def _controller():
    return ThreadpoolController()
