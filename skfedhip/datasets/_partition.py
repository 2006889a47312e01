"""Deal the rows of one labelled data set to clients.

Every partition first decides how many rows of each class each client gets, a table of shape
(n_classes, n_clients) whose rows sum to the class sizes; `_deal` then hands out shuffled rows.
So every partition is disjoint and exhaustive by construction.
"""

from numbers import Integral, Real

import numpy as np
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import column_or_1d

_MAX_TRIES = 100


def partition_iid(y, n_clients, *, random_state=None):
    """Deal rows to clients evenly, class by class.

    The shuffled rows, sorted by class, go round the clients in turn. Both the sizes of the clients
    and their counts of any class differ by at most one.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class labels, strings or whole numbers.
    n_clients : int
        Number of clients, from 1 to n.
    random_state : int, RandomState instance or None, default=None
        Decides which rows a client gets. Pass an int for the same partition on every call.

    Returns
    -------
    ndarray of shape (n,)
        The client of each row, an int from 0 to ``n_clients - 1``.

    Raises
    ------
    ValueError
        If there are more clients than rows.

    See Also
    --------
    partition_dirichlet : Label skew of adjustable strength.
    partition_shards : A fixed number of classes per client.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.datasets import partition_iid
    >>> y = np.repeat(["cat", "dog"], 6)
    >>> groups = partition_iid(y, 3, random_state=0)
    >>> [np.unique(y[groups == k], return_counts=True)[1].tolist() for k in range(3)]
    [[2, 2], [2, 2], [2, 2]]
    """
    codes, _, rng = _check(y, n_clients, random_state)
    groups = np.empty(len(codes), dtype=np.intp)
    by_class = np.lexsort((rng.random_sample(len(codes)), codes))
    groups[by_class] = rng.permutation(n_clients)[np.arange(len(codes)) % n_clients]
    return groups


def partition_shards(y, n_clients, classes_per_client, *, random_state=None):
    """Give every client rows of exactly ``classes_per_client`` classes.

    This is the "pathological" split of [1]_: rows sorted by class are cut into shards, and a client
    gets some shards. Here its shards are always of different classes. The clients that hold a class
    share its rows evenly (within one row), and the numbers of holders of two classes differ by at
    most one. Which classes meet at a client is random.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class labels, strings or whole numbers.
    n_clients : int
        Number of clients, at least 1. ``n_clients * classes_per_client`` must reach the number of
        classes, so that every class has a holder.
    classes_per_client : int
        Number of classes at each client, from 1 to the number of classes.
    random_state : int, RandomState instance or None, default=None
        Decides which classes and rows a client gets. Pass an int for the same partition on every
        call.

    Returns
    -------
    ndarray of shape (n,)
        The client of each row, an int from 0 to ``n_clients - 1``.

    Raises
    ------
    ValueError
        If the classes cannot be held as asked, or a class has fewer rows than holders.

    See Also
    --------
    partition_dirichlet : Label skew of adjustable strength.

    References
    ----------
    .. [1] McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
       Data", AISTATS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.datasets import partition_shards
    >>> y = np.arange(40) % 4
    >>> groups = partition_shards(y, 6, 2, random_state=0)
    >>> [len(np.unique(y[groups == k])) for k in range(6)]
    [2, 2, 2, 2, 2, 2]
    """
    codes, classes, rng = _check(y, n_clients, random_state)
    sizes = np.bincount(codes)
    check_scalar(classes_per_client, "classes_per_client", Integral, min_val=1, max_val=len(sizes))
    if n_clients * classes_per_client < len(sizes):
        raise ValueError(
            f"{n_clients} clients of {classes_per_client} classes cannot hold all {len(sizes)} "
            "classes of y; raise n_clients or classes_per_client."
        )
    holds = _choose_holders(len(sizes), n_clients, classes_per_client, rng)
    short = np.flatnonzero(sizes < holds.sum(axis=1))
    if short.size:
        c = short[0]
        raise ValueError(
            f"Class {classes[c]} has {sizes[c]} rows for {holds[c].sum()} clients that should hold "
            "it; lower n_clients or classes_per_client."
        )
    return _deal(
        codes, np.stack([_share(*pair, rng) for pair in zip(sizes, holds, strict=True)]), rng
    )


