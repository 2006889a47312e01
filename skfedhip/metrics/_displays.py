"""Plots of clients: how well each is served, and what rows each has."""

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d

from ..utils._ids import as_ids, encode_ids
from ._client import client_scores, client_summary
from ._scorer import named, score_clients

# The colours of Okabe and Ito, which colour-blind readers can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class ClientScoreDisplay:
    """One dot a client, a column of dots an estimator, and a bar at the mean over clients.

    Made by :meth:`from_estimator` or :meth:`from_predictions`. Dots stand aside for each other.

    Parameters
    ----------
    scores : dict of str to ClientScores
        Scores of the clients, under the name of what is scored.
    score_name : str, default=None
        What the scores are, for the label of the vertical axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the plot.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    points_ : list of matplotlib PathCollection
        Dots of each estimator.
    means_ : list of matplotlib LineCollection
        Bar of each estimator.

    See Also
    --------
    PartitionDisplay : How many rows of each class each client has.
    client_summary : The same in numbers.

    Examples
    --------
    >>> from skfedhip.metrics import ClientScoreDisplay, client_scores
    >>> y, clients = [0, 1, 0, 1], ["ann", "ann", "bob", "bob"]
    >>> scores = {"all right": client_scores(y, y, clients)}
    >>> display = ClientScoreDisplay(scores, score_name="accuracy").plot()
    >>> display.ax_.get_ylabel()
    'accuracy of a client'
    """

    def __init__(self, scores, *, score_name=None):
        self.scores = scores
        self.score_name = score_name

    @classmethod
    def from_estimator(
        cls, estimator, X, y, *, groups=None, scoring="accuracy", group_column=None, ax=None
    ):
        """Plot how well fitted estimators predict each client's rows.

        Parameters
        ----------
        estimator : estimator, or dict of str to estimator
            One fitted classifier or Pipeline, or several by the names that the plot shows. None of
            them needs to know of clients.
        X : array-like of shape (n_samples, n_features)
            Rows of all clients.
        y : array-like of shape (n_samples,)
            True labels.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row, given to estimators that take it; else X has a column of ids.
        scoring : str or callable, default="accuracy"
            As in :func:`make_client_scorer`.
        group_column : int or str, default=None
            Column of X that holds the ids, where no estimator's ``group_column`` says so.
        ax : matplotlib Axes, default=None
            Axes to plot on; None makes a new figure.

        Returns
        -------
        ClientScoreDisplay
            The display, plotted.

        Raises
        ------
        ValueError
            If there are no client ids, or ``scoring`` is unknown.
        ImportError
            If matplotlib is not installed.

        Examples
        --------
        >>> from skfedhip import FedHiPClassifier, LocalRidgeClassifier
        >>> from skfedhip.datasets import make_federated_classification
        >>> from skfedhip.metrics import ClientScoreDisplay
        >>> X, y, clients = make_federated_classification(random_state=0)
        >>> models = {
        ...     "local": LocalRidgeClassifier().fit(X, y, groups=clients),
        ...     "FedHiP": FedHiPClassifier().fit(X, y, groups=clients),
        ... }
        >>> display = ClientScoreDisplay.from_estimator(models, X, y, groups=clients)
        >>> list(display.scores)
        ['local', 'FedHiP']
        """
        scores = {
            name: score_clients(each, X, y, groups, scoring=scoring, group_column=group_column)
            for name, each in named(estimator, type(estimator).__name__).items()
        }
        return cls(scores, score_name=_words(scoring)).plot(ax=ax)

    @classmethod
    def from_predictions(cls, y_true, y_pred, groups, *, metric="accuracy", ax=None):
        """Plot how good predictions are for each client.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.
        y_pred : array-like of shape (n_samples,), or dict of str to array-like
            Predicted labels, or several under the names that the plot shows.
        groups : array-like of shape (n_samples,)
            Client id of each row.
        metric : str or callable, default="accuracy"
            As in :func:`client_scores`.
        ax : matplotlib Axes, default=None
            Axes to plot on; None makes a new figure.

        Returns
        -------
        ClientScoreDisplay
            The display, plotted.

        Raises
        ------
        ValueError
            If lengths differ, an id or label is missing, or ``metric`` is unknown.
        ImportError
            If matplotlib is not installed.

        Examples
        --------
        >>> from skfedhip.metrics import ClientScoreDisplay
        >>> y, ridge, clients = [0, 1, 1], [0, 1, 0], ["ann", "bob", "bob"]
        >>> display = ClientScoreDisplay.from_predictions(y, {"ridge": ridge}, clients)
        >>> display.scores["ridge"].scores
        array([1. , 0.5])
        """
        scores = {
            name: client_scores(y_true, each, groups, metric)
            for name, each in named(y_pred, "predictions").items()
        }
        return cls(scores, score_name=_words(metric)).plot(ax=ax)

    def plot(self, ax=None):
        """Draw the dots and bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; None makes a new figure.

        Returns
        -------
        ClientScoreDisplay
            The display itself.

        Raises
        ------
        ValueError
            If the score of a client is not finite.
        ImportError
            If matplotlib is not installed.
        """
        n, values = len(self.scores), [result.scores for result in self.scores.values()]
        means = [client_summary(result)["mean"] for result in self.scores.values()]
        self.figure_, self.ax_ = _figure_and_axes(ax, (max(4.8, 1.3 * n + 1.0), 4.4), self)
        low, high = min(map(np.min, values)), max(map(np.max, values))
        margin = 0.06 * (high - low) or 0.05
        self.ax_.set(xlim=(-0.5, n - 0.5), ylim=(low - margin, high + margin))
        self.ax_.set_xlabel("dot: a client; bar and number: mean over clients")
        self.ax_.set_ylabel(f"{self.score_name or 'score'} of a client")
        names = [f"{name}\n{mean:.3f}" for name, mean in zip(self.scores, means, strict=True)]
        slanted = {"rotation": 25, "ha": "right"} if len("".join(self.scores)) > 12 * n else {}
        self.ax_.set_xticks(range(n), names, **slanted)
        self.ax_.grid(axis="y", color="0.9")
        self.ax_.set_axisbelow(True)
        width, height = _size_in_points(self.ax_)
        heights = [column * height / (high - low + 2 * margin) for column in values]
        diameter, aside = _arrange(heights, room=0.42 * width / n)
        self.points_, self.means_ = [], []
        for k in range(n):
            at, color = k + aside[k] * n / width, COLORS[k % len(COLORS)]
            dots = self.ax_.scatter(at, values[k], s=diameter**2, color=color, linewidths=0)
            self.points_.append(dots)
            bar = self.ax_.hlines(means[k], k - 0.42, k + 0.42, color="black", zorder=3)
            self.means_.append(bar)
        return self


