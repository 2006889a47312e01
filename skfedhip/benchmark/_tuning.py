"""How good default tuning is, beside rivals that are given their best penalty in hindsight."""

import warnings
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from skfedhip import AnaPFLClassifierCV, FedHiPClassifierCV, LocalRidgeClassifier

from ..datasets import partition_dirichlet, partition_iid
from ..exceptions import GridEdgeWarning
from ..feature_extraction import RandomFeatures
from ..metrics import client_scores
from ..model_selection import ClientShuffleSplit
from . import _data
from ._arguments import output_file, path, whole_number
from ._table import write_json

_ROWS = 12_000
RIVALS = ("Local", "AFL", "AFL, own classes")
TUNED = ("FedHiP", "AnaPFL")


@dataclass(frozen=True)
class Cell:
    """One federation: data set, features, number of clients, and how the rows are dealt."""

    dataset: str
    features: str
    clients: int
    dirichlet: float

    def __str__(self):
        deal = "IID" if self.dirichlet == np.inf else f"Dirichlet {self.dirichlet:g}"
        return f"{self.dataset}, {self.features}, {self.clients} clients, {deal}"


def cells(datasets):
    """All federations of the table."""
    skews = (0.1, 0.5, 1.0, np.inf)
    out = []
    if "digits" in datasets:
        out += [Cell("digits", "pixels", 20, skew) for skew in skews]
        out += [Cell("digits", "pixels", 100, skew) for skew in (1.0, np.inf)]
    if "fashion-mnist" in datasets:
        out += [
            Cell("fashion-mnist", features, clients, skew)
            for features in ("pixels", "random features")
            for clients in (20, 100)
            for skew in skews
        ]
    return out


def _deal(cell, y, seed):
    """Rows of a federation, and the client of each."""
    rows = np.arange(len(y))
    if len(y) > _ROWS:
        rows = np.random.default_rng(seed).permutation(len(y))[:_ROWS]
    if cell.dirichlet == np.inf:
        return rows, partition_iid(y[rows], cell.clients, random_state=seed)
    return rows, partition_dirichlet(
        y[rows], cell.clients, cell.dirichlet, min_size=2, random_state=seed
    )


def measure(cell, data, seed, n_jobs):
    """Mean client test accuracy of every method on one federation, a dict by name."""
    X, y = data
    rows, groups = _deal(cell, y, seed)
    X, y = X[rows], y[rows]
    if cell.features == "random features":
        X = RandomFeatures(random_state=seed).fit_transform(X)
    ((train, test),) = ClientShuffleSplit(random_state=seed).split(X, y, groups)
    how = {"missing_groups": "global", "n_jobs": n_jobs}

    def accuracy(clf):
        clf.fit(X[train], y[train], groups=groups[train])
        predicted = clf.predict(X[test], groups=groups[test])
        return float(client_scores(y[test], predicted, groups[test]).scores.mean())

    def in_hindsight(search, **params):
        clf = search(cv=[(train, test)], **params, **how).fit(X, y, groups=groups)
        return clf.best_score_

    tuned = FedHiPClassifierCV(**how)
    out = {"FedHiP": accuracy(tuned)}
    out["AnaPFL"] = accuracy(AnaPFLClassifierCV(random_state=seed, **how))
    out["Local"] = max(
        accuracy(LocalRidgeClassifier(beta, **how)) for beta in np.logspace(-4, 3, 8)
    )
    for name, own in (("AFL", False), ("AFL, own classes", True)):
        out[name] = in_hindsight(FedHiPClassifierCV, alphas=[0.0], local_classes_only=own)
    out["AnaPFL in hindsight"] = in_hindsight(AnaPFLClassifierCV, random_state=seed)
    return out


def summarize(cell, runs):
    """Means over seeds, and whether the tuned methods keep up with hindsight."""
    means = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    best = max(RIVALS, key=means.get)
    gaps = [run["FedHiP"] - run[best] for run in runs]
    own = [run["AnaPFL"] - run["AnaPFL in hindsight"] for run in runs]
    return {
        "cell": str(cell),
        "means": means,
        "best_rival": best,
        "gap": float(np.mean(gaps)),
        "gap_error": _standard_error(gaps),
        "anapfl_gap": float(np.mean(own)),
        "anapfl_error": _standard_error(own),
        "seeds": len(runs),
    }


def _standard_error(values):
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def keeps_up(gap, error):
    """At most half a point and two standard errors behind."""
    return gap >= -0.005 - 2 * error


def add_arguments(parser):
    """Command-line options of ``tuning``."""
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        type=path,
        help="folder of Fashion-MNIST's idx files; without it, digits alone",
    )
    parser.add_argument(
        "--seeds", metavar="N", type=whole_number(1), default=5, help="runs a federation"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=whole_number(1), default=2, help="blocks worked on at a time"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=output_file, help="write all numbers to this file too"
    )


def run(args):
    """Measure and print the whole table."""
    images, y = _data.load_digits()
    data = {"digits": (_data.features(images, "pixels"), y)}
    if args.data_dir:
        images, y = _data.load_idx_pooled(args.data_dir)
        data["fashion-mnist"] = _data.features(images, "pixels"), y
    work = [(cell, seed) for cell in cells(data) for seed in range(args.seeds)]
    for cell, seed in work:  # before an hour of work: can all of them be dealt?
        _deal(cell, data[cell.dataset][1], seed)
    runs = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        for cell, seed in tqdm(work, desc="tuning", disable=None):
            measured = measure(cell, data[cell.dataset], seed, args.jobs)
            runs.setdefault(cell, []).append(measured)
    rows = [summarize(cell, each) for cell, each in runs.items()]
    print(render(rows))
    if args.json is not None:
        everything = {str(cell): each for cell, each in runs.items()}
        write_json(args.json, {"tuning": rows, "runs": everything})


def render(rows):
    """The table as text."""
    names = [*TUNED, *RIVALS, "AnaPFL in hindsight"]
    wide = max(len(row["cell"]) for row in rows)
    lines = [
        f"Mean client test accuracy over {rows[0]['seeds']} seeds; {', '.join(TUNED)} tune "
        "themselves on training rows,",
        "the others have the best penalty for the test rows. Gap: FedHiP less the best rival.",
        "",
        f"{'':{wide}}  " + "  ".join(f"{name:>8}" for name in names) + "        gap",
    ]
    for row in rows:
        scores = "  ".join(f"{row['means'][name]:{max(8, len(name))}.4f}" for name in names)
        verdict = "" if keeps_up(row["gap"], row["gap_error"]) else "  BEHIND"
        gap = f"{row['gap']:+.4f} ± {row['gap_error']:.4f}"
        lines.append(f"{row['cell']:{wide}}  {scores}  {gap}{verdict}")
    overall = {name: np.mean([row["means"][name] for row in rows]) for name in names}
    scores = "  ".join(f"{overall[name]:{max(8, len(name))}.4f}" for name in names)
    return "\n".join([*lines, f"{'mean of all':{wide}}  {scores}"])
