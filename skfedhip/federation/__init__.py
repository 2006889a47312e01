"""Runners outside this process; each is imported by its own name and needs its own extra."""
