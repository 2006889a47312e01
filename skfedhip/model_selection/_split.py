"""Cut the rows of every client into training and test rows.

All clients are dealt at once. The rows are laid out client by client and class by class, and dealt
in turn along that line, without starting anew at a client or a class: so a run of n rows, be it a
client or one of its classes, spreads over the folds evenly to within one row.
"""

from numbers import Integral, Real

import numpy as np
from sklearn.model_selection import BaseCrossValidator, BaseShuffleSplit
from sklearn.utils import check_random_state, check_scalar, column_or_1d
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _num_samples

from ..utils._columns import take_group_column
from ..utils._ids import as_ids, encode_ids
from ..utils._warn import warn_user


class ClientKFold(BaseCrossValidator):
    """K folds of every client's rows, stratified by class.

    Each client's rows are spread over the folds, so every client is in every training set and,
    where it has the rows, in every test set. The rows of a client differ by at most one between two
    test sets, and so do its rows of any one class. The opposite, whole clients left out, is what
    scikit-learn's :class:`~sklearn.model_selection.GroupKFold` does.

    Ids come from ``groups``, which the splitter requests by itself under metadata routing, or from
    the column of X that ``group_column`` names, which needs no routing.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    shuffle : bool, default=False
        Whether to draw at random which rows of a client and class go to which fold. Otherwise they
        go in the order in which they come.
    random_state : int, RandomState instance or None, default=None
        Decides the draw with ``shuffle=True``. Pass an int for the same folds on every call.
    group_column : int or str, default=None
        Column of X that holds the client ids; a str names a DataFrame's column. Where ``groups``
        are given, they win.

    Raises
    ------
    ValueError
        If ``n_splits`` is below 2, or ``random_state`` is set without ``shuffle``.
    TypeError
        If ``n_splits`` is no int, or ``shuffle`` no bool.

    See Also
    --------
    ClientShuffleSplit : Random test rows of every client.
    sklearn.model_selection.GroupKFold : Leaves whole clients out.

    Notes
    -----
    A client with fewer rows than folds is tested in as many folds as it has rows. A client with a
    single row always trains and is never tested. A UserWarning says so, once a call.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.model_selection import ClientKFold
    >>> groups = np.repeat(["ann", "bob"], [4, 6])
    >>> X, y = np.zeros((10, 2)), np.tile([0, 1], 5)
    >>> for train, test in ClientKFold(n_splits=2).split(X, y, groups):
    ...     print(groups[test], y[test])
    ['ann' 'ann' 'bob' 'bob' 'bob'] [0 1 0 1 0]
    ['ann' 'ann' 'bob' 'bob' 'bob'] [0 1 1 0 1]
    """

    __metadata_request__split = {"groups": True}

    def __init__(self, n_splits=5, *, shuffle=False, random_state=None, group_column=None):
        check_scalar(n_splits, "n_splits", Integral, min_val=2)
        check_scalar(shuffle, "shuffle", (bool, np.bool_))
        if not shuffle and random_state is not None:
            raise ValueError(
                f"random_state={random_state!r} has no effect without shuffle; set shuffle=True or "
                "leave random_state out."
            )
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state
        self.group_column = group_column

    def split(self, X, y=None, groups=None):
        """Generate the rows to train on and to test on, fold by fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all clients; with ``group_column``, including that column.
        y : array-like of shape (n_samples,), default=None
            Class labels. Without them the folds are not stratified.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row: strings, numbers, any hashable scalars.

        Yields
        ------
        train : ndarray of shape (n_train,)
            Positions of the rows to train on, in increasing order.
        test : ndarray of shape (n_test,)
            Positions of the rows to test on, in increasing order.

        Raises
        ------
        ValueError
            If there are no ids or one is missing, y holds no classes, or the clients with two rows
            or more have fewer rows than there are folds.
        """
        yield from super().split(X, y, groups)

    def _iter_test_masks(self, X=None, y=None, groups=None):
        folds = self._deal(*_client_and_class(X, y, groups, self))
        for fold in range(self.n_splits):
            yield folds == fold

    def _deal(self, clients, codes, classes):
        """Fold in which each row is tested, (n,); -1 for a client's only row."""
        sizes, n_splits = np.bincount(codes), self.n_splits
        rng = check_random_state(self.random_state) if self.shuffle else None
        line = _line_up(codes, classes, rng)
        if len(line) < n_splits:
            raise ValueError(
                f"n_splits={n_splits} needs as many rows of clients with at least two rows, got "
                f"{len(line)}; lower n_splits."
            )
        _warn_small(
            clients[sizes < n_splits],
            len(clients),
            f"fewer rows than n_splits={n_splits}",
            "not every fold tests them, and a client with a single row is never tested",
        )
        turns = np.arange(n_splits) if rng is None else rng.permutation(n_splits)
        folds = np.full(len(codes), -1)
        folds[line] = turns[np.arange(len(line)) % n_splits]
        return folds

    def get_n_splits(self, X=None, y=None, groups=None):
        """Number of folds.

        Parameters
        ----------
        X, y, groups : object, default=None
            Ignored; scikit-learn passes them to every splitter.

        Returns
        -------
        int
            The ``n_splits`` of the constructor.
        """
        return self.n_splits


