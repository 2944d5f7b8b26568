"""Bytecode and sdists with real programs: this machine's Pythons, pip."""

import contextlib
import os
import shutil
import subprocess
import tarfile

import pytest

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.host import process, settings
from graphcrate.host.disk.cache import Cache
from graphcrate.inputs.wheels import compile_program
from graphcrate.inputs.wheels.bytecode import ENVIRONMENT, PROGRAM, BytecodeShard, compile_shards, read_bundle, shards
from graphcrate.inputs.wheels.install import place
from graphcrate.inputs.wheels.wheel_build import build_wheel
from tests.made import locked
from tests.unit.wheelmaker import make_wheel

PYTHON = "3.11"


class Here:
    """A Python of this machine."""

    def __init__(self, python):
        self.python = python
        self.version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]

    def run(self, folder):
        command = [self.python, *compile_program.FLAGS, str(folder / PROGRAM)]
        return process.run(command, environment=ENVIRONMENT)


@contextlib.contextmanager
def own_umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def jobs_of(path, folder):
    with open_wheel(path) as wheel:
        cut = shards(place(wheel, PYTHON), PYTHON)
    return [BytecodeShard(path, shard, folder / str(number)) for number, shard in enumerate(cut)]


@pytest.mark.parametrize("python", [path for minor in range(8, 15) if (path := shutil.which(f"python3.{minor}"))])
def test_the_program_runs_on_other_pythons(tmp_path, cache, python):
    if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip("a version manager's stand-in for a Python that is not there")
    source = b"x: int = 1\n"
    path = make_wheel(tmp_path, files={"pkg/__init__.py": source, "pkg/bad.py": b"print 1\n"})
    (job,) = jobs_of(path, tmp_path / "out")
    interpreter = Here(python)
    compile_shards([job], interpreter, cache)
    sources = [placed.path for placed in job.shard]
    ((name, content),) = read_bundle(job.target, sources, interpreter.version.rpartition(".")[0]).items()
    pyc = tmp_path / "root" / name.removeprefix("/")
    pyc.parent.mkdir(parents=True)
    pyc.write_bytes(content)
    pyc.parent.with_name("__init__.py").write_bytes(source)
    code = f"import sys; sys.path.insert(0, {str(pyc.parents[2])!r}); import pkg; print(pkg.x, pkg.__cached__)"
    done = process.run([python, "-W", "ignore", "-c", code])
    assert done.lines == (f"1 {pyc}",)


#: makes the wheel that lies beside it anew, at its own time
BACKEND = """
import os, time, zipfile
def build_wheel(folder, settings=None, metadata=None):
    name = "pkg-1.0-py3-none-any.whl"
    assert int(os.environ["SOURCE_DATE_EPOCH"]) < time.time() - 86400
    with zipfile.ZipFile(name) as given, zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        for member in given.namelist():
            archive.writestr(zipfile.ZipInfo(member, time.gmtime()[:6]), given.read(member))
    return name
"""


def source_built_by(backend, folder):
    """A source archive with its back-end inside."""
    tree = folder / "pkg-1.0"
    tree.mkdir()
    make_wheel(tree, "pkg", "1.0", {"pkg/__init__.py": b"x = 1\n"})
    (tree / "backend.py").write_text(backend)
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n")
    (tree / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    sdist = folder / "pkg-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(tree, "pkg-1.0")
    return sdist


def test_pip_turns_an_sdist_into_the_same_wheel_anywhere(tmp_path):
    sdist = source_built_by(BACKEND, tmp_path)
    package = locked((sdist.name, sdist.read_bytes()))
    built = []
    for folder, umask in (("one", 0o022), ("two", 0o077)):
        with own_umask(umask), contextlib.closing(Cache(tmp_path / folder)) as cache:
            built.append(build_wheel(package, sdist, [], cache, settings.child_environment()).read_bytes())
    assert built[0] == built[1]


def test_processes_that_a_back_end_leaves_with_its_output_open_are_ended(tmp_path, monkeypatch):
    """pip reads to the end of that pipe; what is left holds it for an hour, longer than a build may take."""
    leaving = "    import subprocess, sys\n    for _ in range(3):\n"
    leaving += (
        "        subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], start_new_session=True)\n"
    )
    sdist = source_built_by(BACKEND.replace("    name =", f"{leaving}    name ="), tmp_path)
    monkeypatch.setattr("graphcrate.inputs.wheels.wheel_build.TIMEOUT", 120)
    with contextlib.closing(Cache(tmp_path / "cache")) as cache:
        package = locked((sdist.name, sdist.read_bytes()))
        assert build_wheel(package, sdist, [], cache, settings.child_environment()).name == "pkg-1.0-py3-none-any.whl"
