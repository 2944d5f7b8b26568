"""House rules that no linter knows: sizes, names that may not stand in the tree, pins and documents that fit."""

import ast
import os
import pickle
import re
import tomllib
from pathlib import Path

from graphcrate.model import errors
from tests import HOUSE, ROOT, definitions_in, nodes_of
from tests import tree_of_file as tree

#: made by programs or by a person's work here; not part of the project (in a worktree .git is a file)
NOT_OURS = {
    *(".git", ".venv", "dist", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__", "build"),
    *("doctor.py", "graphcrate.egg-info"),
}


def files():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - NOT_OURS)
        yield from (Path(folder, name) for name in sorted(set(names) - NOT_OURS) if not name.endswith(".sif"))


TEXTS = {path: path.read_text(encoding="utf-8") for path in files() if path.is_file()}
PYTHON = [path for path in TEXTS if path.suffix == ".py"]


def label(path):
    return str(path.relative_to(ROOT))


def is_of_house(path):
    """Return whether a file is a module of graphcrate or of a package above it."""
    return any(path.is_relative_to(folder) for folder in HOUSE)


def module_of(path):
    """Return the name by which a file is imported."""
    folder = next((folder for folder in HOUSE[1:] if path.is_relative_to(folder)), ROOT)
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def test_functions_have_less_than_60_lines():
    assert [
        f"{label(path)}: {node.name}"
        for path in PYTHON
        for node in definitions_in(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 60
    ] == []


def test_forbidden_hosts_paths_and_markers_are_absent():
    """Clients' own configuration decides where files come from. (The classes keep this line from finding itself.)"""
    hosts = r"pyp[i]\.org|pythonhoste[d]\.org|deb\.debia[n]\.org|security\.debia[n]\.org|registry\.npmj[s]"
    machine = r"/wor[k]/main|/root/\.pyen[v]"
    assert [label(path) for path, text in TEXTS.items() if re.search(f"{hosts}|{machine}", text)] == []
    unfinished = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b|NotImplemente[d]Error|assert Tru[e]\b|mark\.ski[p]\b")
    assert [label(path) for path in PYTHON if unfinished.search(TEXTS[path])] == []


def test_modules_and_classes_have_no_vague_names():
    """No bag of helpers, no Manager."""
    assert not [label(path) for path in PYTHON if path.stem in ("utils", "util", "helpers", "common", "misc")]
    ours = [tree(path) for path in PYTHON if label(path).startswith(("graphcrate/", "packages/"))]
    classes = [node.name for tree in ours for node in nodes_of(tree, ast.ClassDef)]
    assert not [name for name in classes if name.endswith(("Manager", "Handler"))]


#: rooms in which each value has the name of what it is: a package, a path, a finding
ROOMS = (
    *("host", "inputs", "checks", "engines", "render", "smoke", "resolve", "artifacts"),
    *("publish", "pages", "model", "cli", "assembly", "compat", "oci", "remote"),
)
PLAINLY_NAMED = rf"graphcrate/({'|'.join(ROOMS)})/|packages/\w+/src/"
#: names that fit any value
VAGUE = {"one", "found", "wanted", "told", "said"}
#: for what is a source, a mirror, an index, a folder or a path
PLACES = {"place", "places"}
WITH_SOURCES = ("graphcrate/host/", "graphcrate/resolve/")
NOT_YET_NAMED = {"graphcrate/host/context.py"}
#: fields of results that others read, which keep their names
FIELDS = {("graphcrate/publish/verify.py", "said"), ("packages/treeaudit/src/treeaudit/values.py", "wanted")}


def test_variables_have_no_banned_names():
    for path in PYTHON:
        if not re.match(PLAINLY_NAMED, label(path)) or label(path) in NOT_YET_NAMED:
            continue
        names = {node.id for node in nodes_of(tree(path), ast.Name)}
        names |= {node.arg for node in nodes_of(tree(path), ast.arg)}
        banned = VAGUE | (PLACES if label(path).startswith(WITH_SOURCES) else set())
        assert names & banned <= {field for module, field in FIELDS if module == label(path)}, label(path)


def definitions(kind):
    """Public names at the top of modules of the house, each with the modules that define it."""
    defined = {}
    for path in PYTHON:
        if is_of_house(path):
            for node in tree(path).body:
                if isinstance(node, kind) and not node.name.startswith("_"):
                    defined.setdefault(node.name, []).append(module_of(path))
    return defined


#: runs inside a build's own sandbox, where it can import nothing of graphcrate
GUEST = "graphcrate.inputs.extensions.worker"


def test_a_class_name_is_defined_once():
    namesakes = {
        name: sorted(set(modules) - {GUEST}) for name, modules in definitions(ast.ClassDef).items() if len(modules) > 1
    }
    assert {name: modules for name, modules in namesakes.items() if len(modules) > 1} == {}


def locals_of(node):
    """Names that a function binds: its arguments, and what it assigns to."""
    arguments = node.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    yield from (argument.arg for argument in given if argument)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id


def test_local_names_do_not_shadow_imported_modules():
    """A reader of `additions.add` knows what `additions` is."""
    modules = {module_of(path) for path in PYTHON}
    hidden = []
    for path in PYTHON:
        if is_of_house(path):
            imports = [node for node in tree(path).body if isinstance(node, ast.ImportFrom)]
            names = {
                alias.asname or alias.name
                for node in imports
                for alias in node.names
                if f"{node.module}.{alias.name}" in modules
            }
            functions = nodes_of(tree(path), ast.FunctionDef, ast.Lambda)
            hidden += [f"{label(path)}: {name}" for node in functions for name in locals_of(node) if name in names]
    assert sorted(set(hidden)) == []


def test_bare_imported_functions_have_unique_names():
    """`module.read` says which is meant; a bare `read` has to be the only one."""
    imported = {
        (node.module, alias.name)
        for path in PYTHON
        if is_of_house(path)
        for node in nodes_of(tree(path), ast.ImportFrom)
        for alias in node.names
    }
    by_name = {}
    for name, modules in definitions(ast.FunctionDef).items():
        for module in modules:
            if (module, name) in imported:
                by_name.setdefault(name, []).append(module)
    namesakes = {name: modules for name, modules in by_name.items() if len(modules) > 1}
    assert set(namesakes) <= {"main"}, namesakes


def pins(name):
    """The requirements of a file, each with its version and at least one hash."""
    entries = re.split(r"^(?=[a-z0-9-]+==)", TEXTS[ROOT / name], flags=re.MULTILINE)
    return dict(re.match(r"([a-z0-9-]+)==(\S+)(?s:.*)--hash=sha256:", one).groups() for one in entries if one.strip())


def test_requirements_are_pinned_with_hashes_and_agree():
    run, dev = pins("requirements.txt"), pins("requirements-dev.txt")
    project = tomllib.loads(TEXTS[ROOT / "pyproject.toml"])["project"]
    wanted = re.findall(r"^[a-z0-9][a-z0-9-]*", TEXTS[ROOT / "requirements-dev.in"], re.MULTILINE)
    needed = {re.match(r"[a-z0-9-]+", dependency)[0] for dependency in project["dependencies"]}
    assert needed <= set(run), "tools/lock-requirements"
    assert set(wanted) <= set(dev), "tools/lock-requirements"
    assert run.items() <= dev.items()


KINDS = [kind for kind in vars(errors).values() if hasattr(kind, "exit_code")]


def test_errors_have_unique_exit_codes_and_pickle():
    assert len({kind.exit_code for kind in KINDS}) == len(KINDS)
    assert str(errors.UsageError("a")) == "a"
    for kind in KINDS:
        copy = pickle.loads(pickle.dumps(kind("what", cause="why", next_step="make help")))
        assert (type(copy), str(copy)) == (kind, "what\ncause: why\nnext:  make help")


def test_exit_codes_of_tools_prepare_are_those_of_the_errors():
    numbers = re.search(r"^NETWORK, HASHES, HOST, DISK, BUILD = (.*?)  #", TEXTS[ROOT / "tools/prepare.py"], re.M)[1]
    kinds = (errors.NetworkError, errors.IntegrityError, errors.HostError, errors.DiskFullError, errors.BuildError)
    assert [int(number) for number in numbers.split(",")] == [kind.exit_code for kind in kinds]


def test_every_make_target_is_explained_and_phony():
    text = TEXTS[ROOT / "Makefile"]
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert targets == set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert targets == set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())


