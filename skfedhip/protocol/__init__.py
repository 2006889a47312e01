"""The protocol: four verbs, messages of named arrays, and the loop that runs them in process."""

from ._loop import FederatedMethod, FederationResult, FederationState, run_federation
from ._messages import Broadcast, ClientUpdate, Empty, Message, Schema

__all__ = [
    "Broadcast",
    "ClientUpdate",
    "Empty",
    "FederatedMethod",
    "FederationResult",
    "FederationState",
    "Message",
    "Schema",
    "run_federation",
]
