"""Tests of `graphcrate/model/`."""
