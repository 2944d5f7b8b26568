"""Tests of `graphcrate/engines/`."""
