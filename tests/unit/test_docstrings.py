"""What docstrings name in backquotes is there: a module, a class and its fields, a function, a parameter."""

import ast
import functools
import re

from tests.unit.test_imports import SOURCES, tree_of

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
    for module in SOURCES:
        parts = module.split(".")
        for start in range(len(parts)):
            found.setdefault(".".join(parts[start:]), set()).update(defined(tree_of(module)))
        if len(parts) > 1:
            for start in range(len(parts) - 1):
                found.setdefault(".".join(parts[start:-1]), set()).add(parts[-1])
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(defined(node))
    return found


@functools.cache
def used(module):
    """Every identifier of a module, as parameters, attributes and keys too."""
    names = set()
    for node in ast.walk(tree_of(module)):
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(name := getattr(node, field, None), str):
                names.add(name.split(".")[-1])
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            names.update(re.findall(r"\w+", node.value))
    return names


def is_there(module, name):
    """Whether `name`, as a docstring of `module` has it, is something."""
    *above, last = name.split(".")
    known = members()
    if not above:
        return last in used(module) or last in known or any(last in names for names in known.values())
    if any((path := ".".join(above[start:])) in known and last in known[path] for start in range(len(above))):
        return True
    # a field of a parameter or variable here
    return set(above) <= used(module) and any(last in names for names in known.values())


def test_backquoted_names_in_docstrings_exist():
    stale = [
        f"{module}: `{name}`"
        for module in SOURCES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for name in re.findall(rf"`({NAME}(?:\.{NAME})*)`", ast.get_docstring(node) or "")
        if name not in OF_OTHERS and not re.search(r"\.(py|toml|json|md|txt|html|svg|log)$", name)
        if not is_there(module, name)
    ]
    assert stale == []


def test_backquoted_name_of_a_missing_module_is_found():
    assert is_there("graphcrate.oci.layer", "oci.layout") is True
    assert is_there("graphcrate.oci.layer", "wheelhouse.build") is False
    assert is_there("graphcrate.smoke.verdict", "smoke.JUDGING") is False