class ClientShuffleSplit(BaseShuffleSplit):
    """Random training and test rows of every client, stratified by class.

    Of each client's n rows, ``test_size * n`` are test rows, to within one row, and so of its rows
    of any one class. A client with two rows or more has at least one row on either side, so every
    client is trained on and tested.

    Ids come from ``groups``, which the splitter requests by itself under metadata routing, or from
    the column of X that ``group_column`` names, which needs no routing.

    Parameters
    ----------
    n_splits : int, default=1
        Number of independent splits, at least 1.
    test_size : float, default=0.25
        Share of each client's rows to test on, above 0 and below 1.
    random_state : int, RandomState instance or None, default=None
        Decides the draw. Pass an int for the same splits on every call.
    group_column : int or str, default=None
        Column of X that holds the client ids; a str names a DataFrame's column. Where ``groups``
        are given, they win.

    Raises
    ------
    ValueError
        If ``n_splits`` is below 1, or ``test_size`` is not between 0 and 1.
    TypeError
        If ``n_splits`` is no int, or ``test_size`` no number.

    See Also
    --------
    ClientKFold : Every row is tested once.
    sklearn.model_selection.GroupShuffleSplit : Leaves whole clients out.

    Notes
    -----
    A client with a single row always trains and is never tested. A UserWarning says so, once a
    call. The whole test set can exceed its share where many clients have fewer than
    ``1 / test_size`` rows, as each of them gives one.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.model_selection import ClientShuffleSplit
    >>> groups = np.repeat(["ann", "bob"], [4, 8])
    >>> X, y = np.zeros((12, 2)), np.tile([0, 1], 6)
    >>> splitter = ClientShuffleSplit(random_state=0)
    >>> for train, test in splitter.split(X, y, groups):
    ...     print(len(train), groups[test])
    9 ['ann' 'bob' 'bob']
    """

    __metadata_request__split = {"groups": True}

    def __init__(self, n_splits=1, *, test_size=0.25, random_state=None, group_column=None):
        check_scalar(n_splits, "n_splits", Integral, min_val=1)
        check_scalar(
            test_size, "test_size", Real, min_val=0, max_val=1, include_boundaries="neither"
        )
        super().__init__(n_splits, test_size=test_size, random_state=random_state)
        self.group_column = group_column

    def split(self, X, y=None, groups=None):
        """Generate the rows to train on and to test on, split by split.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all clients; with ``group_column``, including that column.
        y : array-like of shape (n_samples,), default=None
            Class labels. Without them the splits are not stratified.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row: strings, numbers, any hashable scalars.

        Yields
        ------
        train : ndarray of shape (n_train,)
            Positions of the rows to train on, in increasing order.
        test : ndarray of shape (n_test,)
            Positions of the rows to test on, in increasing order.

        Raises
        ------
        ValueError
            If there are no ids or one is missing, y holds no classes, or no client has two rows.
        """
        yield from super().split(X, y, groups)

    def _iter_indices(self, X, y=None, groups=None):
        clients, codes, classes = _client_and_class(X, y, groups, self)
        sizes = np.bincount(codes)
        if (sizes < 2).all():
            raise ValueError("No client has two rows, one to train on and one to test on.")
        _warn_small(clients[sizes < 2], len(clients), "a single row", "they are never tested")
        rng = check_random_state(self.random_state)
        for _ in range(self.n_splits):
            test = np.zeros(len(codes), dtype=bool)
            test[self._draw(_line_up(codes, classes, rng), sizes[sizes > 1], rng)] = True
            yield np.flatnonzero(~test), np.flatnonzero(test)

    def _draw(self, line, sizes, rng):
        """Test rows out of the line of rows, in which clients of the given sizes follow."""
        # Rows at equal distances, from a random start: a run of n rows has floor or ceil of
        # n * test_size of them.
        marks = np.floor(np.arange(len(line) + 1) * self.test_size + rng.random_sample())
        chosen = np.diff(marks) > 0
        starts = np.cumsum(sizes) - sizes
        counts = np.add.reduceat(chosen, starts, dtype=np.intp)
        anyone = starts + (rng.random_sample(len(sizes)) * sizes).astype(np.intp)
        chosen[anyone[counts == 0]] = True
        chosen[anyone[counts == sizes]] = False
        return line[chosen]


def _client_and_class(X, y, groups, splitter):
    """Sorted clients (K,), and codes (n,) of each row's client and of its class."""
    n, column, owner = _num_samples(X), splitter.group_column, type(splitter).__name__
    if groups is None and column is None:
        raise ValueError(
            f"{owner} needs the client id of each row; pass groups or set group_column."
        )
    ids = take_group_column(X, column, owner) if groups is None else as_ids(groups, n)
    clients, codes = encode_ids(ids)
    if y is None:
        return clients, codes, np.zeros(n, dtype=np.intp)
    y = column_or_1d(y)
    kind = type_of_target(y, input_name="y")
    if kind not in {"binary", "multiclass"}:
        raise ValueError(
            f"{owner} stratifies by class, but y is {kind}; pass class labels, or no y."
        )
    return clients, codes, np.unique(y, return_inverse=True)[1]


def _line_up(codes, classes, rng=None):
    """Rows of the clients with two rows or more, client by client and class by class.

    Were all clients to begin with the first class, those of equal make-up would have the same class
    tested in the same fold. So each begins further round the circle of classes than the one before,
    by a step that never falls in with the number of folds, being irrational.
    """
    n_classes = classes.max() + 1
    first = (n_classes * (np.sqrt(2) * codes % 1)).astype(np.intp)
    shifted = (classes - first) % n_classes
    within = np.arange(len(codes)) if rng is None else rng.permutation(len(codes))
    line = np.lexsort((within, shifted, codes))
    return line[np.bincount(codes)[codes[line]] > 1]


def _warn_small(small, n_clients, have, so):
    if len(small):
        warn_user(
            f"{len(small)} of {n_clients} clients have {have}, for example "
            f"{small.tolist()[0]!r}: {so}.",
            UserWarning,
        )
