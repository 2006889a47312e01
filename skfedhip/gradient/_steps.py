"""The step of a server that does not simply take the mean."""


def towards(means, parameters, step, statistics):
    """Parameters moved by ``step`` times the way to the means.

    Parameters
    ----------
    means, parameters : dict of ndarray
        What came up, and where the server stands.
    step : float
    statistics : set of str
        Names of running statistics, which are the means.
    """
    return {
        name: means[name]
        if name in statistics
        else (old + step * (means[name] - old)).astype(old.dtype)
        for name, old in parameters.items()
    }
