"""The rooms and floors of docs/architecture.md: a room imports from rooms below it, never from above or beside it."""

import ast
import graphlib
import tomllib

from tests import ABOVE, ROOT, imports, nodes_of, tree_of_file

PACKAGE = ROOT / "graphcrate"

#: from the highest floor to the lowest; two rooms on one floor do not know of each other
FLOORS = (
    {"cli"}, {"assembly", "publish"}, {"resolve", "engines", "pages", "remote"},
    {"inputs", "checks", "smoke", "render"}, {"artifacts"}, {"oci", "compat"}, {"host"}, {"model"},
)  # fmt: skip
ROOMS = {room: floor for floor, rooms in enumerate(reversed(FLOORS), 1) for room in rooms}
#: folders of a room, from the highest floor to the lowest; modules beside them are on no floor
SUB_ROOMS = {
    "compat": ({"variants", "plan", "adopt"}, {"requirements", "failures"}, {"facts"}),
    "host": ({"engines"}, {"sandbox"}, {"disk"}),
    "resolve": ({"additions"}, {"stack"}, {"sources"}),
}
MOST_LINES_OF_A_DOOR = 15
#: what only `host` may import: processes, connections, the clock
DOORS = {
    *("subprocess", "socket", "ssl", "http", "urllib.request", "urllib3"),
    *("time", "signal", "select", "ctypes", "pty"),
}
#: what a pure module may not import either
TOUCHING = DOORS | {"os", "io", "tempfile", "shutil", "glob", "fcntl", "mmap", "multiprocessing", "threading"}
#: values in, values out: packages and modules
PURE = {
    *("model", "compat", "checks.audit", "checks.contracts", "checks.wording"),
    *("artifacts.formats.runtime_files", "artifacts.tree.compare", "render"),
    *("pages.charts", "pages.html", "pages.timeline"),
    "remote.questions",
    *(
        "oci.image",
        "oci.index",
        "oci.platform_index",
        "oci.reference",
        "oci.refusals",
    ),
    *(
        "publish.bill",
        "publish.names",
        "publish.provenance",
        "publish.destinations.parse",
        "publish.policy",
        "publish.predicates",
        "smoke.verdict",
    ),
    *("resolve.additions.conflict_words", "resolve.additions.stack_bounds"),
}
PURE_OF_PACKAGES = {
    "buildsite.openapi",
    *(f"dockerread.{name}" for name in ("contents", "definition", "dockerfile", "installers", "shell", "stages")),
    *(f"dssesign.{name}" for name in ("bundles", "errors", "signing", "statement", "verify")),
    *("gpunames.errors", "gpunames.models"),
    *("wheelread.errors", "wheelread.import_names", "projectfiles.git_address"),
    *(f"layertar.{name}" for name in ("entries", "errors", "limits")),
    *(f"ocilayout.{name}" for name in ("image", "layer", "spec", "tar")),
    *(f"ociregistry.{name}" for name in ("errors", "realms", "reference")),
    *(f"projectfiles.{name}" for name in ("alternatives", "conda", "conda_spec", "environments", "parts", "pixi")),
    *(f"projectfiles.{name}" for name in ("pdm_locks", "poetry_locks", "pylocks", "uv_locks", "poetry_tables")),
    *(f"projectfiles.{name}" for name in ("poetry_versions", "pyproject", "requirements_txt", "values")),
    "projectfiles.words",
    *(f"upkeep.news.{name}" for name in ("recipe_text", "review", "weighing")),
    *("upkeep.releases", "upkeep.security.fixes", "upkeep.security.text", "upkeep.standing.text"),
    *("upkeep.security.vulnerability", "upkeep.standing.values"),
}
#: modules of these packages that are not
IMPURE = {
    *("model.codec", "compat.variants.catalog", "compat.variants.choice", "compat.variants.newer", "checks.audit.run"),
    *("render.files", "render.job_image"),
}
#: runs inside an image, by the image's Python: no part of graphcrate while it works
GUESTS = {
    "graphcrate.inputs.wheels.compile_program",
    "graphcrate.inputs.wheels.pip_program",
    "graphcrate.inputs.extensions.worker",
    "graphcrate.inputs.extensions.import_check",
    "graphcrate.inputs.extensions.back_end_program",
    "graphcrate.inputs.extensions.launcher",
}


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
#: modules of packages/: of libraries, which rooms import and which import none of them, and of `ABOVE`
LIBRARIES = {
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
    for source in sorted(ROOT.glob("packages/*/src"))
    for path in sorted(source.rglob("*.py"))
}
EVERY = SOURCES | LIBRARIES


