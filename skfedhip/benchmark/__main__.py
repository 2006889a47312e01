"""The command ``python -m skfedhip.benchmark``."""

import argparse
import sys

from . import _data
from ._arguments import (
    add_feature_options,
    concentration,
    method_names,
    n_jobs,
    output_file,
    path,
    picture_file,
    step_size,
    whole_number,
)
from ._run import CLOSED_FORM, GROUPS, METHODS, evaluate, make_estimator
from ._table import render, write_json

_PROG = "python -m skfedhip.benchmark"
_TEST_SIZE = 0.25
_QUICK = ["local", "afl", "fedhip", "anapfl"]

_DESCRIPTION = """\
Compare personalized federated learning methods on data that is on this machine.

The rows of a labelled data set are dealt to clients with label skew, part of each client's rows
is held out, every method is fitted on the others, and one table says how well the clients are
served. Nothing is downloaded.
"""

_EXAMPLES = f"""\
examples:
  {_PROG} digits
  {_PROG} digits --clients 50 --dirichlet 0.5 --seed 1
  {_PROG} digits --methods local,fedhip --json digits.json
  {_PROG} fashion-mnist --features vit-mae-tiny --jobs 2
  {_PROG} cifar100 --data-dir cifar-100-python --features facebook/vit-mae-base
  {_PROG} paper --dataset cifar100 --data-dir DIR --features facebook/vit-mae-base
  {_PROG} speed --help
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, without the usage before it."""

    def __init__(self, **kwargs):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs
        )

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(argv=None):
    """Run the command with a list of arguments, by default those of the process.

    Returns
    -------
    int
        0; errors of the user's leave with SystemExit of code 2 and one sentence on stderr.
    """
    args = _parser().parse_args(argv)
    try:
        args.run(args)
    except (OSError, ValueError, ImportError, FloatingPointError, MemoryError) as error:
        args.parser.error(" ".join(str(error).split()) or "There is not enough memory.")
    return 0


def _parser():
    parser = _Parser(prog=_PROG, description=_DESCRIPTION, epilog=_EXAMPLES)
    commands = parser.add_subparsers(title="commands", required=True)
    for name, dataset in _data.DATASETS.items():
        _add_dataset(commands, name, dataset)
    _add_measurements(commands)
    return parser


def _add_dataset(commands, name, dataset):
    """The subcommand of one data set."""
    directory = dataset.directory
    files = "" if directory is None else f" --data-dir {directory or 'DIR'}"
    parser = commands.add_parser(
        name,
        help=dataset.words,
        description=f"Compare on {dataset.words}.",
        epilog=f"example:\n  {_PROG} {name}{files} --clients 100 --dirichlet 0.5",
    )
    if directory is not None:
        parser.add_argument(
            "--data-dir",
            metavar="DIR",
            type=path,
            default=directory or None,
            required=not directory,
            help="directory of its files" + (" (default: %(default)s)" if directory else ""),
        )
    add_feature_options(parser.add_argument)
    _add_split_options(parser.add_argument, dataset.clients)
    _add_run_options(parser.add_argument, CLOSED_FORM if name == "digits" else _QUICK)
    parser.set_defaults(run=_run_dataset, parser=parser, dataset=dataset)


def _add_split_options(option, clients):
    option(
        "--clients",
        metavar="N",
        type=whole_number(1),
        default=clients,
        help="number of clients (default: %(default)s)",
    )
    option(
        "--dirichlet",
        metavar="A",
        type=concentration,
        default=0.1,
        help="Dirichlet concentration of the label skew, small is skewed (default: %(default)s)",
    )
    option(
        "--min-size",
        metavar="N",
        type=whole_number(1),
        default=10,
        help="least rows of a client (default: %(default)s)",
    )
    option(
        "--seed",
        metavar="S",
        type=whole_number(0, 2**32 - 1),
        default=0,
        help="decides the clients, what is held out and random features (default: %(default)s)",
    )


def _add_run_options(option, methods):
    option(
        "--methods",
        metavar="NAMES",
        type=method_names,
        default=methods,
        help=f"which of {','.join(METHODS)} to run, or of the groups {','.join(GROUPS)} "
        f"(default: {','.join(methods)})",
    )
    option(
        "--rounds",
        metavar="N",
        type=whole_number(1),
        help="rounds of the gradient methods (default: 100)",
    )
    option(
        "--lr",
        metavar="S",
        type=step_size,
        help="step size of the gradient methods (default: each its own)",
    )
    option(
        "--jobs",
        metavar="N",
        type=n_jobs,
        default=1,
        help="blocks of clients worked on at a time, -1 for one a core (default: %(default)s)",
    )
    option(
        "--json",
        metavar="FILE",
        type=output_file,
        help="write configuration, versions and unrounded results to this file too",
    )
    option("--plot", metavar="FILE", type=picture_file, help="draw one dot a client into this file")


def _add_measurements(commands):
    from . import _backbone, _gradient, _paper, _privacy, _probe, _speed, _tuning

    for name, module, words in (
        ("paper", _paper, "the protocols of the papers over seeds, beside what they published"),
        ("gradient", _gradient, "gradient methods over seeds, and FedCP without its parts"),
        ("speed", _speed, "how fast fit, tuning, rounds and predict are"),
        ("backbone", _backbone, "images per second of ViTMAETransformer, on any device"),
        ("probe", _probe, "what the features of a ViT-MAE are worth beside pixels: minutes"),
        ("tuning", _tuning, "how good default tuning is, beside hindsight: an hour or two"),
        ("privacy", _privacy, "what differential privacy costs on Fashion-MNIST: minutes"),
    ):
        parser = commands.add_parser(name, help=words, description=module.__doc__)
        module.add_arguments(parser)
        parser.set_defaults(run=module.run, parser=parser)


def _run_dataset(args):
    """Load, deal, compare, print."""
    X, y, groups = _federation(args)
    estimators = {
        name: make_estimator(name, args.seed, args.jobs, n_rounds=args.rounds, lr=args.lr)
        for name in args.methods
    }
    results = evaluate(
        estimators, X, y, groups, test_size=_TEST_SIZE, seed=args.seed, progress=True
    )
    configuration = {
        "dataset": args.dataset.title,
        "features_from": args.features,
        "clients": args.clients,
        "dirichlet": args.dirichlet,
        "min_size": args.min_size,
        "seed": args.seed,
        "test_size": _TEST_SIZE,
        "rows": len(X),
        "features": X[0].size,
        "classes": len(set(y.tolist())),
        "jobs": args.jobs,
    }
    records = [result.record() for result in results]
    print(render(configuration, records), flush=True)
    if args.json is not None:
        write_json(args.json, {"configuration": configuration, "results": records})
    if args.plot is not None:
        _plot(args.plot, {METHODS[result.name].label: result.scores for result in results})


def _federation(args):
    """Features (n, m), labels (n,) and clients (n,), what is quick to fail first."""
    _data.check_features(args.features, args.methods)
    images, y = args.dataset.read(getattr(args, "data_dir", None))
    groups = _data.deal(y, args.clients, args.dirichlet, args.min_size, args.seed)
    X = _data.features(images, args.features, args.cache, sys.stderr.isatty())
    return X, y, groups


def _plot(file, scores):
    from ..metrics import ClientScoreDisplay

    display = ClientScoreDisplay(scores, score_name="accuracy").plot()
    display.figure_.savefig(file, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
