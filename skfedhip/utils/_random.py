"""Seeds for generators of our own, from scikit-learn's ``random_state``."""

from sklearn.utils import check_random_state


def draw_seed(random_state):
    """An int that seeds our own generators; the same for the same int ``random_state``."""
    return int(check_random_state(random_state).randint(2**31 - 1))
