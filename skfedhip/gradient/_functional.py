"""Losses and layers of several clients at once, with their gradients by hand.

Arrays have a leading client axis: rows are (a, B, ...), weights of a linear layer (a, o, i).
``weight`` (a, B) says what a row counts in its client's mean; rows that only fill up a client's
batch weigh 0, and so add nothing to any gradient.
"""

from typing import NamedTuple

import torch

BANDWIDTHS = (10.0, 15.0, 20.0, 50.0)
"""b of the kernels exp(-‖x - y‖² / 2b) that are summed in :class:`MeanDiscrepancy`."""


class Outer(NamedTuple):
    """A gradient leftᵀ right that is only multiplied out where it is subtracted."""

    left: torch.Tensor
    right: torch.Tensor

    def dense(self):
        """The gradient itself, shape (a, o, i)."""
        return torch.bmm(self.left.mT, self.right)


def linear(x, weight, bias):
    """x Wᵀ + b, shape (a, B, o); faster than baddbmm, which copies the bias first."""
    return torch.bmm(x, weight.mT).add_(bias[:, None])


def linear_gradients(name, grad, x):
    """Gradients of a linear layer's parameters from that of its output (a, B, o)."""
    return {f"{name}.weight": Outer(grad, x), f"{name}.bias": grad.sum(1)}


def softmax_loss(logits, y, weight):
    """Cross-entropy of each client (a,), and its gradient in the logits (a, B, d)."""
    log_p = logits.log_softmax(-1)
    loss = -(log_p.gather(-1, y[..., None])[..., 0] * weight).sum(1)
    grad = log_p.exp_()
    grad.scatter_add_(-1, y[..., None], grad.new_full((*y.shape, 1), -1.0))
    return loss, grad.mul_(weight[..., None])


def normalize(x, scale, shift, eps=1e-5):
    """Layer normalization over the last axis: the output, and its pullback.

    ``scale`` and ``shift`` have the shape of x without its rows, which are axis 1. The pullback
    takes the gradient of the output to those of (x, scale, shift).
    """
    width = x.shape[-1:]
    standard, mean, inverse = torch.native_layer_norm(x, width, None, None, eps)

    def pullback(grad):
        inner = torch.ops.aten.native_layer_norm_backward.default(
            grad * scale[:, None], x, width, mean, inverse, None, None, [True, False, False]
        )[0]
        return inner, (grad * standard).sum(1), grad.sum(1)

    return torch.addcmul(shift[:, None], standard, scale[:, None]), pullback


class MeanDiscrepancy:
    """Squared maximum mean discrepancy of two weighted batches, and its gradient in the first.

    With signed weights w = (weight, -weight) of the rows z = (x, y) it is wᵀ K w: the mean over all
    pairs, a row with itself among them, of k(x, x') + k(y, y') - 2 k(x, y').

    Parameters
    ----------
    like : Tensor
        Of the dtype and the device of the batches.
    """

    def __init__(self, like):
        self.rates = -0.5 / like.new_tensor(BANDWIDTHS)
        self.sums = torch.stack([torch.ones_like(self.rates), self.rates], 1)

    def __call__(self, x, y, weight):
        """The value (a,) for x, y of shape (a, B, p), and the gradient of x's shape."""
        z, signed = torch.cat([x, y], 1), torch.cat([weight, -weight], 1)
        z -= z.mean(1, keepdim=True)  # distances stay, and far from 0 their digits do too
        signs = signed[:, :, None] * signed[:, None]
        products = torch.bmm(z, z.mT)
        norms = products.diagonal(dim1=1, dim2=2)
        distances = (norms[:, :, None] + norms[:, None]).sub_(products, alpha=2).clamp_(min=0)
        kernel, slope = (torch.exp(distances[..., None] * self.rates) @ self.sums).unbind(-1)
        pairs = (slope * signs)[:, : x.shape[1]]
        x = z[:, : x.shape[1]]
        grad = torch.addcmul(torch.bmm(pairs, z), pairs.sum(2, keepdim=True), x, value=-1)
        return kernel.mul_(signs).sum((1, 2)), grad.mul_(-4)
