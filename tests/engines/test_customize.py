"""docs/customize.md, typed as it is written from a folder outside of the checkout, on the small image's stack."""

import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from graphcrate.resolve.sources.uv import uv_program
from tests.conftest import ROOT
from tests.engines.typist import blocks
from tests.engines.workplace import Workplace, call, small_stack

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("uv", "user namespaces")]

PAGE = ROOT / "docs" / "customize.md"
PYPROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "mypkg"
version = "0.1"
dependencies = ["einops"]
"""


@pytest.fixture(scope="module")
def outside(workplace, built_image, tmp_path_factory):
    """A folder with a person's own files; the program is that of the checkout, run by its path."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "mypkg" / "mypkg").mkdir(parents=True)
    (folder / "mypkg" / "pyproject.toml").write_text(PYPROJECT)
    (folder / "mypkg" / "mypkg" / "__init__.py").write_text("import einops\n")
    (folder / "requirements.txt").write_text("# mine\neinops>=0.7\ntabulate\n")
    (folder / "train.py").write_text("import mypkg, sys, torch\nprint('trained', sys.argv[1:], torch.__version__)\n")
    recipe = re.search(r"^```toml\n(extends.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
    (folder / "mine.toml").write_text(as_here(recipe).replace("lightning", "tabulate"))
    environment = {"PYTHONPATH": str(workplace.folder)}
    program = tuple(word for word in workplace.program if word not in ("-E", "-s"))
    return Workplace(folder, workplace.cache, environment, program=program)


def as_here(text):
    """A command or a recipe for the stack that tests have, and the Debian package that test_adopted takes, too."""
    _, *options = small_stack()
    cuda = options[options.index("--cuda") + 1]
    text = text.replace('cuda = "11.8"', f'cuda = "{cuda}"').replace("--cuda 11.8", shlex.join(options))
    return text.replace("git tree", "tree").replace('["git"]', '["tree"]')


def typed(outside, command):
    """Type a line of the page."""
    program, *arguments = shlex.split(as_here(command))
    assert program == "graphcrate"
    return outside.run(*arguments).ok()


def test_packages_on_the_command_line_are_in_the_image(outside):
    (lines,) = blocks(PAGE, "In one line")
    for line in (one.replace("lightning tqdm", "tabulate tqdm") for one in lines):
        # packages of files are tested as those of `--with` are
        done = typed(outside, line if " --with " in line else f"{line} --no-smoke")
        assert done.out.startswith("torch:")
    assert {"tabulate", "einops", "mypkg", "tree"} <= set(
        re.findall(r"[a-z]+", " ".join(map(str, outside.folder.glob("dist/torch/*"))))
    )
    assert "importing mypkg of mypkg" in "".join(
        path.read_text() for path in outside.folder.glob("dist/torch/*/smoke-imports.log")
    )


def test_a_second_package_adds_a_layer_and_nothing_else_is_new(outside):
    report = typed(outside, "graphcrate image torch --cuda 11.8 --with tabulate --with toml --json").json
    plain = typed(outside, "graphcrate image torch --cuda 11.8 --json").json
    stack = [layer["digest"] for layer in plain["layers"]]
    assert [layer["digest"] for layer in report["layers"]][: len(stack)] == stack
    assert [layer["title"] for layer in report["layers"]][len(stack) :] == ["added packages"]
    assert [suite["suite"] for suite in report["suites"]] == ["torch", "imports"]


def test_recipe_file_of_the_page_is_locked_trains_and_becomes_a_sif(outside):
    (lines,) = blocks(PAGE, "In a file")
    for line in lines:
        done = typed(outside, line)
        if " run " in line:
            assert "trained ['/opt/mine/train.py']" in done.out or "trained []" in done.out
    (lock,) = outside.folder.glob("mine.*.lock.json")
    assert '"mypkg"' in lock.read_text()
    assert (outside.folder / "mine.sif").is_file()
    (dockerfile,) = outside.folder.glob("images/mine/*/Dockerfile")
    assert (dockerfile.parent / "wheels" / "mypkg-0.1-py3-none-any.whl").is_file()
    text = dockerfile.read_text()
    assert all(word in text for word in ("tabulate==", "mypkg==0.1", "/opt/mine/train.py"))
    assert f"Dockerfile images/mine/{dockerfile.parent.name}\n" in text
    log = Path(next(outside.folder.glob("dist/mine/2*/smoke-own-1.log")))
    assert "trained ['--epochs', '1']" in log.read_text()


def test_a_command_of_ones_own_that_fails_fails_the_image(outside):
    (outside.folder / "failing.toml").write_text(
        as_here('extends = "torch"\ncuda = "11.8"\nsmoke = ["echo before; exit 3"]\n')
    )
    done = outside.run("image", "./failing.toml", *small_stack()[3:])
    assert done.code == 10, done.err[-2000:]
    assert "own-1" in done.err
    assert "exit code 3; last lines: before" in done.err


def test_an_installed_package_works_without_a_checkout(outside, tmp_path):
    wheels, python = tmp_path / "wheels", tmp_path / "venv" / "bin" / "python"
    uv = uv_program()
    call(uv, "build", "--quiet", "--wheel", "--out-dir", wheels, ROOT)
    call(uv, "venv", "--quiet", tmp_path / "venv")
    call(uv, "pip", "install", "--quiet", "--python", python, next(wheels.glob("*.whl")))
    # As a person's shell has it: nothing of this checkout on Python's path.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GRAPHCRATE_CACHE": str(outside.cache)}
    environment |= {
        name: os.environ[name] for name in os.environ if name.endswith(("_CERT_FILE", "_proxy", "PIP_CERT"))
    }
    program = python.with_name("graphcrate")
    assert call(program, "--version", environment=environment).startswith("graphcrate ")
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    for name in (path.rpartition("/")[2] for path in hatch["build"]["targets"]["wheel"]["packages"]):
        where = call(python, "-c", f"import {name}; print({name}.__file__)", environment=environment, folder=tmp_path)
        assert where.startswith(str(tmp_path)), "from the wheel"
    call(python, "-c", "import upkeep", environment=environment, folder=tmp_path, code=1)  # the maintainers' own
    assert "pyg" in call(python, "-m", "graphcrate", "list", environment=environment, folder=tmp_path)
    assert "Context" not in call(program, "-h", environment=environment)
    options = ("image", *small_stack(), "--with", "tabulate", "--plan")
    assert "tabulate" in call(program, *options, environment=environment, folder=tmp_path)
    assert not (tmp_path / "dist").exists()
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "data/graph.csv").touch()
    (project / "train.py").write_text(
        "import einops, os, sys\nprint(sys.argv[1:], os.environ['CUDA_VISIBLE_DEVICES'], os.listdir('/data'))\n"
    )
    call(program, "init", environment=environment, folder=project)
    recipe = project / "project.toml"
    recipe.write_text(as_here(recipe.read_text().replace('"pyg"', '"torch"\nmounts = ["data:/data:ro"]')))
    assert "tabulate" in call(program, "add", "tabulate", environment=environment, folder=project)
    words = ("run", "--", "python", "train.py", "--data", "/data")
    told = call(program, *words, environment={**environment, "CUDA_VISIBLE_DEVICES": "1"}, folder=project)
    assert told == "['--data', '/data'] 1 ['graph.csv']\n"
    call(program, "doctor", environment=environment, folder=tmp_path, code=None)
    call(program, "lock", "torch", environment=environment, folder=tmp_path, code=2)
    call(program, "render", environment=environment, folder=tmp_path, code=2)
