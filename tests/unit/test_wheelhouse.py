"""The wheelhouse without a process: keys, what is in the cache, sources, jobs, what goes on."""

import errno
import io
import tarfile
from types import SimpleNamespace

import filelock
import msgspec
import pytest

from graphcrate.compat import compilers
from graphcrate.host import settings
from graphcrate.host.memory import free_memory
from graphcrate.inputs import extensions
from graphcrate.inputs.extensions import compile as house
from graphcrate.inputs.extensions import import_check
from graphcrate.inputs.extensions.compile import add_headers, provide, unpack_source
from graphcrate.inputs.extensions.progress import Watcher
from graphcrate.model.errors import BuildError, DiskFullError
from graphcrate.model.lock import Compilation, DebianBase, DebianPackage, DebianToolkit, LockedFile, LockedPackage
from graphcrate.model.plan import CompileStep

TOOLKIT = DebianToolkit(version="11.8.89", suite="bookworm", packages=(), wheels=())


def package(name, sha256="", version="1.0", *, compiled=False):
    kind = ".tar.gz" if compiled else "-py3-none-any.whl"
    file = LockedFile(name=f"{name}-{version}{kind}", size=1, sha256=sha256 or name)
    return LockedPackage(name=name, version=version, channel="pypi", file=file, compiled=compiled)


def deb(name, version="1"):
    file = LockedFile(name=f"{name}.deb", size=1, sha256=name + version)
    return DebianPackage(name=name, version=version, architecture="amd64", file=file)


def step(**changes):
    values = {
        "architectures": ("7.0",),
        "compiler": "g++-11",
        "base": DebianBase(suite="bookworm", packages=(deb("g++-11"), deb("libc6"), deb("openssl"))),
        "tools": (package("setuptools"), package("wheel")),
        "toolkit": TOOLKIT,
    }
    compilation = Compilation(**{key: changes.pop(key, value) for key, value in values.items()})
    plain = {
        "title": "extensions",
        "python": "3.11",
        "packages": (package("torch-scatter", compiled=True),),
        "against": (package("numpy"), package("torch")),
    }
    return CompileStep(**{**plain, **changes}, compilation=compilation)


def key(**changes):
    made = step(**changes)
    return extensions.origin(made.packages[0], made)


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ("7.0", "8.0")},
        {"compiler": "g++-12"},
        {"base": DebianBase(suite="bookworm", packages=(deb("g++-11", "2"), deb("libc6"), deb("openssl")))},
        {"tools": (package("setuptools", "other"), package("wheel"))},
        {"toolkit": None},
        {"python": "3.9"},
        {"against": (package("numpy"), package("torch", "other"))},
        {"packages": (package("torch-scatter", "other", compiled=True),)},
    ],
)
def test_what_changes_a_wheel_changes_its_key(changes):
    assert key(**changes) != key()


@pytest.mark.parametrize(
    "changes",
    [
        {"base": DebianBase(suite="bookworm", packages=(deb("openssl", "2"), deb("libc6"), deb("g++-11")))},
        {"against": (package("numpy", "other"), package("torch"))},
        {"tools": (package("wheel"), package("setuptools"))},
        {"title": "other"},
    ],
)
def test_what_does_not_change_a_wheel_leaves_its_key(changes):
    assert key(**changes) == key()


def test_cached_finds_what_is_there(cache):
    made = step(packages=(package("one", compiled=True), package("two", compiled=True)))
    assert extensions.cached(made, cache) == {}
    place = extensions.folder(made.packages[1], made, cache)
    place.mkdir(parents=True)
    (place / "two-1.0-cp311-cp311-linux_x86_64.whl").touch()
    assert extensions.cached(made, cache) == {"two": place / "two-1.0-cp311-cp311-linux_x86_64.whl"}


