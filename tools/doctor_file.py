"""Writes examples/doctor.py: the modules of graphcrate/doctor in one file, which every image has and anybody can copy.

`python -m tools.doctor_file` rewrites it, a unit test fails when it is stale. Modules are put one below the other, in
the order in which they need each other, so a name at the top of a module may be there once in the whole package.
"""

import ast
import graphlib
from collections.abc import Iterable, Mapping

from tools.generate import ROOT

PACKAGE = ROOT / "graphcrate" / "doctor"
TARGET = ROOT / "examples" / "doctor.py"
PREFIX = "graphcrate.doctor."
MAIN = "__main__"  #: starts the program, so it comes last
HEAD = '''\
#!/usr/bin/env python3
"""Looks at the machine, or the container, that it runs on: what a CUDA + PyTorch + PyG image will meet there, and why.

python3 doctor.py                        what works, what cannot, why, and what to type
python3 doctor.py --explain "ERROR"      cause and fix of an error
ssh node python3 - < doctor.py           it needs nothing but Python 3.6, and writes nothing

Written by `python -m tools.doctor_file` from graphcrate/doctor. Do not edit.
"""
'''


def text() -> str:
    """The file. Raises ValueError where modules do not go together."""
    paths = [path for path in sorted(PACKAGE.glob("*.py")) if path.stem != "__init__"]
    sources = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    trees = {name: ast.parse(source) for name, source in sources.items()}
    refuse_doubles(trees)
    needs = {name: sorted(_sisters(tree)) for name, tree in trees.items()}
    parts = [HEAD, "\n".join(_imports(trees.values()))]
    order = [name for name in graphlib.TopologicalSorter(needs).static_order() if name != MAIN]
    for name in [*order, MAIN]:
        title = (ast.get_docstring(trees[name]) or name).splitlines()[0]
        parts.append(f"\n\n# {name}: {title}\n\n{_body(sources[name], trees[name])}")
    return "\n".join(parts)


def _sisters(tree: ast.Module) -> Iterable[str]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PREFIX):
            yield node.module.removeprefix(PREFIX)


def _imports(trees: Iterable[ast.Module]) -> list[str]:
    """Imports of the standard library, once each; a sister's names are there without any."""
    whole: set[str] = set()
    parts: dict[str, set[str]] = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.Import):
                whole |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith(PREFIX):
                parts.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return [f"import {name}" for name in sorted(whole)] + [
        f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(parts.items())
    ]


def _body(source: str, tree: ast.Module) -> str:
    """The module's text without its docstring and imports."""
    lines = source.splitlines()
    for node in tree.body:
        docstring = node is tree.body[0] and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or isinstance(node, ast.Import | ast.ImportFrom):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "\n".join(lines).strip() + "\n"


def refuse_doubles(trees: Mapping[str, ast.Module]) -> None:
    """Raises ValueError where two modules have a name at their top, or import one under another name."""
    owners: dict[str, str] = {}
    for module, tree in trees.items():
        for name in _names(tree):
            if owners.setdefault(name, module) != module:
                raise ValueError(f"{name} is in {owners[name]} and in {module}: one file has room for one of them")
        renamed = [node for node in ast.walk(tree) if isinstance(node, ast.alias) and node.asname]
        if renamed:
            raise ValueError(f"{module} imports {renamed[0].name} under another name, which one file cannot have")


def _names(tree: ast.Module) -> Iterable[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
            yield from (part.id for target in node.targets if isinstance(target, ast.Tuple) for part in target.elts)  # type: ignore[attr-defined]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    TARGET.chmod(0o755)
