"""Real Debian bases: from the archives that this machine knows."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec
import pytest
from packageurl import PackageURL

from graphcrate.checks import system
from graphcrate.compat.facts import compilers, identities
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.bases import debian, install, normalise
from graphcrate.inputs.wheels import bytecode, compile_program
from graphcrate.model.lock import encode
from graphcrate.model.recipe import BaseSpec
from graphcrate.publish.bill import parts
from nsbox.box import Bind
from tests import sources
from tests.engines.workplace import copy_downloads, until
from tests.made import place
from tests.unit.proof_lock import LOCK

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
    assert names >= {
        "libc6",
        "dash",
        f"python{PYTHON}",
        "apt",
        "ca-certificates",
        "libgomp1",
        "libibverbs1",
        "libstdc++6",
        "procps",
    }
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


class ExtractedError(Exception):
    """The packages are extracted."""


def test_bytecode_is_the_same_before_dpkg_has_set_the_packages_up(lock, base, cache, scratch):
    sources = sorted((base.rootfs / f"usr/lib/python{PYTHON}").glob("*.py"))
    made = []

    def compiled(tree):
        folder = scratch / f"compiled-{len(made)}"
        folder.mkdir()
        shutil.copyfile(compile_program.__file__, folder / bytecode.PROGRAM)
        with (folder / "0.sources").open("wb") as bundle:
            for path in sources:
                compile_program.write_entry(bundle, f"/opt/{path.name}", path.read_bytes())
        python = bytecode.InsidePython(rootfs=tree, python=base.python, version=base.python_version, base="")
        done = python.run(folder)
        assert done.returncode == 0, done.lines
        made.append((folder / "0.bytecode").read_bytes())

    def extracted(tree):
        compiled(tree)
        raise ExtractedError

    debs = [cache.file(package.file.sha256, package.file.name) for package in lock.packages]
    early = debian.python_tree(extracted, cache)
    with pytest.raises(ExtractedError):
        install.install(debs, scratch / "root", SUITE, lambda _: None, on_extracted=early)
    compiled(base.rootfs)
    assert len(sources) > 100
    assert made[0] == made[1]


def test_compiler_base_is_the_same_tree_on_a_copy_of_the_image_base_and_made_whole(lock, base, cache):
    spec = BaseSpec(suite=SUITE, packages=compilers.packages("g++-11"))
    wanted = debian.lock(spec, PYTHON, place(cache, os.environ))
    before = _tree(base.rootfs)
    grown = debian.prepare_compiler(wanted, lock, place(cache))
    assert (grown.rootfs.name, grown.layers) == ("grown", ())
    done = run_in(grown.rootfs, Exec(("g++-11", "--version"), INSIDE))
    assert done.returncode == 0, done.lines
    assert _tree(grown.rootfs) == _tree(debian.prepare(wanted, place(cache)).rootfs)
    assert _tree(base.rootfs) == before


def _tree(rootfs):
    """The hash of what would become a layer of it."""
    digest = hashlib.sha256()
    for piece in normalise.entries(rootfs, {}, SUITE):
        digest.update(piece)
    return digest.hexdigest()


def test_libibverbs_and_each_of_its_providers_load(base):
    program = (
        "import ctypes, glob, re\n"
        "for name in 'libibverbs.so.1', 'librdmacm.so.1', *glob.glob('/usr/lib/*/libibverbs/*.so'):\n"
        "    ctypes.CDLL(name)\n"
        "    print(re.sub('.*/', '', name))"
    )
    done = run_in(base.rootfs, Exec((base.python, "-c", program), INSIDE))
    assert done.returncode == 0, done.lines
    assert {"libibverbs.so.1", "librdmacm.so.1", "libmlx5-rdmav34.so", "liberdma-rdmav34.so"} <= set(done.lines)
    drivers = (base.rootfs / "etc/libibverbs.d").iterdir()
    assert {f"lib{path.stem}-rdmav34.so" for path in drivers} == {line for line in done.lines if "-rdmav" in line}


def test_source_packages_are_those_that_dpkg_names(base, lock):
    """By the reader of dpkg's status, and by paths in the archive alone, as the bill of materials has both."""
    form = "${Package} ${Version} ${Architecture} ${source:Package} ${source:Version}\n"
    done = run_in(base.rootfs, Exec(("dpkg-query", "-W", "-f", form), INSIDE))
    assert done.returncode == 0, done.lines
    told = {tuple(line.split()[:3]): tuple(line.split()[3:]) for line in done.lines}
    found = system.of_image({system.STATUS: (base.rootfs / system.STATUS[1:]).read_bytes()}, {})
    assert {key: (one.source, one.version) for key, one in found.items()} == told
    assert len(told) == len(lock.packages)
    stack = msgspec.structs.replace(LOCK, base=lock, packages=(), compilation=None)

    def upstream(known):
        purls = [PackageURL.from_string(str(one.bom_ref)) for one in parts(stack, upstream=True, system=known)]
        return {(one.name, one.version, one.qualifiers["arch"]): one.qualifiers["upstream"] for one in purls}

    assert upstream(found) == {key: name if key[1] == at else f"{name}@{at}" for key, (name, at) in told.items()}
    # a path tells the source's name, and its version but for an epoch of the package's own (bsdutils)
    assert {key: said.partition("@")[0] for key, said in upstream({}).items()} == {
        key: one[0] for key, one in told.items()
    }


