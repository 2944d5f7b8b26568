"""Tests of `graphcrate/checks/`."""