def partition_dirichlet(y, n_clients, alpha, *, min_size=10, balanced=True, random_state=None):
    r"""Deal the rows of each class in Dirichlet proportions over the clients.

    For each class c one draw :math:`p_c \sim \mathrm{Dir}(\alpha 1_K)` over the K clients says
    which part of its shuffled rows each client gets ("Dirichlet over clients per class", [1]_,
    [2]_). Clients then differ in size as well as in labels. It is not the draw over classes per
    client, for which see :func:`partition_dirichlet_labels`. Parts are rounded to whole rows
    without bias.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class labels, strings or whole numbers.
    n_clients : int
        Number of clients K, from 1 to n.
    alpha : float
        Concentration, in (0, inf). Towards 0 a class sits at a single client; large values tend to
        a split that is independent of the labels.
    min_size : int, default=10
        Least number of rows of a client, in [0, n / n_clients]. The split is drawn again, at most
        100 times, until it holds. With 0, a client may get no row and so not appear in the answer.
    balanced : bool, default=True
        If True, a client that holds n / K rows or more is closed: its part of the following classes
        (in sorted order) is set to zero and the others are scaled up, as in [2]_. If False, every
        class is dealt to all clients.
    random_state : int, RandomState instance or None, default=None
        Decides proportions and rows. Pass an int for the same partition on every call.

    Returns
    -------
    ndarray of shape (n,)
        The client of each row, an int from 0 to ``n_clients - 1``.

    Raises
    ------
    ValueError
        If ``min_size`` rows per client are more than there are, or no draw reached them.

    See Also
    --------
    partition_dirichlet_labels : Dirichlet over classes per client.
    partition_iid : The limit of large ``alpha``.
    partition_shards : A fixed number of classes per client.

    References
    ----------
    .. [1] Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks",
       ICML 2019.
    .. [2] Li et al., "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.datasets import partition_dirichlet
    >>> y = np.arange(1000) % 4
    >>> groups = partition_dirichlet(y, 5, alpha=0.5, random_state=0)
    >>> np.unique(groups)
    array([0, 1, 2, 3, 4])
    >>> bool(np.bincount(groups).min() >= 10)
    True
    """
    codes, _, rng = _check(y, n_clients, random_state)
    alpha = _check_alpha(alpha)
    check_scalar(min_size, "min_size", Integral, min_val=0)
    if min_size * n_clients > len(codes):
        raise ValueError(
            f"min_size={min_size} for {n_clients} clients needs {min_size * n_clients} rows, but y "
            f"has {len(codes)}; lower min_size or n_clients."
        )
    sizes = np.bincount(codes)
    best = 0
    for _ in range(_MAX_TRIES):
        counts = _dirichlet_counts(sizes, n_clients, alpha, balanced, rng)
        smallest = counts.sum(axis=0).min()
        if smallest >= min_size:
            return _deal(codes, counts, rng)
        best = max(best, smallest)
    raise ValueError(
        f"None of {_MAX_TRIES} draws with alpha={alpha:g} gave each of {n_clients} clients "
        f"min_size={min_size} rows (the best gave {best}); lower min_size or n_clients, or raise "
        "alpha."
    )


def partition_dirichlet_labels(y, n_clients, alpha, *, random_state=None):
    r"""Fill clients of equal size in Dirichlet proportions over the classes.

    For each client k one draw :math:`q_k \sim \mathrm{Dir}(\alpha p)`, with p the class
    frequencies of y, says from which classes its rows are drawn without replacement ("Dirichlet
    over classes per client", [1]_). When a class runs out, the client goes on with the others in
    the same proportions; the last clients take what is left. Sizes differ by at most one row. It is
    not the draw over clients per class, for which see :func:`partition_dirichlet`.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class labels, strings or whole numbers.
    n_clients : int
        Number of clients, from 1 to n.
    alpha : float
        Concentration of the whole draw, in (0, inf). Towards 0 a client has a single class as long
        as rows last; large values tend to the class frequencies of y at every client.
    random_state : int, RandomState instance or None, default=None
        Decides proportions and rows. Pass an int for the same partition on every call.

    Returns
    -------
    ndarray of shape (n,)
        The client of each row, an int from 0 to ``n_clients - 1``.

    See Also
    --------
    partition_dirichlet : Dirichlet over clients per class.

    References
    ----------
    .. [1] Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated
       Visual Classification", arXiv:1909.06335, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.datasets import partition_dirichlet_labels
    >>> y = np.arange(1000) % 4
    >>> groups = partition_dirichlet_labels(y, 5, alpha=1.0, random_state=0)
    >>> np.bincount(groups)
    array([200, 200, 200, 200, 200])
    """
    codes, _, rng = _check(y, n_clients, random_state)
    alpha = _check_alpha(alpha)
    left = np.bincount(codes)
    concentration = alpha * (left / left.sum())
    places = _share(len(codes), np.ones(n_clients, dtype=bool), rng)
    counts = np.zeros((len(left), n_clients), dtype=np.intp)
    for k in range(n_clients):
        counts[:, k] = _draw_without_replacement(
            left, places[k], _log_gamma_draw(concentration, rng), rng
        )
        left = left - counts[:, k]
    return _deal(codes, counts, rng)


