"""Where torch computes: one reading of ``device`` for all estimators."""

import torch


def resolve_device(name):
    """Device of a name.

    Parameters
    ----------
    name : str or torch.device
        As torch names it; "auto" is "cuda" where there is a GPU, else "cpu".

    Returns
    -------
    torch.device

    Raises
    ------
    ValueError
        If nothing can be computed there.
    """
    if str(name) == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tensor = torch.zeros(1, device=name)
        tensor.item()  # "meta" has shapes and no numbers
    except (RuntimeError, AssertionError, ImportError) as error:  # by the kind of the device
        reason = str(error).splitlines()[0].split(". ")[0].rstrip(".")
        raise ValueError(f"There is no device {str(name)!r} here ({reason}); pass 'cpu'.") from None
    return tensor.device
