"""The rooms and floors of docs/architecture.md: a room imports from rooms below it, never from above or beside it."""

import ast
import functools
import graphlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent.parent / "graphcrate"

#: Floor of each room. Two rooms on one floor do not know of each other.
FLOORS = {
    "cli": 8,
    "build": 7,
    "publish": 7,
    "resolve": 6,
    "engines": 6,
    "pages": 6,
    "inputs": 5,
    "checks": 5,
    "smoke": 5,
    "artifacts": 4,
    "oci": 3,
    "compat": 3,
    "host": 2,
    "model": 1,
}
#: from one room to another: a tree of fourteen rooms that anybody can hold in their head
MOST_ARROWS = 75
#: what only `host` may import: processes, connections, the clock
DOORS = {
    *("subprocess", "socket", "ssl", "http", "urllib.request", "urllib3"),
    *("time", "signal", "select", "ctypes", "pty"),
}
#: what a pure module may not import either
TOUCHING = DOORS | {"os", "io", "tempfile", "shutil", "glob", "fcntl", "mmap", "multiprocessing", "threading"}
#: values in, values out: packages and modules, by the longest name that fits; `False` for what is not
PURE = {
    "graphcrate.model": True,
    "graphcrate.model.codec": False,
    "graphcrate.compat": True,
    "graphcrate.compat.catalog": False,
    "graphcrate.compat.explain": False,
    "graphcrate.checks.audit": True,
    "graphcrate.checks.audit.run": False,
    "graphcrate.checks.contracts": True,
    "graphcrate.checks.contracts.run": False,
    "graphcrate.checks.wording": True,
    "graphcrate.artifacts.formats.runtime_files": True,
    "graphcrate.artifacts.tree.compare": True,
    "graphcrate.engines.render": True,
    "graphcrate.pages.charts": True,
    "graphcrate.pages.html": True,
    "graphcrate.engines.render.files": False,
    "graphcrate.engines.render.jobs": False,
    "graphcrate.oci.image": True,
    "graphcrate.oci.layer": True,
    "graphcrate.oci.names": True,
    "graphcrate.oci.realms": True,
    "graphcrate.oci.reference": True,
    "graphcrate.oci.spec": True,
    "graphcrate.oci.tar": True,
    "graphcrate.publish.attest": True,
    "graphcrate.publish.attest.keys": False,
    "graphcrate.publish.destinations.parse": True,
    "graphcrate.publish.policy": True,
    "graphcrate.smoke.verdict": True,
}
#: runs inside an image, by the image's Python: no part of graphcrate while it works
GUESTS = {
    "graphcrate.inputs.wheels.compile_program",
    "graphcrate.inputs.extensions.worker",
    "graphcrate.inputs.extensions.import_check",
}


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room(module):
    """The room of a module; empty for the package itself, which holds no code but the way to the command line."""
    return module.split(".")[1] if "." in module.removesuffix(".__main__") else ""


def imports(tree):
    """Every module that is imported, wherever the statement stands; of `from a import b` also a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def below(imported, importing):
    """Whether a room may know of another: itself, or one on a lower floor."""
    return imported == importing or FLOORS[imported] < FLOORS[importing]


@functools.cache
def tree_of(module):
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def known(module):
    """The modules of graphcrate that a module imports."""
    return {imported for imported in imports(tree_of(module)) if imported in SOURCES and imported != module}


def is_pure(module):
    while module and module not in PURE:
        module = module.rpartition(".")[0]
    return PURE.get(module, False)


def test_every_module_is_in_a_room():
    assert [module for module in SOURCES if room(module) not in ("", *FLOORS)] == []
    assert sorted(path.name for path in PACKAGE.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_rooms_import_from_rooms_below():
    assert [
        f"{module} (floor {FLOORS[room(module)]}) imports {imported} ({FLOORS[room(imported)]})"
        for module in SOURCES
        for imported in sorted(known(module))
        if room(module) and room(imported) and not below(room(imported), room(module))
    ] == []


def test_rooms_know_few_others():
    arrows = {(room(module), room(imported)) for module in SOURCES for imported in known(module)}
    assert len([arrow for arrow in arrows if all(arrow) and len(set(arrow)) == 2]) <= MOST_ARROWS


def test_modules_import_each_other_in_no_circle():
    assert tuple(graphlib.TopologicalSorter({module: known(module) for module in SOURCES}).static_order())


def uses(module, imported, used):
    """What it has of these modules, and of these names: `open`, `os.fork`."""
    tree = tree_of(module)
    yield from (f"{module} imports {name}" for name in imports(tree) if name in imported)
    for node in ast.walk(tree):
        name = node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
        if name in used:
            yield f"{module}:{node.lineno} uses {name}"


def test_pure_modules_do_not_touch_the_world():
    assert set(PURE) <= set(SOURCES), "a pure module moved; say here where to"
    pure = [module for module in SOURCES if is_pure(module)]
    assert [touch for module in pure for touch in uses(module, TOUCHING, {"open", "input", "print"})] == []


def test_only_host_opens_doors():
    calls = ("environ", "getenv", "putenv", "fork", "system", "popen", "execv", "execve", "posix_spawn", "spawnv")
    doors = {*(f"os.{call}" for call in calls), "datetime.now", "datetime.today", "date.today"}
    others = [module for module in SOURCES if module not in GUESTS and room(module) != "host"]
    assert [use for module in others for use in uses(module, DOORS, doors)] == []
