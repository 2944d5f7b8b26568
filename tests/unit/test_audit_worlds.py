"""audit: which packages serve each other in an image with several Pythons, environments and folders of packages."""

import msgspec
import pytest

from graphcrate.checks import audit
from graphcrate.checks.audit.packages import Packages
from tests.unit.audited import GOOD, MODULE, PACKAGES, PYTHON, SITE, SYSTEM, TORCH, check, contents, package, stack

SYSTEM_SITE = "/usr/lib/python3/dist-packages"


def elsewhere(name, version="1.0", folder=SYSTEM_SITE, **fields):
    return msgspec.structs.replace(package(name, version, **fields), folder=folder)


def told_in(*packages, **fields):
    judged = audit.judge(stack(packages=(*PACKAGES, *packages), **fields))
    return [(one.package, one.what) for one in judged.findings]


def test_an_environment_sees_the_systems_packages_where_it_says_so():
    wants = package("a", requires=["numpy>=2"])
    for sees, told in ((False, [("a", "requires numpy>=2, which is not installed")]), (True, [])):
        assert told_in(wants, elsewhere("numpy", "2.1"), environments={"/opt/venv": sees}) == told
    assert told_in(wants, package("numpy", "2.1"), elsewhere("numpy", "1.24")) == []
    assert told_in(elsewhere("b", requires=["numpy<2"]), package("numpy", "2.1"), elsewhere("numpy", "1.24")) == []


def test_folders_that_two_interpreters_see():
    conda = "/opt/conda/{}lib/python3.10/site-packages"
    a = elsewhere("a", folder=conda.format("envs/x/"), requires=["b"])
    b = elsewhere("b", folder=conda.format(""))
    files = {f"/opt/conda/{prefix}bin/python3.10": {} for prefix in ("", "envs/x/")}
    assert told_in(a, b, files=files) == [("a", "requires b, which is not installed")]


def test_two_environments_have_a_torch_each():
    """Extensions are judged by the torch beside them."""
    other = "/opt/other/lib/python3.11/site-packages"
    files = {path.replace(SITE, other): fields for path, fields in {**TORCH, MODULE: GOOD}.items()}
    files[f"{other}/torch/lib/libc10.so"] = {"defined": ("_ZN3c10newE",)}
    packages = [
        elsewhere(
            one.name, one.version, other, files=[path.replace(SITE, other) for path in one.files], requires=one.requires
        )
        for one in PACKAGES
    ]
    judged = audit.judge(stack(files=files, packages=(*PACKAGES, *packages)))
    assert judged.broken == ("torch_scatter/_scatter_cuda.so",)
    assert [one.check for one in judged.findings if one.severity == "fail"] == ["symbols"]


LOCAL = "/usr/local/lib/python3.10/dist-packages"


VENV, CONDA = "/opt/venv/lib/python3.10/site-packages", "/opt/conda/lib/python3.12/site-packages"
APP = "/app/site-packages"
OF_CONDA = {"/opt/conda/bin/python3.12": {}}
ALONE = {"environments": {"/opt/venv": False}}


@pytest.mark.parametrize(
    ("installed", "files", "fields"),
    [
        ({SYSTEM_SITE: "c", VENV: "ab"}, {}, ALONE),  # Debian with a virtual environment
        (
            {"/usr/local/lib/python3.12/site-packages": "ab", SYSTEM_SITE: "c"},
            {"/usr/local/bin/python3.12": {}},
            {},
        ),
        ({"/usr/lib/python3.9/site-packages": "a", "/usr/local/lib64/python3.9/site-packages": "b"}, {}, {}),  # UBI
        (
            {"/usr/lib64/python3.9/site-packages": "a", "/usr/lib/python3.9/site-packages": "b"},
            {"/usr/bin/python3.9": {}},
            {},
        ),
        ({LOCAL: "a", SYSTEM_SITE: "b"}, {}, {}),  # NGC
        ({SYSTEM_SITE: "a", LOCAL: "b"}, {}, {}),
        (  # conda's base and an environment
            {CONDA: "abc", "/opt/conda/envs/x/lib/python3.10/site-packages": "ab"},
            {**OF_CONDA, "/opt/conda/envs/x/bin/python3.10": {}},
            {},
        ),
        (  # a virtual environment on conda's
            {"/venv/lib/python3.12/site-packages": "a", CONDA: "b"},
            OF_CONDA,
            {"environments": {"/venv": True}},
        ),
        # folders without an interpreter see all: pip install --target, Spack
        ({APP: "a", LOCAL: "b"}, {}, {}),
        ({"/opt/a/lib/python3.10/site-packages": "a", "/opt/b/lib/python3.10/site-packages": "b"}, {}, {}),
        ({APP: "a", VENV: "b"}, {}, ALONE),
    ],
)
def test_images_as_people_have_them_are_fine(installed, files, fields):
    """In each folder lie packages of one letter, of which `a` requires `b`; Debian's Python is there too."""
    packages = [
        elsewhere(name, folder=folder, requires=["b"] if name == "a" else ())
        for folder, names in installed.items()
        for name in names
    ]
    check(contents({**PYTHON, "/usr/bin/python3.10": {}, **files}, *packages, python="3.10", **fields))


def test_each_python_has_modules_of_its_own():
    """Debian's beside that of the image python:3.12; conda's base and an environment."""
    homes = {"/opt/conda": "3.12", "/opt/conda/envs/x": "3.10", "/usr": "3.11", "/usr/local": "3.12"}
    sites = {prefix: f"{prefix}/lib/python{version}/site-packages" for prefix, version in homes.items()}
    sites["/usr"] = SYSTEM_SITE
    pythons = {
        f"{prefix}/bin/python{version}": {"defined": (f"PyOf{version.replace('.', '')}",)}
        for prefix, version in homes.items()
    }
    modules = {
        f"{sites[prefix]}/a/core.cpython-{version.replace('.', '')}-x86_64-linux-gnu.so": {
            "undefined": (f"PyOf{version.replace('.', '')}",)
        }
        for prefix, version in homes.items()
    }
    packages = [
        elsewhere("a", folder=sites[prefix], python=f"=={version}.*", requires=[f"gone; python_version != '{version}'"])
        for prefix, version in homes.items()
    ]
    system = {path: fields for path, fields in PYTHON.items() if path.startswith(SYSTEM)}
    for python in homes.values():
        image = contents({**system, **pythons, **modules}, *packages, python=python)
        assert audit.judge(image).findings == ()
    stray = f"{sites['/opt/conda']}/b/core.cpython-310-x86_64-linux-gnu.so"
    judged = audit.judge(contents({**system, **pythons, stray: {}}, python="3.10"))
    assert [one.what for one in judged.findings] == ["is for Python 3.10; the image has 3.12"]


def test_which_pythons_a_folder_is_for():
    both = {"/usr/bin/python3.8": {}, "/usr/bin/python3.11": {}, "/usr/local/bin/python3.12": {}}
    worlds = Packages(contents(both, python="3.8", laid="/opt/venv/lib/python3.13/site-packages"))
    assert worlds.pythons(SYSTEM_SITE) == ("3.8", "3.11")
    assert worlds.pythons("/usr/local/lib/python3.11/dist-packages") == ("3.11",)
    assert worlds.pythons("/app/site-packages") == ("3.8",)
    assert worlds.pythons("/opt/venv/lib/python3.13/site-packages") == ("3.8",)  # where they were laid says nothing
