"""Tests of `graphcrate/assembly/`."""
