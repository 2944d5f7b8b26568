"""Tests of graphcrate. `ROOT` is the project's folder."""

import ast
import functools
import gc
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: packages of packages/ that import graphcrate, whose rules hold for them too
ABOVE = ("buildsite", "upkeep")
#: folders of sources that the rules of graphcrate hold for
HOUSE = (ROOT / "graphcrate", *(ROOT / "packages" / name / "src" for name in ABOVE))


def modules_of_house():
    """The files of graphcrate's modules, and of those above it."""
    return sorted(path for folder in HOUSE for path in folder.rglob("*.py"))


@functools.cache
def tree_of_file(path):
    """The syntax tree of a file, parsed once for all house rules. Tests leave it as it is."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    gc.freeze()  # it stays: two million objects of all files, which each search for garbage would walk
    return tree


@functools.cache
def nodes_of(tree):
    """All nodes of a tree that stays, found once for all who look through it."""
    return tuple(ast.walk(tree))


@functools.cache
def definitions_in(path):
    """The module, classes and functions of a file, without a walk through their expressions."""
    left, found = [tree_of_file(path)], []
    while left:
        node = left.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node)
        inner = ast.stmt | ast.excepthandler | ast.match_case
        left += [child for child in ast.iter_child_nodes(node) if isinstance(child, inner)]
    return found


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
