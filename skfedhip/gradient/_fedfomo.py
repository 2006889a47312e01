"""FedFomo: each client mixes the models of others by how much they would lower its loss."""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._engine import Rows, client_generator
from ._functional import linear, softmax_loss
from ._own import JOINED, own_or, trained, untrained
from ._pool import KEYS, PoolBroadcast, PoolMethod, positions

_AFFINITY, _GAINS, _BASE, _POOL, _PICKS = "affinity", "gains", "base.", "pool.", "picks"

_SPLIT_ROUND = 2**31 - 2
"""The round whose generators deal out a client's rows for weighing models; none gets as far."""


@dataclass(frozen=True, kw_only=True)
class FedFomo(PoolMethod):
    """The base of the next round is the last one, moved towards the models that are better."""

    n_models: int
    explore: float
    weighing_fraction: float

    def new_state(self, parameters):
        """Beside its own model, a client keeps the base from which that was trained."""
        return untrained(parameters) | {f"{_BASE}{name}": p for name, p in parameters.items()}

    # The server.

    def remembered(self, total, broadcast, memory):
        """Models, and as affinities the sums of all gains that clients have met."""
        out = super().remembered(total, broadcast, memory)
        keys = out[KEYS]
        affinity = np.zeros((len(keys), len(keys)))
        if KEYS in memory:
            old = positions(keys, memory[KEYS])
            affinity[np.ix_(old, old)] = memory[_AFFINITY]
            rows, known = (positions(each, total.keys) for each in (keys, broadcast.keys))
            for row, at, gains in zip(rows, known, total.stacks[_GAINS], strict=True):
                if at >= 0:
                    there = broadcast.picks[at] >= 0
                    affinity[row, old[broadcast.picks[at][there]]] += gains[there]
        return out | {_AFFINITY: affinity}

    def message(self, broadcast, server_state):
        """With some of the others' models for each client that has sent one."""
        memory = server_state.memory
        if KEYS not in memory:
            return PoolBroadcast(broadcast.parameters, broadcast.n_round)
        keys, n_round = memory[KEYS], int(broadcast.n_round)
        picks = np.full((len(keys), self.n_models), -1)
        for i, key in enumerate(keys.tolist()):
            rng = np.random.default_rng([self.seed, n_round, key])
            chosen = self.picked(memory[_AFFINITY][i], i, rng)
            picks[i, : len(chosen)] = chosen
        pool = self.models(memory)
        return PoolBroadcast(broadcast.parameters, broadcast.n_round, pool, keys, picks)

    def picked(self, affinity, i, rng):
        """Positions of the models that client i gets: the dearest, and some by chance."""
        others = rng.permutation(np.delete(np.arange(len(affinity)), i))
        n_picks = min(self.n_models, len(others))
        n_dear = n_picks - rng.binomial(n_picks, self.explore)
        dear = others[np.argsort(-affinity[others], kind="stable")]
        return np.concatenate([dear[:n_dear], rng.permutation(dear[n_dear:])[: n_picks - n_dear]])

    # The client.

    def received(self, broadcast, client_ids):
        """The shared parameters, all models that came down, and which of them are whose."""
        shared = self.on_device(broadcast.parameters, one=True)
        pool = {f"{_POOL}{name}": stacked for name, stacked in broadcast.pool.items()}
        pool |= {_PICKS: broadcast.picks_of(client_ids)}
        return {**shared, **self.on_device(pool)}

    def local(self, rows, shared, state, n_round):
        """Training from the base, but on the rows that weigh no models."""
        training, weighing = self.split(rows)
        gains = rows.x.new_zeros(len(rows.counts), self.n_models)
        base = {n: p.clone() for n, p in own_or(state, shared, _BASE).items()}
        for k in torch.nonzero(state[JOINED]).flatten().tolist():
            gains[k] = self.move(base, k, weighing[k], shared, state)
        params, losses = self.train(training, base, self.gradients())
        kept = trained(params, state[JOINED])
        kept |= {f"{_BASE}{name}": tensor for name, tensor in base.items()}
        return {**params, _GAINS: gains}, kept, losses

    def move(self, base, k, weighing, shared, state):
        """Move client k's base, in place; the gains of the models that it got, zero for none."""
        picks = shared[_PICKS][k]
        models = {}
        for name, tensor in base.items():
            models[name] = torch.stack([tensor[k], state[f"own.{name}"][k]])
            if (picks >= 0).any():
                others = shared[f"{_POOL}{name}"][picks[picks >= 0]]
                models[name] = torch.cat([models[name], others])
        steps = {name: p - p[:1] for name, p in models.items() if name not in self.network.buffers}
        squared = sum(step.flatten(1).square().sum(1) for step in steps.values())
        losses = self.losses(models, *weighing)
        gains = torch.where(squared > 0, (losses[0] - losses) / squared.sqrt(), 0.0)
        weights = gains.clamp(min=0.0)
        if not weights.any():
            weights[1] = 1.0  # none is better: on from its own model
        weights = weights / weights.sum()
        for name, tensor in base.items():
            if name in steps:
                tensor[k] += torch.tensordot(weights, steps[name], 1)
            else:
                tensor[k] = models[name][1]
        out = gains.new_zeros(self.n_models)
        out[: len(picks)][picks >= 0] = gains[2:]
        return out

    def losses(self, models, x, y):
        """Mean cross-entropy (C,) of several models on the same rows."""
        mapper, out = self.network.mapper(training=False), []
        weight = torch.full((1, len(y)), 1 / len(y), dtype=self.dtype, device=x.device)
        for c in range(len(models["head.weight"])):
            one = {name: tensor[c : c + 1] for name, tensor in models.items()}
            h = self.features(mapper, one, x)[None]
            logits = linear(h, one["head.weight"], one["head.bias"])
            out.append(softmax_loss(logits, y[None], weight)[0])
        return torch.cat(out)

    def split(self, rows):
        """Rows to train on, and the rest by client, the same in every round; of one row both."""
        training, weighing, generators = [], [], rows.generators
        for k, (start, n) in enumerate(zip(rows.offsets[:-1], rows.counts, strict=True)):
            n_held = min(max(1, round(self.weighing_fraction * n)), max(1, n - 1))
            client = generators.client_ids[k]
            order = client_generator(generators.seed, client, _SPLIT_ROUND).permutation(n) + start
            held = torch.from_numpy(np.sort(order[:n_held]))
            weighing.append((rows.x[held], rows.y[held]))
            training.append(np.sort(order[min(n_held, n - 1) :]))
        offsets = np.cumsum([0, *map(len, training)])
        index = torch.from_numpy(np.concatenate(training))
        return Rows(rows.x[index], rows.y[index], offsets, generators), weighing


