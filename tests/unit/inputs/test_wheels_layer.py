"""Layers from wheels: what tar reads back is what an installer would have written; conflicts and damage are errors."""

import contextlib
import gzip
import io
import os
import tarfile
import zipfile

import pytest

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.host.disk.cache import Cache
from graphcrate.inputs.wheels import compile_program
from graphcrate.inputs.wheels.install import place
from graphcrate.inputs.wheels.layer import SPLICE_FROM, Claims, WheelFile, write_wheels_layer
from graphcrate.model.errors import BuildError, IntegrityError
from tests.unit.wheelmaker import locked, make_wheel, record_row

PYTHON = "3.11"
PACKAGES = "opt/venv/lib/python3.11/site-packages"
NOISE = b"".join(i.to_bytes(3, "big") * 2 for i in range(200_000))


def wheel_file(path, name="pkg", bytecode=(), checked=True):
    package = locked(path, name)
    with open_wheel(path) as wheel:
        installation = place(wheel, PYTHON)
    sha256 = package.file.sha256 if checked else ""
    wheel = WheelFile(name=name, version="1.0", origin="", path=path, sha256=sha256, bytecode=bytecode)
    return wheel, installation


def unpacked(cache, record):
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(cache.blob(record.digest).read_bytes()))) as archive:
        return {member.name: (archive.extractfile(member).read(), member.mode) for member in archive if member.isfile()}


def bundle(path, files):
    with path.open("wb") as stream:
        for name, content in files.items():
            compile_program.write_entry(stream, f"/{name}", content)
    return path


def test_wheels_layer_holds_the_files_and_their_bytecode(tmp_path, cache):
    random = os.urandom(SPLICE_FROM * 2)
    files = {"pkg/__init__.py": b"a = 1\n", "pkg/large.so": NOISE, "pkg/random": random}
    compiled = bundle(tmp_path / "0.bundle", {f"{PACKAGES}/pkg/__pycache__/__init__.cpython-311.pyc": b"code"})
    path = make_wheel(tmp_path, files=files, executable=("pkg/large.so",))
    done = []
    record = write_wheels_layer("pkg 1.0", [wheel_file(path, bytecode=(compiled,))], PYTHON, cache, done.append)
    with zipfile.ZipFile(path) as archive:
        large = archive.getinfo("pkg/large.so")
    start = large.header_offset + 30 + len(large.filename)
    stream = path.read_bytes()[start : start + large.compress_size]
    assert len(stream) >= SPLICE_FROM
    assert stream in cache.blob(record.digest).read_bytes(), "large members are copied as they are"
    found = unpacked(cache, record)
    assert found[f"{PACKAGES}/pkg/large.so"] == (NOISE, 0o755)
    assert found[f"{PACKAGES}/pkg/random"] == (random, 0o644)
    assert found[f"{PACKAGES}/pkg/__pycache__/__init__.cpython-311.pyc"] == (b"code", 0o644)
    assert b"pkg/__pycache__/__init__.cpython-311.pyc,,\n" in found[f"{PACKAGES}/pkg-1.0.dist-info/RECORD"][0]
    assert sum(done) == path.stat().st_size
    assert (record.title, record.size) == ("pkg 1.0", cache.blob(record.digest).stat().st_size)
    owners = {owner.name: owner.bytes for owner in record.owners}
    assert owners["bytecode"] == 4
    assert owners["pkg"] == sum(len(content) for content, _ in found.values()) - 4
    moved = path.rename((tmp_path / "elsewhere").mkdir() or tmp_path / "elsewhere" / path.name)
    with contextlib.closing(Cache(tmp_path / "other")) as other:  # the same bytes
        assert write_wheels_layer("pkg 1.0", [wheel_file(moved, bytecode=(compiled,))], PYTHON, other) == record


@pytest.mark.parametrize("size", [100, len(NOISE)])
def test_wheel_with_other_bytes_than_the_lock_is_refused_and_leaves_no_layer(tmp_path, cache, size):
    path = make_wheel(tmp_path, files={"pkg/x": NOISE[:size]}, method=zipfile.ZIP_STORED)
    expected = wheel_file(path)
    data = bytearray(path.read_bytes())
    data[data.index(b"pkg/x") + 5 + size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="and the lock says"):
        write_wheels_layer("t", [expected], PYTHON, cache)
    # Without the lock's hash, the archive's CRC tells.
    with pytest.raises(IntegrityError, match="pkg/x: its CRC-32 is"):
        write_wheels_layer("t", [wheel_file(path, checked=False)], PYTHON, cache)
    assert list((cache.root / "blobs" / "sha256").iterdir()) == []


@pytest.mark.parametrize("content", [b"spliced" * 100_000 + NOISE, b"small"])
def test_wheel_file_with_another_hash_than_in_record_is_refused(tmp_path, cache, content):
    told, other = record_row("pkg/x", content), record_row("pkg/x", content[::-1])
    path = make_wheel(tmp_path, files={"pkg/x": content}, record=lambda text: text.replace(told, other))
    with pytest.raises(IntegrityError, match="pkg/x: its content is not what RECORD says"):
        write_wheels_layer("t", [wheel_file(path)], PYTHON, cache)


def test_equal_files_of_two_wheels_are_written_once(tmp_path, cache):
    wheels = [
        make_wheel(tmp_path, name, files={"nvidia/__init__.py": b"", f"nvidia/{name}/lib.so": name.encode()})
        for name in ("cublas", "cudnn")
    ]
    compiled = bundle(tmp_path / "0.bundle", {f"{PACKAGES}/nvidia/__pycache__/__init__.cpython-311.pyc": b"c"})
    sources = [wheel_file(path, path.name.split("-")[0], (compiled,)) for path in wheels]
    found = unpacked(cache, write_wheels_layer("t", sources, PYTHON, cache))
    assert found[f"{PACKAGES}/nvidia/__init__.py"] == (b"", 0o644)
    for name in ("cublas", "cudnn"):
        record = found[f"{PACKAGES}/{name}-1.0.dist-info/RECORD"][0]
        assert b"nvidia/__init__.py," in record
        assert b"nvidia/__pycache__/__init__.cpython-311.pyc,,\n" in record


def test_claims_of_two_packages_on_a_path_conflict_on_other_content_or_a_folder():
    claims = Claims()
    assert claims.claim("one 1.0", "/a/b", "x")
    assert claims.claim("two 1.0", "/a/c", "x")
    assert not claims.claim("two 1.0", "/a/b", "x")
    with pytest.raises(BuildError, match=r"one 1\.0 and two 1\.0 both own /a/b, with different content"):
        claims.claim("two 1.0", "/a/b", "y")
    claims.check_folders()
    claims.claim("three 1.0", "/a", "x")
    with pytest.raises(BuildError, match=r"three 1.0 has the file /a, and .* has /a/[bc] below it"):
        claims.check_folders()


def test_file_in_the_place_of_any_folder_above_anothers_file_is_refused():
    for above in ("/a", "/a/b", "/a/b/c"):
        claims = Claims()
        claims.claim("one 1.0", "/a/b/c/d", "x")
        claims.claim("two 1.0", above, "x")
        with pytest.raises(BuildError, match=rf"two 1\.0 has the file {above}, and one 1\.0 has /a/b/c/d below it"):
            claims.check_folders()