def test_base_has_no_files_of_this_machine(base):
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
import json, os, sys, msgspec
from pathlib import Path
from types import SimpleNamespace
from debroot import install
from graphcrate.inputs.bases import debian
from graphcrate.host.disk.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.lock import DebianBase
os.umask(int(sys.argv[3], 8))
install.ENVIRONMENT |= json.loads(sys.argv[4])
lock = msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=DebianBase)
cache = Cache(Path(sys.argv[1]))
ctx = SimpleNamespace(cache=cache, environment=os.environ, progress=Progress())
print(debian.prepare(lock, ctx).layers[0].digest)
cache.close()
"""


def start_elsewhere(project, folder, lock, cache, *, umask, command=(sys.executable,), inside=None, **variables):
    """Another process that makes the base from the same downloads, with a umask, locale and folder of its own.

    `inside`: more variables for Debian's scripts.
    """
    place = folder / "cache"
    if not place.exists():
        place.mkdir()
        (place / "files").symlink_to(cache.root / "files")
    (folder / "lock.json").write_bytes(encode(lock))
    return subprocess.Popen(
        [*command, "-c", PROGRAM, place, folder / "lock.json", umask, json.dumps(inside or {})],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(project), **variables},
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )


def start_as_nobody(project, folder, lock, cache, **more):
    """The same as a user without subordinate ids, without Debian's tools, by the machine's own Python.

    Ours may be where no other user gets in.
    """
    assert "nobody:" not in Path("/etc/subuid").read_text()
    shutil.chown(folder, "nobody", "nogroup")
    (folder / "cache").mkdir()
    copy_downloads(cache.root, folder / "cache", shutil.copy2)
    for path in (folder / "cache", *(folder / "cache").rglob("*")):
        shutil.chown(path, "nobody", "nogroup")
    hide = "for name in apt apt-get dpkg dpkg-deb mmdebstrap newuidmap newgidmap unsquashfs mksquashfs; do "
    hide += 'if path=$(command -v $name); then mount --bind /dev/null "$path"; fi; done; exec "$@"'
    as_nobody = ("unshare", "--mount", "sh", "-c", hide, "sh", "setpriv", "--reuid=nobody", "--regid=nogroup")
    as_nobody += ("--clear-groups", "--", "/usr/bin/python3.11")
    variables = {"PYTHONPATH": f"{sources(project)}:{sysconfig.get_path('purelib')}"}
    return start_elsewhere(project, folder, lock, cache, umask="022", command=as_nobody, **variables, **more)


needs_nobody = pytest.mark.engine("root", "setpriv", "unshare", "mount", "/usr/bin/python3.11")
same_python = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the packages of .venv are for another Python")


@pytest.mark.weekly  # each day with servers besides, below
@same_python
@needs_nobody
def test_a_user_without_subordinate_ids_makes_the_same_bytes(project, base, lock, cache, scratch):
    with start_as_nobody(project, scratch, lock, cache) as other:
        assert other.stdout.read().strip() == base.layers[0].digest


@same_python
@needs_nobody
def test_debroot_alone_makes_the_same_tar_as_root_and_as_a_plain_user_and_nsbox_runs_it(project, scratch):
    paths = {"PYTHONPATH": f"{sources(project)}:{sysconfig.get_path('purelib')}", "HOME": str(scratch)}

    def typed(folder, *words, before=()):
        command = [*before, "/usr/bin/python3.11", "-m", *words]
        return subprocess.run(command, cwd=folder, env=os.environ | paths, check=True, capture_output=True).stdout

    locked = typed(scratch, "debroot", "lock", SUITE, "bash", "coreutils")
    tars = []
    for user, before in {
        "root": (),
        "nobody": ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"),
    }.items():
        folder = scratch / user
        folder.mkdir()
        (folder / "root.lock").write_bytes(locked)
        shutil.chown(folder, user)
        typed(folder, "debroot", "make", "root.lock", "rootfs", "--tar", "rootfs.tar", before=before)
        tars.append(hashlib.sha256((folder / "rootfs.tar").read_bytes()).hexdigest())
    assert tars[0] == tars[1]
    said = typed(scratch / "nobody", "nsbox", "rootfs", "sh", "-c", "id -u; dpkg --status coreutils", before=before)
    assert said.startswith(b"0\nPackage: coreutils\nEssential: yes\nStatus: install ok installed\n")


#: each makes keys or names at its installation; the last is there for the clock of the second one to make the base
SERVERS = ("dbus", "munge", "openssh-server", "ssl-cert", "libfaketime")
LATER = {"LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "FAKETIME": "+400d", "NO_FAKE_STAT": "1"}


@pytest.fixture(scope="module")
def servers(cache):
    """The lock of a base with servers, and that base."""
    where = place(cache, os.environ)
    lock = debian.lock(BaseSpec(suite=SUITE, packages=SERVERS), PYTHON, where)
    return lock, debian.prepare(lock, where)


@same_python
@needs_nobody
def test_a_base_with_servers_has_the_same_bytes_made_by_nobody_a_year_later(project, servers, cache, scratch):
    lock, made = servers
    with start_as_nobody(project, scratch, lock, cache, inside=LATER) as other:
        assert other.stdout.read().strip() == made.layers[0].digest
    files = (str(path.relative_to(made.rootfs)) for path in made.rootfs.rglob("*"))
    assert [name for name in files if identities.pattern().fullmatch(name)] == []
    links = (path for path in (made.rootfs / "etc/ssl/certs").iterdir() if path.is_symlink())
    assert [path for path in links if "snakeoil" in str(path.readlink())] == []


#: starts sshd, and stops it: by its executable, which no wrapper would be; it writes its pid after its start returned
SERVE = """set -e
mkdir -p /run/sshd
{start} > /dev/null
for i in $(seq 100); do service ssh status > /dev/null && break; sleep 0.2; done
service ssh status > /dev/null
cat /etc/ssh/ssh_host_ed25519_key.pub
service ssh stop > /dev/null
! service ssh status > /dev/null
"""


def test_each_copy_of_a_base_makes_its_keys_when_sshd_first_starts_however_that_is(servers, scratch):
    keys = set()
    for name, start in (("one", "/usr/sbin/sshd"), ("two", "service ssh start")):
        copy = scratch / name
        shutil.copytree(servers[1].rootfs, copy, symlinks=True)
        (copy / "etc/ssh/sshd_config.d/port.conf").write_text("Port 2222\n")
        changed = [Bind(copy / place, f"/{place}", read_only=False) for place in ("etc", "usr", "var")]
        script = ["/bin/sh", "-c", SERVE.format(start=start)]
        done = run_in(copy, Exec(script, INSIDE, changed, timeout=60, step=Step.RUN))
        assert done.returncode == 0, done.lines
        keys.add(re.fullmatch(r"ssh-ed25519 (\S+) .*", done.lines[-1])[1])
        assert (copy / "usr/sbin/sshd").read_bytes()[:4] == b"\x7fELF", "the program has its place again"
        assert "sshd" not in (copy / "var/lib/dpkg/diversions").read_text()
    assert len(keys) == 2


def test_where_nothing_can_be_written_sshd_starts_with_a_key_of_ones_own(servers):
    def run(*words):
        return run_in(servers[1].rootfs, Exec(["/bin/sh", "-c", f"mkdir -p /run/sshd; {' '.join(words)}"], INSIDE))

    done = run("/usr/sbin/sshd -t")
    assert (done.returncode, done.lines) == (1, ("sshd: no hostkeys available -- exiting.",))
    done = run("ssh-keygen -q -N '' -t ed25519 -f /tmp/key && /usr/sbin/sshd -t -h /tmp/key")
    assert (done.returncode, done.lines) == (0, ())


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
