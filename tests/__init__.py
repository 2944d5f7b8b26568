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
def by_kind(tree):
    """Nodes of a tree that stays by their kinds, found once for all who look through it."""
    found, nodes = {}, [tree]
    for node in nodes:
        found.setdefault(node.__class__, []).append(node)
        for value in vars(node).values():  # as ast.walk does, in half of its time
            if isinstance(value, list):
                nodes += [child for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                nodes.append(value)
    return found


def nodes_of(tree, *kinds):
    """The nodes of these kinds in a tree that stays, or all of them but `Load` and `Store`."""
    known = by_kind(tree)
    return [node for kind in kinds or known for node in known.get(kind, ())]


def statements_of(tree):
    """All statements below a node, without a walk through their expressions."""
    found = [tree]
    for node in found:
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += inner if isinstance(inner := getattr(node, name, None), list) else []
    return found


@functools.cache
def definitions_in(path):
    """The module, classes and functions of a file."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in statements_of(tree_of_file(path)) if isinstance(node, kinds)]


def sources(root=ROOT):
    """PYTHONPATH of a checkout for an interpreter that is not its environment's, which has it by tools/prepare."""
    return ":".join(str(folder) for folder in [root, *sorted(root.glob("packages/*/src"))])


def imports(tree):
    """Every module that is imported, wherever the statement stands; of `from a import b` also a.b."""
    for node in statements_of(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
