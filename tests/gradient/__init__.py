"""Tests of the gradient classifiers."""
