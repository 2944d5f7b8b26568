"""Real Debian bases: from the archives that this machine knows."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from graphcrate.host.sandbox import Exec, run_in
from graphcrate.inputs.bases import debian
from graphcrate.model.lock import encode
from tests.engines.workplace import until
from tests.made import place

SUITE, PYTHON = "bookworm", "3.11"
INSIDE = {"PATH": "/usr/sbin:/usr/bin"}
pytestmark = [pytest.mark.slow, pytest.mark.engine("user namespaces")]


@pytest.fixture(scope="module")
def lock(bookworm):
    return bookworm.lock


@pytest.fixture(scope="module")
def base(bookworm):
    return bookworm.base


@pytest.fixture(scope="module")
def cache(bookworm):
    return bookworm.cache


def test_lock_has_what_images_need_and_no_host(lock):
    names = {package.name for package in lock.packages}
    assert names >= {"libc6", "dash", f"python{PYTHON}", "apt", "ca-certificates", "libgomp1", "libstdc++6", "procps"}
    assert "perl" not in names
    assert [package.name for package in lock.packages] == sorted(names)
    assert b"://" not in encode(lock)
    assert all(len(package.file.sha256) == 64 and package.file.size for package in lock.packages)


def test_versions_packages_and_bytecode_are_as_they_are_told_to_be(base, lock, cache, monkeypatch):
    def inside(*command):
        done = run_in(base.rootfs, Exec(command, INSIDE))
        assert done.returncode == 0, done.lines
        return done.lines

    assert base.python == f"/usr/bin/python{PYTHON}"
    script = "import platform; print(platform.python_version(), platform.libc_ver()[1])"
    assert inside(base.python, "-c", script) == (f"{base.python_version} {base.glibc}",)
    wanted = [f"{package.name} {package.version} install ok installed" for package in lock.packages]
    assert sorted(inside("dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\n")) == sorted(wanted)
    modules = "json, email, ssl, sqlite3, ctypes, lzma, bz2, multiprocessing, zoneinfo"
    lines = inside(base.python, "-vc", f"import {modules}")
    assert not [line for line in lines if "stale" in line or line.startswith("# code object from '/")]
    monkeypatch.setattr(debian, "_build", None)
    assert debian.prepare(lock, place(cache)) == base


def test_nothing_of_this_machine_is_inside(base):
    for name in ("etc/hostname", "etc/resolv.conf", "etc/machine-id", "etc/hosts", "etc/passwd-"):
        assert not (base.rootfs / name).exists()
    for name in ("dev", "proc", "sys", "tmp", "var/cache/apt", "var/lib/apt/lists"):
        assert not list((base.rootfs / name).iterdir())
    assert not [path for path in (base.rootfs / "var/log").rglob("*") if path.is_file()]
    sources = [path.read_text() for path in (base.rootfs / "etc/apt").rglob("*sources*") if path.is_file()]
    assert len(sources) == 1
    assert f"{SUITE}-security" in sources[0]
    assert "copy:" not in sources[0]
    zone = (base.rootfs / "etc/localtime").readlink()
    assert (base.rootfs / str(zone).lstrip("/")).is_file()


PROGRAM = """
import os, sys, msgspec
from pathlib import Path
from types import SimpleNamespace
from graphcrate.inputs.bases import debian
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.lock import DebianBase
os.umask(int(sys.argv[3], 8))
lock = msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=DebianBase)
cache = Cache(Path(sys.argv[1]))
ctx = SimpleNamespace(cache=cache, environment=os.environ, progress=Progress())
print(debian.prepare(lock, ctx).layers[0].digest)
cache.close()
"""


def start_elsewhere(project, folder, lock, cache, *, umask, command=(sys.executable,), **variables):
    """Another process that makes the base from the same downloads, with a umask, locale and folder of its own."""
    place = folder / "cache"
    if not place.exists():
        place.mkdir()
        (place / "files").symlink_to(cache.root / "files")
    (folder / "lock.json").write_bytes(encode(lock))
    return subprocess.Popen(
        [*command, "-c", PROGRAM, place, folder / "lock.json", umask],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(project), **variables},
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the packages of .venv are for another Python")
@pytest.mark.engine("root", "setpriv", "unshare", "mount", "/usr/bin/python3.11")
def test_a_user_without_subordinate_ids_makes_the_same_bytes(project, base, lock, cache, scratch):
    """Without Debian's tools, by the machine's own Python: ours may lie where nobody else gets in."""
    assert "nobody:" not in Path("/etc/subuid").read_text()
    shutil.chown(scratch, "nobody", "nogroup")
    (scratch / "cache").mkdir()
    shutil.copytree(cache.root / "files", scratch / "cache/files")
    for path in (scratch / "cache", *(scratch / "cache").rglob("*")):
        shutil.chown(path, "nobody", "nogroup")
    hide = "for name in apt apt-get dpkg dpkg-deb mmdebstrap newuidmap newgidmap unsquashfs mksquashfs; do "
    hide += 'if path=$(command -v $name); then mount --bind /dev/null "$path"; fi; done; exec "$@"'
    as_nobody = ("unshare", "--mount", "sh", "-c", hide, "sh", "setpriv", "--reuid=nobody", "--regid=nogroup")
    as_nobody += ("--clear-groups", "--", "/usr/bin/python3.11")
    variables = {"PYTHONPATH": f"{project}:{sysconfig.get_path('purelib')}"}
    with start_elsewhere(project, scratch, lock, cache, umask="022", command=as_nobody, **variables) as other:
        assert other.stdout.read().strip() == base.layers[0].digest


def test_kill_9_leaves_no_process_and_no_mount_and_the_next_run_cleans_up(project, base, lock, cache, scratch):
    with start_elsewhere(project, scratch, lock, cache, umask="022") as killed:
        until(lambda: list(scratch.glob("cache/tmp/run-*/*/root/var/lib/dpkg/info/bash.list")), process=killed)
        killed.kill()
    until(lambda: not subprocess.run(["pgrep", "-f", scratch], capture_output=True, check=False).stdout)
    assert str(scratch) not in Path("/proc/self/mounts").read_text()
    with start_elsewhere(project, scratch, lock, cache, umask="022") as again:
        assert again.stdout.read().strip() == base.layers[0].digest
    assert not list((scratch / "cache/tmp").glob("run-*/*"))
    assert Path("/dev/null").is_char_device()
