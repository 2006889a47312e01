"""The example project runs with Flower, simulated and as processes, and equals one fit."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from skfedhip import FedCPClassifier, FedHiPClassifier
from skfedhip.datasets import make_federated_classification
from skfedhip.federation._server import stored_schema
from skfedhip.federation._store import unpack
from skfedhip.federation.flower import _ids, make_client_app, make_server_app

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
NAMES = ["north", "south", "west"]
BIN = Path(sys.executable).parent
SECONDS = 400  # that anything may take; a loaded machine starts a process in ten seconds


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Machines:
    """Processes on this machine that stand for machines of their own; all die in the end."""

    def __init__(self, home):
        self.home, self.port, self.running = home, free_port(), {}
        configuration = home / "home" / "config.toml"
        configuration.parent.mkdir()
        configuration.write_text(
            '[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )

    def environment(self, home):
        return os.environ | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.home / home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "OMP_NUM_THREADS": "1",
        }

    def start(self, name, command, *args, home=None):
        with open(self.home / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                [BIN / command, *map(str, args)],
                cwd=self.home,
                env=self.environment(home or f"home-{name}"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start_server(self, *args):
        offline = "--disable-runtime-dependency-installation"
        where = ("--host", "127.0.0.1", "--port", self.port)
        self.start("server", "flower-superlink", "--insecure", offline, *where, *args)
        self.wait(self.answers, "the server to start")

    def answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def start_node(self, name):
        self.start(
            name,
            "flower-supernode",
            *("--insecure", "--superlink", f"127.0.0.1:{self.port}"),
            *("--host", "127.0.0.1", "--port", free_port()),
            *("--node-config", f"client-id='{name}' state-dir='{self.home / name}'"),
        )

    def run(self, app=EXAMPLE, **configuration):
        """Start a run of the example, or of another app."""
        told = {
            "state-path": str(self.home / "state"),
            "report-path": str(self.home / "report.json"),
            "model-path": str(self.home / "global.safetensors"),
            **configuration,
        }
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in told.items())
        more = ("--federation-config", "num-supernodes=3") if "simulated" in self.home.name else ()
        if "run" in self.running:
            self.kill("run")
        words = ("--run-config", words, *more, "--stream")
        self.start("run", "flwr", "run", app, "here", *words, home="home")

    def kill(self, name):
        """SIGKILL a machine, with all that runs on it."""
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)

    def close(self):
        for name in list(self.running):
            self.kill(name)

    def log(self, name):
        path = self.home / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, done, what):
        end = time.monotonic() + SECONDS
        while not done():
            if time.monotonic() > end:
                logs = "\n".join(f"== {name}\n{self.log(name)[-3000:]}" for name in self.running)
                raise AssertionError(f"waited {SECONDS} s for {what}\n{logs}")
            time.sleep(0.05)

    def report(self, what, **wanted):
        """Wait for a report with these entries."""
        path = self.home / "report.json"

        def is_there():
            found = json.loads(path.read_text()) if path.exists() else {}
            return all(sorted(found.get(key, [])) == value for key, value in wanted.items())

        self.wait(lambda: path.exists() and is_there(), what)
        return json.loads(path.read_text())

    def digests(self):
        """What the server remembers of the hospitals' first messages."""
        path = self.home / "state"
        return unpack(path.read_bytes())["first"].digests if path.exists() else {}


@pytest.fixture
def machines(request, tmp_path_factory):
    own = Machines(tmp_path_factory.mktemp(request.node.name))
    yield own
    own.close()


def expected(*names):
    """One fit of these hospitals' rows in one place."""
    X, y, hospitals = make_federated_classification(n_clients=3, random_state=0)
    names_of_rows = np.array(NAMES)[hospitals]
    own = np.isin(names_of_rows, names)
    return FedHiPClassifier(alpha=5.0).fit(X[own], y[own], groups=names_of_rows[own])


def assert_same(own, fit, client=None):
    X = np.random.default_rng(0).normal(size=(20, 20))
    np.testing.assert_allclose(own.coef_, fit.coef_, rtol=0, atol=1e-10)
    assert own.temperature_ == pytest.approx(fit.temperature_, rel=1e-8)
    if client is not None:
        assert own.clients_.tolist() == [client]
        k = fit.clients_.tolist().index(client)
        gap = own.personal_coef_[0] - fit.personal_coef_[k]
        assert np.abs(gap).max() < 1e-10
        groups = [client] * len(X)
        np.testing.assert_array_equal(own.predict(X, groups=groups), fit.predict(X, groups=groups))


