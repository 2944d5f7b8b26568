"""Names in docstrings' backquotes exist: a module, a class and its fields, a function, a parameter."""

import ast
import functools
import re

from tests import ROOT, definitions_in, nodes_of
from tests.unit.house.test_imports import EVERY, tree_of

#: names of others: formats, environment variables, registries, programs, Python itself
OF_OTHERS = {
    *("auth.docker.io", "docker.io", "index.docker.io", "com.cn", "ca.crt", "python3.X", "data.tar"),
    *(
        "org.opencontainers.image.ref.name",
        "Path.joinpath",
        "pyxis_",
        "cu118",
        "v100",
        "sm_70",
        "lo",
        "linux_x86_64",
        "language",
        "None",
        "exec",
        "singularity",
        "spython.utils.run_command",
    ),
    *("User", "Volumes", "Env", "Authorization", "Dockerfile", "OR", "encrypted", "export", "with", "except"),
    *("tarfile", "zipfile", "installer", "marshal", "extractfile", "_cpu", "_cuda"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "PIP_CERT", "NETRC"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "DEBIAN_MIRROR", "DEBIAN_SECURITY_MIRROR", "DEBIAN_FALLBACK"),
    *("DEBIAN_ARCHIVE", "DEBIAN_SNAPSHOT"),
}
NAME = r"[A-Za-z_]\w*"


def defined(node):
    """Names that the body of a module or class defines."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield child.name
        for inner in ast.walk(child) if isinstance(child, ast.Assign | ast.AnnAssign | ast.If | ast.Try) else ():
            if isinstance(inner, ast.Name):
                yield inner.id
        if isinstance(child, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in child.names)


@functools.cache
def members():
    """Modules by each end of their dotted name (`layer`, `oci.layer`), and classes; with the names in them."""
    found = {}
    for module in EVERY:
        parts = module.split(".")
        for start in range(len(parts)):
            found.setdefault(".".join(parts[start:]), set()).update(defined(tree_of(module)))
        if len(parts) > 1:
            for start in range(len(parts) - 1):
                found.setdefault(".".join(parts[start:-1]), set()).add(parts[-1])
        for node in nodes_of(tree_of(module), ast.ClassDef):
            found.setdefault(node.name, set()).update(defined(node))
    return found


@functools.cache
def all_members():
    """Every name that a module or class defines."""
    return frozenset().union(*members().values())


@functools.cache
def used(module):
    """Every identifier of a module, as parameters, attributes and keys too."""
    names = set()
    for node in nodes_of(tree_of(module)):
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(name := getattr(node, field, None), str):
                names.add(name.split(".")[-1])
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            names.update(re.findall(r"\w+", node.value))
    return names


def is_there(module, name):
    """Return whether `name`, as a docstring of `module` has it, exists."""
    *above, last = name.split(".")
    known = members()
    if not above:
        return last in used(module) or last in known or last in all_members()
    if any((path := ".".join(above[start:])) in known and last in known[path] for start in range(len(above))):
        return True
    # a field of a parameter or variable here
    return set(above) <= used(module) and last in all_members()


def test_backquoted_names_in_docstrings_exist():
    stale = [
        f"{module}: `{name}`"
        for module in EVERY
        for node in definitions_in(EVERY[module])
        for name in re.findall(rf"`({NAME}(?:\.{NAME})*)`", ast.get_docstring(node) or "")
        if name not in OF_OTHERS and not re.search(r"\.(py|toml|json|md|txt|html|svg|log)$", name)
        if not is_there(module, name)
    ]
    assert stale == []


def test_backquoted_name_of_a_missing_module_is_found():
    assert is_there("graphcrate.oci.blob", "oci.layout") is True
    assert is_there("graphcrate.oci.blob", "wheelhouse.build") is False
    assert is_there("graphcrate.smoke.verdict", "smoke.JUDGING") is False


#: beside the house: programs of images and of nodes, tools, measurements, tests
BESIDE = ("doctor", "suites", "examples", "tools", "bench", "tests")
#: words that only this project's older docstrings used in this sense, and what says it better
PRIVATE_WORDS = {
    r"lies?": "is",
    r"wants?": "needs, asks for",
    r"nobody": "no server, no one else, unknown, unused",
    r"somebody": "the user, another tool",
    r"who(m)?ever": "the user, the caller",
    r"whatever": "any, all",
    r"anew": "again",
    r"(of|than) before": "earlier",
    r"(has|have|had) not(?! (been|yet))": "lacks",
}
#: its bytes are part of the key of wheels in the cache
OF_A_KEY = "graphcrate.inputs.wheels.pip_program"


@functools.cache
def docstrings():
    """Return each module's name and docstrings, of graphcrate, its packages and what stands beside it."""
    beside = {str(path.relative_to(ROOT)): path for folder in BESIDE for path in (ROOT / folder).rglob("*.py")}
    return [
        (module, docstring)
        for module, path in (EVERY | beside).items()
        for node in definitions_in(path)
        if (docstring := ast.get_docstring(node))
    ]


def test_docstrings_begin_with_no_noun_clause():
    """PEP 257: a verb ("Return …"), or the name of a thing; not "What it returns" or "Whether it does"."""
    assert [
        f"{module}: {text.splitlines()[0]}"
        for module, text in docstrings()
        if re.match(r"(What|Whatever|Whether|Who|Whoever|Where|Which|When|Why|How|If)\b", text)
    ] == []


def test_docstrings_have_no_private_words():
    assert [
        f"{module}: {hit[0]!r} in {text.splitlines()[0]!r}: write {better!r}"
        for module, text in docstrings()
        if module != OF_A_KEY
        for pattern, better in PRIVATE_WORDS.items()
        for hit in re.finditer(rf"\b{pattern}\b", text, re.IGNORECASE)
    ] == []
