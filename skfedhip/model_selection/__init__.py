"""Splitters that cut inside each client, so that every client is trained on and tested."""

from ._split import ClientKFold, ClientShuffleSplit

__all__ = ["ClientKFold", "ClientShuffleSplit"]
