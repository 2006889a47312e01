"""The constructor parameters that all gradient classifiers have, and their documentation."""

import inspect

_DOC = """\
    n_rounds : int, default=100
        Rounds of communication.
    lr : float, default={lr}
        Step size of stochastic gradient descent, > 0.
    batch_size : int, default=10
        Rows of a step.
    local_epochs : int, default=1
        Passes over a client's rows in a round.
    join_ratio : float or (float, float), default=1.0
        Share of the clients that take part in a round, in (0, 1], or bounds between which it is
        drawn anew each round. At least one client takes part.
    feature_extractor : "auto" or callable, default="auto"
        Makes the network below the linear head: a callable from the shape of a row to a
        ``torch.nn.Module`` that maps rows to features of shape (n, p), such as
        :class:`~skfedhip.gradient.MLP`, :class:`~skfedhip.gradient.CNN` and the others there.
        "auto" is ``MLP()`` for feature rows and ``CNN()`` for images.
    weight_decay : float, default=0.0
        Multiple of the parameters that is added to their gradient, >= 0.
    shuffle : bool, default=True
        Whether each epoch takes a client's rows in a new order; each client draws its own.
    drop_last : bool, default=False
        Whether an epoch leaves out the rows that do not fill a batch. A client with fewer rows
        than a batch always has one step of them all.
    init_params : dict of str to array, default=None
        Initial parameters by name, shaped as in ``global_params_``; those not named are drawn.
    tol : float, default=1e-4
        By how much the training loss must fall to count as progress, >= 0.
    patience : int, default=None
        Training stops after so many rounds without progress. None never stops early.
    validation_fraction : float, default=None
        Share of each client's rows that is held out to find the best round, in (0, 1). Per-round
        accuracies are in ``history_``.
    model : {{"best", "last"}}, default="best"
        Which models answer: those of the round with the best mean client accuracy on rows held
        out, or those of the last round. Without ``validation_fraction`` there are only the last.
        May be changed after fit.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the models of the last call, for ``n_rounds`` more rounds. The
        best round is still that of all calls where the rows held out are the same.
    checkpoint : str or path-like, default=None
        File to which the run is written every ``checkpoint_every`` rounds; where it exists, ``fit``
        goes on from it, with the numbers of a run that never stopped. It must be of the same
        parameters and rows.
    checkpoint_every : int, default=10
        Rounds between two checkpoints.
    local_classes_only : bool, default=False
        Whether a client's rows may only be given classes that it had at fit.
    group_column : int or str, default=None
        Column of X that holds the client ids and is not a feature: a position, or the name of a
        DataFrame's column. ``groups``, where given, wins.
    missing_groups : {{"warn", "error", "global"}}, default="warn"
        What happens when client ids are missing altogether or all unknown; with "error" any
        unknown row raises. Without ids ``fit`` takes all rows as one client, and ``predict`` uses
        the global model.
    random_state : int, RandomState instance or None, default=None
        Decides initial parameters, cohorts and the order of rows. Each client's draws depend on
        this, its id and the round alone.
    device : str or torch.device, default="auto"
        Where to compute; "auto" is CUDA if there is one, else the CPU.
    dtype : {{"float32", "float64"}}, default="float32"
        Precision of the parameters.
    n_jobs : int, default=None
        Groups of clients that are trained at the same time, in threads.
    verbose : int, default=0
        Whether to show a progress bar."""

_ATTRIBUTES = """\
    classes_ : ndarray of shape (d,)
        Class labels.
    clients_ : ndarray of shape (K,)
        Client ids, sorted.
    global_params_ : dict of str to ndarray
        Parameters of the global model, which scores unknown clients.
    personal_params_ : dict of str to ndarray
        What replaces or completes them at each client, in the order of ``clients_``.
    loss_curve_ : ndarray of shape (n_rounds,)
        Mean training loss of each round, as its rows were met; NaN for a round without clients.
    history_ : dict of str to ndarray
        "loss", and with ``validation_fraction`` what was measured of each client's rows held out
        after each round, shape (n_rounds, K): {history}. NaN is for clients without such rows, and
        for rounds without validation.
    n_rounds_ : int
        Rounds that the models have been through.
    best_round_ : int or None
        The round of the best models, counted from 1; None without ``validation_fraction``.
    bytes_up_, bytes_down_ : ndarray of shape (K,)
        What each client has sent and received in all rounds, in the order of ``clients_``.
    n_features_in_ : int
        Columns (or channels) of X at fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of X at fit, where it had any."""


class SharedParameters:
    """Takes the shared parameters; a subclass's constructor names its own and ``**shared``.

    The signature of a subclass, which scikit-learn, editors and ``help`` read, shows them all, and
    its docstring has them in place of ``%(parameters)s`` and ``%(attributes)s``.
    """

    _history_doc = '"client_accuracy"'

    def __init__(
        self,
        *,
        n_rounds=100,
        lr=0.005,
        batch_size=10,
        local_epochs=1,
        join_ratio=1.0,
        feature_extractor="auto",
        weight_decay=0.0,
        shuffle=True,
        drop_last=False,
        init_params=None,
        tol=1e-4,
        patience=None,
        validation_fraction=None,
        model="best",
        warm_start=False,
        checkpoint=None,
        checkpoint_every=10,
        local_classes_only=False,
        group_column=None,
        missing_groups="warn",
        random_state=None,
        device="auto",
        dtype="float32",
        n_jobs=None,
        verbose=0,
    ):
        self.n_rounds = n_rounds
        self.lr = lr
        self.batch_size = batch_size
        self.local_epochs = local_epochs
        self.join_ratio = join_ratio
        self.feature_extractor = feature_extractor
        self.weight_decay = weight_decay
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.init_params = init_params
        self.tol = tol
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.model = model
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.local_classes_only = local_classes_only
        self.group_column = group_column
        self.missing_groups = missing_groups
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            own = inspect.signature(cls.__init__).parameters
            shared = inspect.signature(SharedParameters.__init__).parameters
            named = {n: p for n, p in own.items() if p.kind is not p.VAR_KEYWORD}
            named |= {name: p for name, p in shared.items() if name not in named}
            cls.__init__.__signature__ = inspect.Signature(list(named.values()))
            text = (cls.__doc__ or "").replace(
                "    %(parameters)s", _DOC.format(lr=named["lr"].default)
            )
            attributes = _ATTRIBUTES.format(history=cls._history_doc)
            cls.__doc__ = text.replace("    %(attributes)s", attributes)