def test_a_run_that_waits_for_anothers_compile_says_so(cache, progress):
    made = step()
    other = filelock.FileLock(cache.root / "locks" / "wheelhouse.lock")
    place = extensions.folder(made.packages[0], made, cache)

    def finish(message):
        place.mkdir(parents=True)
        (place / "one-1.0-cp311-cp311-linux_x86_64.whl").touch()
        other.release()
        progress.note(message)

    other.acquire()
    job = SimpleNamespace(step=made, cache=cache, progress=SimpleNamespace(note=finish))
    assert list(provide(job)) == ["torch-scatter"]
    assert progress.lines == ["compiling: another run is compiling; waiting for it"]
    provide(job)
    assert len(progress.lines) == 1


def pack(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_sources_go_to_a_folder_of_a_fixed_name(tmp_path):
    sdist = pack(tmp_path / "a.tar.gz", {"some_name-1/setup.py": b"x", "some_name-1/csrc/a.cpp": b"y"})
    unpack_source(package("torch-x", compiled=True), sdist, tmp_path / "build" / "torch-x-1.0")
    assert (tmp_path / "build/torch-x-1.0/csrc/a.cpp").read_bytes() == b"y"
    assert [path.name for path in (tmp_path / "build").iterdir()] == ["torch-x-1.0"]


def test_headers_that_stand_in_are_written_as_torch_names_them(tmp_path):
    add_headers(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.h")} == set(compilers.STAND_INS)
    assert (tmp_path / "torch/torch.h").read_text() == "#pragma once\n#include <torch/extension.h>\n"


def test_the_headers_are_in_the_key_of_what_gets_them(monkeypatch):
    others = (package("torch-x", compiled=True),)
    before = key(), key(packages=others)
    monkeypatch.setitem(compilers.STAND_INS, "torch/torch.h", ("#pragma once",))
    assert (key() == before[0], key(packages=others) == before[1]) == (False, True)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"x-1/pyproject.toml": b""}, "has no setup.py"),
        ({"setup.py": b"", "other": b""}, "has no setup.py"),
        ({"../setup.py": b""}, "cannot be unpacked"),
        (b"nothing of the kind", "cannot be unpacked"),
    ],
)
def test_strange_sources_are_refused(tmp_path, members, message):
    sdist = tmp_path / "a.tar.gz"
    sdist.write_bytes(members) if isinstance(members, bytes) else pack(sdist, members)
    with pytest.raises(BuildError, match=message):
        unpack_source(package("torch-x", compiled=True), sdist, tmp_path / "build" / "x")


def test_a_full_disk_is_no_damage_of_the_sources(tmp_path, cache, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    sdist = pack(tmp_path / "a.tar.gz", {"a-1/setup.py": b"x"})
    monkeypatch.setattr("graphcrate.inputs.wheels.sdist.shutil.copyfileobj", full)
    with pytest.raises(DiskFullError), cache.folder() as work:  # as in `house.make`
        unpack_source(package("torch-x", compiled=True), sdist, work / "build" / "x")


GB = 10**9


@pytest.mark.parametrize(
    ("cores", "memory", "expected"), [(2, 24 * GB, 2), (64, 24 * GB, 8), (8, 5 * GB, 1), (4, 0, 1)]
)
def test_jobs_fit_into_memory(cores, memory, expected):
    assert house.affordable(cores, memory) == expected


MEMINFO = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    8388608 kB\n"}
V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
SLURM = "/slurm/uid_1/job_2"


def group(version, limit, use, folder="", stat=""):
    """Files of a memory cgroup."""
    place, names = (V1, ("limit_in_bytes", "usage_in_bytes")) if version == 1 else (V2, ("max", "current"))
    files = {f"{place}{folder}/memory.{name}": value for name, value in zip(names, (limit, use), strict=True)}
    return files | ({f"{place}{folder}/memory.stat": stat} if stat else {})


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        ("", {}, 8 * 2**30),
        ("0::/", group(2, "max\n", "5"), 8 * 2**30),
        ("0::/", group(2, "4000\n", "1000\n"), 3000),
        ("4:memory:/", group(1, "9223372036854771712", "1"), 8 * 2**30),
        ("4:memory:/", group(1, "500", "800"), 0),
        # a job's limit, steps below the root and above the process
        (f"0::{SLURM}/step_0", group(2, "4000", "1000", SLURM), 3000),
        (f"4:memory:{SLURM}/step_0\n1:cpu:/x", group(1, "4000", "1000", SLURM), 3000),
        # files that were read and written lately count as used, and give way
        ("0::/", group(2, "32000", "31000", stat="anon 7000\nactive_file 1\ninactive_file 24000\n"), 25000),
        ("4:memory:/", group(1, "32000", "31000", stat="inactive_file 5\ntotal_inactive_file 24000\n"), 25000),
    ],
)
def test_free_memory_is_that_of_the_container_or_job(tmp_path, line, files, expected):
    for name, text in {**MEMINFO, "/proc/self/cgroup": f"{line}\n", **files}.items():
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert free_memory(tmp_path) == expected


