"""What methods share in which one part of the network stays with each client."""

from dataclasses import dataclass

import numpy as np

from ._method import GradientMethod
from ._own import JOINED, unless_new


@dataclass(frozen=True, kw_only=True)
class PartMethod(GradientMethod):
    """FedAvg of which one part, the subclass's ``personal``, never comes down."""

    def new_state(self, parameters):
        """The initial part."""
        return super().new_state(parameters) | {JOINED: np.zeros((), dtype=np.int64)}

    def local(self, rows, shared, state, n_round):
        """Training from the own part and what came down."""
        params, losses = self.trained(rows, {**shared, **self.of_personal(state)})
        return params, self.of_personal(params) | {JOINED: state[JOINED] + 1}, losses

    def trained(self, rows, start):
        """All parameters after a round, and the losses."""
        return self.train(rows, start, self.gradients())

    def with_part_trained(self, rows, start):
        """All parameters after training of the own part alone."""
        return self.train(rows, start, self.gradients(self.personal))[0]

    def personal_parameters(self, rows, shared, state, n_round):
        """The own part; trained for the last of what came down by a client that has none yet."""
        own = self.of_personal(state)
        return unless_new(
            own, state[JOINED], lambda: self.with_part_trained(rows, {**shared, **own})
        )
