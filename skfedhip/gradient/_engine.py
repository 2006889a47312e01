"""The one loop of stochastic gradient descent, for the clients of a block together.

A step updates every client that still has a batch. Clients come with the longest first, so those
at work are always the first ones: views of the stacked parameters, and nothing is done for the
others. Weights of linear layers are updated by the factors of their gradient, which is
never multiplied out.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch

from ..utils._ids import id_bytes
from ._functional import Outer

GATHERED = 2**20
"""Numbers of the rows that are gathered at once, for several steps."""


def client_generator(seed, client, n_round):
    """The generator of a client's draws in a round; nobody else's draws move them."""
    return np.random.default_rng([seed, n_round, *id_bytes(client)])


class Generators(dict):
    """The clients' generators by position, each made when it is first asked for."""

    def __init__(self, seed, client_ids, n_round):
        super().__init__()
        self.seed, self.client_ids, self.n_round = seed, client_ids, n_round

    def __missing__(self, k):
        generator = client_generator(self.seed, self.client_ids[k], self.n_round)
        self[k] = generator
        return generator


class Batch(NamedTuple):
    """One step's rows of the clients at work, of which there are a.

    Attributes
    ----------
    x : Tensor of shape (a, B, ...)
    y : Tensor of shape (a, B)
        Class codes.
    weight : Tensor of shape (a, B)
        1 / b for each of a client's b rows, 0 for what only fills up.
    frozen : Tensor of shape (a, B, p), or None
        What the rows were given beside x.
    """

    x: torch.Tensor
    y: torch.Tensor
    weight: torch.Tensor
    frozen: torch.Tensor | None


@dataclass(frozen=True)
class Rows:
    """Rows of several clients, those with most of them first, and the clients' generators.

    ``frozen`` may hold features of the rows that training leaves as they are.
    """

    x: torch.Tensor
    y: torch.Tensor
    offsets: np.ndarray
    generators: Generators
    frozen: torch.Tensor | None = None

    @property
    def counts(self):
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Descent:
    """How a step moves a parameter w: w - lr (gradient + decay w - pull), then the limits.

    Attributes
    ----------
    lr : float
    decay : float
        Weight decay, and the weight of a proximal term.
    pull : dict of Tensor, default={}
        Constants by name, with a client axis that may be of length 1.
    shrink : float, default=0.0
        Threshold of the soft thresholding after each step.
    limits : tuple of float, default=None
        Bounds to which parameters are clipped after each step.
    """

    lr: float
    decay: float = 0.0
    pull: dict = field(default_factory=dict)
    shrink: float = 0.0
    limits: tuple | None = None

    def step(self, params, grads, pull):
        """Move the parameters that have a gradient, in place."""
        keep = 1.0 - self.lr * self.decay
        for name, grad in grads.items():
            param = params[name]
            if isinstance(grad, Outer):
                param.baddbmm_(grad.left.mT, grad.right, beta=keep, alpha=-self.lr)
            else:
                param = param if keep == 1.0 else param.mul_(keep)
                param.sub_(grad, alpha=self.lr)
            if name in pull:
                param.add_(pull[name], alpha=self.lr)
            if self.shrink:
                param.copy_(torch.nn.functional.softshrink(param, self.shrink))
            if self.limits is not None:
                param.clamp_(*self.limits)


