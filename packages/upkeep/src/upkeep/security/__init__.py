"""Locks with known vulnerabilities: asked about, renewed within their stack, and said."""
