"""Federations with a network: their bytes, their server, their runners."""
