"""Torch's own threads."""

from contextlib import contextmanager

import torch


@contextmanager
def single_torch_thread(on=True):
    """One thread of torch while the caller is inside, if ``on``."""
    before = torch.get_num_threads()
    if on:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
