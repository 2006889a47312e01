"""BLAS has one thread while anybody asks for it, and as many as before afterwards."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skfedhip.core import kernel_spectrum
from skfedhip.core._ridge import lean_batches
from skfedhip.utils._threads import SMALL, few_blas_threads, single_blas_thread


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def in_a_thread(function, *args):
    worker = threading.Thread(target=function, args=args)
    worker.start()
    worker.join(10)


@pytest.fixture(autouse=True)
def two_threads():
    """Two BLAS threads, whatever the environment says, so that one is a limit.

    A thread that sets them and ends: one that lives on would keep control of BLAS from others.
    """
    (before,) = blas_threads()
    in_a_thread(threadpool_limits, 2, "blas")
    assert blas_threads() == {2}
    yield
    in_a_thread(threadpool_limits, before, "blas")


def test_one_thread_inside_and_two_after():
    with single_blas_thread():
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_nested_uses_restore_once_the_last_one_leaves():
    for _ in range(2):
        with single_blas_thread():
            with single_blas_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_an_error_inside_restores():
    with pytest.raises(RuntimeError, match="inside"), single_blas_thread():
        raise RuntimeError("inside")
    assert blas_threads() == {2}


def test_it_decorates_a_function():
    assert single_blas_thread()(blas_threads)() == {1}
    assert blas_threads() == {2}


class Worker(threading.Thread):
    """Enters, leaves when told, and lives until the end, as a pool's threads do."""

    def __init__(self):
        super().__init__(daemon=True)
        self.entered, self.leave, self.left, self.end = (threading.Event() for _ in range(4))

    def run(self):
        with single_blas_thread():
            self.entered.set()
            self.leave.wait(10)
        self.left.set()
        self.end.wait(10)


@pytest.fixture
def workers():
    """Two workers that have entered, one after the other."""
    workers = [Worker(), Worker()]
    for worker in workers:
        worker.start()
        assert worker.entered.wait(10)
    yield workers
    for worker in workers:
        worker.leave.set()
        worker.end.set()
        worker.join(10)


@pytest.mark.parametrize("first", [0, 1])
def test_two_threads_that_overlap_restore_when_both_have_left(workers, first):
    assert blas_threads() == {1}
    for worker in (workers[first], workers[1 - first]):
        worker.leave.set()
        assert worker.left.wait(10)
        # The first to enter restores: threadpoolctl lets no other thread while it lives.
        assert blas_threads() == ({2} if workers[0].left.is_set() else {1})


def test_many_threads_in_a_scramble_restore():
    seen = set()

    def work():
        for _ in range(20):
            with single_blas_thread():
                seen.update(blas_threads())

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert 1 in seen
    assert blas_threads() == {2}


def test_small_work_takes_one_thread():
    for work, expected in ((SMALL, {1}), (SMALL + 1, {2})):
        with few_blas_threads(work):
            assert blas_threads() == expected
    for width, expected in ((16, {1}), (SMALL, {2})):
        assert [blas_threads() for _ in lean_batches(np.array([0, 4]), width)] == [expected]
    assert blas_threads() == {2}


def test_small_spectra_take_one_thread(monkeypatch):
    found, eigh = [], np.linalg.eigh

    def watched(kernel):
        found.append(blas_threads())
        return eigh(kernel)

    monkeypatch.setattr(np.linalg, "eigh", watched)
    for n in (3, 200):
        kernel_spectrum(np.eye(n))
    assert found == [{1}, {2}]
