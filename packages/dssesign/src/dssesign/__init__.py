"""Signatures and signed statements: keys, envelopes (DSSE), bundles, and the verdict on each.

statement ──signing──▶ envelopes, simple signing, tags of old registries ──bundles──▶ referrers
               │                                                             │
              keys                                                         verify

`errors` has what is wrong with a key as a value.
"""
