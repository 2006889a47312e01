"""Histories, best rounds, early stopping, streams, checkpoints, and what bad input gets."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from _data import IDS, assert_close, client_scores, global_scores, scores_of_all
from safetensors.numpy import load_file

from skfedhip import DittoClassifier, FedAvgClassifier, FedCPClassifier, FedPerClassifier
from skfedhip.exceptions import SingleClassWarning
from skfedhip.gradient import CNN, MLP, FastText, ResNet18
from skfedhip.gradient._fedavg import FedAvg

from ._data import make, small


def fit(clf, data):
    return clf.fit(data.X, data.y, groups=data.groups)


def same(actual, desired, X):
    np.testing.assert_array_equal(scores_of_all(actual, X), scores_of_all(desired, X))
    np.testing.assert_array_equal(actual.loss_curve_, desired.loss_curve_)
    assert actual.n_rounds_ == desired.n_rounds_


# Rounds.


def test_the_loss_falls(cls, data):
    clf = fit(make(cls, n_rounds=15, lr=0.1), data)
    assert clf.loss_curve_.shape == (15,)
    assert clf.n_rounds_ == 15
    assert clf.loss_curve_[-5:].mean() < 0.9 * clf.loss_curve_[:5].mean()


def test_the_best_round_is_that_of_a_shorter_run(cls, data):
    how = {"validation_fraction": 0.4, "random_state": 3, "lr": 0.4}
    clf = fit(make(cls, n_rounds=6, **how), data)
    accuracy = np.nanmean(clf.history_["client_accuracy"], axis=1)
    assert clf.best_round_ == accuracy.argmax() + 1
    shorter = fit(make(cls, n_rounds=clf.best_round_, **how), data).set_params(model="last")
    np.testing.assert_array_equal(scores_of_all(clf, data.X), scores_of_all(shorter, data.X))
    last = fit(make(cls, n_rounds=6, model="last", **how), data)
    clf.set_params(model="last")
    np.testing.assert_array_equal(scores_of_all(clf, data.X), scores_of_all(last, data.X))


def test_validation_rows_are_not_trained_on(data):
    """The accuracies are of rows that a second classifier, told to, can be fitted without."""
    clf = fit(make(FedAvgClassifier, validation_fraction=0.3, model="last"), data)
    held_out = clf._hold_out(clf._block(data.X, data.y, data.groups))[1]
    X, y, codes = held_out
    hits = clf.predict(X, groups=clf.clients_[codes]) == clf.classes_[y]
    means = [hits[codes == k].mean() if (codes == k).any() else np.nan for k in range(len(IDS))]
    np.testing.assert_array_equal(clf.history_["client_accuracy"][-1], means)
    assert np.isnan(means[0])  # a client of one row holds out none
    trained = [row for row in data.X.tolist() if row not in X.tolist()]
    rest = data.rows(np.array([row in trained for row in data.X.tolist()]))
    assert len(rest.y) == len(data.y) - len(y)
    shuffled = {"shuffle": False, "model": "last"}
    clf = fit(make(FedAvgClassifier, validation_fraction=0.3, **shuffled), data)
    same(clf, fit(make(FedAvgClassifier, **shuffled), rest), data.X)


@pytest.mark.parametrize("patience", [1, 3])
def test_training_stops_where_the_loss_stands_still(data, patience):
    clf = fit(make(FedAvgClassifier, n_rounds=50, patience=patience, tol=0.02, lr=0.5), data)
    losses = clf.loss_curve_
    assert patience < len(losses) < 50
    assert losses[-patience:].min() > losses[:-patience].min() - 0.02
    for n in range(patience + 1, len(losses)):
        assert losses[n - patience : n].min() <= losses[: n - patience].min() - 0.02


def test_a_bar_shows_loss_and_accuracy(data, capsys):
    fit(make(FedAvgClassifier, verbose=1, validation_fraction=0.3), data)
    shown = capsys.readouterr().err
    for part in ("FedAvgClassifier", "3/3", "loss=", "accuracy="):
        assert part in shown
    fit(make(FedAvgClassifier), data)
    assert capsys.readouterr().err == ""


# Going on.


def test_warm_starts_and_streams_are_one_fit(cls, data):
    whole = fit(make(cls, n_rounds=4), data)
    warm = make(cls, n_rounds=1, warm_start=True)
    fit(fit(warm, data).set_params(n_rounds=3), data)
    same(warm, whole, data.X)
    stream = make(cls)
    for _ in range(4):
        stream.partial_fit(data.X, data.y, groups=data.groups)
    same(stream, whole, data.X)
    np.testing.assert_array_equal(stream._bytes, whole._bytes)
    same(fit(warm.set_params(warm_start=False, n_rounds=4), data), whole, data.X)


def same_history(actual, desired):
    assert actual.best_round_ == desired.best_round_
    assert actual.history_.keys() == desired.history_.keys()
    for name, array in desired.history_.items():
        np.testing.assert_array_equal(actual.history_[name], array, err_msg=name)


def test_warm_starts_go_on_with_history_and_best_round(cls, data):
    how = {"validation_fraction": 0.4, "random_state": 3, "lr": 0.4}
    whole = fit(make(cls, n_rounds=5, **how), data)
    warm = make(cls, n_rounds=2, warm_start=True, **how)
    fit(fit(warm, data).set_params(n_rounds=3), data)
    same(warm, whole, data.X)
    same_history(warm, whole)
    assert warm.history_["client_accuracy"].shape == (5, len(IDS))


def test_the_best_round_is_one_of_those_on_the_same_rows(data):
    """On other rows the best round is chosen anew; history follows the clients."""
    how = {"validation_fraction": 0.4, "lr": 0.4}
    clf = fit(make(FedPerClassifier, warm_start=True, **how), data.without(IDS[4]))
    before = clf.history_["client_accuracy"]
    rest = data.without(IDS[3])
    fit(clf, rest)
    after = clf.history_["client_accuracy"]
    assert after.shape == (6, len(IDS) - 1)
    np.testing.assert_array_equal(after[:3, [0, 1, 2, 4]], before[:, [0, 1, 2, 4]])
    assert np.isnan(after[:3, 3]).all()
    assert np.isfinite(after[3:, 1:]).all()
    assert clf.best_round_ == 4 + np.nanmean(after[3:], axis=1).argmax()
    fit(clf.set_params(validation_fraction=None), rest)
    assert clf.best_round_ is None
    assert np.isnan(clf.history_["client_accuracy"][6:]).all()
    assert len(clf.history_["client_accuracy"]) == len(clf.loss_curve_) == 9


def test_a_stream_keeps_the_history_of_a_fit(data):
    clf = fit(make(FedCPClassifier, validation_fraction=0.4), data.without(IDS[2]))
    before, own = clf.history_, data.of(IDS[2])
    clf.partial_fit(own.X, own.y, groups=own.groups)
    for name in ("client_accuracy", "personal_rate"):
        assert clf.history_[name].shape == (4, len(IDS))
        kept = np.delete(clf.history_[name][:3], 2, axis=1)
        np.testing.assert_array_equal(kept, before[name])
        assert np.isnan(clf.history_[name][3]).all()
        assert np.isnan(clf.history_[name][:, 2]).all()
    assert clf.loss_curve_[:3].tolist() == before["loss"].tolist()


def test_a_warm_start_passes_a_checkpoint_that_it_is_further_than(data, tmp_path):
    how = {"warm_start": True, "checkpoint": tmp_path / "run", "checkpoint_every": 2}
    clf = fit(fit(make(FedPerClassifier, **how), data), data)
    same(clf, fit(make(FedPerClassifier, n_rounds=6), data), data.X)
    # The file has those six rounds: of seven, one is left to whoever is behind it.
    behind = fit(make(FedPerClassifier, n_rounds=3), data)
    fit(behind.set_params(**how, n_rounds=4), data)
    same(behind, fit(make(FedPerClassifier, n_rounds=7), data), data.X)
    np.testing.assert_array_equal(behind.bytes_up_ * 6, clf.bytes_up_ * 7)


def test_clients_join_a_stream_and_others_stay(cls, data):
    late = IDS[-1]
    clf = make(cls).partial_fit(
        *(lambda d: (d.X, d.y))(data.without(late)), groups=data.without(late).groups
    )
    before = {name: array.copy() for name, array in clf.personal_params_.items()}
    new = data.of(late, IDS[3])
    clf.partial_fit(new.X, new.y, groups=new.groups)
    assert clf.clients_.tolist() == list(IDS)
    assert clf.n_rounds_ == 2
    for name, array in clf.personal_params_.items():
        rest = [0, 1, 2, 4]
        np.testing.assert_array_equal(array[rest], before[name][rest])
    scores = client_scores(clf, data.X, late)
    assert np.isfinite(scores).all()
    if before:
        assert np.abs(scores - global_scores(clf, data.X)).max() > 0


@pytest.mark.parametrize("how", [{}, {"validation_fraction": 0.3, "join_ratio": (0.2, 0.9)}])
def test_a_run_resumes_with_the_same_numbers(cls, data, tmp_path, how):
    path = tmp_path / "run.safetensors"
    whole = fit(make(cls, n_rounds=5, **how), data)
    saved = {"checkpoint": path, "checkpoint_every": 2, **how}
    fit(make(cls, n_rounds=3, **saved), data)  # its last round is not in the file
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    resumed = fit(make(cls, n_rounds=5, **saved), data)
    same(resumed, whole, data.X)
    same_history(resumed, whole)
    np.testing.assert_array_equal(resumed._bytes, whole._bytes)
    stopped = fit(make(cls, n_rounds=9, patience=1, tol=1e9, **saved), data)
    same(stopped, fit(make(cls, n_rounds=4, **how), data), data.X)  # it had stood still by then


def test_an_interrupted_run_resumes(data, tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    how = {"n_rounds": 4, "random_state": None, "checkpoint": path, "checkpoint_every": 1}

    def interrupt(clf, block):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FedAvgClassifier, "_learned", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit(make(FedAvgClassifier, **how), data)
    clf = fit(make(FedAvgClassifier, **how), data)
    again = fit(make(FedAvgClassifier, **how), data)  # the seed, too, is in the file
    same(again, clf, data.X)


KILLED = """
import os, signal, sys
from gradient._data import make, small
from skfedhip import FedCPClassifier
from skfedhip.utils import _files

