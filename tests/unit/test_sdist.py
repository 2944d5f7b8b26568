"""Wheels from sdists: packed anew so that nothing of where and when they were built is left."""

import hashlib
import zipfile

import pytest

from graphcrate.errors import BuildError, IntegrityError
from graphcrate.host.cache import Cache
from graphcrate.host.process import Completed
from graphcrate.model.lock import LockedFile, LockedPackage
from graphcrate.wheels import sdist
from graphcrate.wheels.wheel import open_wheel
from tests.unit.wheelmaker import locked, make_wheel


@pytest.fixture
def cache(tmp_path):
    cache = Cache(tmp_path / "cache")
    yield cache
    cache.close()


def package(build=()):
    file = LockedFile(name="pkg-1.0.tar.gz", size=3, sha256="a" * 64)
    return LockedPackage(name="pkg", version="1.0", channel="pypi", file=file, build=build)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "pkg-1.0.tar.gz"
    path.write_bytes(b"tar")
    return path


class Pip:
    """Stands for pip: puts a wheel into the folder that it is told."""

    def __init__(self, returncode=0, **options):
        self.returncode, self.options, self.calls = returncode, options, []

    def __call__(self, argv, *, environment, cwd, timeout):
        self.calls.append((argv, environment))
        if self.returncode == 0:
            folder = cwd / "wheel"
            make_wheel(folder, **self.options)
        return Completed(self.returncode, ("error: no back-end",))


def test_packing_anew_forgets_order_times_and_compression(tmp_path):
    files = {"pkg/b.py": b"b" * 100, "pkg/a.py": b"a", "pkg/run": b"#!/bin/sh\n"}
    one = make_wheel(tmp_path / "1", files=files, executable=("pkg/run",))
    two = make_wheel(tmp_path / "2", files=dict(sorted(files.items())), executable=("pkg/run",), method=0)
    assert one.read_bytes() != two.read_bytes()
    digests = set()
    for path in (one, two):
        with open_wheel(path) as wheel:
            target = path.with_name("packed.whl")
            ordered = sorted(wheel.members, key=lambda member: member.name)
            sdist.repack(wheel, target)
            with zipfile.ZipFile(target) as archive:
                assert archive.read("pkg/b.py") == b"b" * 100
                assert archive.namelist()[-1] == "pkg-1.0.dist-info/RECORD"
                assert archive.getinfo("pkg/run").external_attr >> 16 == 0o100755
                # RECORD lists in the order of the back-end, which is the lock's.
                assert [m.name for m in ordered] == sorted(archive.namelist())
                content = {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}
            digests.add(hashlib.sha256(repr(content).encode()).hexdigest())
    assert len(digests) == 1


def test_an_sdist_is_built_once_with_the_locked_back_end_alone(tmp_path, cache, source, monkeypatch):
    backend = make_wheel(tmp_path / "back", "setuptools", "80.0")
    pip = Pip()
    monkeypatch.setattr(sdist.process, "run", pip)
    wanted = package(build=(locked(backend, "setuptools", "80.0"),))
    environment = {"PATH": "/usr/bin", "PIP_INDEX_URL": "https://example.org", "PYTHONPATH": "/somewhere", "TZ": "Asia"}
    first = sdist.build_wheel(wanted, source, [backend], cache, environment)
    assert sdist.build_wheel(wanted, source, [backend], cache, environment) == first
    assert len(pip.calls) == 1
    argv, seen = pip.calls[0]
    assert "--no-index" in argv
    assert "PIP_INDEX_URL" not in seen
    assert "PYTHONPATH" not in seen
    assert (seen["TZ"], seen["PYTHONHASHSEED"], seen["SOURCE_DATE_EPOCH"]) == ("UTC", "0", "315532800")
    with open_wheel(first) as wheel:
        assert wheel.name == "pkg"


def test_another_back_end_gives_another_wheel():
    other = LockedPackage(
        name="b", version="1", channel="pypi", file=LockedFile(name="b-1-py3-none-any.whl", size=1, sha256="b" * 64)
    )
    assert sdist.origin(package()) != sdist.origin(package(build=(other,)))
    assert sdist.origin(other) == "b" * 64


@pytest.mark.parametrize(
    ("pip", "kind", "words"),
    [
        (Pip(returncode=1), BuildError, r"pkg-1.0.tar.gz could not be made a wheel\n    error: no back-end"),
        (Pip(tag="cp311-cp311-linux_x86_64", purelib=False), BuildError, "is not pure Python"),
        (Pip(tag="py2-none-any"), BuildError, "is not pure Python"),
        (Pip(record=lambda text: text + "ghost,sha256=x,1\n"), IntegrityError, "lists ghost"),
    ],
)
def test_what_does_not_give_a_pure_wheel_is_an_error(cache, source, monkeypatch, pip, kind, words):
    monkeypatch.setattr(sdist.process, "run", pip)
    with pytest.raises(kind, match=words):
        sdist.build_wheel(package(), source, [], cache, {})
    assert not list((cache.root / "built").glob("*"))
