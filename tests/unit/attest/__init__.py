"""Tests of `graphcrate/publish/`."""
