"""Tests of `graphcrate/cli/`."""
