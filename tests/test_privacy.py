"""What leaves a client is as private as it says, and no more is noisy than what leaves."""

import numpy as np
import pytest
from _data import assert_close, federation, global_scores
from federation.local import LocalNetwork, conduct, rows_of
from scipy.stats import norm
from sklearn.base import clone

from skfedhip import AFLClassifier, AnaPFLClassifier, FedHiPClassifier
from skfedhip.analytic._afl import AFL
from skfedhip.analytic._updates import NoisyUpdate, RidgeUpdate
from skfedhip.core import ClientBlock, RidgeStatistics
from skfedhip.federation._server import Server
from skfedhip.federation._wire import RefusedMessage, encode
from skfedhip.privacy import GaussianMechanism
from skfedhip.protocol import Empty, Schema

CLASSIFIERS = {
    "FedHiP": FedHiPClassifier(2.0),
    "AFL": AFLClassifier(fit_intercept=True),
    "AnaPFL": AnaPFLClassifier(gamma=10.0, n_components=12, random_state=0),
}
SEEDED = GaussianMechanism(1.0, 1e-5, clip_norm=2.0, random_state=0)


def private(name, mechanism=SEEDED, **params):
    clf = clone(CLASSIFIERS[name]).set_params(missing_groups="global", **params)
    return clf.set_params(privacy=mechanism)


def unweighted(data):
    return {c: (X, y) for c, (X, y, _) in rows_of(data).items()}


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-7])
def test_the_noise_is_the_least_that_keeps_the_promise(epsilon, delta):
    # The Gaussian mechanism's exact delta at epsilon (Balle & Wang, 2018, theorem 8).
    sigma = GaussianMechanism(epsilon, delta).noise_multiplier

    def delta_at(sigma):
        a, b = 1 / (2 * sigma), epsilon * sigma
        return norm.cdf(a - b) - np.exp(epsilon) * norm.cdf(-a - b)

    assert delta_at(sigma) <= delta * (1 + 1e-6)
    assert delta_at(sigma * 0.999) > delta


def bare_update(X, y, fit_intercept, d=3):
    """What leaves a client, without the noise."""
    mechanism = GaussianMechanism(1.0, 1e-5, clip_norm=2.0, where="server")
    owners = np.zeros(len(X), dtype=int)
    block = ClientBlock.from_arrays(X, y, owners, np.array([0]), d)
    method = AFL(fit_intercept=fit_intercept, calibrate=False, privacy=mechanism)
    return mechanism, method.client_update(block, Empty(), None)[0]


def length_in_noise(mechanism, a, b):
    """Distance between two updates, in standard deviations of the noise."""
    scales, gap = mechanism.scales, {}
    for name, field in (("gram", "triangle"), ("cross", "cross"), ("counts", "class_weights")):
        difference = getattr(a.statistics, field) - getattr(b.statistics, field)
        gap[name] = np.sum((difference / scales[name]) ** 2)
    return np.sqrt(sum(gap.values()))


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_one_row_moves_what_leaves_by_at_most_one(fit_intercept):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 5)), rng.integers(0, 3, 20)
    canaries = [*(10.0 ** rng.integers(-3, 8) * rng.normal(size=5) for _ in range(50))]
    canaries += [np.zeros(5), 2.0 * np.eye(5)[0], 1e9 * np.eye(5)[3]]
    lengths = []
    for canary in canaries:
        mechanism, before = bare_update(X, y, fit_intercept)
        _, after = bare_update(np.vstack([X, canary]), np.append(y, 1), fit_intercept)
        lengths.append(length_in_noise(mechanism, after, before) * mechanism.noise_multiplier)
    assert max(lengths) <= 1 + 1e-7
    assert max(lengths) == pytest.approx(1.0)  # by a row along an axis: no noise is wasted


def exposure(mechanism, epsilon, delta, n=3000):
    """How far the best test for a canary row beats what (epsilon, delta) allows, at its best.

    The likelihood ratio of two Gaussians with the same noise is monotone in the projection on
    their difference, so no test for the canary is better than a threshold on that.
    """
    X, y = np.array([[0.6, 0.1], [0.2, 0.5]]), np.array([0, 1])
    canary = np.array([[9.0, 0.0]])  # clipped, along an axis: the easiest to see
    _, out = bare_update(X, y, False, d=2)
    _, within = bare_update(np.vstack([X, canary]), np.append(y, 1), False, d=2)
    scales = mechanism.scales
    names = (("triangle", "gram"), ("cross", "cross"), ("class_weights", "counts"))

    def score(update):
        """Of one release: its noisy numbers along the canary, as the likelihood weighs them."""
        noisy = update.statistics + mechanism.noise(2, 2, "anybody")
        gaps = (getattr(within.statistics, f) - getattr(out.statistics, f) for f, _ in names)
        return sum(
            np.sum(gap * getattr(noisy, field)) / scales[name] ** 2
            for gap, (field, name) in zip(gaps, names, strict=True)
        )

    without, there = (np.array([score(update) for _ in range(n)]) for update in (out, within))
    excess = []
    for t in np.quantile(np.concatenate([without, there]), np.linspace(0.02, 0.98, 60)):
        for false, true in ((without > t, there > t), (there < t, without < t)):
            excess.append(true.mean() - np.exp(epsilon) * false.mean() - delta)
    return max(excess)


