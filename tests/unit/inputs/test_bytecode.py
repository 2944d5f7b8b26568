"""Bytecode: the program that runs in the image, cutting into shards, archives."""

import importlib.util
import marshal
from pathlib import Path

import pytest

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.host.process import Completed
from graphcrate.inputs.wheels import bytecode, compile_program
from graphcrate.inputs.wheels.bytecode import (
    BytecodeShard,
    bundle_path,
    compile_shards,
    is_compiled,
    read_bundle,
    shards,
)
from graphcrate.inputs.wheels.install import place
from graphcrate.model.errors import BuildError
from tests.made import refused
from tests.unit.wheelmaker import make_wheel

PYTHON = "3.11"
PACKAGES = "/opt/venv/lib/python3.11/site-packages"


class InProcess:
    """Does what the image's Python would, in this process."""

    version, base = f"{PYTHON}.2", "b" * 64

    def __init__(self, returncode=0):
        self.returncode = returncode

    def run(self, folder):
        for sources in sorted(folder.glob("*.sources")):
            compile_program.compile_bundle(str(sources.with_suffix("")))
        return Completed(self.returncode, ("Fatal Python error",))


def sharded(wheel_path):
    with open_wheel(wheel_path) as wheel:
        return shards(place(wheel, PYTHON), PYTHON)


def compiled(tmp_path, cache, files, interpreter=None):
    """The bundle of a wheel with these files."""
    path = make_wheel(tmp_path, files=files)
    (shard,) = sharded(path)
    job = BytecodeShard(path, shard, bundle_path(cache, "a" * 64, interpreter or InProcess(), 0))
    compile_shards([job], interpreter or InProcess(), cache)
    return read_bundle(job.target, [placed.path for placed in shard], PYTHON)


def pyc(name):
    return f"{PACKAGES}/pkg/__pycache__/{Path(importlib.util.cache_from_source(name)).name}"


def test_pyc_is_unchecked_and_has_the_final_path(tmp_path, cache):
    source = b"# -*- coding: latin-1 -*-\ndef f():\n    return '\xe9'\n"
    ((path, content),) = compiled(tmp_path, cache, {"pkg/a.py": source, "pkg/data.txt": b"no source"}).items()
    assert path == pyc("a.py")
    assert content[:8] == importlib.util.MAGIC_NUMBER + b"\1\0\0\0"
    assert content[8:16] == importlib.util.source_hash(source)
    code, variables = marshal.loads(content[16:]), {}
    assert code.co_filename == f"{PACKAGES}/pkg/a.py"
    exec(code, variables)
    assert variables["f"]() == "é"