class FedFomoClassifier(GradientClassifier):
    """FedFomo: each client moves towards those models of others that would lower its loss.

    The server sends client k the last models θ_j of M others. With its base b_k, from which it
    trained its own θ_k in the last round, and the loss L_k on rows that it does not train on, k
    weighs them and θ_k by how much they gain on the way there:

        w_j = max(0, (L_k(b_k) - L_k(θ_j)) / ‖θ_j - b_k‖),
        b_k ← b_k + Σ_j w_j (θ_j - b_k) / Σ_j w_j,

    where none gains anything b_k ← θ_k, and trains a new θ_k from b_k. θ_k goes up with the gains,
    negative ones too, which the server adds to k's affinities. The others whose models k gets next
    are those of the highest affinities, but each of the M with probability ``explore`` one by
    chance.

    A client's model is its θ_k. Clients have no model in common: a client that has been in no
    cohort, or that nobody knows, has the mean of the models that were sent last, weighted by rows,
    and starts from it.

    Parameters
    ----------
    n_models : int, default=5
        Models M of others that a client gets each round.
    explore : float, default=0.3
        Probability of a model by chance, in [0, 1].
    weighing_fraction : float, default=0.2
        Share of a client's rows that weighs models and is not trained on, in (0, 1): one row at
        least; with one row alone it does both.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedAMPClassifier : The server mixes, by the distance of the models.

    Notes
    -----
    M models come down in each round, and one goes up. The server has the models of all K clients,
    O(K P) numbers, and K² affinities.

    References
    ----------
    Zhang, Sapra, Fidler, Yeung, Alvarez, "Personalized Federated Learning with First Order Model
    Optimization", ICLR 2021.

    Examples
    --------
    >>> from skfedhip import FedFomoClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedFomoClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.personal_params_["head.weight"].shape
    (20, 5, 512)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "n_models": [Interval(Integral, 1, None, closed="left")],
        "explore": [Interval(Real, 0, 1, closed="both")],
        "weighing_fraction": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(self, n_models=5, *, explore=0.3, weighing_fraction=0.2, **shared):
        super().__init__(**shared)
        self.n_models = n_models
        self.explore = explore
        self.weighing_fraction = weighing_fraction

    def _method(self, **common):
        return FedFomo(
            n_models=self.n_models,
            explore=float(self.explore),
            weighing_fraction=float(self.weighing_fraction),
            **common,
        )
