"""A synthetic federation whose clients differ in labels and in concept."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from ._partition import partition_dirichlet


def make_federated_classification(
    n_clients=20,
    n_samples=2000,
    n_features=20,
    n_classes=5,
    *,
    alpha=1.0,
    client_shift=2.0,
    class_sep=3.0,
    min_size=10,
    random_state=None,
):
    r"""Gaussian classes, dealt unevenly to clients that each move the class means.

    A row of class c at client k is

    .. math:: x = \mu_c + \delta_{kc} + \varepsilon, \qquad \varepsilon \sim N(0, I),

    where the common means :math:`\mu_c` and the moves :math:`\delta_{kc}`, one for each pair of
    client and class, are Gaussian. Labels are balanced overall and dealt to clients by
    :func:`partition_dirichlet`. With ``client_shift=0`` clients differ in their label frequencies
    only; the larger the shift, the less one model suits all and the more a personal one gains.

    Parameters
    ----------
    n_clients : int, default=20
        Number of clients, at least 1.
    n_samples : int, default=2000
        Number of rows of all clients together, at least ``n_clients * min_size``.
    n_features : int, default=20
        Number of features, at least 1.
    n_classes : int, default=5
        Number of classes, from 2 to ``n_samples``; their sizes differ by at most one row.
    alpha : float, default=1.0
        Dirichlet concentration of the label skew, in (0, inf); small values are more skewed.
    client_shift : float, default=2.0
        Length (root mean square) of a move :math:`\delta_{kc}`, in standard deviations within a
        class, in [0, inf).
    class_sep : float, default=3.0
        Distance (root mean square) between two common class means, in the same unit, in [0, inf).
    min_size : int, default=10
        Least number of rows of a client, see :func:`partition_dirichlet`.
    random_state : int, RandomState instance or None, default=None
        Decides everything that is drawn. Pass an int for the same data on every call.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Features, float64.
    y : ndarray of shape (n_samples,)
        Labels, ints from 0 to ``n_classes - 1``.
    groups : ndarray of shape (n_samples,)
        The client of each row, an int from 0 to ``n_clients - 1``.

    See Also
    --------
    partition_dirichlet : Deals the rows of real data.

    Examples
    --------
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(n_clients=8, n_samples=400, random_state=0)
    >>> X.shape, y.shape, groups.shape
    ((400, 20), (400,), (400,))
    """
    check_scalar(n_clients, "n_clients", Integral, min_val=1)
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(n_features, "n_features", Integral, min_val=1)
    check_scalar(n_classes, "n_classes", Integral, min_val=2, max_val=n_samples)
    for name, length in (("client_shift", client_shift), ("class_sep", class_sep)):
        check_scalar(length, name, Real, min_val=0, max_val=np.inf, include_boundaries="left")
    rng = check_random_state(random_state)
    y = rng.permutation(np.arange(n_samples) % n_classes)
    groups = partition_dirichlet(y, n_clients, alpha, min_size=min_size, random_state=rng)
    # The difference of two independent means has twice the variance of one.
    means = class_sep / np.sqrt(2 * n_features) * rng.standard_normal((n_classes, n_features))
    moves = rng.standard_normal((n_clients, n_classes, n_features))
    moves *= client_shift / np.sqrt(n_features)
    X = means[y] + moves[groups, y] + rng.standard_normal((n_samples, n_features))
    return X, y, groups