def test_bytecode_python_runs_with_a_clean_environment_and_fixed_hash_seed(tmp_path, monkeypatch):
    """Sets of constants have the order of hashes in bytecode: with a random seed no two builds would be alike."""
    told = []
    monkeypatch.setattr(bytecode.sandbox, "run_in", lambda rootfs, command: told.append(command) or Completed(0, ()))
    for seed in ("random", "7"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        monkeypatch.setenv("PYTHONOPTIMIZE", "2")
        bytecode.InsidePython(rootfs=tmp_path, python="/usr/bin/python3.11", version="3.11.2", base="b").run(tmp_path)
    first, second = told
    assert first == second
    assert (first.environment["PYTHONHASHSEED"], "PYTHONOPTIMIZE" in first.environment) == ("0", False)
    assert not {"-E", "-I", "-R"} & {*first.argv}, "with these Python would not hear of the seed"


def test_source_with_a_syntax_error_has_no_bytecode(tmp_path, cache):
    files = {"pkg/old.py": b"print 'hello'\n", "pkg/nul.py": b"\0", "pkg/good.py": b"", "pkg/x.pyi": b""}
    assert list(compiled(tmp_path, cache, files)) == [pyc("good.py")]


def test_damaged_bytecode_bundle_is_an_error_with_its_path(tmp_path):
    path = tmp_path / "0.bundle"
    with path.open("wb") as stream:
        compile_program.write_entry(stream, "a.pyc", b"content")
        stream.truncate(stream.tell() - 1)
    with pytest.raises(BuildError, match=r"0.bundle is damaged"):
        read_bundle(path, ["a.py"], PYTHON)


OTHERS = [f"{PACKAGES}/torch/__pycache__/x.cpython-311.pyc", "/usr/lib/python3.11/__pycache__/os.cpython-311.pyc"]


@pytest.mark.parametrize("more", [*OTHERS, "../a.pyc", f"{PACKAGES}/pkg/a.pyc"])
def test_bundle_with_more_than_was_asked_for_is_refused_and_not_kept(tmp_path, cache, monkeypatch, more):
    """A base's Python may write what it likes there; the second of two with one name would be taken."""
    real = InProcess.run

    def run(self, folder):
        done = real(self, folder)
        with (folder / "0.bytecode").open("ab") as stream:
            compile_program.write_entry(stream, more, b"evil")
        return done

    monkeypatch.setattr(InProcess, "run", run)
    with pytest.raises(BuildError, match="which nobody asked for"):
        compiled(tmp_path, cache, {"pkg/a.py": b""})
    assert not bundle_path(cache, "a" * 64, InProcess(), 0).exists()


def test_bundle_in_the_cache_is_held_to_the_wheels_sources(tmp_path, cache):
    with (path := tmp_path / "0.bundle").open("wb") as stream:
        compile_program.write_entry(stream, pyc("evil.py"), b"evil")
    with refused(BuildError, "nobody asked for"):
        read_bundle(path, [f"{PACKAGES}/pkg/a.py"], PYTHON)


def test_bytecode_of_another_base_with_the_same_python_version_has_another_key(cache):
    one, other = InProcess(), InProcess()
    other.base = "c" * 64
    assert bundle_path(cache, "a" * 64, one, 0) != bundle_path(cache, "a" * 64, other, 0)


def test_modules_are_compiled_and_their_test_suites_are_not():
    modules = ["numpy/core/numeric.py", "tests.py"]
    others = ["numpy/core/tests/test_numeric.py", "tests/__init__.py", "numpy/core/numeric.pyi"]
    assert [path for path in (*modules, *others) if is_compiled(f"{PACKAGES}/{path}", PYTHON)] == modules
    assert not is_compiled("/opt/venv/bin/tests.py", PYTHON)


def test_bytecode_shards_are_cut_by_size_in_path_order(tmp_path, monkeypatch):
    monkeypatch.setattr(bytecode, "SHARD", 100)
    files = {f"pkg/{name}.py": b"#" * size for name, size in zip("dcbae", (60, 30, 90, 10, 500), strict=True)}
    found = sharded(make_wheel(tmp_path, files=files))
    assert ["".join(placed.path[-4] for placed in shard) for shard in found] == ["ab", "cd", "e"]


def test_failing_bytecode_python_is_a_build_error_and_leaves_nothing(tmp_path, cache, monkeypatch):
    with pytest.raises(BuildError, match=r"Python 3.11.2 of the image could not compile(.|\n)*Fatal Python error"):
        compiled(tmp_path, cache, {"pkg/a.py": b""}, InProcess(returncode=-6))
    limited = Completed(1, ("BlockingIOError: [Errno 11] Resource temporarily unavailable",))
    monkeypatch.setattr(InProcess, "run", lambda *_: limited)
    with refused(BuildError, "could not compile", "limit of processes", "ulimit -u"):
        compiled(tmp_path, cache, {"pkg/a.py": b""})
    monkeypatch.setattr(InProcess, "run", lambda *_: Completed(0, ()))  # writes no bundle
    with pytest.raises(BuildError, match="could not compile"):
        compiled(tmp_path, cache, {"pkg/a.py": b""})
    assert not bundle_path(cache, "a" * 64, InProcess(), 0).exists()
