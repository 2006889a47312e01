"""What is done between two rounds: history, validation, early stopping, checkpoints, a bar."""

from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
from tqdm import tqdm

from ._cut import Cut
from ._models import Models


@dataclass
class Monitor:
    """Called after each round with where the federation stands; True ends the run.

    Attributes
    ----------
    method : GradientMethod
    cut : Cut
        Training rows, as the loop has them.
    held_out : tuple or None
        Validation rows: X, class codes, and client codes.
    map_blocks : callable
    watched : dict of callable
        What else is measured on them: answers (1, n, 1) for rows (1, n, ...) by a model, by name.
    tol, patience : float, int or None
        As in the estimators.
    save : callable or None
        Called with (monitor, state) where a checkpoint is due.
    save_every : int
    bar : tqdm, or None
    losses : list of float
        Of all rounds, of earlier runs too.
    history : dict of list
        Of all rounds, by name: what was measured, an array of shape (K,), NaN where nothing was.
    best : Models or None
        Of the round with the best mean accuracy, the first of several.
    """

    method: object
    cut: Cut
    held_out: tuple | None
    map_blocks: object
    watched: dict = field(default_factory=dict)
    tol: float = 0.0
    patience: int | None = None
    save: object = None
    save_every: int = 1
    bar: tqdm | None = None
    losses: list = field(default_factory=list)
    history: dict = field(default_factory=dict)
    best: Models | None = None

    def __call__(self, state):
        self.losses.append(float(state.server_state.loss))
        shown = {"loss": f"{self.losses[-1]:.4f}"}
        measured = {} if self.held_out is None else self._validate(state)
        if measured:
            shown["accuracy"] = f"{np.nanmean(measured['client_accuracy']):.4f}"
        self._record(measured)
        if self.bar is not None:
            self.bar.set_postfix(shown, refresh=False)
            self.bar.update()
        stops = self.stalled()
        if self.save is not None and (stops or len(self.losses) % self.save_every == 0):
            self.save(self, state)
        return stops

    def stalled(self):
        """Whether no loss of the last ``patience`` rounds is lower than before by ``tol``."""
        losses, patience = np.array(self.losses), self.patience
        losses = losses[~np.isnan(losses)]
        if patience is None or len(losses) <= patience:
            return False
        return losses[-patience:].min() > losses[:-patience].min() - self.tol

    def models(self, state):
        """Everybody's models where the federation stands."""
        own = self.map_blocks(
            self.method.personalize,
            self.cut.blocks,
            repeat(state.broadcast),
            state.states,
        )
        return models_of(self.method, state, self.cut.join(list(own)))

    def _validate(self, state):
        X, y, codes = self.held_out
        models = self.models(state)
        hits = models.scores(self.method, X, codes).argmax(1) == y
        measured = {"client_accuracy": self._client_means(hits, codes)}
        for name, answer in self.watched.items():
            values = models.map_clients(self.method, X, codes, answer, 1)[:, 0]
            measured[name] = self._client_means(values, codes)
        if np.nanmean(measured["client_accuracy"]) > self._best_accuracy():
            self.best = models
        return measured

    def _client_means(self, values, codes):
        n_clients = len(self.method.roster)
        with np.errstate(invalid="ignore"):
            return np.bincount(codes, values, n_clients) / np.bincount(codes, None, n_clients)

    def _best_accuracy(self):
        if self.best is None:
            return -1.0
        return np.nanmean(self.history["client_accuracy"][self.best.n_round - 1])

    def _record(self, measured):
        """One more row of each history."""
        nothing = np.full(len(self.method.roster), np.nan)
        for name in {**self.history, **measured}:
            rows = self.history.setdefault(name, [nothing] * (len(self.losses) - 1))
            rows.append(measured.get(name, nothing))


def models_of(method, state, own):
    """The models that a federation's state and its clients' own parameters make."""
    shared = {**state.broadcast.parameters, **state.server_state.averages}
    return Models(method.on_device(shared), own, int(state.broadcast.n_round))
