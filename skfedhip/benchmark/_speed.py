"""Speed and memory, each measured beside its rival in the same run."""

import time
import tracemalloc
import warnings
from dataclasses import asdict, dataclass

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_info, threadpool_limits
from tqdm import tqdm

from skfedhip import FedHiPClassifier, FedHiPClassifierCV, GridEdgeWarning, SingleClassWarning

from ..protocol import run_federation
from . import _backbone, _messages, _rivals
from ._arguments import output_file, whole_number
from ._table import write_json


@dataclass(frozen=True)
class Result:
    """One comparison: a ratio, and the bar that it should reach.

    ``at_least`` tells whether the ratio should be at least the bar or at most.
    """

    name: str
    ratio: float
    bar: float | None
    at_least: bool
    ours: float
    rival: float
    note: str = ""

    @property
    def reached(self):
        if self.bar is None:
            return None
        return self.ratio >= self.bar if self.at_least else self.ratio <= self.bar


@dataclass(frozen=True)
class Sizes:
    """Rows, features, clients and classes of a made-up federation."""

    n: int
    m: int
    K: int
    d: int

    def scaled(self, scale):
        """The same shape with every side but the classes divided by ``scale``."""
        n, m, K = (
            max(side // scale, least) for side, least in ((self.n, 100), (self.m, 8), (self.K, 4))
        )
        return Sizes(n, m, K, self.d)

    def draw(self):
        """X (n, m), y and groups of equal clients in random order."""
        rng = np.random.default_rng(0)
        X = rng.standard_normal((self.n, self.m))
        y = rng.permutation(np.arange(self.n) % self.d)
        groups = rng.permutation(np.arange(self.n) % self.K)
        return X, y, groups

    def draw_unequal(self):
        """X (n, 784), float32, and labels and groups of clients of very unequal size."""
        rng = np.random.default_rng(0)
        shares = rng.dirichlet(np.full(self.K, 0.5))
        groups = np.r_[np.arange(self.K), rng.choice(self.K, self.n - self.K, p=shares)]
        X = rng.standard_normal((self.n, 784), dtype=np.float32)
        return X, rng.integers(0, self.d, self.n), groups

    def __str__(self):
        return f"n={self.n:,} m={self.m} K={self.K:,} d={self.d}"


WIDE = Sizes(20_000, 768, 100, 100)
MANY = Sizes(20_000, 768, 500, 10)
TINY = Sizes(200_000, 256, 10_000, 10)
TUNING = Sizes(15_000, 1_280, 100, 10)
TUNING_LARGE = Sizes(15_000, 1_280, 50, 10)
LOOKUP = Sizes(100_000, 512, 1_000, 10)
ROUND = Sizes(3_000, 784, 20, 10)
CNN_ROUND = Sizes(1_000, 784, 20, 10)
MESSAGES = Sizes(50_000, 512, 1_000, 100)
SMALL_CLIENT = Sizes(50, 768, 1, 100)


def compare_literal(sizes, repeats):
    """FedHiP's fit against Algorithm 1 as printed."""
    X, y, groups = sizes.draw()
    ours, clf = _best(lambda: _fit(X, y, groups, n_jobs=2), repeats)
    rival, models = _best(lambda: _rivals.literal_algorithm(X, y, groups, 1.0, 1.0), 1)
    _check_same(clf.personal_coef_, models)
    return Result(f"fit vs literal Algorithm 1, {sizes}", rival / ours, 12, True, ours, rival)


def compare_direct(sizes, repeats):
    """FedHiP's fit against one positive-definite solve a client."""
    X, y, groups = sizes.draw()
    ours, clf = _best(lambda: _fit(X, y, groups, n_jobs=2), repeats)
    threaded, models = _best(lambda: _rivals.direct_solves(X, y, groups, 1.0, 1.0), 1)
    with threadpool_limits(1, "blas"):  # numpy's idle threads slow down scipy's: be fair
        single, models = _best(lambda: _rivals.direct_solves(X, y, groups, 1.0, 1.0), 1)
    rival = min(threaded, single)
    _check_same(clf.personal_coef_, models)
    note = f"rival with BLAS threads {threaded:.1f} s, without {single:.1f} s"
    name = f"fit vs a direct solve a client, {sizes}"
    return Result(name, rival / ours, 8, True, ours, rival, note)


def compare_ridge_loop(sizes, repeats):
    """FedHiP's fit against a RidgeClassifier a client, timed on a sample of the clients."""
    X, y, groups = sizes.draw()
    sample = min(4, sizes.K)
    ours, _ = _best(lambda: _fit(X, y, groups, n_jobs=2), repeats)
    each, _ = _best(lambda: _rivals.ridge_classifiers(X, y, groups, 1.0, 1.0, range(sample)), 1)
    rival = each * sizes.K / sample
    note = f"rival timed on {sample} of {sizes.K} clients"
    name = f"fit vs a loop of weighted RidgeClassifier, {sizes}"
    return Result(name, rival / ours, 30, True, ours, rival, note)


def compare_tiny_clients(sizes, repeats):
    """A fit of very many small clients against one global ridge on the same rows."""
    X, y, groups = sizes.draw()
    ridge = RidgeClassifier(solver="cholesky", fit_intercept=False)
    ours, _ = _best(lambda: _fit(X, y, groups, n_jobs=2), repeats)
    rival, _ = _best(lambda: ridge.fit(X, y), repeats)
    name = f"fit vs one global RidgeClassifier, {sizes}"
    return Result(name, ours / rival, 5, False, ours, rival, "rival without intercept, as ours")


def compare_jobs(sizes, repeats):
    """Two jobs against one."""
    X, y, groups = sizes.draw()
    two, _ = _best(lambda: _fit(X, y, groups, n_jobs=2), repeats)
    one, _ = _best(lambda: _fit(X, y, groups, n_jobs=1), repeats)
    note = "one job uses BLAS threads where it can"
    return Result(f"fit, n_jobs=2 vs n_jobs=1, {sizes}", one / two, 1, True, two, one, note)


def compare_tuning(sizes, repeats, bar):
    """A search over 15 x 15 penalties against one fit."""
    X, y, groups = sizes.draw()
    grid = np.logspace(-2, 4, 15)
    search = FedHiPClassifierCV(grid, grid, missing_groups="global", n_jobs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        ours, _ = _best(lambda: search.fit(X, y, groups=groups), 1)
    rival, _ = _best(lambda: _fit(X, y, groups, n_jobs=2), repeats)
    name = f"FedHiPClassifierCV, 15 x 15 grid, vs one fit, {sizes}"
    return Result(name, ours / rival, bar, False, ours, rival)


def compare_grid_search(sizes, repeats):
    """The same search against GridSearchCV, timed on a sample of its candidates."""
    X, y, groups = sizes.draw()
    grid = np.logspace(-2, 4, 15)
    search = FedHiPClassifierCV(grid, grid, missing_groups="global", n_jobs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        ours, _ = _best(lambda: search.fit(X, y, groups=groups), 1)
    table = np.column_stack([groups, X])
    sample = {"alpha": [1.0], "beta": [1.0]}
    rival = GridSearchCV(FedHiPClassifier(group_column=0, n_jobs=2), sample, cv=5, refit=False)
    seconds, _ = _best(lambda: rival.fit(table, y), 1)
    name = f"FedHiPClassifierCV vs GridSearchCV(cv=5), 15 x 15 grid, {sizes}"
    note = "rival timed on 1 of 225 candidates"
    return Result(name, 225 * seconds / ours, 100, True, ours, 225 * seconds, note)


def compare_predict(sizes, repeats):
    """Prediction by personal models against prediction by the global one."""
    X, y, groups = sizes.draw()
    clf = _fit(X, y, groups, n_jobs=2)
    ours, _ = _best(lambda: clf.predict(X, groups=groups), repeats)
    rival, _ = _best(lambda: clf.predict(X), repeats)
    return Result(f"personal vs global predict, {sizes}", ours / rival, 5, False, ours, rival)


def compare_flop_floor(sizes, repeats):
    """How long a fit takes beside the least arithmetic it needs, at this machine's own rate."""
    X, y, groups = sizes.draw()
    seconds, _ = _best(lambda: X.T @ X, repeats)
    rate = sizes.n * sizes.m**2 / seconds
    ours, _ = _best(lambda: _fit(X, y, groups, n_jobs=2), repeats)
    floor = _fit_flops(sizes) / rate
    note = (
        f"syrk runs at {rate / 1e9:.0f} GFLOP/s, the fit takes {_fit_flops(sizes) / 1e9:.0f} GFLOP"
    )
    return Result(f"fit vs its flop floor, {sizes}", ours / floor, None, False, ours, floor, note)


def _fit_flops(sizes):
    """Flops of the residual form: Gram, whitening, residuals, kernels, sums, back."""
    n, m, K, d = sizes.n, sizes.m, sizes.K, sizes.d
    per_client = n / K
    whole = 2 * n * m**2 + 2 * n * m * d
    kernels = n * per_client * m + n * per_client**2 / 3 + 2 * n * per_client * d
    return whole + kernels + 2 * n * m * d + K * d * m**2


def compare_memory(sizes, n_jobs):
    """Peak memory of a fit beyond its input and its personal models."""
    X, y, groups = sizes.draw()
    _fit(X[:1000], y[:1000], groups[:1000], n_jobs=n_jobs)  # imports and BLAS buffers
    tracemalloc.start()
    clf = _fit(X, y, groups, n_jobs=n_jobs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    extra = (peak - 8 * clf.personal_coef_.size) / 2**20
    allowed = 6 * 8 * sizes.m**2 / 2**20 + 64 * n_jobs
    name = (
        f"peak MB beyond input and models vs 6 m^2 floats + 64 MB a job, {sizes}, n_jobs={n_jobs}"
    )
    return Result(name, extra / allowed, 1, False, extra, allowed)


def compare_backbone(n_images, repeats):
    """Features of images against the encoder alone, and against one image at a time."""
    rates = _backbone.measure("vit-mae-tiny", "cpu", n_images, repeats)
    ours, encoder, loop = (1e3 / rate for rate in (rates.transformer, rates.encoder, rates.loop))
    name = f"ViTMAETransformer vs {{}}, ms an image, n={n_images:,}"
    return [
        Result(name.format("its encoder"), ours / encoder, 1.1, False, ours, encoder),
        Result(name.format("a loop over images"), loop / ours, 3, True, ours, loop),
    ]


def compare_fedcp(sizes, repeats, images, bar):
    """FedCP's rounds against a plain loop of torch's autograd, one thread each."""
    from ..gradient import FedCPClassifier
    from ..gradient._cut import Cut
    from ..gradient._reference import fedcp_loop
    from ..gradient._threads import single_torch_thread

    X, y, groups = sizes.draw_unequal()
    if images:
        X = X.reshape(len(X), 1, 28, 28)
    clf = FedCPClassifier(n_rounds=1, shuffle=False, random_state=0, missing_groups="global")
    ours, rival = [], []
    with threadpool_limits(1), single_torch_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SingleClassWarning)
        clf.fit(X, y, groups=groups)
        method = clf._fitted_method
        blocks = Cut.of(clf._block(X, y, groups), method.clients_at_once()).blocks
        for _ in range(repeats):  # by turns, since the machine's load changes
            seconds, result = _best(lambda: run_federation(method, blocks, clf._schema()), 1)
            ours.append(seconds)
            seconds, (shared, _) = _best(lambda: fedcp_loop(clf, X, y, groups), 1)
            rival.append(seconds)
    ours, rival = min(ours), min(rival)
    for name, array in result.broadcasts[-1].parameters.items():
        _check_same(array, shared[name], tolerance=1e-3)  # both in float32
    kind = "CNN" if images else "MLP"
    name = f"a round of FedCP, {kind}, vs a loop of torch's autograd, {sizes}"
    return Result(name, ours / rival, bar, False, ours, rival, "one thread each")


def compare_bytes(sizes):
    """What a client of few rows sends, beside the m² + md float64 numbers of the paper."""
    ours = _messages.update_bytes(sizes)
    paper = 8 * (sizes.m**2 + sizes.m * sizes.d)
    name = f"bytes of the paper vs one client's message, kB, {sizes}"
    return Result(name, paper / ours, 10, True, ours / 1e3, paper / 1e3)


def compare_update_rate(sizes):
    """Clients' messages that one core decodes, checks and adds, beside 200 a second."""
    seconds = _messages.receive_all(sizes)
    least = sizes.K / 200
    note = f"{sizes.K / seconds:.0f} messages a second on one core"
    name = f"200 clients' messages a second vs ours, {sizes}"
    return Result(name, least / seconds, 1, True, seconds, least, note)


def compare_server_memory(sizes):
    """What the server holds after all clients, beside after a tenth of them."""
    few, all_ = _messages.server_memory(sizes)
    name = f"the server's MB after {sizes.K:,} clients vs after {sizes.K // 10:,}, {sizes}"
    return Result(name, all_ / few, 1.1, False, all_ / 2**20, few / 2**20)


def _fit(X, y, groups, n_jobs):
    return FedHiPClassifier(missing_groups="global", n_jobs=n_jobs).fit(X, y, groups=groups)


def _best(function, repeats):
    """Shortest of some runs, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def _check_same(ours, theirs, tolerance=1e-8):
    error = np.abs(ours - theirs).max() / np.abs(theirs).max()
    if not error < tolerance:
        raise AssertionError(f"the rival's models differ by {error:.1e}: the race is void.")


def comparisons(scale, repeats):
    """All comparisons as functions without arguments."""

    def case(function, sizes, *args):
        return lambda: function(sizes.scaled(scale) if scale > 1 else sizes, *args)

    return [
        case(compare_literal, WIDE, repeats),
        case(compare_direct, MANY, repeats),
        case(compare_ridge_loop, WIDE, repeats),
        case(compare_tiny_clients, TINY, repeats),
        case(compare_jobs, WIDE, repeats),
        case(compare_tuning, TUNING, repeats, 6),
        case(compare_tuning, TUNING_LARGE, repeats, 10),
        case(compare_grid_search, TUNING, repeats),
        case(compare_predict, LOOKUP, repeats),
        case(compare_flop_floor, WIDE, repeats),
        case(compare_fedcp, ROUND, 3 * repeats, False, 0.5),
        case(compare_fedcp, CNN_ROUND, repeats, True, 1.0),
        case(compare_memory, WIDE, 1),
        case(compare_memory, WIDE, 2),
        case(compare_bytes, SMALL_CLIENT),
        case(compare_update_rate, MESSAGES),
        case(compare_server_memory, MESSAGES),
    ]


def add_arguments(parser):
    """Command-line options of ``speed``."""
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=whole_number(1),
        default=3,
        help="runs of each timing, of which the best counts (default: %(default)s)",
    )
    parser.add_argument(
        "--scale",
        metavar="N",
        type=whole_number(1),
        default=1,
        help="divide all sizes by this for a quick look, where the bars mean nothing",
    )
    parser.add_argument(
        "--json", metavar="FILE", type=output_file, help="write the results to this file too"
    )


def run(args):
    """Measure, print and maybe write all comparisons."""
    cases = comparisons(args.scale, args.repeats)
    results = [case() for case in tqdm(cases, desc="speed", disable=None)]
    results += compare_backbone(max(4000 // args.scale, 100), args.repeats)
    print(render(results))
    if args.json is not None:
        write_json(args.json, {"speed": [asdict(r) | {"reached": r.reached} for r in results]})


def render(results):
    """The results as text."""
    threads = {i["internal_api"]: i["num_threads"] for i in threadpool_info()}
    lines = [f"Ratios measured side by side in this run; BLAS threads: {threads}", ""]
    for r in results:
        sign = ">=" if r.at_least else "<="
        verdict = "reached" if r.reached else "MISSED"
        bar = "" if r.bar is None else f"(bar {sign} {r.bar:g}: {verdict})"
        lines.append(f"{r.ratio:8.2f}x  {r.name}  {bar}")
        lines.append(f"{'':11}{r.ours:.3f} vs {r.rival:.3f}{'; ' + r.note if r.note else ''}")
    return "\n".join(lines)