@dataclass(frozen=True)
class Schedule:
    """Which rows each client takes in which step.

    Attributes
    ----------
    epochs, batch_size : int
    shuffle : bool
        Whether each epoch takes the rows in an order of its own.
    drop_last : bool
        Whether an epoch leaves out rows that do not fill a batch; a client with fewer rows than a
        batch has one step of them all an epoch.
    """

    epochs: int
    batch_size: int
    shuffle: bool = True
    drop_last: bool = False

    def n_steps(self, counts):
        """Steps of clients with so many rows, in all epochs."""
        per_epoch = -(-counts // self.batch_size)
        if self.drop_last:
            per_epoch = np.maximum(counts // self.batch_size, 1)
        return self.epochs * per_epoch

    def sequence(self, n_rows, generators, k):
        """Client k's row numbers, step by step, shape (steps, batch_size); -1 fills up."""
        size = self.batch_size
        per_epoch = int(self.n_steps(np.array(n_rows))) // self.epochs
        out = np.full((self.epochs, per_epoch * size), -1)
        used = min(n_rows, per_epoch * size)
        for epoch in out:
            order = generators[k].permutation(n_rows) if self.shuffle else np.arange(n_rows)
            epoch[:used] = order[:used]
        return out.reshape(-1, size)


def train(rows, params, gradients, schedule, descent, constants=None):
    """Train all clients of a block by stochastic gradient descent.

    Parameters
    ----------
    rows : Rows
    params : dict of Tensor
        Where clients start, with a client axis that may be of length 1; left as they are.
    gradients : callable
        From (params, constants, batch) of the clients at work to (loss of each, dict of
        gradients); a parameter without a gradient stays.
    schedule : Schedule
    descent : Descent
    constants : dict of Tensor, default=None
        What else a client's gradient depends on, likewise with a client axis.

    Returns
    -------
    params : dict of Tensor
        Where clients end, with a full client axis.
    losses : Tensor of shape (K,)
        Mean loss of each client's rows as it met them.
    """
    widest = min(schedule.batch_size, int(rows.counts.max()))
    schedule = replace(schedule, batch_size=widest)
    steps = schedule.n_steps(rows.counts)
    params = {n: p.expand(len(steps), *p.shape[1:]).clone() for n, p in params.items()}
    held = (params, constants or {}, descent.pull)
    plan = _plan(rows, schedule, int(steps.max()))
    losses = torch.zeros(plan.sizes.shape, dtype=torch.float64, device=rows.x.device)
    views, last = None, None
    for step, batch in enumerate(_batches(rows, plan)):
        a = len(batch.x)
        if a != last:
            views, last = [_first(each, a) for each in held], a
        losses[step, :a], grads = gradients(views[0], views[1], batch)
        descent.step(views[0], grads, views[2])
    met = torch.from_numpy(plan.sizes).to(losses.device)
    return params, (losses * met).sum(0) / met.sum(0)


class _Plan(NamedTuple):
    """Rows of all steps: positions and weights (steps, K, B), and how many are real (steps, K)."""

    rows: torch.Tensor
    weight: torch.Tensor
    sizes: np.ndarray


def _plan(rows, schedule, n_steps):
    taken = np.full((n_steps, len(rows.counts), schedule.batch_size), -1)
    for k, (start, n_rows) in enumerate(zip(rows.offsets, rows.counts.tolist(), strict=False)):
        own = schedule.sequence(n_rows, rows.generators, k)
        taken[: len(own), k] = np.where(own < 0, -1, own + start)
    real = taken >= 0
    sizes = real.sum(2)
    weight = real / np.maximum(sizes, 1)[..., None]
    tensor = torch.from_numpy(np.maximum(taken, 0)).to(rows.x.device)
    weight = torch.from_numpy(weight).to(rows.x.device, _float_type(rows.x))
    return _Plan(tensor, weight, sizes)


def _float_type(x):
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def _batches(rows, plan):
    """The batches of all steps, no wider than their largest client's; gathered many at a time."""
    n_steps, n_clients, size = plan.rows.shape
    at_once = max(1, GATHERED // (n_clients * size * max(rows.x[0].numel(), 1)))
    widths, at_work = plan.sizes.max(1).tolist(), (plan.sizes > 0).sum(1).tolist()
    for first in range(0, n_steps, at_once):
        index = plan.rows[first : first + at_once]
        x, y, frozen = (
            None if each is None else each[index] for each in (rows.x, rows.y, rows.frozen)
        )
        for i in range(len(index)):
            chosen = (i, slice(at_work[first + i]), slice(widths[first + i]))
            own = None if frozen is None else frozen[chosen]
            yield Batch(x[chosen], y[chosen], plan.weight[(first + i, *chosen[1:])], own)


def _first(tensors, a):
    """The first ``a`` clients of stacked tensors, without copying."""
    return {n: p.expand(a, *p.shape[1:]) if len(p) == 1 else p[:a] for n, p in tensors.items()}
