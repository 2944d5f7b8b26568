"""Tests of `graphcrate/smoke/`."""
