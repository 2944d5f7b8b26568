"""Tests of `graphcrate/serve/`."""
