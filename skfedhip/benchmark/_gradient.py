"""Gradient methods after equal rounds, each with the step size that is best on rows held out."""

import sys
import warnings

import numpy as np
from tqdm import tqdm

from ..exceptions import SingleClassWarning
from ..metrics import client_scores
from ..model_selection import ClientShuffleSplit
from ..preprocessing import FederatedStandardScaler
from . import _data
from ._arguments import (
    add_feature_options,
    concentration,
    method_names,
    n_jobs,
    output_file,
    path,
    several,
    step_size,
    whole_number,
)
from ._run import GROUPS, METHODS
from ._table import write_json

_VALIDATION = 0.15
_MIN_SIZE = 10  # rows of a client


def add_arguments(parser):
    """Command-line options of ``gradient``."""
    option = parser.add_argument
    option(
        "--data-dir",
        metavar="DIR",
        type=path,
        help="folder of idx files of images, such as Fashion-MNIST's; without it, digits",
    )
    add_feature_options(option)
    option(
        "--standardize",
        action="store_true",
        help="scale each feature to mean 0 and variance 1 over the training rows",
    )
    option(
        "--methods",
        metavar="NAMES",
        type=method_names,
        default=GROUPS["gradient"],
        help="methods, or the groups gradient (the default) and ablation",
    )
    option("--rounds", metavar="N", type=whole_number(1), default=50, help="rounds of each")
    option(
        "--lrs",
        metavar="S,S",
        type=several(step_size),
        default=[0.005, 0.02, 0.05],
        help="step sizes that each method chooses from, by held-out training rows",
    )
    option("--seeds", metavar="N", type=whole_number(1), default=3, help="federations")
    option("--rows", metavar="N", type=whole_number(100), help="random rows of the data alone")
    option("--clients", metavar="N", type=whole_number(1), default=20, help="clients")
    option("--dirichlet", metavar="A", type=concentration, default=0.1, help="concentration")
    option("--jobs", metavar="N", type=n_jobs, default=1, help="groups of clients at a time")
    option("--json", metavar="FILE", type=output_file, help="write all numbers to this file too")


def run(args):
    """Measure and print the table."""
    X, y, rows = _load(args)
    work = [(name, seed) for seed in range(args.seeds) for name in args.methods]
    runs = {name: [] for name in args.methods}
    for name, seed in tqdm(work, desc="gradient", disable=None):
        runs[name].append(measure(name, X[rows[seed]], y[rows[seed]], seed, args))
    print(render(runs, args))
    if args.json is not None:
        write_json(args.json, {"gradient": runs})


def _load(args):
    """Features and labels of all rows that are used, and which of them each seed takes."""
    _data.check_features(args.features, args.methods)
    if args.standardize and args.features == "images":
        raise ValueError("--standardize scales rows, not images; leave one of both out.")
    images, y = (
        _data.load_digits() if args.data_dir is None else _data.load_idx_pooled(args.data_dir)
    )
    taken = [np.arange(len(y))] * args.seeds
    if args.rows is not None and args.rows < len(y):
        generators = map(np.random.default_rng, range(args.seeds))
        taken = [generator.permutation(len(y))[: args.rows] for generator in generators]
    for seed, rows in enumerate(taken):  # before an hour of work: can all of them be dealt?
        _data.deal(y[rows], args.clients, args.dirichlet, _MIN_SIZE, seed)
    used = np.unique(np.concatenate(taken))
    X = _data.features(images[used], args.features, args.cache, sys.stderr.isatty())
    return X, y[used], [np.searchsorted(used, rows) for rows in taken]


def measure(name, X, y, seed, args):
    """One method on one federation, with the step size that is best on rows held out.

    Returns
    -------
    dict
        Test accuracy ("mean" over clients, "worst"), "lr", the loss of the "first" and "last"
        round, and how many clients are given "one_class" only, though their test rows have more.
    """
    groups = _data.deal(y, args.clients, args.dirichlet, _MIN_SIZE, seed)
    ((train, test),) = ClientShuffleSplit(random_state=seed).split(X, y, groups)
    if args.standardize:
        X = FederatedStandardScaler().fit(X[train]).transform(X)
    fits = []
    for lr in args.lrs:
        clf = METHODS[name].make(seed, args.jobs)
        clf.set_params(
            n_rounds=args.rounds, lr=lr, validation_fraction=_VALIDATION, missing_groups="global"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SingleClassWarning)
            try:
                clf.fit(X[train], y[train], groups=groups[train])
            except FloatingPointError:
                continue  # this step size is too long
        fits.append((np.nanmean(clf.history_["client_accuracy"], axis=1).max(), clf))
    if not fits:
        raise ValueError(f"{name} diverges with each of the step sizes {args.lrs}; lower them.")
    clf = max(fits, key=lambda fit: fit[0])[1]
    predicted = clf.predict(X[test], groups=groups[test])
    scores = client_scores(y[test], predicted, groups[test]).scores
    first, last = clf.loss_curve_[[0, -1]]
    return {
        "mean": float(scores.mean()),
        "worst": float(scores.min()),
        "lr": clf.lr,
        "first": float(first),
        "last": float(last),
        "round": clf.best_round_,
        "one_class": n_given_one_class(y[test], predicted, groups[test]),
    }


def n_given_one_class(y, predicted, groups):
    """How many clients are given one class only, though their rows have more."""
    rows = [groups == client for client in np.unique(groups)]
    return sum(len(set(predicted[own])) == 1 < len(set(y[own])) for own in rows)


def render(runs, args):
    """The table as text."""
    lines = [
        f"Mean client test accuracy, {args.clients} clients, Dirichlet {args.dirichlet:g}, best of "
        f"{args.rounds} rounds",
        f"and of step sizes {args.lrs} by {100 * _VALIDATION:g}% of the training rows, held out;",
        f"mean ± standard deviation over {args.seeds} seeds, worst client, loss, step sizes, and",
        "how many clients are given one class only, of all seeds.",
        "",
    ]
    for name, each in runs.items():
        means = [one["mean"] for one in each]
        worst = np.mean([one["worst"] for one in each])
        first, last = (np.mean([one[key] for one in each]) for key in ("first", "last"))
        spread = np.std(means, ddof=1) if len(means) > 1 else 0.0
        chosen = ", ".join(f"{lr:g}" for lr in sorted({one["lr"] for one in each}))
        poor = sum(one["one_class"] for one in each)
        lines.append(
            f"{METHODS[name].label:<11} {np.mean(means):.4f} ± {spread:.4f}  {worst:.4f}  "
            f"{first:.3f} -> {last:.3f}  lr {chosen}  one class {poor}"
        )
    return "\n".join(lines)
