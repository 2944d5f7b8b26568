"""Proof of what an image is: bill of materials, provenance, reports, and the signatures on them.

Pure but for `keyfile` (key files) and what `host.keyless` reaches. docs/decisions/proof.md has the reasons.
"""
