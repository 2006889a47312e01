"""Keep features on disk, by the content of the image and by what they were computed with."""

import os
import uuid
from pathlib import Path

import numpy as np

_DIGEST_BYTES = 16
_IMAGES_PER_FILE = 2048


class FeatureCache:
    """Features of images that were seen before, in one directory a configuration.

    What is new goes into new files, each renamed into place when it is whole, so an interrupted run
    leaves whole files alone, and processes that share a cache need no lock.

    Parameters
    ----------
    directory : path-like
        Where the files are; made when first written to.
    n_features : int
        Features of an image.
    """

    def __init__(self, directory, n_features):
        self.directory = Path(directory)
        self.dtype = np.dtype(
            [("digest", f"V{_DIGEST_BYTES}"), ("features", np.float32, (n_features,))]
        )
        self._known = {}  # digest -> (file, row)
        self._files = {}  # path -> memory-mapped records
        for path in sorted(self.directory.glob("*.npy")):
            self._index(path)

    def _index(self, path):
        try:
            records = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError):
            return  # another program's file, or a damaged one: its images are computed anew
        if records.dtype == self.dtype and records.ndim == 1:
            self._files[path] = records
            for row, digest in enumerate(records["digest"].tolist()):
                self._known[digest] = (path, row)

    def get(self, digests, out):
        """Fill in the features that are known.

        Parameters
        ----------
        digests : list of bytes
            One for each of n images.
        out : ndarray of shape (n, n_features)
            Where the features go.

        Returns
        -------
        ndarray of shape (n,)
            Whether each image is known, bool.
        """
        hits = [self._known.get(digest) for digest in digests]
        by_file = {}
        for row, hit in enumerate(hits):
            if hit is not None:
                path, place = hit
                by_file.setdefault(path, []).append((row, place))
        for path, pairs in by_file.items():
            rows, places = np.array(pairs).T
            out[rows] = self._files[path]["features"][places]
        return np.array([hit is not None for hit in hits], dtype=bool)

    def keep(self, batches, digests):
        """Pass on batches of (rows, features), and write what has come, also on the way out.

        Parameters
        ----------
        batches : iterable of (ndarray of shape (b,), ndarray of shape (b, n_features))
            Rows and their features.
        digests : list of bytes
            Of every row; those without one are not written.

        Yields
        ------
        (rows, features)
            The batches.
        """
        waiting, size = [], 0
        try:
            for rows, features in batches:
                waiting.append((rows, features))
                size += len(rows)
                if size >= _IMAGES_PER_FILE:
                    self._write(waiting, digests)
                    waiting, size = [], 0
                yield rows, features
        finally:
            self._write(waiting, digests)

    def _write(self, batches, digests):
        rows = [row for rows, _ in batches for row in rows.tolist()]
        keep = [place for place, row in enumerate(rows) if digests[row]]
        if not keep:
            return
        records = np.empty(len(keep), dtype=self.dtype)
        records["digest"] = np.array(
            [digests[rows[place]] for place in keep], dtype=self.dtype["digest"]
        )
        records["features"] = np.concatenate([features for _, features in batches])[keep]
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{uuid.uuid4().hex}.npy"
        unfinished = path.with_suffix(".part")
        try:
            with open(unfinished, "wb") as file:
                np.save(file, records, allow_pickle=False)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
