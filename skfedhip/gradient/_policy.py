"""FedCP's conditional policy network, with its gradient by hand."""

from dataclasses import dataclass

import torch
from torch import nn

from ._functional import linear, linear_gradients, normalize

_aten = torch.ops.aten
_ACTIVATIONS = {
    "relu": (torch.relu, lambda grad, out: _aten.threshold_backward.default(grad, out, 0)),
    "tanh": (torch.tanh, _aten.tanh_backward.default),
    "sigmoid": (torch.sigmoid, _aten.sigmoid_backward.default),
}
"""Each activation, and what takes its output's gradient and its output to its input's gradient."""


@dataclass(frozen=True)
class Policy:
    """Features in their client's context to the shares (0, 1) that its personal head gets.

    Linear layers p → p, ..., p → 2p, each with the activation; the last is normalized before it.
    Of its 2p numbers the first p speak for the personal head and the last p for the global one; a
    softmax over each pair gives the share.

    Attributes
    ----------
    n_features : int
        p.
    n_layers : int
    norm : {"layer", "group", None}
        "group" normalizes the two halves apart.
    activation : {"relu", "tanh", "sigmoid"}
    """

    n_features: int
    n_layers: int = 1
    norm: str | None = "layer"
    activation: str = "relu"

    def initial(self, seed, dtype):
        """Initial parameters by name."""
        p = self.n_features
        params = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for i in range(self.n_layers):
                layer = nn.Linear(p, 2 * p if i == self.n_layers - 1 else p)
                params[f"policy.{i}.weight"] = layer.weight
                params[f"policy.{i}.bias"] = layer.bias
        if self.norm is not None:
            params |= {"policy.norm.weight": torch.ones(2 * p)}
            params |= {"policy.norm.bias": torch.zeros(2 * p)}
        return {name: tensor.detach().to(dtype) for name, tensor in params.items()}

    def __call__(self, params, context):
        """Shares (a, B, p) for features in context (a, B, p), and their pullback.

        The pullback takes the gradient of the shares to a dict of the parameters' gradients, and
        the context's.
        """
        activate, slope = _ACTIVATIONS[self.activation]
        h, pullbacks = context, []
        for i in range(self.n_layers):
            name = f"policy.{i}"
            weight = params[f"{name}.weight"]
            pullbacks.append(_linear_pullback(name, weight, h))
            h = linear(h, weight, params[f"{name}.bias"])
            if i == self.n_layers - 1 and self.norm is not None:
                h, pullback = self._normalized(params, h)
                pullbacks.append(pullback)
            h = activate(h)
            pullbacks.append(lambda grad, out=h: (slope(grad, out), {}))
        p = self.n_features
        share = torch.sigmoid(h[..., :p] - h[..., p:])

        def pullback(grad):
            grad = _aten.sigmoid_backward.default(grad, share)
            grad, grads = torch.cat([grad, -grad], -1), {}
            for each in reversed(pullbacks):
                grad, own = each(grad)
                grads |= own
            return grads, grad

        return share, pullback

    def _normalized(self, params, z):
        scale, shift = params["policy.norm.weight"], params["policy.norm.bias"]
        halves = (2, self.n_features) if self.norm == "group" else (2 * self.n_features,)

        def parted(tensor):
            return tensor.view(*tensor.shape[:-1], *halves)

        out, inner = normalize(parted(z), parted(scale), parted(shift))

        def pullback(grad):
            grad, to_scale, to_shift = inner(parted(grad))
            grads = {
                "policy.norm.weight": to_scale.view(scale.shape),
                "policy.norm.bias": to_shift.view(shift.shape),
            }
            return grad.view(z.shape), grads

        return out.view(z.shape), pullback


def _linear_pullback(name, weight, x):
    def pullback(grad):
        return torch.bmm(grad, weight), linear_gradients(name, grad, x)

    return pullback
