"""Tests of `graphcrate/compat/`."""
