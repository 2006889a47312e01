"""Accuracies over seeds as text and as a picture, beside published ones."""

from textwrap import fill

import numpy as np

from ..metrics._displays import COLORS
from ._run import METHODS

_MARKERS = "osD^vP"
_AT_ONCE = 3
"""Concentrations that stand side by side in 80 columns."""


def render(title, data, protocol, means, published, test_size):
    """The table as text.

    Parameters
    ----------
    title, data : str
        What was run, and on what.
    protocol : Protocol
        Whose clients, dirichlet, methods, seeds and title are shown.
    means : dict of list of float
        Accuracies over seeds, in percent, by (clients, concentration, method).
    published : dict of float
        Published ones, by the same.
    test_size : float
        Part of each client's rows that was held out.

    Returns
    -------
    str
        Lines of at most 80 characters, without a newline at the end.
    """
    blocks = []
    for clients in protocol.clients:
        for at in range(0, len(protocol.dirichlet), _AT_ONCE):
            columns = [(clients, a) for a in protocol.dirichlet[at : at + _AT_ONCE]]
            blocks += ["", *_block(columns, protocol.methods, means, published)]
    over_seeds = " of one seed"
    if protocol.seeds > 1:
        over_seeds = f", then mean ± standard deviation over {protocol.seeds} seeds"
    note = (
        f"Accuracy in percent on {100 * test_size:g}% of each client's rows, held out: mean over "
        f"clients{over_seeds}."
    )
    if published:
        note += f" paper: what the {protocol.title} paper prints, on class tokens of ViT-MAE-Base."
    return "\n".join([title, data, *blocks, "", fill(note, 80)])


def _block(columns, methods, means, published):
    """The lines of one number of clients."""
    beside = any(key[:2] in columns for key in published)
    others = [key[2] for key in published if key[:2] in columns and key[2] not in methods]
    width = 22 if beside else 15
    head = "".join(f"{f'Dirichlet {a:g}':>{width}}" for _, a in columns)
    rows = [f"{f'{columns[0][0]} clients':<11}{head}"]
    if beside:
        rows.append(" " * 11 + f"{'ours':>15}{'paper':>7}" * len(columns))
    rows.append("-" * (11 + width * len(columns)))
    for method in [*methods, *dict.fromkeys(others)]:
        cells = [_cells((*column, method), means, published, beside) for column in columns]
        rows.append(f"{METHODS[method].label:<11}{''.join(cells)}".rstrip())
    return rows


def _cells(key, means, published, beside):
    """Ours, and the published one where there is a column for it."""
    ours = f"{_over_seeds(means[key]) if key in means else '':>15}"
    theirs = f"{published[key]:.2f}" if key in published else ""
    return ours + f"{theirs:>7}" if beside else ours


def _over_seeds(values):
    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread}"


def plot(file, title, protocol, means, published):
    """Draw accuracy against concentration, one panel a number of clients, into a file."""
    import matplotlib.pyplot as plt

    panels = len(protocol.clients)
    figure, axes = plt.subplots(
        1, panels, figsize=(3.6 * panels + 1.6, 4), sharey=True, squeeze=False, layout="constrained"
    )
    for ax, clients in zip(axes[0], protocol.clients, strict=True):
        _draw(ax, clients, protocol, means, published)
    axes[0, 0].set_ylabel("mean accuracy of the clients, %")
    named = {}
    for ax in axes[0]:
        named |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(named.values(), named.keys(), loc="outside right upper", frameon=False)
    figure.suptitle(title)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def _draw(ax, clients, protocol, means, published):
    at, names = np.arange(len(protocol.dirichlet)), [f"{a:g}" for a in protocol.dirichlet]
    aside = np.linspace(-0.16, 0.16, len(protocol.methods)) if len(protocol.methods) > 1 else [0.0]
    for k, method in enumerate(protocol.methods):
        values = [means[clients, a, method] for a in protocol.dirichlet]
        spread = np.std(values, axis=1, ddof=1) if protocol.seeds > 1 else None
        color, marker = COLORS[k % len(COLORS)], _MARKERS[(k + k // len(COLORS)) % len(_MARKERS)]
        look = {"color": color, "marker": marker, "markersize": 5, "linewidth": 1}
        label = METHODS[method].label
        ax.errorbar(at + aside[k], np.mean(values, axis=1), spread, capsize=2, label=label, **look)
        theirs = [published.get((clients, a, method), np.nan) for a in protocol.dirichlet]
        if np.isfinite(theirs).any():
            hollow = {**look, "markerfacecolor": "none", "markersize": 9, "linestyle": ""}
            ax.plot(at + aside[k], theirs, label=f"{label}, paper", **hollow)
    ax.set_xticks(at, names)
    ax.set_xlabel("Dirichlet concentration")
    ax.set_title(f"{clients} clients", fontsize="medium")
    ax.grid(axis="y", color="0.9")
    ax.set_axisbelow(True)
