"""Tests of `tools/` and `bench/`."""
