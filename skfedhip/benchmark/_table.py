"""The results of a run as text for a terminal, and as a JSON file."""

import json
import os
import platform
from numbers import Real
from pathlib import Path
from textwrap import fill

import numpy as np
import scipy
import sklearn

from .._version import __version__
from ._run import METHODS

_WIDTH = 80
_NAME_WIDTH = 10
_GROUPS = [("accuracy of the clients", 4), ("", 1), ("bytes a client", 2)]
_NOT_SHOWN = {"random_state", "n_jobs"}


def _score(value):
    return f"{value:.4f}"


def human_seconds(seconds):
    """Three digits and a unit.

    >>> human_seconds(0.0123), human_seconds(4.0), human_seconds(75.2)
    ('12.3 ms', '4.00 s', '75.2 s')
    """
    return _three_digits(seconds * 1e3, ["ms", "s"])


def human_bytes(size):
    """Three digits and a unit of a power of 1000.

    >>> human_bytes(512), human_bytes(62_728), human_bytes(2_524_560)
    ('512 B', '62.7 kB', '2.52 MB')
    """
    return f"{size} B" if size < 1000 else _three_digits(size / 1e3, ["kB", "MB", "GB", "TB"])


def _three_digits(value, units):
    """The value in the first unit that leaves it below 1000, or the last."""
    power = 0
    while value >= 999.5 and power < len(units) - 1:
        value, power = value / 1000, power + 1
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f} {units[power]}"


# Heading, key of the record, width and text of each column after the name.
_COLUMNS = [
    ("mean", "mean", 8, _score),
    ("weighted", "weighted_mean", 10, _score),
    ("std", "std", 8, _score),
    ("worst 10%", "worst_decile", 11, _score),
    ("fit", "fit_seconds", 10, human_seconds),
    ("up", "bytes_up", 10, human_bytes),
    ("down", "bytes_down", 10, human_bytes),
]


def render(configuration, records):
    """The table with its title and the notes below it.

    Parameters
    ----------
    configuration : dict
        What was run: dataset, clients, dirichlet, seed, test_size, rows, features, features_from
        and classes.
    records : list of dict
        From ``Result.record``, their method one of ``METHODS``.

    Returns
    -------
    str
        Lines of at most 80 characters, without a newline at the end.
    """
    c = configuration
    head = [
        f"{c['dataset']}: {c['clients']:,} clients, Dirichlet alpha {c['dirichlet']:g}, "
        f"seed {c['seed']}",
        f"{c['rows']:,} rows, {c['features']:,} features ({c['features_from']}), "
        f"{c['classes']:,} classes",
    ]
    rows = [_row(METHODS[record["method"]].label, record) for record in records]
    rule = "-" * len(rows[0])
    table = [_group_headings(), _headings(), rule, *rows, rule]
    return "\n".join([*head, "", *table, *_notes(c, records)])


def _row(label, record):
    cells = [f"{show(record[key]):>{width}}" for _, key, width, show in _COLUMNS]
    return f"{label:<{_NAME_WIDTH}}" + "".join(cells)


def _headings():
    return f"{'method':<{_NAME_WIDTH}}" + "".join(f"{name:>{w}}" for name, _, w, _ in _COLUMNS)


def _group_headings():
    """A line that names groups of columns, each name centred between dashes."""
    line, widths = " " * _NAME_WIDTH, iter([width for _, _, width, _ in _COLUMNS])
    for name, n_columns in _GROUPS:
        width = sum(next(widths) for _ in range(n_columns))
        line += "  " + (f" {name} ".center(width - 2, "-") if name else " " * (width - 2))
    return line


def _notes(configuration, records):
    c = configuration
    m, d = c["features"], c["classes"]
    legend = (
        f"Accuracy on {100 * c['test_size']:g}% of each client's rows, held out and the same for "
        "all methods: mean counts each client once, weighted each row once, std is across clients, "
        "worst 10% the mean of the worst tenth of the clients; fit is the time for all clients "
        "together, and up and down are what one client sends and receives; the FedHiP paper's "
        f"m^2 + m d numbers are {human_bytes(8 * (m * m + m * d))}."
    )
    settings = "; ".join(
        f"{METHODS[record['method']].label} {_numbers(record['parameters'])}" for record in records
    )
    return [
        fill(text, _WIDTH)
        for text in (legend, f"Parameters, tuned in the CV methods alone: {settings}.")
    ]


def _numbers(parameters):
    """The parameters that are numbers, as text."""
    return ", ".join(
        f"{name}={value:g}"
        for name, value in parameters.items()
        if isinstance(value, Real) and not isinstance(value, bool) and name not in _NOT_SHOWN
    )


def write_json(path, content):
    """Write a dict and the versions of what made it; the file is whole or as it was.

    Parameters
    ----------
    path : str or path-like
        Where to; a file that is there is replaced.
    content : dict
        Plain values, numpy's scalars among them; anything else is written as its repr.

    Raises
    ------
    OSError
        If it can't be written.
    """
    # The temporary file must be beside the real one: what a link names stays a link.
    path = Path(path).resolve()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    text = json.dumps({"versions": versions(), **content}, indent=2, default=_plain)
    try:
        part.write_text(text + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise OSError(f"can't write the results to {str(path)!r}: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)


def versions():
    """Version of everything that the numbers depend on."""
    return {
        "python": platform.python_version(),
        "skfedhip": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _plain(value):
    return value.item() if isinstance(value, np.generic) else repr(value)
