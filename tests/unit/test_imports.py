"""The floors of docs/architecture.md: a module imports from its own room or from floors below, never from above."""

import ast
import functools
import graphlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent.parent / "graphcrate"

#: Floor of each room or module, by the longest name that fits. Rooms on one floor that know of each other stand in
#: order: 3.4 may import 3.2, never the other way.
FLOORS = {
    "graphcrate": 0,
    "graphcrate.errors": 0,
    "graphcrate.model": 1,
    "graphcrate.compat": 1.1,
    "graphcrate.located": 1.15,
    "graphcrate.hosts": 1.15,
    "graphcrate.recipes": 1.2,
    "graphcrate.targets": 1.2,
    "graphcrate.foundations": 1.15,
    "graphcrate.planning": 1.2,
    "graphcrate.oci": 1.2,
    "graphcrate.attest": 1.3,
    "graphcrate.attest.keyfile": 3,
    "graphcrate.destinations": 5.38,
    "graphcrate.destinations.parse": 1.3,
    "graphcrate.contracts": 1.3,
    "graphcrate.audit": 1.35,
    "graphcrate.judging": 1.1,
    "graphcrate.render": 1.4,
    "graphcrate.host": 2,
    "graphcrate.oci.blob": 3,
    "graphcrate.oci.credentials": 3,
    "graphcrate.oci.entries": 3,
    "graphcrate.oci.layout": 3,
    "graphcrate.oci.push": 3,
    "graphcrate.oci.registry": 3,
    "graphcrate.oci.session": 3,
    "graphcrate.oci.upload": 3,
    "graphcrate.oci.validate": 3,
    "graphcrate.formats": 3.2,
    "graphcrate.bases": 3.4,
    "graphcrate.wheels": 3.4,
    "graphcrate.toolkits": 3.5,
    "graphcrate.wheelhouse": 3.6,
    "graphcrate.builders": 4,
    "graphcrate.runners": 4,
    "graphcrate.resolve": 4,
    "graphcrate.memory": 5,
    "graphcrate.smoke": 5,
    "graphcrate.artifacts": 5,
    "graphcrate.catalogue": 5,
    "graphcrate.converting": 5.1,
    "graphcrate.explaining": 5.1,
    "graphcrate.compiling": 5.1,
    "graphcrate.engines": 5.2,
    "graphcrate.proving": 5.3,
    "graphcrate.checking": 5.3,
    "graphcrate.texts": 5.2,
    "graphcrate.views": 5.2,
    "graphcrate.trees": 5.2,
    "graphcrate.trees.allowances": 1.2,
    "graphcrate.trees.compare": 1.2,
    "graphcrate.trees.contents": 1.2,
    "graphcrate.trees.wording": 1.2,
    "graphcrate.auditing": 5.35,
    "graphcrate.vetting": 5.36,
    "graphcrate.asking": 4.5,
    "graphcrate.gate": 5.5,
    "graphcrate.pipeline": 6,
    "graphcrate.publishing": 6.1,
    "graphcrate.statements": 5.6,
    "graphcrate.verifying": 6.1,
    "graphcrate.trials": 5.4,
    "graphcrate.cli": 7,
    "graphcrate.cli_audit": 6.5,
    "graphcrate.cli_cache": 6.5,
    "graphcrate.cli_end": 6.5,
    "graphcrate.cli_explain": 6.5,
    "graphcrate.cli_publish": 6.5,
    "graphcrate.cli_trials": 6.5,
}
#: what only `host` may import: processes, connections, the clock
DOORS = {
    "subprocess",
    "socket",
    "ssl",
    "http",
    "urllib.request",
    "urllib3",
    "time",
    "signal",
    "select",
    "ctypes",
    "pty",
}
#: what a pure module may not import either
TOUCHING = DOORS | {"os", "io", "tempfile", "shutil", "glob", "fcntl", "mmap", "multiprocessing", "threading"}
#: runs inside an image, by the image's Python: no part of graphcrate while it works
GUESTS = {
    "graphcrate.wheels.compile_program",
    "graphcrate.wheelhouse.inside",
    "graphcrate.wheelhouse.trial",
}


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def floor(module):
    while module not in FLOORS:
        module = module.rpartition(".")[0]
    return FLOORS[module]


def room(module):
    return ".".join(module.split(".")[:2])


def imports(tree):
    """Every module that is imported, wherever the statement stands; of `from a import b` also a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the floor"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def below(imported, module):
    """Whether a module may know of another: same room at the same height, or anything lower."""
    same = room(imported) == room(module) and floor(imported) == floor(module)
    return same or floor(imported) < floor(module)


@functools.cache
def tree_of(module):
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def test_every_module_has_a_floor():
    rooms = {room(module) for module in SOURCES}
    assert rooms <= set(FLOORS), "say in FLOORS and in docs/architecture.md where it stands"


def test_imports_go_down():
    assert [
        f"{module} (floor {floor(module)}) imports {imported} ({floor(imported)})"
        for module in SOURCES
        for imported in imports(tree_of(module))
        if imported.startswith("graphcrate.") and not below(imported, module)
    ] == []


def test_the_rule_itself():
    assert below("graphcrate.model.lock", "graphcrate.oci.image")
    assert not below("graphcrate.oci.layout", "graphcrate.oci.image")
    assert not below("graphcrate.pipeline", "graphcrate.smoke")
    assert not below("graphcrate.resolve.fetch", "graphcrate.builders.embedded")


def test_modules_import_each_other_in_no_circle():
    graph = {
        module: {imported for imported in imports(tree_of(module)) if imported in SOURCES and imported != module}
        for module in SOURCES
    }
    assert tuple(graphlib.TopologicalSorter(graph).static_order())


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
    pure = [module for module in SOURCES if floor(module) < 2]
    assert [found for module in pure for found in uses(module, TOUCHING, {"open", "input", "print"})] == []


def test_only_host_opens_doors():
    calls = ("environ", "getenv", "putenv", "fork", "system", "popen", "execv", "execve", "posix_spawn", "spawnv")
    doors = {*(f"os.{call}" for call in calls), "datetime.now", "datetime.today", "date.today"}
    inside = GUESTS | {"graphcrate.host"}
    others = [module for module in SOURCES if not {module, room(module)} & inside]
    assert [found for module in others for found in uses(module, DOORS, doors)] == []