def _check(y, n_clients, random_state):
    """Class index of each row (n,), sorted classes (n_classes,) and the generator."""
    rng = check_random_state(random_state)
    y = column_or_1d(y)
    if len(y) == 0:
        raise ValueError("y has no rows; pass one label per row.")
    encoder = LabelEncoder()
    codes = encoder.fit_transform(y)
    classes = encoder.classes_
    if any(c is None or c != c for c in classes.tolist()):
        raise ValueError("y has missing labels; drop their rows or give them a class of their own.")
    if classes.dtype.kind == "f" and np.any(classes != np.floor(classes)):
        raise ValueError(
            f"y must hold class labels, got the continuous value {classes[classes % 1 != 0][0]}; "
            "bin a regression target first."
        )
    check_scalar(n_clients, "n_clients", Integral, min_val=1)
    if n_clients > len(y):
        raise ValueError(
            f"n_clients={n_clients} is more than the {len(y)} rows of y; lower n_clients."
        )
    return codes, classes, rng


def _check_alpha(alpha):
    check_scalar(alpha, "alpha", Real, min_val=0, include_boundaries="neither")
    if not np.isfinite(alpha):
        raise ValueError(f"alpha must be finite, got {alpha}; partition_iid is the limit.")
    return float(alpha)


def _deal(codes, counts, rng):
    """Hand out shuffled rows: counts[c, k] rows of class c to client k."""
    groups = np.empty(len(codes), dtype=np.intp)
    by_class = np.lexsort((rng.random_sample(len(codes)), codes))
    clients = np.broadcast_to(np.arange(counts.shape[1]), counts.shape)
    groups[by_class] = np.repeat(clients.ravel(), counts.ravel())
    return groups


def _share(size, holds, rng):
    """Even shares of `size` rows among the holders, (K,); chance decides who gets one more."""
    shares = np.zeros(len(holds), dtype=np.intp)
    holders = rng.permutation(np.flatnonzero(holds))
    shares[holders] = size // len(holders)
    shares[holders[: size % len(holders)]] += 1
    return shares


def _choose_holders(n_classes, n_clients, classes_per_client, rng):
    """Boolean (n_classes, n_clients): in turn a client takes the classes with fewest holders."""
    holds = np.zeros((n_classes, n_clients), dtype=bool)
    n_holders = np.zeros(n_classes, dtype=np.intp)
    for k in range(n_clients):
        taken = np.lexsort((rng.random_sample(n_classes), n_holders))[:classes_per_client]
        holds[taken, k] = True
        n_holders[taken] += 1
    return holds


def _log_gamma_draw(concentration, rng):
    """Logarithms of independent Gamma(concentration) draws: an unscaled log Dirichlet draw.

    Gamma(a) = Gamma(a + 1) U^(1/a) in law. In logarithms nothing underflows, so that any subset of
    the draw can be scaled to sum to one, however small the concentration.
    """
    a = np.maximum(concentration, 1e-300)  # 1 / a stays finite
    return np.log(rng.standard_gamma(a + 1)) - rng.standard_exponential(len(a)) / a


def _normalise(log_weights, allowed):
    """Proportions that sum to one over the allowed entries and are zero elsewhere."""
    masked = np.where(allowed, log_weights, -np.inf)
    weights = np.exp(masked - masked.max())
    return weights / weights.sum()


def _dirichlet_counts(sizes, n_clients, alpha, balanced, rng):
    """One draw of the table (n_classes, n_clients) of `partition_dirichlet`."""
    n_rows = sizes.sum()
    held = np.zeros(n_clients, dtype=np.intp)
    counts = np.zeros((len(sizes), n_clients), dtype=np.intp)
    for c, size in enumerate(sizes):
        # Before the last row is dealt somebody is below the mean, so a client is always open.
        is_open = held * n_clients < n_rows if balanced else np.ones(n_clients, dtype=bool)
        weights = _log_gamma_draw(np.full(n_clients, alpha), rng)
        counts[c] = _round(size, _normalise(weights, is_open), rng)
        held += counts[c]
    return counts


def _round(size, proportions, rng):
    """Whole numbers that sum to `size`, each within one of its proportion and unbiased."""
    cumulative = np.cumsum(proportions)
    cuts = np.floor(size * (cumulative / cumulative[-1]) + rng.random_sample())
    return np.diff(np.minimum(cuts, size).astype(np.intp), prepend=0)


def _draw_without_replacement(left, size, log_weights, rng):
    """Rows per class, (n_classes,), of one client of `size` rows when `left` rows remain."""
    counts = np.zeros_like(left)
    while (missing := size - counts.sum()) > 0:
        wanted = rng.multinomial(missing, _normalise(log_weights, counts < left))
        counts = np.minimum(counts + wanted, left)
    return counts
