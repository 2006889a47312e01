"""How well each client is served, and all of them together."""

from ._client import ClientScores, client_scores, client_summary
from ._displays import ClientScoreDisplay, PartitionDisplay
from ._scorer import make_client_scorer

__all__ = [
    "ClientScoreDisplay",
    "ClientScores",
    "PartitionDisplay",
    "client_scores",
    "client_summary",
    "make_client_scorer",
]
