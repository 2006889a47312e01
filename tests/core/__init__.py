"""Tests of skfedhip.core."""
