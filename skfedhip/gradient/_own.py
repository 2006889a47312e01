"""A second model that a client keeps, and in how many rounds it was trained."""

import numpy as np
import torch

_OWN, JOINED = "own.", "joined"


def untrained(parameters):
    """What a client has of a model of its own before its first round."""
    return {f"{_OWN}{n}": p for n, p in parameters.items()} | {JOINED: np.zeros((), dtype=np.int64)}


def trained(models, joined):
    """What clients keep of their own models after a round; ``joined`` is of before it."""
    return {f"{_OWN}{name}": tensor for name, tensor in models.items()} | {JOINED: joined + 1}


def own_or(state, other, prefix=_OWN):
    """Own models; those of ``other`` for clients that have not been in any cohort."""
    # In one order, which sums over parameters hang on, whether read from a file or not.
    own = {n.removeprefix(prefix): state[n] for n in sorted(state) if n.startswith(prefix)}
    return unless_new(own, state[JOINED], lambda: {name: other[name] for name in own})


def unless_new(own, joined, instead):
    """Own parameters; those that ``instead`` makes for clients that have been in no cohort.

    Where there are no such clients it isn't called: what it needs may not have come down.
    """
    joined = joined > 0
    return own if joined.all() else where(joined, own, instead())


def where(chosen, first, second):
    """For the chosen clients, of shape (K,), the first parameters, for others the second."""
    return {
        name: torch.where(chosen.view(-1, *[1] * (tensor.ndim - 1)), tensor, second[name])
        for name, tensor in first.items()
    }
