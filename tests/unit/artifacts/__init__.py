"""Tests of `graphcrate/artifacts/`."""
