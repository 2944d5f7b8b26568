"""audit: which packages serve each other in an image with several Pythons, environments and folders of packages."""

import msgspec
import pytest

from graphcrate.checks.audit import run as audit
from graphcrate.checks.audit.packages import Packages
from tests.unit.audited import GOOD, MODULE, PACKAGES, PYTHON, SITE, SYSTEM, TORCH, check, contents, package, stack

SYSTEM_SITE = "/usr/lib/python3/dist-packages"


def elsewhere(name, version="1.0", folder=SYSTEM_SITE, **fields):
    return msgspec.structs.replace(package(name, version, **fields), folder=folder)


def told_in(*packages, **fields):
    judged = audit.judge(stack(packages=(*PACKAGES, *packages), **fields))
    return [one.what for one in judged.findings]


def test_venv_packages_precede_system_packages():
    wants, systems = package("a", requires=["numpy>=2"]), elsewhere("numpy", "2.1")
    assert told_in(wants, systems) == []
    both = package("numpy", "2.1"), elsewhere("numpy", "1.24")
    assert told_in(wants, *both) == told_in(elsewhere("b", requires=["numpy<2"]), *both) == []


def test_conda_environment_does_not_see_packages_of_its_base():
    conda = "/opt/conda/{}lib/python3.10/site-packages"
    a, b = elsewhere("a", folder=conda.format("envs/x/"), requires=["b"]), elsewhere("b", folder=conda.format(""))
    files = {f"/opt/conda/{prefix}bin/python3.10": {} for prefix in ("", "envs/x/")}
    assert told_in(a, b, files=files) == ["requires b, which is not installed"]


def test_extensions_are_judged_by_the_torch_of_their_environment():
    """Extensions are judged by the torch beside them."""
    other = "/opt/other/lib/python3.11/site-packages"
    files = {path.replace(SITE, other): fields for path, fields in {**TORCH, MODULE: GOOD}.items()}
    files[f"{other}/torch/lib/libc10.so"] = {"defined": ("_ZN3c10newE",)}
    theirs = [
        msgspec.structs.replace(one, folder=other, files=frozenset(path.replace(SITE, other) for path in one.files))
        for one in PACKAGES
    ]
    judged = audit.judge(stack(GOOD, *theirs, files=files))
    assert judged.broken == ("torch_scatter/_scatter_cuda.so",)
    assert [one.check for one in judged.findings if one.severity == "fail"] == ["symbols"]


OPT, DEBIAN, LOCAL = "/opt/{}/lib/python3.10/site-packages", SYSTEM_SITE, "/usr/local/lib/python3.10/dist-packages"
CONDA, VENV, APP = "/opt/conda/lib/python3.12/site-packages", OPT.format("venv"), "/app/site-packages"
IN_LIB, IN_LIB64 = "/usr/lib/python3.9/site-packages", "/usr/lib64/python3.9/site-packages"
PYTHON_DOCKER, LOCAL64 = "/usr/local/lib/python3.12/site-packages", "/usr/local/lib64/python3.9/site-packages"


@pytest.mark.parametrize(
    ("installed", "programs"),
    [
        ({DEBIAN: "c", VENV: "ab"}, ""),
        ({PYTHON_DOCKER: "ab", DEBIAN: "c"}, "/usr/local/bin/python3.12"),
        ({IN_LIB: "a", LOCAL64: "b"}, ""),  # UBI
        ({IN_LIB64: "a", IN_LIB: "b"}, "/usr/bin/python3.9"),
        ({LOCAL: "a", DEBIAN: "b"}, ""),  # NGC
        ({DEBIAN: "a", LOCAL: "b"}, ""),
        # conda's base and an environment; a virtual environment on conda's
        (
            {CONDA: "abc", OPT.format("conda/envs/x"): "ab"},
            "/opt/conda/bin/python3.12 /opt/conda/envs/x/bin/python3.10",
        ),
        ({"/venv/lib/python3.12/site-packages": "a", CONDA: "b"}, "/opt/conda/bin/python3.12"),
        # folders without an interpreter see all: pip install --target, Spack
        ({APP: "a", LOCAL: "b"}, ""),
        ({OPT.format("a"): "a", OPT.format("b"): "b"}, ""),
    ],
)
def test_common_python_layouts_have_no_findings(installed, programs):
    """In each folder are packages of one letter, of which `a` requires `b`; Debian's Python is there too."""
    packages = [
        elsewhere(name, folder=folder, requires=["b"] if name == "a" else ())
        for folder, names in installed.items()
        for name in names
    ]
    files = {path: {} for path in ("/usr/bin/python3.10", *programs.split())}
    check(contents({**PYTHON, **files}, *packages, python="3.10"))


HOMES = {"/opt/conda": "3.12", "/opt/conda/envs/x": "3.10", "/usr": "3.11", "/usr/local": "3.12"}


def test_python_modules_are_judged_by_their_own_python():
    """Debian's beside that of the image python:3.12; conda's base and an environment."""
    files = {path: fields for path, fields in PYTHON.items() if path.startswith(SYSTEM)}
    modules, packages = {}, []
    for prefix, version in HOMES.items():
        site = SYSTEM_SITE if prefix == "/usr" else f"{prefix}/lib/python{version}/site-packages"
        tag = version.replace(".", "")
        files[f"{prefix}/bin/python{version}"] = {"defined": (f"PyOf{tag}",)}
        modules[f"{site}/a/core.cpython-{tag}-x86_64-linux-gnu.so"] = {"undefined": (f"PyOf{tag}",)}
        gone = [f"gone; python_version != '{version}'"]
        packages.append(elsewhere("a", folder=site, python=f"=={version}.*", requires=gone))
    for python in HOMES.values():
        assert audit.judge(contents({**files, **modules}, *packages, python=python)).findings == ()
    stray = f"{CONDA}/b/core.cpython-310-x86_64-linux-gnu.so"
    judged = audit.judge(contents({**files, stray: {}}, python="3.10"))
    assert [one.what for one in judged.findings] == ["is for Python 3.10; the image has 3.12"]


def test_site_folder_is_for_pythons_of_its_path_or_else_of_the_image():
    both = {"/usr/bin/python3.8": {}, "/usr/bin/python3.11": {}, "/usr/local/bin/python3.12": {}}
    worlds = Packages(contents(both, python="3.8"))
    assert worlds.pythons(SYSTEM_SITE) == ("3.8", "3.11")
    assert worlds.pythons("/usr/local/lib/python3.11/dist-packages") == ("3.11",)
    assert worlds.pythons("/app/site-packages") == ("3.8",)
