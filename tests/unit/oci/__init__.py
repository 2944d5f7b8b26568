"""Tests of `graphcrate/oci/`."""
