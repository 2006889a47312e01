"""Accuracy at a stated privacy: what noise on the clients' statistics costs.

Rows are random features of the images, scaled to norm 1, which is also what rows are clipped to.
Nothing is tuned, since tuning on the rows would spend privacy too.
"""

import numpy as np
from sklearn.preprocessing import normalize
from tqdm import tqdm

from ..analytic import AFLClassifier, FedHiPClassifier, LocalRidgeClassifier
from ..feature_extraction import RandomFeatures
from ..metrics import client_scores, client_summary
from ..model_selection import ClientShuffleSplit
from ..privacy import GaussianMechanism
from . import _data
from ._arguments import concentration, output_file, path, positive_numbers, whole_number
from ._table import write_json

_COLUMNS = {
    ("AFL", "server"): lambda alpha, privacy: AFLClassifier(privacy=privacy),
    ("AFL", "client"): lambda alpha, privacy: AFLClassifier(privacy=privacy),
    ("FedHiP", "server"): lambda alpha, privacy: FedHiPClassifier(alpha, privacy=privacy),
    ("FedHiP", "client"): lambda alpha, privacy: FedHiPClassifier(alpha, privacy=privacy),
}


def add_arguments(parser):
    """Command-line options of ``privacy``."""
    option = parser.add_argument
    option(
        "--data-dir",
        metavar="DIR",
        type=path,
        default="/usr/share/datasets/fashion-mnist",
        help="directory of the four idx files, plain or gzipped (default: %(default)s)",
    )
    option(
        "--epsilons",
        metavar="E,...",
        type=positive_numbers,
        default=[1.0, 3.0, 8.0, np.inf],
        help="privacy losses, inf for no noise (default: 1,3,8,inf)",
    )
    option(
        "--dirichlet",
        metavar="A",
        type=concentration,
        default=1.0,
        help="Dirichlet concentration of the label skew (default: %(default)s)",
    )
    option(
        "--alpha",
        metavar="A",
        type=concentration,
        default=10.0,
        help="how many times more own rows count in FedHiP (default: %(default)s)",
    )
    option("--clients", metavar="N", type=whole_number(1), default=50, help="default: %(default)s")
    option(
        "--features", metavar="M", type=whole_number(1), default=256, help="default: %(default)s"
    )
    option(
        "--seeds",
        metavar="N",
        type=whole_number(1),
        default=3,
        help="splits and noises that are averaged over (default: %(default)s)",
    )
    option("--json", metavar="FILE", type=output_file, help="write the results to this file too")


def run(args):
    """Measure, print and maybe write the table."""
    delta = 1e-6
    for epsilon in filter(np.isfinite, args.epsilons):  # is there a noise for each of them?
        _ = GaussianMechanism(epsilon, delta).noise_multiplier
    images, y = _data.load_idx_pooled(args.data_dir)
    X = _data.features(images, "pixels")
    split = [_rows(X, y, args, seed) for seed in range(args.seeds)]
    table, local = np.zeros((len(args.epsilons), len(_COLUMNS), args.seeds)), np.zeros(args.seeds)
    bar = tqdm(total=args.seeds * (table[..., 0].size + 1), desc="privacy", disable=None)
    for seed, rows in enumerate(split):
        local[seed] = _accuracy(LocalRidgeClassifier(), rows)
        bar.update()
        for i, epsilon in enumerate(args.epsilons):
            for j, ((_, where), make) in enumerate(_COLUMNS.items()):
                privacy = None
                if np.isfinite(epsilon):
                    privacy = GaussianMechanism(epsilon, delta, where=where, random_state=seed)
                table[i, j, seed] = _accuracy(make(args.alpha, privacy), rows)
                bar.update()
    print(render(args, len(X), delta, table, local))
    if args.json is not None:
        content = {"delta": delta, "epsilons": [str(e) for e in args.epsilons]}
        names = [f"{name}, noise at the {where}" for name, where in _COLUMNS]
        results = {"columns": names, "accuracy": table.tolist(), "local": local.tolist()}
        write_json(args.json, content | results)


def _rows(X, y, args, seed):
    """Training and test rows: features (n, m) of norm 1, labels, clients."""
    features = RandomFeatures(args.features, random_state=seed)
    Z = normalize(features.fit_transform(4 * (X - 0.5)))  # of pixels from 0 to 1
    groups = _data.deal(y, args.clients, args.dirichlet, 10, seed)
    splitter = ClientShuffleSplit(test_size=0.25, random_state=seed)
    ((train, test),) = splitter.split(Z, y, groups)
    return [(Z[part], y[part], groups[part]) for part in (train, test)]


def _accuracy(clf, rows):
    (X, y, groups), (X_test, y_test, groups_test) = rows
    clf.fit(X, y, groups=groups)
    scores = client_scores(y_test, clf.predict(X_test, groups=groups_test), groups_test)
    return client_summary(scores)["mean"]


def render(args, n_rows, delta, table, local):
    """The table as text; accuracies are means over clients, then over seeds."""
    lines = [
        f"Fashion-MNIST: {args.clients} clients, Dirichlet alpha {args.dirichlet:g}, "
        f"{n_rows:,} rows, {args.features} random features, delta {delta:g}",
        "",
        f"{'':>9}{'AFL (one model for all)':>26}{f'FedHiP (alpha {args.alpha:g})':>28}",
        f"{'epsilon':>9}{'at server':>13}{'at clients':>13}{'at server':>14}{'at clients':>14}",
    ]
    for epsilon, row in zip(args.epsilons, table.mean(axis=2), strict=True):
        cells = "".join(f"{x:>{w}.4f}" for x, w in zip(row, (13, 13, 14, 14), strict=True))
        lines.append(f"{epsilon:>9g}{cells}")
    spread = table.std(axis=2).max()
    lines += [
        "",
        f"Each client alone, which sends nothing: {local.mean():.4f}.",
        "Accuracy on a quarter of each client's rows, mean over clients, then over "
        f"{args.seeds} seeds",
        f"(standard deviation over seeds {spread:.4f} at most). Noise is added once at a server "
        "that all",
        "trust, or by each client.",
    ]
    return "\n".join(lines)
