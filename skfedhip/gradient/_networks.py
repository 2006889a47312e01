"""Networks as (feature extractor, linear head), their parameters stacked over clients."""

import copy
from dataclasses import dataclass
from math import prod
from numbers import Integral

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from ._functional import linear, linear_gradients


@dataclass(frozen=True)
class MLP:
    """Linear layers with ReLU, for feature rows; images are flattened.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int, or int, default=(512,)
        Units of each layer. Without any, the head alone is a linear softmax model.

    Examples
    --------
    >>> from skfedhip.gradient import MLP
    >>> MLP((64, 32))((20,))
    Sequential(
      (0): Linear(in_features=20, out_features=64, bias=True)
      (1): ReLU()
      (2): Linear(in_features=64, out_features=32, bias=True)
      (3): ReLU()
    )
    """

    hidden_layer_sizes: tuple = (512,)

    def __post_init__(self):
        sizes = self.hidden_layer_sizes
        sizes = (sizes,) if isinstance(sizes, Integral) else sizes
        whole = isinstance(sizes, tuple | list) and all(isinstance(n, Integral) for n in sizes)
        if not whole or not all(n > 0 and not isinstance(n, bool) for n in sizes):
            raise ValueError(
                "hidden_layer_sizes must be whole numbers of at least 1, got "
                f"{self.hidden_layer_sizes!r}; pass, for example, (64, 32)."
            )
        object.__setattr__(self, "hidden_layer_sizes", tuple(sizes))

    def __call__(self, input_shape):
        """The feature extractor for rows of a shape."""
        layers = [nn.Flatten()] if len(input_shape) > 1 else []
        width = prod(input_shape)
        for units in self.hidden_layer_sizes:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        return nn.Sequential(*layers)


