"""The protocols of the papers over seeds, beside the accuracies that they published.

Every method is fitted in every federation of a protocol, with part of each client's rows held out.
What is done is kept, cell by cell, so that a run that was interrupted goes on, and one that asks
for more does only what is new.
"""

import json
import sys
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from tqdm import tqdm

from .._version import __version__
from ..exceptions import GridEdgeWarning, SingleClassWarning
from . import _data
from ._arguments import (
    add_feature_options,
    concentration,
    method_names,
    n_jobs,
    new_folder,
    output_file,
    path,
    picture_file,
    several,
    step_size,
    whole_number,
)
from ._paper_table import plot, render
from ._run import CLOSED_FORM, GROUPS, evaluate, make_estimator
from ._table import write_json

_TEST_SIZE = 0.25


class Protocol(NamedTuple):
    """The federations of a paper, and what it published for them.

    Attributes
    ----------
    title : str
        Whose it is.
    clients, dirichlet : list
        Numbers of clients and concentrations, each with each.
    seeds : int
        How many times.
    methods : list of str
        Names in ``METHODS``.
    published : dict
        Mean accuracy of the clients in percent, by (data set, clients, concentration, method).
    """

    title: str
    clients: list
    dirichlet: list
    seeds: int
    methods: list
    published: dict


# Of the AnaPFL paper's Table 1, which is made on class tokens of ViT-MAE-Base.
_ANAPFL = {
    ("cifar100", 50, 0.1, "anapfl"): 80.64,
    ("cifar100", 50, 0.1, "afl"): 56.63,
    ("cifar100", 50, 0.1, "fedala"): 72.89,
    ("cifar100", 50, 0.5, "anapfl"): 66.96,
    ("cifar100", 50, 0.5, "afl"): 56.78,
    ("cifar100", 50, 0.5, "fedala"): 52.60,
    ("cifar100", 50, 1.0, "anapfl"): 62.63,
    ("cifar100", 50, 1.0, "afl"): 56.66,
    ("cifar100", 50, 1.0, "fedala"): 46.42,
    ("cifar100", 100, 0.1, "anapfl"): 79.22,
    ("cifar100", 100, 0.1, "fedala"): 70.63,
    ("tiny-imagenet", 100, 0.1, "anapfl"): 68.57,
    ("tiny-imagenet", 100, 0.1, "fedala"): 61.16,
    ("imagenet-r", 100, 0.1, "anapfl"): 44.91,
    ("imagenet-r", 100, 0.1, "fedala"): 28.20,
}

PROTOCOLS = {
    "anapfl": Protocol("AnaPFL", [50, 100], [0.1, 0.5, 1.0], 3, CLOSED_FORM, _ANAPFL),
    "fedcp": Protocol("FedCP", [20], [0.1], 5, GROUPS["gradient"], {}),
}
"""By the name on the command line. Networks are those of the classifiers' defaults."""


@dataclass(frozen=True)
class Cell:
    """One method in one federation."""

    clients: int
    dirichlet: float
    seed: int
    method: str


def add_arguments(parser):
    """Command-line options of ``paper``."""
    _add_data_options(parser.add_argument)
    _add_protocol_options(parser.add_argument)
    _add_output_options(parser.add_argument)


def _add_data_options(option):
    option(
        "--dataset",
        metavar="NAME",
        choices=list(_data.DATASETS),
        default="digits",
        help=f"one of {', '.join(_data.DATASETS)} (default: %(default)s)",
    )
    option("--data-dir", metavar="DIR", type=path, help="directory of its files")
    add_feature_options(option)


def _add_protocol_options(option):
    option(
        "--protocol",
        metavar="PAPER",
        choices=list(PROTOCOLS),
        default="anapfl",
        help=f"one of {', '.join(PROTOCOLS)}, which says the following (default: %(default)s)",
    )
    option("--clients", metavar="N,N", type=several(whole_number(1)), help="numbers of clients")
    option(
        "--dirichlet", metavar="A,A", type=several(concentration), help="Dirichlet concentrations"
    )
    option("--seeds", metavar="N", type=whole_number(1), help="federations of each kind")
    option(
        "--methods",
        metavar="NAMES",
        type=method_names,
        help=f"methods, or of the groups {', '.join(GROUPS)}",
    )
    option("--rounds", metavar="N", type=whole_number(1), help="rounds of the gradient methods")
    option("--lr", metavar="S", type=step_size, help="step size of the gradient methods")
    option(
        "--min-size",
        metavar="N",
        type=whole_number(2),
        default=2,
        help="least rows of a client (default: %(default)s)",
    )


