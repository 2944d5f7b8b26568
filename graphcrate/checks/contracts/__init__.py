"""Contracts of runtimes, as checks: pure functions of a view of the image and of its host.

`view` makes the view of a tree that its caller read; `docs/contracts.md` is written from the checks.
"""
