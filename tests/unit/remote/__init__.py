"""Tests of `graphcrate/remote/`."""