def _add_output_options(option):
    option("--jobs", metavar="N", type=n_jobs, default=1, help="blocks of clients at a time")
    option(
        "--store",
        metavar="DIR",
        type=new_folder,
        default=_data.cache_directory() / "paper",
        help="where what is done is kept (default: %(default)s)",
    )
    option("--json", metavar="FILE", type=output_file, help="write all results to this file too")
    option("--plot", metavar="FILE", type=picture_file, help="draw the table into this file")


def run(args):
    """Do what is not done yet, and print the table."""
    protocol = _chosen(args)
    X, y, federations = _load(protocol, args)
    done = _run_cells(protocol, X, y, federations, args)
    means = {}
    for cell, result in done.items():
        key = (cell.clients, cell.dirichlet, cell.method)
        means.setdefault(key, []).append(100 * result["mean"])
    published = {key[1:]: v for key, v in protocol.published.items() if key[0] == args.dataset}
    data = f"{len(X):,} rows, {X[0].size:,} features ({args.features}), {len(set(y)):,} classes"
    title = f"{_data.DATASETS[args.dataset].title}, {protocol.title}'s protocol"
    print(render(title, data, protocol, means, published, _TEST_SIZE), flush=True)
    if args.json is not None:
        cells = [{**asdict(cell), "result": result} for cell, result in done.items()]
        write_json(args.json, {"dataset": args.dataset, "features": args.features, "cells": cells})
    if args.plot is not None:
        plot(args.plot, title, protocol, means, published)


def _chosen(args):
    """The protocol, with what the command line says otherwise."""
    protocol = PROTOCOLS[args.protocol]
    names = ("clients", "dirichlet", "seeds", "methods")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.dataset == "digits":  # of which there are too few for more clients
        given.setdefault("clients", [n for n in protocol.clients if n <= 50])
    return protocol._replace(**given)


def _load(protocol, args):
    """Features (n, m), labels (n,), and the clients (n,) of each federation, dealt before work."""
    dataset = _data.DATASETS[args.dataset]
    directory = args.data_dir or dataset.directory
    if directory == "":
        raise ValueError(f"{args.dataset} is read from files; pass their directory as --data-dir.")
    _data.check_features(args.features, protocol.methods)
    images, y = dataset.read(directory)
    federations = {
        (clients, dirichlet, seed): _data.deal(y, clients, dirichlet, args.min_size, seed)
        for clients in protocol.clients
        for dirichlet in protocol.dirichlet
        for seed in range(protocol.seeds)
    }
    return _data.features(images, args.features, args.cache, sys.stderr.isatty()), y, federations


def _run_cells(protocol, X, y, federations, args):
    """The records of all cells, from the store where they are there."""
    args.store.mkdir(parents=True, exist_ok=True)
    digest = blake2b(np.ascontiguousarray(X), digest_size=16)
    digest.update(json.dumps([X.shape, y.tolist()]).encode())
    done = {}
    work = [(where, method) for where in federations for method in protocol.methods]
    for where, method in tqdm(work, desc="paper", unit="cell", disable=None):
        cell = Cell(*where, method)
        estimator = make_estimator(method, cell.seed, args.jobs, n_rounds=args.rounds, lr=args.lr)
        configuration = {
            "skfedhip": __version__,
            "data": digest.hexdigest(),
            "min_size": args.min_size,
            "test_size": _TEST_SIZE,
            "estimator": _words(estimator),
            **asdict(cell),
        }
        file = args.store / f"{_key(configuration)}.json"
        if not file.exists():
            result = _fit(method, estimator, X, y, federations[where], cell.seed)
            write_json(file, {"configuration": configuration, "result": result})
        done[cell] = _stored(file)
    return done


def _fit(method, estimator, X, y, groups, seed):
    with catch_warnings():
        for kind in (GridEdgeWarning, SingleClassWarning):  # they would come cell by cell
            simplefilter("ignore", kind)
        (result,) = evaluate({method: estimator}, X, y, groups, test_size=_TEST_SIZE, seed=seed)
    return result.record()


def _words(estimator):
    """An estimator and its parameters, without the one that changes no number."""
    params = estimator.get_params(deep=False)
    return {"class": type(estimator).__name__} | {
        name: repr(value) for name, value in params.items() if name != "n_jobs"
    }


def _key(configuration):
    """The name under which a configuration is kept."""
    text = json.dumps(configuration, sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _stored(file):
    try:
        return json.loads(file.read_text(encoding="utf-8"))["result"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{str(file)!r} is damaged; delete it, and its cell is run again."
        ) from None
