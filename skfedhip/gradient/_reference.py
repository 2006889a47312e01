"""FedCP as a plain loop, client after client: what the engine's speed is measured against."""

import copy

import torch
from torch import nn
from torch.nn import functional

from ._functional import BANDWIDTHS
from ._networks import CNN, MLP


class PlainModel(nn.Module):
    """The model of one client, by automatic differentiation."""

    def __init__(self, extractor, n_features, n_classes):
        super().__init__()
        self.extractor = extractor
        linear = nn.Linear(n_features, 2 * n_features)
        self.policy = nn.ModuleDict({"0": linear, "norm": nn.LayerNorm(2 * n_features)})
        self.head = nn.Linear(n_features, n_classes)
        self.personal_head = nn.Linear(n_features, n_classes)

    def forward(self, x, context):
        h = self.extractor(x)
        a = torch.relu(self.policy["norm"](self.policy["0"](h * context)))
        s, r = a.view(len(x), 2, -1).softmax(1).unbind(1)
        return h, self.head(r * h) + self.personal_head(s * h)


def mean_discrepancy(x, y):
    """Squared maximum mean discrepancy of two batches."""

    def kernel(a, b):
        squared = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
        return sum(torch.exp(-squared / (2 * width)) for width in BANDWIDTHS)

    return (kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)).mean()


def fedcp_loop(clf, X, y, groups):
    """Fit a FedCPClassifier's model, in stored order, by torch's autograd and SGD.

    Parameters
    ----------
    clf : FedCPClassifier
        Fitted on the same rows, without shuffling: from where it started, with its parameters.
    X, y, groups : ndarray
        Rows of all clients; y are class codes.

    Returns
    -------
    params : dict of ndarray
        Global parameters, as ``clf.global_params_`` has them.
    heads : dict from client to ndarray
        Weights of the personal heads.
    """
    method = clf._fitted_method
    factory = {"auto": CNN() if X.ndim == 4 else MLP()}.get(clf.feature_extractor)
    extractor = (factory or clf.feature_extractor)(X.shape[1:])
    model = PlainModel(extractor, method.network.n_features, method.network.n_classes)
    model.to(method.dtype)
    start = {name: torch.from_numpy(array) for name, array in method.initial().items()}
    start |= {f"personal_{n}": p for n, p in start.items() if n.startswith("head.")}
    model.load_state_dict(start)
    rows = {
        k: (torch.as_tensor(X[groups == k], dtype=method.dtype), torch.from_numpy(y[groups == k]))
        for k in clf.clients_.tolist()
    }
    heads = {k: copy.deepcopy(model.personal_head) for k in rows}
    for _ in range(clf.n_rounds):
        sent = []
        for k, (x, t) in rows.items():
            local = copy.deepcopy(model)
            local.personal_head = heads[k]
            _train(clf, local, model.extractor, x, t)
            with torch.no_grad():
                for common, own in zip(local.head.parameters(), heads[k].parameters(), strict=True):
                    common.add_(own).div_(2)
            sent.append((len(x), dict(local.named_parameters())))
        with torch.no_grad():
            for name, param in model.named_parameters():
                param.copy_(sum(n * own[name] for n, own in sent) / len(X))
    params = {n: p.detach().numpy() for n, p in model.named_parameters()}
    shared = {n: p for n, p in params.items() if not n.startswith("personal_")}
    return shared, {k: head.weight.detach().numpy() for k, head in heads.items()}


def _train(clf, local, frozen, x, y):
    local.head.requires_grad_(False)
    context = functional.normalize(local.personal_head.weight.detach().sum(0), dim=0)
    trained = [p for p in local.parameters() if p.requires_grad]
    sgd = torch.optim.SGD(trained, clf.lr, weight_decay=clf.weight_decay)
    for _ in range(clf.local_epochs):
        for rows, t in zip(x.split(clf.batch_size), y.split(clf.batch_size), strict=True):
            with torch.no_grad():
                still = frozen(rows)
            h, logits = local(rows, context)
            loss = functional.cross_entropy(logits, t) + clf.lam * mean_discrepancy(h, still)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
    local.head.requires_grad_(True)
