"""Packages of packages/: libraries, each publishable alone and in graphcrate's wheel, and those that import it."""

import re
import tomllib

import pytest

from tests import ABOVE, ROOT

FOLDERS = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
NAMES = [folder.name for folder in FOLDERS]
IN_NO_WHEEL = {"upkeep"}  #: works on a checkout alone
LIBRARIES = [folder for folder in FOLDERS if folder.name not in ABOVE]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
A_SCREEN = 45  #: lines


def name_of(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_library_has_project_readme_modules_and_tests(folder):
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == folder.name
    assert {"version", "description", "license", "dependencies"} <= set(project)
    assert project["requires-python"] == PROJECT["project"]["requires-python"]
    assert len((folder / project["readme"]).read_text("utf-8").splitlines()) <= A_SCREEN
    modules = folder / "src" / folder.name
    assert (modules / "__init__.py").is_file()
    assert (modules / "py.typed").is_file()
    assert list((folder / "tests").glob("test_*.py"))


@pytest.mark.parametrize("folder", LIBRARIES, ids=[folder.name for folder in LIBRARIES])
def test_library_needs_what_graphcrate_needs_as_its_wheel_has_the_modules(folder):
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {name_of(one) for one in project["dependencies"]}
    needed |= {name_of(one) for extra in project.get("optional-dependencies", {}).values() for one in extra}
    there = {name_of(one) for one in PROJECT["project"]["dependencies"]}
    assert needed <= there | {folder.name for folder in LIBRARIES}


def test_tools_know_every_library():
    sources = [f"packages/{name}/src" for name in NAMES]
    of_wheel = [f"packages/{name}/src/{name}" for name in NAMES if name not in IN_NO_WHEEL]
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["graphcrate", *of_wheel]
    assert [path for path in PROJECT["tool"]["pytest"]["ini_options"]["pythonpath"] if "/" in path] == sources
    assert PROJECT["tool"]["mypy"]["mypy_path"] == sources
    assert set(NAMES) <= set(PROJECT["tool"]["mypy"]["packages"])


@pytest.mark.parametrize("name", ABOVE)
def test_package_above_needs_graphcrate_and_nothing_that_is_not_pinned_with_it(name):
    project = tomllib.loads((ROOT / f"packages/{name}/pyproject.toml").read_text("utf-8"))["project"]
    needed = {name_of(one) for one in project["dependencies"]}
    assert "graphcrate" in needed
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE)
    assert needed <= {"graphcrate", *pinned}


def test_files_of_tests_have_unique_names_as_their_folders_are_no_packages():
    files = [path for folder in FOLDERS for path in folder.glob("tests/**/*.py") if path.name != "conftest.py"]
    assert len({path.name for path in files}) == len(files)
