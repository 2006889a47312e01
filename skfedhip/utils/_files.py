"""Files that are whole or as they were."""

import os
import tempfile
from pathlib import Path


def write_atomically(path, data):
    """Write bytes; whoever reads, even after a crash, finds the old content or the new."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
