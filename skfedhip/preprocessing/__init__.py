"""Preprocessing whose parameters come from clients' statistics, never from their rows."""

from ._scaler import FederatedStandardScaler, MomentsMethod

__all__ = ["FederatedStandardScaler", "MomentsMethod"]
