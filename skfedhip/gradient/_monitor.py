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
    tol, patience : float, int or None
        As in the estimators.
    save : callable or None
        Called with (monitor, state) where a checkpoint is due.
    save_every : int
    bar : tqdm, or None
    losses : list of float
        Of all rounds, of earlier runs too.
    accuracies : list of ndarray
        Of each client's validation rows, NaN for a client without.
    best : Models or None
        Of the round with the best mean accuracy, the first of several.
    """

    method: object
    cut: Cut
    held_out: tuple | None
    map_blocks: object
    tol: float = 0.0
    patience: int | None = None
    save: object = None
    save_every: int = 1
    bar: tqdm | None = None
    losses: list = field(default_factory=list)
    accuracies: list = field(default_factory=list)
    best: Models | None = None

    def __call__(self, state):
        self.losses.append(float(state.server_state.loss))
        shown = {"loss": f"{self.losses[-1]:.4f}"}
        if self.held_out is not None:
            self._validate(state)
            shown["accuracy"] = f"{np.nanmean(self.accuracies[-1]):.4f}"
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
        n_clients = len(self.method.roster)
        with np.errstate(invalid="ignore"):
            accuracy = np.bincount(codes, hits, n_clients) / np.bincount(codes, None, n_clients)
        best = max((np.nanmean(each) for each in self.accuracies), default=-1.0)
        self.accuracies.append(accuracy)
        if np.nanmean(accuracy) > best:
            self.best = models


def models_of(method, state, own):
    """The models that a federation's state and its clients' own parameters make."""
    shared = {**state.broadcast.parameters, **state.server_state.averages}
    return Models(method.on_device(shared), own, int(state.broadcast.n_round))
