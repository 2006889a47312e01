"""How well each client is served, and all of them together."""

from ._client import ClientScores, client_scores, client_summary

__all__ = ["ClientScores", "client_scores", "client_summary"]
