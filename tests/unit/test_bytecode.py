"""Bytecode: the program that runs in the image, cutting into shards, archives."""

import importlib.util
import io
import marshal
import types
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.host.process import Completed
from graphcrate.inputs.wheels import bytecode, compile_program
from graphcrate.inputs.wheels.bytecode import Bundle, Job, bundle_path, compile_shards, is_compiled, shards
from graphcrate.inputs.wheels.install import Site, place
from graphcrate.model.errors import BuildError, IntegrityError
from tests.unit.wheelmaker import make_wheel

SITE = Site(python="3.11", glibc="2.36", mtime=0)
PACKAGES = "/opt/venv/lib/python3.11/site-packages"


class InProcess:
    """Does what the image's Python would, in this process."""

    version = "3.11.2"

    def __init__(self, returncode=0):
        self.returncode = returncode

    def run(self, folder):
        for sources in sorted(folder.glob("*.sources")):
            compile_program.compile_bundle(str(sources.with_suffix("")))
        return Completed(self.returncode, ("Fatal Python error",))


def compiled(tmp_path, cache, files, interpreter=None):
    """The bundle of a wheel with these files."""
    path = make_wheel(tmp_path, files=files)
    with open_wheel(path) as wheel:
        found = shards(place(wheel, SITE), SITE)
    targets = [bundle_path(cache, "a" * 64, "3.11.2", number) for number in range(len(found))]
    jobs = [Job(path, shard, target) for shard, target in zip(found, targets, strict=True)]
    compile_shards(jobs, interpreter or InProcess(), cache)
    return Bundle(jobs[0].target)


def test_pycs_are_unchecked_and_name_the_final_path(tmp_path, cache):
    source = b"# -*- coding: latin-1 -*-\ndef f():\n    return '\xe9'\n"
    bundle = compiled(tmp_path, cache, {"pkg/a.py": source, "pkg/data.txt": b"no source"})
    tag = importlib.util.cache_from_source("a.py").split(".")[1]
    path = f"{PACKAGES}/pkg/__pycache__/a.{tag}.pyc"
    assert list(bundle.files) == [path]
    content = bundle.read(path)
    assert content[:4] == importlib.util.MAGIC_NUMBER
    assert int.from_bytes(content[4:8], "little") == 1
    assert content[8:16] == importlib.util.source_hash(source)
    code = marshal.loads(content[16:])
    assert isinstance(code, types.CodeType)
    assert code.co_filename == f"{PACKAGES}/pkg/a.py"
    variables = {}
    exec(code, variables)
    assert variables["f"]() == "é"
    bundle.close()


def test_sources_that_do_not_compile_are_left_out(tmp_path, cache):
    bundle = compiled(
        tmp_path,
        cache,
        {"pkg/old.py": b"print 'hello'\n", "pkg/template.py": b"{{ x }\n", "pkg/nul.py": b"\0", "pkg/good.py": b""},
    )
    bundle.close()
    tag = importlib.util.cache_from_source("good.py").split(".")[1]
    assert list(bundle.files) == [f"{PACKAGES}/pkg/__pycache__/good.{tag}.pyc"]


def test_sources_are_checked_before_they_are_compiled(tmp_path, cache):
    path = make_wheel(tmp_path, files={"pkg/a.py": b"a = 1\n"}, method=zipfile.ZIP_STORED)
    with open_wheel(path) as wheel:
        found = shards(place(wheel, SITE), SITE)
    path.write_bytes(path.read_bytes().replace(b"a = 1", b"a = 2"))
    with pytest.raises(IntegrityError, match=r"pkg/a.py: its CRC-32"):
        compile_shards([Job(path, found[0], tmp_path / "out")], InProcess(), cache)


@given(st.dictionaries(st.text(min_size=1), st.binary()), st.integers(1, 30))
def test_bundles_give_back_what_was_written_and_tell_when_cut(files, cut):
    stream = io.BytesIO()
    for name, content in files.items():
        compile_program.write_entry(stream, name, content)
    whole = stream.getvalue()
    assert {name: whole[at : at + size] for name, at, size in compile_program.entries(stream)} == files
    if files:
        last = len(next(reversed(files)).encode()) + len(next(reversed(files.values())))
        with pytest.raises(ValueError):
            list(compile_program.entries(io.BytesIO(whole[: -min(cut, last + 11)])))


def test_a_damaged_bundle_is_an_error_that_says_what_to_remove(tmp_path):
    path = tmp_path / "0.bundle"
    path.write_bytes(b"\1\0\0\0\5\0\0\0\0\0\0\0abc")
    with pytest.raises(BuildError, match=r"0.bundle is damaged"):
        Bundle(path)


def test_what_is_no_module_of_site_packages_is_not_compiled(tmp_path):
    files = {"pkg-1.0.data/scripts/run.py": b"#!python\n", "pkg-1.0.data/data/share/x.py": b"", "pkg/x.pyi": b""}
    with open_wheel(make_wheel(tmp_path, files=files)) as wheel:
        assert shards(place(wheel, SITE), SITE) == []


@pytest.mark.parametrize(
    ("path", "compiled"),
    [
        ("numpy/core/numeric.py", True),
        ("tests.py", True),
        ("numpy/core/tests/test_numeric.py", False),
        ("tests/__init__.py", False),
        ("numpy/core/numeric.pyi", False),
    ],
)
def test_modules_get_bytecode_and_test_suites_do_not(path, compiled):
    assert is_compiled(f"{PACKAGES}/{path}", SITE) is compiled
    assert not is_compiled(f"/opt/venv/bin/{path}", SITE)


def test_shards_are_cut_by_size_in_order_of_path(tmp_path, monkeypatch):
    monkeypatch.setattr(bytecode, "SHARD", 100)
    files = {f"pkg/{name}.py": b"#" * size for name, size in zip("dcbae", (60, 30, 90, 10, 500), strict=True)}
    with open_wheel(make_wheel(tmp_path, files=files)) as wheel:
        found = shards(place(wheel, SITE), SITE)
    names = [[placed.path.rpartition("/")[2] for placed in shard] for shard in found]
    assert names == [["a.py", "b.py"], ["c.py", "d.py"], ["e.py"]]


class Nothing(InProcess):
    """Writes no bundle."""

    def run(self, folder):
        return Completed(0, ())


@pytest.mark.parametrize(
    ("interpreter", "words"),
    [
        (InProcess(returncode=-6), r"Python 3.11.2 of the image could not compile(.|\n)*Fatal Python error"),
        (Nothing(), "could not compile"),
    ],
)
def test_a_python_that_fails_is_an_error_and_leaves_nothing(tmp_path, cache, interpreter, words):
    with pytest.raises(BuildError, match=words):
        compiled(tmp_path, cache, {"pkg/a.py": b""}, interpreter)
    assert not bundle_path(cache, "a" * 64, "3.11.2", 0).exists()
