"""How many bytes an object's arrays take, for schedulers that weigh what they send and keep."""

import sys

import numpy as np
from scipy import sparse


class Sized:
    """Base of what holds arrays: ``sys.getsizeof`` counts them."""

    def __sizeof__(self):
        return object.__sizeof__(self) + sum(map(_bytes_of, vars(self).values()))


def _bytes_of(value):
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Sized):
        return sys.getsizeof(value)
    if isinstance(value, tuple | list):
        return sum(map(_bytes_of, value))
    if isinstance(value, dict):
        return sum(map(_bytes_of, value.values()))
    if sparse.issparse(value):
        return value.data.nbytes + value.indices.nbytes + value.indptr.nbytes
    return 0
