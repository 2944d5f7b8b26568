"""Tests of graphcrate. `ROOT` is the project's folder."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def sources(root=ROOT):
    """PYTHONPATH of a checkout for an interpreter that is not its environment's, which has it by tools/prepare."""
    return ":".join(str(folder) for folder in [root, *sorted(root.glob("packages/*/src"))])


def imports(tree):
    """Every module that is imported, wherever the statement stands; of `from a import b` also a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