class Dying:
    n_files = 0

    def __getattr__(self, name):
        return getattr(os, name)

    def fdopen(self, handle, mode):
        self.n_files += 1
        file = os.fdopen(handle, mode)
        return file if self.n_files < 3 else Half(file)

class Half:
    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, data):
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

_files.os = Dying()
X, y, groups = small()
how = {"n_rounds": 5, "checkpoint": sys.argv[1], "checkpoint_every": 1}
make(FedCPClassifier, validation_fraction=0.3, **how).fit(X, y, groups=groups)
"""


def test_a_run_that_was_killed_in_the_middle_of_writing_resumes(tmp_path):
    path, (X, y, groups) = tmp_path / "run", small()
    argv, tests = [sys.executable, "-c", KILLED, path], Path(__file__).parents[1]
    run = subprocess.run(argv, cwd=tests, capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert len([*tmp_path.iterdir()]) == 2  # the second checkpoint, and what there is of the third
    assert len(load_file(path)["losses"]) == 2
    how = {"n_rounds": 5, "validation_fraction": 0.3}
    clf = make(FedCPClassifier, checkpoint=path, **how).fit(X, y, groups=groups)
    whole = make(FedCPClassifier, **how).fit(X, y, groups=groups)
    same(clf, whole, X)
    same_history(clf, whole)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"lr": 0.1}, "another configuration: lr was 0.2 and is 0.1"),
        ({"feature_extractor": MLP((3,))}, "feature_extractor was"),
        ({"random_state": 1}, "random_state was 0 and is 1"),
        ({"init_params": {"head.bias": np.ones(3)}}, "init_params was None"),
    ],
)
def test_a_checkpoint_of_something_else(data, tmp_path, changed, match):
    how = {"checkpoint": tmp_path / "run", "checkpoint_every": 1}
    clf = fit(make(FedAvgClassifier, **how), data)
    scores = scores_of_all(clf, data.X)
    before = (tmp_path / "run").read_bytes()
    with pytest.raises(ValueError, match=match):
        fit(clf.set_params(**changed), data)
    np.testing.assert_array_equal(scores_of_all(clf, data.X), scores)
    with pytest.raises(ValueError, match="another configuration: rows was"):
        fit(make(FedAvgClassifier, **how), data.without(IDS[0]))
    with pytest.raises(ValueError, match="another configuration: estimator was 'FedAvg"):
        fit(make(FedPerClassifier, **how), data)
    assert (tmp_path / "run").read_bytes() == before


def test_a_checkpoint_without_a_folder_is_refused_before_the_rounds(data, tmp_path):
    clf = make(FedAvgClassifier, checkpoint=tmp_path / "none" / "run", n_rounds=10**6)
    with pytest.raises(FileNotFoundError, match=r"no folder .*none for the checkpoint; make it"):
        fit(clf, data)


def test_a_damaged_checkpoint(data, tmp_path):
    (tmp_path / "run").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"run is damaged"):
        fit(make(FedAvgClassifier, checkpoint=tmp_path / "run"), data)
    path = tmp_path / "other"
    how = {"checkpoint": path, "checkpoint_every": 1}
    fit(make(FedAvgClassifier, **how), data)
    path.write_bytes(path.read_bytes().replace(b"losses", b"lossen"))
    with pytest.raises(ValueError, match="other is damaged: it lacks 'losses'; delete the file"):
        fit(make(FedAvgClassifier, **how), data)


# Bad input.


def test_a_round_without_anybody_leaves_all_as_it_was(cls, data):
    clf = fit(make(cls), data)
    method, before = clf._fitted_method, clf._federation
    nothing = [method._nothing(), method._nothing()]
    broadcast, state = method.aggregate(nothing, before.broadcast, before.server_state)
    assert broadcast.n_round == before.broadcast.n_round + 1
    assert np.isnan(state.loss)
    for name, array in before.broadcast.parameters.items():
        np.testing.assert_array_equal(broadcast.parameters[name], array)
    for mine, other in (
        (state.memory, before.server_state.memory),
        (state.averages, before.server_state.averages),
    ):
        assert mine.keys() == other.keys()
        for name, array in other.items():
            np.testing.assert_array_equal(mine[name], array)


def test_rounds_without_anybody_are_no_progress_and_no_end(data, monkeypatch):
    """Of rounds in which everybody drops out the loss is not known; the others count on."""
    joins = FedAvg.joins

    def dropped(self, client_ids, n_round):
        return joins(self, client_ids, n_round) & (n_round % 2 == 0)

    monkeypatch.setattr(FedAvg, "joins", dropped)
    how = {"n_rounds": 6, "validation_fraction": 0.3}
    clf = fit(make(FedAvgClassifier, patience=5, tol=0.0, **how), data)
    np.testing.assert_array_equal(np.isnan(clf.loss_curve_), [False, True] * 3)
    accuracy = clf.history_["client_accuracy"]
    np.testing.assert_array_equal(accuracy[0::2], accuracy[1::2])
    assert np.isfinite(scores_of_all(clf, data.X)).all()


def test_divergence_names_client_and_round(cls, data):
    clf = fit(make(cls), data)
    scores = scores_of_all(clf, data.X)
    with pytest.raises(FloatingPointError, match=r"client -?\d+ in round \d+ with lr=1e\+200"):
        fit(clf.set_params(lr=1e200), data)
    np.testing.assert_array_equal(scores_of_all(clf, data.X), scores)


def test_own_models_that_diverge_after_the_last_round(data):
    """Where all that came up was finite."""
    clf = make(FedAvgClassifier, 40, n_rounds=1, lr=1e5, weight_decay=1.0)
    with pytest.raises(
        FloatingPointError, match=r"client -?\d+ after round 1 with lr=100000: .*lower"
    ):
        fit(clf, data)


def test_a_client_given_one_class_is_named():
    X, y, groups = small()
    clf = make(FedAvgClassifier, lr=1e-6, init_params={"head.bias": [9.0, 0.0, 0.0]})
    with pytest.warns(SingleClassWarning, match=r"\d of 4 clients .* one class only.*: \d"):
        clf.fit(X, y, groups=groups)


def test_an_optional_id(data):
    clf = make(FedCPClassifier).fit(data.X, data.y)
    assert clf.clients_.tolist() == [None]
    assert clf.predict(data.X).shape == data.y.shape


@pytest.mark.parametrize(
    "ratio", [0.0, 1.5, (0.5,), ("0.1", 1.0), (0.9, 0.1), (-0.1, 1.0), (0.0, 0.0)]
)
def test_bad_join_ratios(data, ratio):
    with pytest.raises(ValueError, match="join_ratio"):
        fit(make(FedAvgClassifier, join_ratio=ratio), data)


@pytest.mark.parametrize("device", ["nonsense", "meta", "privateuseone", "cuda:99"])
def test_devices_that_are_not_there(data, device):
    with pytest.raises(ValueError, match=f"There is no device '{device}' here .*; pass 'cpu'"):
        fit(make(FedAvgClassifier, device=device), data)
    with pytest.raises(ValueError, match="'device' parameter"):
        fit(make(FedAvgClassifier, device=0), data)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"head.weigth": np.ones((3, 6))}, "names 'head.weigth', but the parameters are"),
        ({"head.weight": np.ones((6, 3))}, r"shape \(3, 6\), got shape \(6, 3\)"),
        ({"head.bias": [np.nan, 0, 0]}, "must be finite"),
    ],
)
def test_bad_init_params(data, given, match):
    with pytest.raises(ValueError, match=match):
        fit(make(FedAvgClassifier, init_params=given), data)


def test_labels_and_shapes_that_do_not_fit(data):
    clf = fit(make(FedAvgClassifier, warm_start=True), data)
    with pytest.raises(ValueError, match="'cow' is not among the classes"):
        clf.fit(data.X, np.where(data.y == "cat", "cow", data.y), groups=data.groups)
    with pytest.raises(ValueError, match="3 features"):
        clf.predict(data.X[:, :3])
    with pytest.raises(ValueError, match=r"shape \(6, 2\), but .* \(6,\); reshape X"):
        clf.predict(np.dstack([data.X, data.X]))
    with pytest.raises(ValueError, match="network takes images"):
        fit(make(FedAvgClassifier, feature_extractor=CNN()), data)
    with pytest.raises(ValueError, match="16 x 16 pixels at least, got 8 x 20; enlarge"):
        make(FedAvgClassifier, feature_extractor="auto").fit(
            np.zeros((8, 1, 8, 20)), np.arange(8) % 2
        )
    for wrong in (MLP, torch.nn.Linear(6, 2)):
        with pytest.raises(ValueError, match="must be a callable that makes a torch"):
            fit(make(FedAvgClassifier, feature_extractor=wrong), data)
    flat = make(FedAvgClassifier, feature_extractor=lambda shape: torch.nn.ReLU())
    with pytest.raises(ValueError, match=r"features of shape \(n, p\), got"):
        flat.fit(np.zeros((8, 1, 4, 4)), np.arange(8) % 2)


# Networks.


def networks():
    rng = np.random.default_rng(0)
    groups, y = np.repeat([0, 1, 2], [1, 7, 12]), np.arange(20) % 3
    images = rng.normal(size=(20, 1, 16, 16)) + y[:, None, None, None]
    tokens = rng.integers(0, 9, size=(20, 5))
    yield CNN(8), images, y, groups
    yield FastText(9, 4), tokens, y, groups
    yield (
        lambda shape: torch.nn.Sequential(torch.nn.Linear(256, 4), torch.nn.Tanh()),
        images.reshape(20, -1),
        y,
        groups,
    )


@pytest.mark.parametrize("wrong", [9, -1, 2.5])
def test_what_is_no_token_id_is_named(wrong):
    _, (network, X, y, groups), _ = networks()
    clf = make(FedAvgClassifier, feature_extractor=network, n_rounds=1)
    other = np.where(np.arange(X.size).reshape(X.shape) == 7, wrong, X)
    with pytest.raises(ValueError, match=f"whole numbers from 0 to 8, got {wrong:g}; map"):
        clf.fit(other, y, groups=groups)
    clf.fit(X, y, groups=groups)
    with pytest.raises(ValueError, match=f"got {wrong:g}; map"):
        clf.predict(other, groups=groups)


@pytest.mark.parametrize("k", range(3))
def test_clients_together_or_one_by_one(k, monkeypatch):
    network, X, y, groups = [*networks()][k]
    how = {"feature_extractor": network, "lr": 0.05, "n_rounds": 2, "batch_size": 5}
    alone = make(FedCPClassifier, **how).fit(X, y, groups=groups)
    assert alone._fitted_method.clients_at_once() == 1
    method = type(alone._fitted_method)
    monkeypatch.setattr(method, "clients_at_once", lambda self: 3)
    together = make(FedCPClassifier, **how).fit(X, y, groups=groups)
    for ids in (groups, [None] * 20):
        assert_close(
            together.decision_function(X, groups=ids),
            alone.decision_function(X, groups=ids),
            rtol=1e-9,
        )


def test_a_plain_module_is_trained_by_hand_to_the_same_numbers(data):
    class Hidden(torch.nn.Module):
        def __init__(self, shape):
            super().__init__()
            self.inner = MLP((6,))(shape)

        def forward(self, x):
            return self.inner(x)

    by_hand = fit(make(DittoClassifier), data)
    start = by_hand._network.initial(torch.float64)
    init = {n.replace("extractor.", "extractor.inner."): t.numpy() for n, t in start.items()}
    by_torch = fit(make(DittoClassifier, feature_extractor=Hidden, init_params=init), data)
    assert by_hand._network.layers
    assert by_torch._network.layers is None
    assert_close(scores_of_all(by_torch, data.X), scores_of_all(by_hand, data.X), rtol=1e-9)


def test_parameters_without_a_gradient_stay(cls, data):
    """Of an extractor that a user has frozen, the head alone is trained."""

    def frozen(shape):
        return torch.nn.Sequential(torch.nn.Linear(*shape, 6).requires_grad_(False))

    clf = fit(make(cls, feature_extractor=frozen, n_rounds=1), data)
    start = clf._network.initial(torch.float64)
    for name in ("extractor.0.weight", "extractor.0.bias"):
        for params in (clf.global_params_, clf.personal_params_):
            if name in params:
                np.testing.assert_allclose(params[name] - start[name].numpy(), 0.0, atol=1e-14)
    assert np.abs(clf.global_params_["head.weight"] - start["head.weight"].numpy()).max() > 1e-3


def test_an_extractor_without_parameters(data):
    bare = fit(make(FedCPClassifier, feature_extractor=lambda shape: torch.nn.Identity()), data)
    linear = fit(make(FedCPClassifier, feature_extractor=MLP(())), data)
    assert_close(scores_of_all(bare, data.X), scores_of_all(linear, data.X), rtol=1e-9)


def test_one_number_of_hidden_units_is_one_layer():
    assert MLP(8) == MLP((8,))
    assert MLP(np.int64(8)).hidden_layer_sizes == (8,)


def test_images_have_no_group_column():
    X = np.zeros((6, 1, 16, 16))
    with pytest.raises(ValueError, match=r"names a column, but X has shape .*clients as groups"):
        FedCPClassifier(group_column=0).fit(X, np.arange(6) % 2)


def test_batch_statistics_are_averaged_with_the_weights():
    rng = np.random.default_rng(0)
    X, y, groups = (
        rng.normal(size=(13, 1, 8, 8)),
        np.arange(13) % 2,
        np.repeat([0, 1, 2], [1, 4, 8]),
    )
    how = {"feature_extractor": ResNet18(2), "n_rounds": 1, "lr": 0.05, "shuffle": False}
    clf = make(FedAvgClassifier, **how).fit(X, y, groups=groups)
    method, update = clf._fitted_method, []
    first = method.initialize(None)
    for k, n in enumerate((1, 4, 8)):
        block = clf._block(X, y, groups).clients(np.array([k]))
        sums = method.client_update(block, first, None)[0].sums
        update.append({name: total / n for name, total in sums.items()})
    name = "extractor.1.running_mean"
    np.testing.assert_array_equal(update[0][name], 0.0)  # one row has no statistics of its own
    assert np.abs(update[2][name]).max() > 1e-3
    mean = np.average([each[name] for each in update], axis=0, weights=[1, 4, 8])
    np.testing.assert_allclose(clf.global_params_[name], mean, atol=1e-12)
    counted = clf.global_params_["extractor.1.num_batches_tracked"]
    assert counted.dtype == np.int64
    assert counted == round((0 * 1 + 1 * 4 + 2 * 8) / 13)
    for each in (DittoClassifier, FedCPClassifier, FedPerClassifier):
        scores = make(each, **how).fit(X, y, groups=groups).decision_function(X, groups=groups)
        assert np.isfinite(scores).all()


def test_dropout_repeats_whatever_the_jobs():
    def network(shape):
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.ReLU())

    X, y, groups = small()
    one, two = (
        make(FedAvgClassifier, feature_extractor=network, n_jobs=n).fit(X, y, groups=groups)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