def room(module):
    """The room of a module; empty for the package itself, which holds no code but the way to the command line."""
    return module.split(".")[1] if "." in module.removesuffix(".__main__") else ""


def tree_of(module):
    return tree_of_file(EVERY[module])


def known(module):
    """The modules of graphcrate that a module imports."""
    return {imported for imported in imports(tree_of(module)) if imported in SOURCES and imported != module}


def is_pure(module):
    name = module.removeprefix("graphcrate.")
    return name not in IMPURE and any(name == one or name.startswith(f"{one}.") for one in PURE)


def test_modules_are_in_known_rooms():
    assert [module for module in SOURCES if room(module) not in ("", *ROOMS)] == []
    assert sorted(path.name for path in PACKAGE.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_rooms_import_from_rooms_below():
    assert [
        f"{module} imports {imported}"
        for module in SOURCES
        for imported in sorted(known(module))
        if all((room(module), room(imported))) and room(module) != room(imported)
        if ROOMS[room(imported)] >= ROOMS[room(module)]
    ] == []


def sub_room(module):
    """(room, folder) of a module of a room with folders; the folder is empty for those beside them."""
    parts = module.split(".")
    folder = parts[2] if len(parts) > 2 and (PACKAGE / parts[1] / parts[2]).is_dir() else ""
    return parts[1] if len(parts) > 1 else "", folder


def test_folders_of_rooms_import_from_folders_below():
    floors = {
        (room, folder): floor
        for room, folders in SUB_ROOMS.items()
        for floor, names in enumerate(reversed(folders))
        for folder in names
    }
    doors = (path for room in SUB_ROOMS for path in (PACKAGE / room).glob("*/__init__.py"))
    assert {(path.parent.parent.name, path.parent.name) for path in doors} == set(floors)
    assert [
        f"{module} imports {imported}"
        for module in SOURCES
        for imported in sorted(known(module))
        if sub_room(module) in floors and sub_room(imported) in floors and sub_room(module) != sub_room(imported)
        if sub_room(module)[0] == sub_room(imported)[0]
        if floors[sub_room(imported)] >= floors[sub_room(module)]
    ] == []


def test_folders_of_rooms_have_a_docstring_that_fits_a_screen():
    for room, floors in SUB_ROOMS.items():
        for folder in set().union(*floors):
            door = ast.get_docstring(tree_of(f"graphcrate.{room}.{folder}"))
            assert door, folder
            assert len(door.splitlines()) <= MOST_LINES_OF_A_DOOR, folder
            assert "▶" in door, f"{folder} has no picture of how its modules hang together"


def test_imports_of_modules_have_no_circle():
    graph = {module: {name for name in imports(tree_of(module)) if name in EVERY} - {module} for module in EVERY}
    assert tuple(graphlib.TopologicalSorter(graph).static_order())


def package(module):
    return module.partition(".")[0]


def test_packages_above_are_imported_by_nothing_but_the_command_of_one():
    """That is a wheel's too, where the command is in graphcrate's."""
    assert {
        (module, package(imported))
        for module in EVERY
        for imported in imports(tree_of(module))
        if package(imported) in ABOVE and package(imported) != package(module)
    } == {("graphcrate.cli.serve", "buildsite")}
    assert {package(imported) for imported in at_start("graphcrate.cli.serve")}.isdisjoint(ABOVE)


def test_buildsite_imports_from_rooms_below_assembly():
    """Its builds are child processes."""
    assert [
        f"{module} imports {imported}"
        for module in LIBRARIES
        for imported in sorted(known(module))
        if package(module) == "buildsite" and room(imported)
        if ROOMS[room(imported)] >= ROOMS["assembly"]
    ] == []


def test_folders_of_upkeep_know_nothing_of_each_other():
    folders = {"catalogue", "news", "security", "standing"}
    assert [
        f"{module} imports {imported}"
        for module in LIBRARIES
        for imported in imports(tree_of(module))
        if module.startswith("upkeep.") and imported.startswith("upkeep.")
        if (folder := imported.split(".")[1]) in folders and folder != module.split(".")[1] != "cli"
    ] == []


def test_libraries_import_neither_graphcrate_nor_those_that_they_do_not_require():
    required = {
        path.parent.name: tomllib.loads(path.read_text("utf-8"))["project"]["dependencies"]
        for path in ROOT.glob("packages/*/pyproject.toml")
    }
    ours = {"graphcrate", "doctor", "tools", "tests", *required}
    assert [
        f"{module} imports {imported}"
        for module in LIBRARIES
        for imported in imports(tree_of(module))
        if (library := package(module)) not in ABOVE
        if (top := package(imported)) in ours and top not in (library, *required[library])
    ] == []


def uses(module, imported, used):
    """Its uses of these modules, and of these names: `open`, `os.fork`."""
    tree = tree_of(module)
    yield from (f"{module} imports {name}" for name in imports(tree) if name in imported)
    for node in nodes_of(tree, ast.Name, ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
        if name in used:
            yield f"{module}:{node.lineno} uses {name}"


def test_pure_modules_do_no_input_or_output():
    assert {f"graphcrate.{name}" for name in PURE | IMPURE} <= set(SOURCES), "a pure module moved; say here where to"
    assert set(LIBRARIES) >= PURE_OF_PACKAGES
    pure = [*(module for module in SOURCES if is_pure(module)), *PURE_OF_PACKAGES]
    assert [touch for module in pure for touch in uses(module, TOUCHING, {"open", "input", "print"})] == []


def test_only_host_uses_environment_processes_and_clock():
    calls = ("environ", "getenv", "putenv", "fork", "system", "popen", "execv", "execve", "posix_spawn", "spawnv")
    doors = {*(f"os.{call}" for call in calls), "datetime.now", "datetime.today", "date.today"}
    others = [module for module in SOURCES if module not in GUESTS and room(module) != "host"]
    others += [module for module in LIBRARIES if package(module) in ABOVE]
    assert [use for module in others for use in uses(module, DOORS, doors)] == []


def at_start(module):
    """The imports of importing a module: none of a function, or of a block for types alone."""
    for node in tree_of(module).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(ast.Module([node], []))


def test_engine_clients_are_imported_lazily():
    clients = {"docker": "graphcrate.host.engines.docker_engine", "spython": "graphcrate.host.engines.spython_client"}
    loading = {(name.partition(".")[0], module) for module in SOURCES for name in at_start(module)}
    assert {(library, module) for library, module in loading if library in clients} == set(clients.items())
    assert [module for module in SOURCES if set(clients.values()) & set(at_start(module))] == []


#: what builds, checks and resolves: nothing of it is needed where an image is there unchanged, which takes a third
#: of a second, most of it imports
OF_BUILDING = ("checks.audit", "checks.contracts", "resolve.additions", "resolve.foreseen", "inputs.shared.site_cache")


def test_unchanged_image_is_found_without_importing_what_builds_or_checks_one():
    loaded, waiting = set(), ["graphcrate.assembly.pipeline"]
    while waiting:
        if (module := waiting.pop()) not in loaded and module in SOURCES:
            loaded.add(module)
            waiting += at_start(module)
    assert "graphcrate.assembly.making" in loaded
    assert sorted(one for one in loaded if one.removeprefix("graphcrate.").startswith(OF_BUILDING)) == []


#: tests that call a room by the command line, or by what its fixtures bring
BY_COMMANDS = {
    "assembly/test_blocked_sites.py",
    "assembly/test_images.py",
    "cli/test_diff_command.py",
    "cli/test_missing.py",
}


def test_unit_tests_are_in_the_folder_of_a_room_that_they_import():
    unit = ROOT / "tests" / "unit"
    assert {path.name for path in unit.iterdir() if path.is_dir()} >= set(ROOMS)
    strays = {
        f"{path.parent.name}/{path.name}"
        for path in unit.glob("*/test_*.py")
        if path.parent.name in ROOMS
        if path.parent.name not in {room(module) for module in imports(tree_of_file(path))}
    }
    assert strays - BY_COMMANDS == set()


def test_doctor_is_imported_by_its_command_and_for_what_pyxis_says():
    importing = [module for module in SOURCES for one in set(imports(tree_of(module))) if one.startswith("doctor.")]
    assert set(importing) == {"graphcrate.cli.diagnosis", "graphcrate.engines.pyxis"}
