"""Tests of skfedhip.utils."""
