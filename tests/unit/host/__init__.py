"""Tests of `graphcrate/host/`."""
