"""Signatures and signed statements: keys, envelopes (DSSE), bundles, and the verdict on each.

Pure but for `keys`. docs/decisions/proof.md has the reasons.
"""
