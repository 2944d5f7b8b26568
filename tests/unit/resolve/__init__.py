"""Tests of `graphcrate/resolve/`."""