def compiled(name):
    return msgspec.json.encode({"event": "compiled", "package": name, "source": "a.cpp", "weight": 2.0}).decode()


def test_progress_is_one_line_now_and_then(monkeypatch, progress):
    clock = [100.0]
    monkeypatch.setattr(settings, "now", lambda: clock[0])
    watcher = Watcher(["one", "two"], progress)
    for line in (
        '{"event": "files", "package": "one", "count": 2, "weight": 10}',
        compiled("one"),
        compiled("one"),
    ):
        watcher.read(line)
    assert progress.lines == []  # what the other has is not known
    watcher.read('{"event": "files", "package": "two", "count": 3, "weight": 6}')
    clock[0] += 21
    watcher.read(compiled("two"))
    watcher.read(compiled("two"))
    watcher.read(compiled("two"))
    watcher.read('{"event": "built", "package": "two"}')
    assert progress.lines == [
        "compiling one, two: 3/5 files, about 35 s left",
        "compiling one, two: 5/5 files",
    ]
    assert watcher.built == {"two"}


def test_what_goes_slower_is_said_once_for_a_package(progress):
    watcher = Watcher(["one", "two"], progress)
    for name in ("one", "one", "two"):
        line = {"event": "slower", "package": name, "source": "a.cu", "said": "note\na.cu(3): error: no such thing\n"}
        watcher.read(msgspec.json.encode(line).decode())
    assert [note.split()[1] for note in progress.lines] == ["one", "two"]
    assert "in a.cu at least" in progress.lines[0]
    assert "(a.cu(3): error: no such thing)" in progress.lines[0]


def test_fewer_jobs_and_failures_are_heard(progress):
    watcher = Watcher(["one"], progress)
    watcher.read('{"event": "fewer", "package": "one", "source": "b.cu", "jobs": 1}')
    watcher.read('{"event": "failed", "package": "one", "source": "b.cu", "killed": false, "log": "/build/x.log"}')
    watcher.read('{"event": "failed", "package": "two"}')
    watcher.read("Traceback (most recent call last):")
    watcher.read("7")
    assert "from here 1 at a time, and b.cu again" in progress.lines[0]
    assert (watcher.failed, watcher.source, watcher.log) == ("one", "b.cu", "/build/x.log")
    assert list(watcher.strays) == ["Traceback (most recent call last):", "7"]


def test_a_trial_knows_what_to_load(tmp_path):
    for name in (
        "pkg/__init__.py",
        "pkg/_one.cpython-311-x86_64-linux-gnu.so",
        "single.py",
        "pkg-1.dist-info/METADATA",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert import_check.modules(str(tmp_path)) == ["pkg", "single"]
    assert import_check.libraries(str(tmp_path)) == [str(tmp_path / "pkg/_one.cpython-311-x86_64-linux-gnu.so")]
