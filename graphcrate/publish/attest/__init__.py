"""Proof of what an image is: bill of materials, provenance, reports, and the signatures on them.

Pure but for `keys`. docs/decisions/proof.md has the reasons.
"""
