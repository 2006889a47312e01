"""Tests of skfedhip.protocol."""