def assert_all_same(machines, *names):
    fit = expected(*names)
    assert_same(FedHiPClassifier.load(machines.home / "global.safetensors"), fit)
    for name in names:
        own = FedHiPClassifier.load(machines.home / name / "model.safetensors")
        assert_same(own, fit, name)


def test_three_processes_lose_one_lose_the_server_and_forget_one(machines):
    # Two hospitals send their statistics; then the server dies, before the third has come.
    machines.start_server()
    for name in ("north", "south"):
        machines.start_node(name)
    start = time.monotonic()
    machines.run(**{"min-clients": 3, "round-seconds": 600.0})
    machines.wait(lambda: len(machines.digests()) == 2, "two updates")
    before = machines.digests()
    patience = max(15.0, 1.5 * (time.monotonic() - start))  # as this machine's load asks for
    machines.kill("server")

    # A new server goes on from what it had. The third hospital dies while it makes its update: the
    # round is closed without it, and it is named.
    for name in ("north", "south"):
        machines.kill(name)
    machines.start_server()
    for name in NAMES:
        machines.start_node(name)
    waits = {"round-seconds": patience, "late-seconds": 600.0}
    machines.run(**{"clients": ",".join(NAMES), "min-clients": 2}, **waits)
    machines.wait(lambda: "Receiving: train" in machines.log("west"), "west's update")
    machines.kill("west")
    two = ["north", "south"]
    report = machines.report("the run without west", clients=two, updated=two)
    assert report["lost"] == ["west"]
    assert machines.digests() == before
    assert_all_same(machines, "north", "south")

    # It comes back, and is added; nobody else sends again.
    machines.start_node("west")
    report = machines.report("the run with west", clients=NAMES, updated=NAMES)
    assert report["lost"] == []
    after = machines.digests()
    assert {name: after[name] for name in before} == before
    assert_all_same(machines, *NAMES)

    # South leaves.
    machines.run(forget="south", **{"min-clients": 2, "round-seconds": 600.0})
    report = machines.report("the run without south", left=["south"], updated=["north", "west"])
    assert sorted(report["clients"]) == ["north", "west"]
    assert_all_same(machines, "north", "west")
    assert stored_schema(machines.home / "state").n_features == 20


TASK = """
from skfedhip import FedCPClassifier
from skfedhip.gradient import MLP

classifier = FedCPClassifier(
    n_rounds=3, lr=0.05, join_ratio=0.7, feature_extractor=MLP((8,)), dtype="float64",
    random_state=0,
)
"""


def other_app(home):
    """The example with FedCP in place of FedHiP; its hospitals write their models to ``home``."""
    app = home / "app"
    shutil.copytree(EXAMPLE, app)
    (app / "hospitals" / "task.py").write_text(TASK)
    client_app = app / "hospitals" / "client_app.py"
    save = f"lambda own, context: own.save({str(home)!r} + f'/{{own.clients_[0]}}.safetensors')"
    text = client_app.read_text().replace("load_data)", f"load_data, save_model={save})")
    client_app.write_text(text)
    return app


def test_simulated_hospitals_train_a_network_in_many_rounds(machines):
    machines.start_server("--simulation")
    machines.run(other_app(machines.home), **{"round-seconds": 600.0})
    report = machines.report("the simulation", updated=[0, 1, 2])
    assert (report["lost"], report["refused"]) == ([], {})
    X, y, hospitals = make_federated_classification(n_clients=3, random_state=0)
    found = {}
    exec(TASK, found)
    fit = found["classifier"].fit(X, y, groups=hospitals)
    own = FedCPClassifier.load(machines.home / "global.safetensors")
    for name, array in fit.global_params_.items():
        np.testing.assert_allclose(own.global_params_[name], array, rtol=0, atol=1e-10)
    for k in range(3):
        own = FedCPClassifier.load(machines.home / f"{k}.safetensors")
        assert own.clients_.tolist() == [k]
        for name, array in fit.personal_params_.items():
            np.testing.assert_allclose(own.personal_params_[name][0], array[k], rtol=0, atol=1e-10)


def test_apps_refuse_what_they_can_not_run():
    with pytest.raises(TypeError, match="object is no classifier of skfedhip"):
        make_client_app(object(), lambda context: None)
    with pytest.raises(TypeError, match="load_data must be a callable, got tuple"):
        make_client_app(FedHiPClassifier(), (np.ones((2, 1)), np.arange(2)))
    with pytest.raises(ValueError, match="pass both"):
        make_server_app(FedHiPClassifier(), classes=[0, 1])
    assert shutil.which("flwr", path=str(BIN))


def test_ids_of_a_run_configuration():
    assert _ids("a, 12,-3") == ("a", 12, -3)
    assert _ids("--5,²") == ("--5", "²")
    assert _ids(7) == (7,)