class PartitionDisplay:
    """A bubble for each client and class, whose area is in proportion to the number of rows.

    Made by :meth:`from_labels`.

    Parameters
    ----------
    counts : ndarray of shape (n_classes, n_clients)
        Number of rows of each class at each client.
    classes : ndarray of shape (n_classes,)
        Names of the classes.
    clients : ndarray of shape (n_clients,)
        Ids of the clients.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the plot.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    bubbles_ : matplotlib PathCollection
        Bubbles, of the cells that have rows.

    See Also
    --------
    ClientScoreDisplay : How well each client is served.
    skfedhip.datasets.partition_dirichlet : Makes uneven clients.

    Notes
    -----
    The largest bubble just fits at the size that the axes have when ``plot`` is called, but is 3
    points wide at least: beyond some 300 clients neighbours overlap. The legend stands to the right
    of the axes; ``layout="constrained"`` makes room for it between several of them.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.metrics import PartitionDisplay
    >>> counts = np.array([[3, 0], [1, 2]])
    >>> display = PartitionDisplay(counts, np.array(["cat", "dog"]), np.array(["ann", "bob"]))
    >>> display.plot().ax_.get_xlabel()
    'client'
    """

    def __init__(self, counts, classes, clients):
        self.counts = counts
        self.classes = classes
        self.clients = clients

    @classmethod
    def from_labels(cls, y, groups, *, ax=None):
        """Plot which classes which clients have.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class label of each row.
        groups : array-like of shape (n_samples,)
            Client id of each row.
        ax : matplotlib Axes, default=None
            Axes to plot on; None makes a new figure.

        Returns
        -------
        PartitionDisplay
            The display, plotted.

        Raises
        ------
        ValueError
            If there are no rows, lengths differ, or an id is missing.
        ImportError
            If matplotlib is not installed.

        Examples
        --------
        >>> from skfedhip.metrics import PartitionDisplay
        >>> y, groups = ["cat", "cat", "dog", "dog"], ["ann", "ann", "ann", "bob"]
        >>> PartitionDisplay.from_labels(y, groups).counts
        array([[2, 0],
               [1, 1]])
        """
        y = column_or_1d(y)
        check_consistent_length(y, groups)
        if len(y) == 0:
            raise ValueError("y has no rows, so there is nothing to plot; pass at least one.")
        classes, labels = np.unique(y, return_inverse=True)
        clients, codes = encode_ids(as_ids(groups, len(y)))
        counts = np.zeros((len(classes), len(clients)), dtype=np.intp)
        np.add.at(counts, (labels, codes), 1)
        return cls(counts, classes, clients).plot(ax=ax)

    def plot(self, ax=None):
        """Draw the bubbles.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; None makes a new figure, wider for more clients.

        Returns
        -------
        PartitionDisplay
            The display itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        d, K = self.counts.shape
        size = np.clip(0.28 * K + 1.8, 4.0, 14.0), np.clip(0.28 * d + 1.2, 2.4, 10.0)
        self.figure_, self.ax_ = _figure_and_axes(ax, size, self)
        ax = self.ax_
        ax.set(xlim=(-0.6, K - 0.4), ylim=(-0.6, d - 0.4), xlabel="client", ylabel="class")
        ax.grid(axis="y", color="0.93")
        ax.set_axisbelow(True)
        self._legend(1.0)  # takes the room that it needs
        width, height = _size_in_points(ax)
        longest = max(len(str(client)) for client in self.clients.tolist())
        each, turn = (12, 90) if longest > 3 else (4 + 8 * longest, 0)
        ax.set_xticks(*_thin(self.clients, width, each), rotation=turn)
        ax.set_yticks(*_thin(self.classes, height, 12))
        width, height = _size_in_points(ax)
        largest = max(3.0, 0.94 * min(width / K, height / d))
        row, column = np.nonzero(self.counts)
        areas = largest**2 * self.counts[row, column] / self.counts.max()
        self.bubbles_ = ax.scatter(column, row, s=areas, color=COLORS[0], linewidths=0)
        self._legend(largest)
        return self

    def _legend(self, largest):
        """Legend of the largest bubble, and of a quarter and a sixteenth of its rows."""
        from matplotlib.lines import Line2D

        most = self.counts.max()
        style = {"linestyle": "", "marker": "o", "color": COLORS[0], "markeredgewidth": 0}
        handles = [
            Line2D([], [], markersize=largest * np.sqrt(n / most), label=f"{n}", **style)
            for n in np.unique([most, -(-most // 4), -(-most // 16)])
        ]
        self.ax_.legend(
            handles=handles, title="rows", loc="upper left", bbox_to_anchor=(1, 1), frameon=False
        )


def _figure_and_axes(ax, size, display):
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{type(display).__name__}.plot needs matplotlib; install it with "
            "pip install 'skfedhip[plot]'."
        ) from error
    if ax is None:
        _, ax = plt.subplots(figsize=size, layout="constrained")
    return ax.figure, ax


def _size_in_points(ax):
    """Width and height of the axes, once the figure is laid out."""
    getattr(ax.figure, "draw_without_rendering", lambda: None)()
    box = ax.get_window_extent()
    return box.width * 72 / ax.figure.dpi, box.height * 72 / ax.figure.dpi


def _arrange(columns, room):
    """Diameter of the dots of all columns, and offsets that keep each column within its room."""
    diameter = 6.0
    offsets = [_swarm(heights, 1.1 * diameter) for heights in columns]
    widest = max(np.abs(aside).max() for aside in offsets)
    if widest > room:
        diameter = max(diameter * room / widest, 1.5)
        offsets = [_swarm(heights, 1.1 * diameter) for heights in columns]
    # The smallest dots that can be seen overlap where even they are too many.
    return diameter, [aside * room / max(room, np.abs(aside).max()) for aside in offsets]


def _swarm(heights, distance):
    """Sideways offsets (n,) that keep dots at the given heights at a distance from each other.

    From the lowest up, each dot goes to the free column that is nearest to the middle.
    """
    columns = np.zeros(len(heights), dtype=np.intp)
    tops = np.full(len(heights), -np.inf)
    for i in np.argsort(heights, kind="stable"):
        columns[i] = np.argmax(heights[i] - tops >= distance)
        tops[columns[i]] = heights[i]
    return distance * np.where(columns % 2, (columns + 1) // 2, -(columns // 2))


def _thin(names, room, each):
    """Positions and texts of tick labels of so many points each, on an axis of so many points."""
    at = np.arange(0, len(names), -(-len(names) * each // max(int(room), 1)))
    return at, [str(name) for name in names[at].tolist()]


def _words(scoring):
    return getattr(scoring, "__name__", str(scoring)).replace("_", " ")