def test_make_targets_that_run_python_need_the_venv():
    rules = re.findall(r"^([a-z.-]+):([^=\n]*)\n((?:\t.*\n)+)", TEXTS[ROOT / "Makefile"], re.MULTILINE)
    prepared = {"test-all": "test"}  # by what it comes after
    for target, needed, recipe in rules:
        ready = ".venv/ready" in needed or prepared.get(target, "none") in needed.split()
        assert ready or not re.search(r"\$\((python|graphcrate|pytest)\)", recipe), target
        assert not re.search(r"(?<!\w)python3? ", recipe), target


def test_every_error_has_a_next_step():
    """That of its class, unless it is raised with a better one."""
    lacking = {kind.__name__ for kind in KINDS if not kind.usual}
    assert [
        f"{label(path)}:{node.lineno}"
        for path in PYTHON
        if is_of_house(path)
        for node in nodes_of(tree(path), ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id in lacking
        if "next_step" not in {word.arg for word in node.keywords}
    ] == []


def test_decode_errors_are_caught_as_unreadable_only():
    parts = re.compile(r"(?:except|suppress\()[^:\n]*\bDecodeError")
    caught = [label(path) for path in PYTHON if is_of_house(path) and parts.search(TEXTS[path])]
    assert caught == [], "catch graphcrate.model.errors.UNREADABLE"


#: words that readers stumbled over, and what says it better
STUMBLED_OVER = {
    r"can(not)? be had|\bto be had\b": "is (not) available",
    r"\bis none\b(?! of)": "is not one, there is no",
    r"\bis no (?!longer|more|reason)\w+": "is not a",
    r"\bin the way\b": "exists, blocks",
    r", say\b|\b say[,.)]": "such as",
    r"\b(stands?|speaks?) against\b": "does not allow",
    r"\bcomes? by\b": "get",
    r"\bno use for\b": "does not need",
    r"\banew\b": "again",
    r"\blies\b": "is",
    r"\bwants (?!to\b)": "needs",
    r"\bmend(s|ed)?\b": "fix",
    r"^mind +": "note",
    r": out: ": ": skipped: ",
}


#: what users read; decisions and the architecture are for developers
PAGES = r"(packages/\w+/|examples/)?README\.md|docs/(?!architecture)[\w-]+\.md|docs/tutorials/[\w-]+\.md"


def is_of_tests(path):
    """Return whether a module is below packages/*/tests: its strings are no user's."""
    return re.match(r"packages/\w+/tests/", label(path)) is not None


def words_for_people():
    """Texts that users read: strings of the program (help, errors, results), README and the pages for users."""
    for path, text in TEXTS.items():
        if re.fullmatch(PAGES, label(path)):
            yield from ((f"{label(path)}:{at}", line) for at, line in enumerate(text.splitlines(), 1))
        if label(path).startswith(("graphcrate/", "packages/", "doctor/")) and path in PYTHON and not is_of_tests(path):
            docstrings = {id(node.value) for node in nodes_of(tree(path), ast.Expr)}
            for node in nodes_of(tree(path), ast.Constant):
                text = None if id(node) in docstrings else node.value
                if isinstance(text, str) and "import " not in text:  # no program for another Python
                    yield f"{label(path)}:{node.lineno}", text


#: words of docstrings and comments, and what says it better
PRIVATE_WORDS = {
    r"\b(a|the) person\b": "the user",
    r"\bsettle(s|d|ment)?\b": "resolve, choose, decide",
}


def test_private_words_are_absent_from_docstrings_and_comments():
    ours = ("graphcrate/", "packages/")
    pythons = (path for path in PYTHON if label(path).startswith(ours) and not is_of_tests(path))
    texts = {path: TEXTS[path] for path in pythons}
    assert [
        f"{label(path)}:{at}: {hit[0]!r}: write {better!r}"
        for path, text in texts.items()
        for at, line in enumerate(text.splitlines(), 1)
        for pattern, better in PRIVATE_WORDS.items()
        for hit in re.finditer(pattern, line, re.IGNORECASE)
    ] == []


def test_banned_words_are_absent():
    assert [
        f"{place}: {text.strip()[:100]!r}: write {better!r}"
        for place, text in words_for_people()
        for pattern, better in STUMBLED_OVER.items()
        for hit in re.finditer(pattern, text)
        if not re.search(r"there $", text[: hit.start()], re.IGNORECASE)
    ] == []
