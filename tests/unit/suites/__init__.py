"""Tests of `suites/` and `examples/`."""
