"""Backends that turn a plan into an OCI image layout."""
