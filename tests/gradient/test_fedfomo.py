"""FedFomo equals rounds in numpy; a client without others trains alone."""

import numpy as np
from scipy.special import log_softmax

from skfedhip import FedFomoClassifier
from skfedhip.gradient._engine import client_generator
from skfedhip.gradient._fedfomo import _SPLIT_ROUND
from skfedhip.gradient._pool import key_of

from . import _plain as plain
from ._data import make


def split(clf, k, X, y, fraction):
    """Rows that client k trains on, and those that it weighs models with."""
    n = len(y)
    order = client_generator(clf._seed, k, _SPLIT_ROUND).permutation(n)
    n_held = min(max(1, round(fraction * n)), max(1, n - 1))
    held, rest = np.sort(order[:n_held]), np.sort(order[n_held:] if n > 1 else order)
    return (X[rest], y[rest]), (X[held], y[held])


def loss(model, X, y):
    return -log_softmax(plain.scores(model, X), axis=1)[np.arange(len(y)), y].mean()


def gain(base, model, rows):
    distance = np.sqrt(sum(((model[n] - base[n]) ** 2).sum() for n in base))
    return (loss(base, *rows) - loss(model, *rows)) / distance if distance else 0.0


def moved(base, own, others, rows):
    """The next base, and the gains of the others' models."""
    models = [own, *others]
    gains = np.array([gain(base, model, rows) for model in models])
    weights = np.maximum(gains, 0)
    if not weights.any():
        return own, gains[1:]
    weights /= weights.sum()
    pairs = [*zip(weights, models, strict=True)]
    next_base = {n: p + sum(w * (m[n] - p) for w, m in pairs) for n, p in base.items()}
    return next_base, gains[1:]


def rounds(clf, data, n_rounds, fraction):
    """With all other models sent to each client: the mean, the clients' models and affinities."""
    parts = [split(clf, k, *rows, fraction) for k, rows in enumerate(plain.clients(data))]
    models, bases, mean, affinity = {}, {}, plain.start(), np.zeros((4, 4))
    for n_round in range(n_rounds):
        cohort = np.flatnonzero(clf._fitted_method.joins(np.arange(4), n_round)).tolist()
        sent = {}
        for k in cohort:
            if k in models:
                others = [j for j in models if j != k]
                candidates = [models[j] for j in others]
                bases[k], gains = moved(bases[k], models[k], candidates, parts[k][1])
                affinity[k, others] += gains
            else:
                bases[k] = mean
            sent[k] = plain.sgd(bases[k], *parts[k][0])
        models |= sent
        mean = plain.average([*sent.values()], [plain.SIZES[k] for k in sent])
    return mean, models, affinity


def assert_affinities(clf, affinity):
    memory = clf._federation.server_state.memory
    order = [memory["keys"].tolist().index(key_of(k)) for k in range(4)]
    np.testing.assert_allclose(memory["affinity"][np.ix_(order, order)], affinity, atol=1e-9)


def test_rounds_equal_numpy():
    clf, data = plain.fitted(FedFomoClassifier, 3, weighing_fraction=0.4, n_rounds=4)
    mean, models, affinity = rounds(clf, data, 4, 0.4)
    plain.assert_models(clf, mean, [models[k] for k in range(4)], data[0])
    assert affinity.min() < 0 < affinity.max()
    assert_affinities(clf, affinity)


def test_cohorts_and_a_client_never_met():
    how = {"n_rounds": 5, "join_ratio": 0.25}
    clf, data = plain.fitted(FedFomoClassifier, 5, **how)
    mean, models, _ = rounds(clf, data, 5, 0.2)
    assert 1 < len(models) < 4
    plain.assert_models(clf, mean, [models.get(k, mean) for k in range(4)], data[0])


def test_without_others_a_client_is_alone():
    _, (X, y, _) = plain.fitted(FedFomoClassifier, n_rounds=1)
    ids = [7] * len(y)
    clf = make(FedFomoClassifier, init_params=plain.start(), shuffle=False)
    clf.fit(X, y, groups=ids)
    training, _ = split(clf, 7, X, y, 0.2)
    model = plain.sgd(plain.start(), *training, epochs=3)
    np.testing.assert_allclose(
        clf.decision_function(X, groups=ids), plain.scores(model, X), atol=1e-9
    )


def test_the_dearest_are_sent_and_some_by_chance():
    def method(n_models, explore):
        clf, _ = plain.fitted(FedFomoClassifier, n_models, explore=explore, n_rounds=1)
        return clf._fitted_method

    affinity, rng = np.array([9.0, 1.0, -2.0, 3.0, 0.0, 2.0]), np.random.default_rng(0)
    assert method(3, 0.0).picked(affinity, 0, rng).tolist() == [3, 5, 1]  # never one's own
    assert sorted(method(9, 0.3).picked(affinity, 2, rng).tolist()) == [0, 1, 3, 4, 5]
    by_chance = [method(1, 1.0).picked(affinity, 0, rng).item() for _ in range(60)]
    assert set(by_chance) == {1, 2, 3, 4, 5}
    mostly = method(2, 0.3)
    picks = [mostly.picked(affinity, 0, rng).tolist() for _ in range(300)]
    assert all(len(set(each)) == 2 for each in picks)
    # 3 is missing only where both are by chance, 0.09, and then with probability 3/5.
    assert 0.9 < np.mean([3 in each for each in picks]) < 0.99


def test_messages_hold_the_models_that_were_picked():
    clf, _ = plain.fitted(FedFomoClassifier, 2)
    model = sum(value.nbytes for value in plain.start().values())
    assert set(np.atleast_1d(clf.bytes_down_)) == {4 * 8 + (1 + 3 * 2) * model}
    gains = 2 * 8
    assert set(np.atleast_1d(clf.bytes_up_)) == {3 * (model + gains + 24)}
