"""Compare the methods on real data, from a terminal: ``python -m skfedhip.benchmark --help``."""
