"""Tests of `graphcrate/inputs/`."""