@dataclass(frozen=True)
class CNN:
    """Two 5 x 5 convolutions of 32 and 64 channels, each with ReLU and pooling, then a layer.

    With the head it is the "4-layer CNN" of McMahan et al. and of the FedCP paper.

    Parameters
    ----------
    hidden_units : int, default=512
        Units of the linear layer, and so the feature size.

    Examples
    --------
    >>> from skfedhip.gradient import CNN
    >>> CNN(128)((1, 28, 28))[-2]
    Linear(in_features=1024, out_features=128, bias=True)
    """

    hidden_units: int = 512

    def __call__(self, input_shape):
        """The feature extractor for images of a shape (channels, height, width)."""
        channels, *sides = _image_shape(input_shape)
        if min(sides) < 16:
            raise ValueError(
                f"CNN takes images of 16 x 16 pixels at least, got {sides[0]} x {sides[1]}; "
                "enlarge them, or use another feature_extractor, such as ResNet18."
            )
        convolutions = nn.Sequential(
            nn.Conv2d(channels, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        with torch.no_grad():
            width = convolutions(torch.zeros(1, *input_shape)).shape[1]
        return nn.Sequential(*convolutions, nn.Linear(width, self.hidden_units), nn.ReLU())


class _Residual(nn.Module):
    """Two 3 x 3 convolutions with batch normalization, and a way around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.around.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.around.append(nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.main(x) + self.around(x))


@dataclass(frozen=True)
class ResNet18:
    """ResNet-18 for small images: a first 3 x 3 convolution of stride 1, and no pooling after it.

    Its batch-normalization statistics are averaged over clients with the weights of the
    parameters; a batch of one row is normalized by the running ones.

    Parameters
    ----------
    width : int, default=64
        Channels of the first stage; the features are eight times as many.

    Examples
    --------
    >>> import torch
    >>> from skfedhip.gradient import ResNet18
    >>> ResNet18(width=4)((3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 32])
    """

    width: int = 64

    def __call__(self, input_shape):
        """The feature extractor for images of a shape (channels, height, width)."""
        layers = [
            nn.Conv2d(_image_shape(input_shape)[0], self.width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(self.width),
            nn.ReLU(),
        ]
        inputs = self.width
        for stage in range(4):
            outputs = self.width * 2**stage
            layers.append(_Residual(inputs, outputs, 1 if stage == 0 else 2))
            layers.append(_Residual(outputs, outputs, 1))
            inputs = outputs
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class _TokenMean(nn.Module):
    """Mean embedding of a row of token ids, without the padding."""

    def __init__(self, vocabulary_size, units):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, units)

    def forward(self, tokens):
        tokens = tokens.long()
        there = (tokens != 0)[..., None].to(self.embedding.weight.dtype)
        total = (self.embedding(tokens) * there).sum(-2)
        return total / there.sum(-2).clamp(min=1)


@dataclass(frozen=True)
class FastText:
    """Mean of token embeddings and a linear layer, for rows of token ids padded with 0.

    Parameters
    ----------
    vocabulary_size : int
        Token ids are below it, and below 2**24 as float32 has them exactly.
    hidden_units : int, default=32
        Size of the embeddings and of the features.

    Examples
    --------
    >>> import torch
    >>> from skfedhip.gradient import FastText
    >>> FastText(100)((6,))(torch.tensor([[7, 3, 99, 0, 0, 0]])).shape
    torch.Size([1, 32])
    """

    vocabulary_size: int
    hidden_units: int = 32

    def __call__(self, input_shape):
        """The feature extractor for rows of tokens."""
        units = self.hidden_units
        return nn.Sequential(_TokenMean(self.vocabulary_size, units), nn.Linear(units, units))

    def check_rows(self, X):
        """Check that all numbers are token ids.

        Parameters
        ----------
        X : ndarray of shape (n, length)
            Rows of token ids.

        Raises
        ------
        ValueError
            If one is no whole number from 0 to ``vocabulary_size - 1``.
        """
        last = self.vocabulary_size - 1
        wrong = (X.clip(0, last) != X) | (X % 1 != 0)
        if wrong.any():
            raise ValueError(
                f"FastText takes token ids, whole numbers from 0 to {last}, got "
                f"{X[wrong][0]:g}; map tokens to ids, or raise vocabulary_size."
            )


def _image_shape(input_shape):
    if len(input_shape) != 3:
        raise ValueError(
            f"this network takes images of shape (n, channels, height, width), got rows of shape "
            f"{tuple(input_shape)}; reshape X, or use MLP."
        )
    return input_shape


class Network:
    """A feature extractor and a linear head; what it computes depends on parameters given to it.

    Parameters are dicts of tensors: "extractor.*" by the names that the module gives them (its
    buffers among them), "head.weight" (d, p) and "head.bias" (d,). ``buffers`` names what no
    gradient moves: buffers, and parameters that do not require one.

    Parameters
    ----------
    factory : "auto" or callable
        Makes the extractor, a Module from rows to features (n, p), from the shape of a row. "auto"
        is MLP for feature rows and CNN for images.
    input_shape : tuple of int
    n_classes : int
    seed : int
        Of the initial parameters.
    """

    def __init__(self, factory, input_shape, n_classes, seed):
        if factory == "auto":
            factory = CNN() if len(input_shape) == 3 else MLP()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            module = _made_by(factory, tuple(input_shape)).eval()
            _check_untied(module)
            self.n_features = _feature_size(module, input_shape)
            self.layers = _dense_layers(module)
            self.draws = self.layers is None and _draws(module, input_shape)
            head = nn.Linear(self.n_features, n_classes)
        tensors = {**_prefixed("extractor", module), **_prefixed("head", head)}
        self._initial = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self.buffers = frozenset(f"extractor.{name}" for name in _untrained(module))
        self.input_shape, self.n_classes = tuple(input_shape), n_classes
        normed = any(isinstance(m, _BatchNorm) for m in module.modules())
        self.stackable = not (normed or self.draws)
        self._module = None if self.layers is not None else _without_tensors(module)

    @property
    def description(self):
        """A text in which other networks differ: modules, and shapes of parameters."""
        shapes = {name: tuple(tensor.shape) for name, tensor in self._initial.items()}
        return f"{self.layers or self._module} {shapes}"

    def initial(self, dtype):
        """Initial parameters, the same for all clients."""
        return {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in self._initial.items()
        }

    def mapper(self, *, training):
        """A function from stacked parameters and rows (a, B, ...) to (features, their pullback).

        The pullback takes the gradient in the features (a, B, p) to a dict of the parameters'.
        Each thread needs a mapper of its own.
        """
        if self.layers is not None:
            return self._dense
        module = copy.deepcopy(self._module).train(training)
        return _ModuleMapper(module, self.buffers)

    def _dense(self, params, x):
        h, inputs, outputs = x.flatten(2), [], []
        for name, activated in self.layers:
            inputs.append(h)
            h = linear(h, params[f"{name}.weight"], params[f"{name}.bias"])
            h = h.relu_() if activated else h
            outputs.append(h)

        def pullback(grad):
            grads = {}
            for i in reversed(range(len(self.layers))):
                name, activated = self.layers[i]
                if activated:
                    grad = torch.ops.aten.threshold_backward.default(grad, outputs[i], 0)
                grads |= linear_gradients(name, grad, inputs[i])
                if i:
                    grad = torch.bmm(grad, params[f"{name}.weight"])
            return grads

        return h, pullback


class _ModuleMapper:
    """A Module of any kind, by automatic differentiation."""

    def __init__(self, module, buffers):
        self.module, self.buffers = module, buffers

    def __call__(self, params, x):
        params = {n: p for n, p in params.items() if n.startswith("extractor.")}
        trained = {
            n: p.detach().requires_grad_() for n, p in params.items() if n not in self.buffers
        }
        tensors = {n.removeprefix("extractor."): trained.get(n, p) for n, p in params.items()}
        with torch.enable_grad():
            h = self._call(tensors, x)  # on copies of the rows, which the module may change

        def pullback(grad):
            if not trained:
                return {}
            grads = torch.autograd.grad(h, [*trained.values()], grad, allow_unused=True)
            return {n: g for n, g in zip(trained, grads, strict=True) if g is not None}

        return h.detach(), pullback

    def _call(self, tensors, x):
        if len(x) == 1:  # one client: no detour, and buffers are updated where they lie
            single = {name: tensor[0] for name, tensor in tensors.items()}
            with _running_statistics(self.module, len(x[0]) == 1):
                return functional_call(self.module, single, (x[0].clone(),))[None]
        call = vmap(lambda tensors, x: functional_call(self.module, tensors, (x,)))
        return call(tensors, x.clone())


class _running_statistics:  # noqa: N801 - reads as a statement
    """Batch normalization by running statistics while inside, if ``on``."""

    def __init__(self, module, on):
        self.layers = [m for m in module.modules() if isinstance(m, _BatchNorm)] if on else []

    def __enter__(self):
        self.modes = [layer.training for layer in self.layers]
        for layer in self.layers:
            layer.eval()

    def __exit__(self, *error):
        for layer, mode in zip(self.layers, self.modes, strict=True):
            layer.train(mode)


def _prefixed(prefix, module):
    return {f"{prefix}.{name}": tensor for name, tensor in module.state_dict().items()}


def _made_by(factory, input_shape):
    """The extractor that a factory makes; instances and classes are easily taken for one."""
    made = factory if isinstance(factory, nn.Module) else factory(input_shape)
    if made is factory or not isinstance(made, nn.Module):
        raise ValueError(
            "feature_extractor must be a callable that makes a torch.nn.Module from the shape of a "
            f"row, got {factory!r}; pass, for example, MLP() or lambda shape: module."
        )
    return made


def _untrained(module):
    """Names of buffers, and of parameters that do not require a gradient."""
    frozen = (name for name, param in module.named_parameters() if not param.requires_grad)
    return (*(name for name, _ in module.named_buffers()), *frozen)


def _feature_size(module, input_shape):
    h = module(torch.zeros(1, *input_shape))
    if not isinstance(h, torch.Tensor):
        raise ValueError(
            f"feature_extractor must map rows to one tensor, got {type(h).__name__}; wrap it."
        )
    if h.ndim != 2:
        raise ValueError(
            f"feature_extractor must map rows to features of shape (n, p), got {tuple(h.shape)}; "
            "end it with Flatten."
        )
    return h.shape[1]


def _hooked(module):
    """Whether something else than its class says what a module computes."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _check_untied(module):
    """Refuse parameters that stand under several names, which would be trained apart."""
    names = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        first = names.setdefault(id(tensor), name)
        if first != name:
            raise ValueError(
                f"feature_extractor has one parameter under the names {first!r} and {name!r}; give "
                "each layer its own, or use it by one name alone."
            )


def _draws(module, input_shape):
    """Whether a module in training draws random numbers, whatever it is made of."""
    before = torch.get_rng_state()
    copy.deepcopy(module).train()(torch.zeros(2, *input_shape))
    return not torch.equal(before, torch.get_rng_state())


def _without_tensors(module):
    """The module without memory for what is given to it; it keeps what no state has."""
    unsaved = {name for name, _ in module.named_buffers()} - set(module.state_dict())
    return module if unsaved else module.to("meta")


def _dense_layers(module):
    """(name, is followed by ReLU) of the layers of a plain MLP; None for any other module."""
    parts = list(module._modules.items())
    plain = type(module) is nn.Sequential and not _untrained(module)
    if not plain or _hooked(module) or any(_hooked(layer) for _, layer in parts):
        return None
    layers = []
    for name, layer in parts:
        if type(layer) is nn.Linear and layer.bias is not None:
            layers.append((f"extractor.{name}", False))
        elif type(layer) is nn.ReLU and layers and not layers[-1][1]:
            layers[-1] = (layers[-1][0], True)
        elif type(layer) is not nn.Flatten or layers:
            return None
    return tuple(layers)
