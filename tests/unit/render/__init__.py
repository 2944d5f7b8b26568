"""Tests of `graphcrate/render/`."""
