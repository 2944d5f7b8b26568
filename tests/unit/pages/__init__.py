"""Tests of `graphcrate/pages/`."""
