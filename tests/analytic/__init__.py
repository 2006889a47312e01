"""Tests of the closed-form estimators."""
