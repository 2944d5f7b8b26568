"""Names that one module takes from another exist there, also in tests and programs that a unit run never imports."""

import ast
import functools

import pytest

from tests import ROOT, nodes_of
from tests.unit.house.test_house import PYTHON, label, tree

#: names that every module has
OF_MODULES = {"__doc__", "__file__", "__name__", "__path__", "__dict__", "__version__"}
LOOKED_AT = ("graphcrate", "packages", "tests", "bench", "tools", "doctor", "build.py")


def module_name(path):
    """Return the name by which `path` is imported; within the src/ of a library, from there on."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[parts.index("src") + 1 :] if "src" in parts else parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in PYTHON if path.relative_to(ROOT).parts[0] in LOOKED_AT}
PACKAGES = {name.rpartition(".")[0] for name in MODULES} - {""}
TOPS = {name.partition(".")[0] for name in MODULES}


def bound(nodes):
    """Yield the names that statements bind, without those inside the functions and classes that they define."""
    left = list(nodes)
    while left:
        node = left.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
                continue
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.withitem | ast.Tuple):
            left += ast.iter_child_nodes(node)


@functools.cache
def names_in(module):
    return OF_MODULES | set(bound(tree(MODULES[module]).body)) if module in MODULES else set()


def has(module, name):
    """Return whether `module.name` is there; modules that answer for any name (`__getattr__`) have it."""
    names = names_in(module)
    return name in names or "__getattr__" in names or f"{module}.{name}" in MODULES or f"{module}.{name}" in PACKAGES


def ours(module):
    return module in MODULES or module in PACKAGES


def missing(module):
    """Yield (line, module, name) of each name that a module of ours is asked for and does not have."""
    aliases, others, attributes = {}, set(), []
    for node in nodes_of(module):
        if isinstance(node, ast.ImportFrom) and ours(node.module):
            for alias in node.names:
                if not has(node.module, alias.name):
                    yield node.lineno, node.module, alias.name
                if ours(f"{node.module}.{alias.name}"):
                    aliases.setdefault(alias.asname or alias.name, set()).add(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top, _, name = alias.name.rpartition(".")
                if alias.name.partition(".")[0] in TOPS and not ours(alias.name):
                    yield node.lineno, top, name
        elif isinstance(node, ast.Attribute | ast.Call):
            attributes += [(node.lineno, *names) for names in asked(node)]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            others.add(node.id)
        elif isinstance(node, ast.arg):
            others.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            others.add(node.name)
    modules = {name: paths.pop() for name, paths in aliases.items() if len(paths) == 1 and name not in others}
    for number, alias, name in attributes:
        if alias in modules and not has(modules[alias], name):
            yield number, modules[alias], name


def asked(node):
    """Yield (variable, name) of `variable.name` and of `monkeypatch.setattr(variable, "name", …)`."""
    match node:
        case ast.Attribute(value=ast.Name(id=alias), attr=name):
            yield alias, name
        case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Name(id=alias), ast.Constant(value=str(name)), *_]):
            yield alias, name


def test_names_that_modules_take_from_each_other_exist():
    assert [
        f"{label(MODULES[module])}:{number}: {name} is not in {other}"
        for module in MODULES
        for number, other, name in missing(tree(MODULES[module]))
    ] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from graphcrate.model.words import no_such", "no_such"),
        ("def test():\n    from graphcrate.model import no_such", "no_such"),
        ("from graphcrate.model import words\nwords.no_such()", "no_such"),
        ("from graphcrate.model import words as said\nsaid.no_such()", "no_such"),
        ("from graphcrate.model import words\nmonkeypatch.setattr(words, 'no_such', 1)", "no_such"),
        ("import graphcrate.no_such", "no_such"),
        ("from graphcrate.model import words\nwords.size(1)", ""),
        ("from graphcrate.model import words\nfor words in (): words.no_such()", ""),
        ("from graphcrate import model\nmodel.words", ""),
    ],
)
def test_name_that_is_gone_is_found(text, name):
    assert [name for _, _, name in missing(ast.parse(text))] == ([name] if name else [])
