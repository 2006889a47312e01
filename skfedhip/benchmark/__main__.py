"""The command ``python -m skfedhip.benchmark``."""

import argparse
import sys

from ..datasets import partition_dirichlet
from . import _data
from ._arguments import concentration, method_names, n_jobs, output_file, whole_number
from ._run import METHODS, evaluate
from ._table import render, write_json

_PROG = "python -m skfedhip.benchmark"
_TEST_SIZE = 0.25
_FASHION_MNIST = "/usr/share/datasets/fashion-mnist"

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
  {_PROG} fashion-mnist --data-dir {_FASHION_MNIST} --jobs 2
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
    return args.run(args) or 0


def _parser():
    parser = _Parser(prog=_PROG, description=_DESCRIPTION, epilog=_EXAMPLES)
    commands = parser.add_subparsers(title="commands", required=True)
    digits = commands.add_parser(
        "digits",
        help="scikit-learn's handwritten digits: a few seconds",
        description="Compare on the 1797 handwritten digits that come with scikit-learn.",
        epilog=f"example:\n  {_PROG} digits --clients 50 --json digits.json",
    )
    _add_options(digits, clients=20, methods=list(METHODS))
    digits.set_defaults(title="Digits", load=lambda args: _data.load_digits())
    fashion = commands.add_parser(
        "fashion-mnist",
        help="Fashion-MNIST or another idx data set on disk: a minute or two",
        description=(
            "Compare on the training and test images of Fashion-MNIST, pooled; they are in the\n"
            "Debian package dataset-fashion-mnist."
        ),
        epilog=f"example:\n  {_PROG} fashion-mnist --data-dir {_FASHION_MNIST}",
    )
    fashion.add_argument(
        "--data-dir",
        metavar="DIR",
        default=_FASHION_MNIST,
        help="directory of the four idx files, plain or gzipped (default: %(default)s)",
    )
    _add_options(fashion, clients=50, methods=["local", "afl", "fedhip", "anapfl"])
    fashion.set_defaults(
        title="Fashion-MNIST", load=lambda args: _data.load_fashion_mnist(args.data_dir)
    )
    _add_measurements(commands)
    return parser


def _add_options(parser, clients, methods):
    """The options that all data sets have in common, and the defaults of two."""
    _add_split_options(parser.add_argument, clients)
    _add_run_options(parser.add_argument, methods)
    parser.set_defaults(run=_run_dataset, parser=parser)


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
        help=f"which of {','.join(METHODS)} to run (default: {','.join(methods)})",
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
    option("--plot", metavar="FILE", type=output_file, help="draw one dot a client into this file")


def _add_measurements(commands):
    from . import _privacy, _speed, _tuning

    for name, module, words in (
        ("speed", _speed, "how fast fit, tuning and predict are"),
        ("tuning", _tuning, "how good default tuning is, beside hindsight: an hour or two"),
        ("privacy", _privacy, "what differential privacy costs on Fashion-MNIST: minutes"),
    ):
        parser = commands.add_parser(name, help=words, description=module.__doc__)
        module.add_arguments(parser)
        parser.set_defaults(run=module.run, parser=parser)


def _run_dataset(args):
    """Load, deal, compare, print."""
    X, y, groups = _federation(args)
    estimators = {name: METHODS[name].make(args.seed, args.jobs) for name in args.methods}
    results = evaluate(
        estimators, X, y, groups, test_size=_TEST_SIZE, seed=args.seed, progress=True
    )
    configuration = {
        "dataset": args.title,
        "clients": args.clients,
        "dirichlet": args.dirichlet,
        "min_size": args.min_size,
        "seed": args.seed,
        "test_size": _TEST_SIZE,
        "rows": len(X),
        "features": X.shape[1],
        "classes": len(set(y.tolist())),
        "jobs": args.jobs,
    }
    records = [result.record() for result in results]
    print(render(configuration, records), flush=True)
    if args.json is not None:
        _write(args, {"configuration": configuration, "results": records})
    if args.plot is not None:
        _plot(args, {METHODS[result.name].label: result.scores for result in results})


def _federation(args):
    """Features (n, m), labels (n,) and clients (n,), or the end with one sentence."""
    try:
        X, y = args.load(args)
    except (OSError, ValueError) as error:
        args.parser.error(str(error))
    try:
        groups = partition_dirichlet(
            y, args.clients, args.dirichlet, min_size=args.min_size, random_state=args.seed
        )
    except ValueError as error:
        options = f"--clients {args.clients} --dirichlet {args.dirichlet:g}"
        args.parser.error(f"no split of the rows with {options}: {error}")
    return X, y, groups


def _plot(args, scores):
    from ..metrics import ClientScoreDisplay

    try:
        display = ClientScoreDisplay(scores, score_name="accuracy").plot()
        display.figure_.savefig(args.plot, dpi=150)
    except (ImportError, OSError, ValueError) as error:
        args.parser.error(f"can't draw {str(args.plot)!r}: {error}")


def _write(args, content):
    try:
        write_json(args.json, content)
    except OSError as error:
        args.parser.error(f"can't write the results to {str(args.json)!r}: {error.strerror}.")


if __name__ == "__main__":
    sys.exit(main())
