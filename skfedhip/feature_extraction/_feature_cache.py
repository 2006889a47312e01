"""Keep features on disk, by the content of the image and by what they were computed with."""

import os
import uuid
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..utils._warn import warn_user

_DIGEST_BYTES = 16
_IMAGES_PER_FILE = 2048
_SMALL_FILES = 16
"""So many files with fewer images than that are merged into one."""


class FeatureCache:
    """Features of images that were seen before, in one directory a configuration.

    What is new goes into new files, each renamed into place when it is whole, so an interrupted run
    leaves whole files alone, and processes that share a cache need no lock: a file that another one
    has merged away meanwhile costs the time to compute its features anew.

    Parameters
    ----------
    directory : path-like
        Where the files are; made if need be.
    n_features : int
        Features of an image.

    Raises
    ------
    OSError
        If the directory can't be made.
    """

    def __init__(self, directory, n_features):
        self.directory = Path(directory)
        self.dtype = np.dtype(
            [("digest", f"V{_DIGEST_BYTES}"), ("features", np.float32, (n_features,))]
        )
        self._known = {}  # digest -> (file, row)
        self._sizes = {}  # file -> number of images
        self._new = []  # what waits to be written, as records
        self._writable = True
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise OSError(
                f"The cache can't be at {str(self.directory)!r} ({error}); pass another directory."
            ) from None
        for path in sorted(self.directory.glob("*.npy")):
            self._index(path)

    def complete(self, digests, out, compute):
        """Fill in the features of images: those that are known, and the others' once computed.

        Parameters
        ----------
        digests : list of bytes
            One for each of n images; those without one are computed and not kept.
        out : ndarray of shape (n, n_features)
            Where the features go.
        compute : callable
            From rows, of shape (m,), to an iterable of (rows, features) of the images that can be
            read. It gets the first of the images that have one digest.
        """
        known = self._fill(digests, out)
        first = {}
        for row in np.flatnonzero(~known).tolist():
            first.setdefault(digests[row] or row, row)
        if not first:
            return
        try:
            for rows, features in compute(np.fromiter(first.values(), np.intp, len(first))):
                out[rows] = features
                self._add(rows, features, digests)
        except BaseException:
            with suppress(Exception):  # what ends the run is what the caller has to learn of
                self._write()
            raise
        self._write()
        for row in np.flatnonzero(~known).tolist():
            out[row] = out[first[digests[row] or row]]

    def _fill(self, digests, out):
        """Fill in the features that are known; whether they are, of shape (n,)."""
        known = np.zeros(len(digests), dtype=bool)
        by_file = {}
        for row, digest in enumerate(digests):
            if digest in self._known:
                path, place = self._known[digest]
                by_file.setdefault(path, []).append((row, place))
        for path, pairs in by_file.items():
            rows, places = np.array(pairs).T
            records = self._records(path)
            if records is not None:
                out[rows] = records["features"][places]
                known[rows] = True
        return known

    def _index(self, path):
        records = self._records(path)
        if records is not None:
            self._sizes[path] = len(records)
            for row, digest in enumerate(records["digest"].tolist()):
                self._known[digest] = (path, row)

    def _records(self, path):
        """Memory-mapped records; None for a file that is gone, damaged or another program's."""
        try:
            records = np.lib.format.open_memmap(path, mode="r")
        except Exception:  # a damaged header may raise anything
            return None
        return records if records.dtype == self.dtype and records.ndim == 1 else None

    def _add(self, rows, features, digests):
        records = np.empty(len(rows), dtype=self.dtype)
        names = [digests[row] for row in rows.tolist()]
        records["digest"] = np.array(names, dtype=self.dtype["digest"])
        records["features"] = features
        self._new.append(records[[bool(name) for name in names]])
        if sum(map(len, self._new)) >= _IMAGES_PER_FILE:
            self._write()

    def _write(self):
        """Write what waits; a full disk costs the cache and not the features."""
        records = np.concatenate(self._new) if self._new else ()
        self._new = []
        if len(records) == 0 or not self._writable:
            return
        try:
            self._save(records)
            self._merge()
        except OSError as error:
            self._writable = False
            warn_user(
                f"Features can't be kept in {str(self.directory)!r} ({error}); they are right, but "
                "will be computed anew; make room or pass another directory as cache.",
                UserWarning,
            )

    def _save(self, records):
        path = self.directory / f"{uuid.uuid4().hex}.npy"
        unfinished = path.with_suffix(".part")
        try:
            with open(unfinished, "wb") as file:
                np.save(file, records, allow_pickle=False)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        self._sizes[path] = len(records)

    def _merge(self):
        """Make one file of many small ones, which calls with few images leave."""
        small = {
            path: records
            for path, size in self._sizes.items()
            if size < _IMAGES_PER_FILE and (records := self._records(path)) is not None
        }
        if len(small) < _SMALL_FILES:
            return
        merged = np.concatenate(list(small.values()))
        paths = list(small)
        del small  # some systems remove no file that is mapped
        places = {digest: row for row, digest in enumerate(merged["digest"].tolist())}
        self._save(merged[list(places.values())])
        for path in paths:
            path.unlink(missing_ok=True)
            del self._sizes[path]