def test_a_canary_row_is_not_seen_better_than_epsilon_allows():
    epsilon, delta, slack = 1.0, 1e-5, 0.05  # five standard errors of 3000 draws
    mechanism = GaussianMechanism(epsilon, delta, clip_norm=2.0)
    assert exposure(mechanism, epsilon, delta) < slack
    # The audit is not blind: noise for five times the epsilon gives the canary away.
    weaker = GaussianMechanism(5 * epsilon, delta, clip_norm=2.0)
    assert exposure(weaker, epsilon, delta) > 3 * slack
    assert exposure(weaker, 5 * epsilon, delta) < slack


def draws(mechanism, clients, shape):
    return [mechanism.noise(*shape, client) for client in clients]


@pytest.mark.parametrize("where", ["client", "server"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_noise_is_on_the_sums_and_own_rows_are_exact(where, fit_intercept):
    data, alpha, beta = federation(), 2.0, 0.5
    mechanism = GaussianMechanism(8.0, 1e-3, clip_norm=2.0, where=where, random_state=1)
    clf = FedHiPClassifier(alpha, beta, fit_intercept=fit_intercept, privacy=mechanism)
    clf.fit(data.X, data.y, groups=data.groups)
    Y = (data.y[:, None] == clf.classes_).astype(float)
    norms = np.linalg.norm(data.X, axis=1, keepdims=True)
    F = data.X * np.minimum(1, 2.0 / norms)
    A, B, counts = F.T @ F, F.T @ Y, Y.sum(axis=0)
    owners = clf.clients_.tolist() if where == "client" else ["server"]
    for each in draws(mechanism, owners, (6, 3)):
        A, B, counts = A + each.gram, B + each.cross.T, counts + each.class_weights
    mean, m = np.zeros(6), 6
    if fit_intercept:
        counts = np.maximum(counts, 0)
        mean = B.sum(axis=1) / counts.sum()
        A, B = A - counts.sum() * np.outer(mean, mean), B - np.outer(mean, counts)
    values, vectors = np.linalg.eigh(A)
    floor = mechanism.scales["gram"] * np.sqrt(m * len(owners))
    A = (vectors * np.maximum(values, floor)) @ vectors.T
    if fit_intercept:
        A = np.block([[counts.sum(), np.zeros(6)], [np.zeros((6, 1)), A]])
        B = np.vstack([counts, B])
    penalty = beta * np.diag([0.0] * fit_intercept + [1.0] * 6)
    for k, client in enumerate(clf.clients_):
        own = data.groups == client
        rows = data.X[own] - mean
        if fit_intercept:
            rows = np.column_stack([np.ones(len(rows)), rows])
        P = np.linalg.solve(A + penalty + alpha * rows.T @ rows, B + alpha * rows.T @ Y[own])
        assert_close(clf.personal_coef_[k].T, P[int(fit_intercept) :], rtol=1e-8)
    assert clf.temperature_ == 1.0


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_much_epsilon_is_no_noise(name):
    data = federation(sizes=(400,) * 6)
    X = data.X / np.linalg.norm(data.X, axis=1, keepdims=True)
    bare, gaps = private(name, None).fit(X, data.y, groups=data.groups), []
    for epsilon in (1.0, 100_000.0):
        mechanism = GaussianMechanism(epsilon, 1e-5, clip_norm=4.0, random_state=0)
        clf = private(name, mechanism).fit(X, data.y, groups=data.groups)
        scores, exact = (global_scores(each, X) for each in (clf, bare))
        gaps.append(np.abs(scores - exact).max() / np.abs(exact).max())
    assert gaps[1] < 0.1 * gaps[0]
    assert gaps[1] < 0.3


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_noise_is_new_each_time_unless_it_is_seeded(name):
    data = federation()
    fits = [
        private(name, mechanism).fit(data.X, data.y, groups=data.groups).coef_
        for mechanism in (
            SEEDED,
            SEEDED,
            GaussianMechanism(1.0, 1e-5),
            GaussianMechanism(1.0, 1e-5),
        )
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert np.abs(fits[2] - fits[3]).max() > 0


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_noise_does_not_depend_on_how_work_is_cut(n_jobs, small_blocks):
    data = federation()
    whole = private("FedHiP").fit(data.X, data.y, groups=data.groups)
    small_blocks()
    cut = private("FedHiP", n_jobs=n_jobs).fit(data.X, data.y, groups=data.groups)
    assert_close(cut.personal_coef_, whole.personal_coef_, rtol=1e-8)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("where", ["client", "server"])
def test_a_private_federation_equals_a_private_fit(name, where):
    data = federation()
    mechanism = GaussianMechanism(3.0, 1e-5, where=where, random_state=5)
    clf = private(name, mechanism)
    network = LocalNetwork(clf, unweighted(data))
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    _, report = conduct(network, schema=schema)
    fitted = clone(clf).fit(data.X, data.y, groups=data.groups)
    assert report.refused == {}
    for k, client in enumerate(fitted.clients_.tolist()):
        assert_close(network.fitted[client].personal_coef_[0], fitted.personal_coef_[k], 1e-8)
    tasks = {(task, round_) for _, task, round_ in network.log}
    assert tasks == {("hello", None), ("update", 0), ("finish", None)}  # no losses are sent


def test_a_private_client_does_not_say_which_classes_it_has():
    data = federation()
    with pytest.raises(ValueError, match="doesn't say which classes it has"):
        conduct(LocalNetwork(private("AFL"), unweighted(data)))


def test_the_server_checks_noisy_updates_for_shape_and_finiteness_only():
    schema = Schema(4, np.arange(3), np.dtype(float))
    mechanism = GaussianMechanism(0.5, 1e-5)
    method = AFL(calibrate=False, privacy=mechanism)
    server, noise = Server(method, schema), mechanism.noise(4, 3, "a")
    assert np.linalg.eigvalsh(noise.gram)[0] < 0
    server.receive("a", encode(NoisyUpdate(noise, np.asarray(1.0))))
    broken = RidgeStatistics(noise.triangle * np.nan, noise.cross, noise.class_weights)
    for poison, match in (
        (NoisyUpdate(broken, np.asarray(1.0)), "not finite"),
        (NoisyUpdate(noise, np.asarray(0.0)), "counts as 0.0 clients"),
        (NoisyUpdate(mechanism.noise(5, 3, "b"), np.asarray(1.0)), "shape"),
        (RidgeUpdate(noise), "expected a NoisyUpdate"),
    ):
        with pytest.raises(RefusedMessage, match=match):
            server.receive("b", encode(poison))
    assert server.members == ["a"]
    server.advance()
    assert np.isfinite(server.broadcast.coef).all()


def test_what_a_client_sent_is_sent_again_and_not_drawn_again(tmp_path):
    data, path = federation(), tmp_path / "state"
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    network = LocalNetwork(private("FedHiP", GaussianMechanism(1.0, 1e-5)), unweighted(data))
    conduct(network, schema=schema, path=path)
    _, report = conduct(network, schema=schema, path=path, forget=[12])
    assert report.left == [12]
    network.kept.clear()  # memory lost: its rows can't give the same noise again
    with pytest.raises(RuntimeError, match="not what the client sent"):
        conduct(network, schema=schema, path=path, forget=[40])


def test_a_trusted_server_tells_its_sums_once(tmp_path):
    data, path = federation(), tmp_path / "state"
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    clf = private("FedHiP", GaussianMechanism(1.0, 1e-5, where="server"))
    conduct(LocalNetwork(clf, unweighted(data.without(12))), schema=schema, path=path)
    conductor, report = conduct(LocalNetwork(clf, unweighted(data)), schema=schema, path=path)
    assert report.lost == [12]
    assert not conductor.server.stays_open


def test_what_the_promise_does_not_cover_is_refused():
    data = federation()
    with pytest.raises(ValueError, match="leave out sample_weight"):
        data.fit(private("FedHiP"))
    clf = private("AFL", class_weight={"cat": 2.0})
    with pytest.raises(ValueError, match="class_weight"):
        clf.fit(data.X, data.y, groups=data.groups)
    with pytest.raises(ValueError, match="covers one release"):
        private("AFL").partial_fit(data.X, data.y, groups=data.groups)
    with pytest.raises(ValueError, match="covers one release"):
        private("AFL", retain_statistics=True).fit(data.X, data.y, groups=data.groups)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": np.inf},
        {"delta": 1.0},
        {"delta": 0.0},
        {"clip_norm": -1.0},
        {"clip_norm": "1"},
        {"clip_norm": 1e200},
        {"clip_norm": 1e-200},
        {"random_state": -1},
        {"where": "nowhere"},
        {"random_state": 0.5},
    ],
)
def test_parameters_out_of_range_say_so(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GaussianMechanism(**{"epsilon": 1.0, "delta": 1e-5, **wrong})


def test_a_mechanism_is_a_parameter_like_others(tmp_path):
    data = federation()
    clf = private("AFL").fit(data.X, data.y, groups=data.groups)
    clf.save(tmp_path / "model")
    again = AFLClassifier.load(tmp_path / "model")
    assert again.privacy == clf.privacy == SEEDED
    assert_close(again.coef_, clf.coef_, rtol=0.0)
    with pytest.raises(ValueError, match="privacy"):
        AFLClassifier(privacy=1.0).fit(data.X, data.y, groups=data.groups)
