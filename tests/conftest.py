"""Requirements of tests on the machine: `engine(...)`, `network`. In CI a missing one is a failure.

Stages select by markers (see the Makefile): `make test` has all that is neither `slow`, `weekly` nor `faults`, with the
engines that are there; `make test-engines` what is `slow` or needs an engine; `make faults`, `make test-all` the rest.
"""

import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphcrate.compat.facts import addresses
from graphcrate.host.disk.space import place_apart
from graphcrate.model.recipe import Channel
from tests import examples  # noqa: F401 (loads the profile of property tests)

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ROOT / "tests" / "engines"  #: `make test-engines` and `make test-all` look here alone
IN_CI = os.environ.get("CI") == "true"
PREPARED = bool(os.environ.get("ENGINES"))  #: `make test-engines` says that it has installed the engines
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
#: what machines of CI cannot have: those tests are skipped there, too
ELSEWHERE = {"pyxis"}
#: names for `engine(...)` that stand for several: what the fixtures of tests/engines need
TOGETHER = {
    "docker daemon": ("root", "dockerd", "docker", "runc", "iptables", "slirp4netns", "unshare"),
    "slurm": ("root", "slurmctld", "slurmd", "sbatch", "munged"),
    "two hosts": ("root", "ip", "sshd", "ssh-keygen", "ssh-keyscan", "tmux", "setpriv"),
    "far hosts": ("root", "ip"),
    "apptainer build": ("root", "apptainer", "singularity", "mksquashfs", "newuidmap"),
}


def pytest_configure():
    """Start as a person's shell would: what a test starts inherits signals and variables."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for background jobs
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"):  # `make test` hands its own down
        os.environ.pop(name, None)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items):
    """Mark what needs an engine that is not on every machine that builds, for `make test-engines`."""
    from tests.engines.install import OF_NPM, PROGRAMS

    installed = {*PROGRAMS, *OF_NPM, *TOGETHER, "apptainer", "cosign", "cosign2", "oras", "unsquashfs"}
    for item in items:
        if installed & needed(item):
            item.add_marker(pytest.mark.installed)
        marks = {mark.name for mark in item.iter_markers()}
        if marks & {"slow", "installed", "weekly"} and "faults" not in marks and ENGINES not in item.path.parents:
            raise pytest.UsageError(f"{item.nodeid} is {sorted(marks)}: no stage runs that outside tests/engines")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while half a million objects are made that stay, and leave them out of later searches."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def needed(item):
    """All names that a test gives to `engine(...)`."""
    return {name for marker in item.iter_markers("engine") for name in marker.args}


def pytest_runtest_setup(item):
    names = [name for names in sorted(needed(item)) for name in TOGETHER.get(names, (names,))]
    reasons = [reason for name in names if (reason := lacking(name)) is not None]
    if item.get_closest_marker("network") and not index_answers():
        reasons.append("the package index does not answer")
    if reasons:
        message = "; ".join(dict.fromkeys(reasons))
        if IN_CI and not ELSEWHERE & needed(item) and not (item.get_closest_marker("installed") and not PREPARED):
            pytest.fail(f"CI has to run this: {message}", pytrace=False)
        pytest.skip(message)


@functools.cache
def lacking(name):
    """Say why this machine cannot give a program, `root`, `loop mount` or `user namespaces`; None when it can."""
    if name == "root":
        return None if os.geteuid() == 0 else "needs root"
    if name == "loop mount":
        kernel = Path("/proc/filesystems").read_text(encoding="ascii").split()
        works = os.geteuid() == 0 and "squashfs" in kernel and Path("/dev/loop-control").exists()
        return None if works else "needs root and a kernel that mounts squashfs files"
    if name == "pmix":  # the plugin opens the library by the name without a number, which is in the -dev package
        files = ("slurm*/mpi_pmix.so", "pmix2/lib/libpmix.so")
        there = all(any(Path("/usr/lib").glob(f"*-linux-gnu/{file}")) for file in files)
        return None if there else "Slurm has no PMIx here: libpmix-dev is missing (make test-engines installs it)"
    if name == "pyxis":
        sources = Path(os.environ.get("PYXIS_SOURCES", "/nonexistent"))
        there = all((sources / each / "Makefile").is_file() for each in ("pyxis", "enroot"))
        return None if there else "PYXIS_SOURCES names no folder with the sources of pyxis and enroot"
    if name == "user namespaces":
        unshare = shutil.which("unshare")
        works = unshare and not subprocess.run([unshare, "-Urm", "true"], capture_output=True, check=False).returncode
        return None if works else "this machine has no user namespaces"
    return None if program(name) else f"{name} is not installed (make test-engines installs it, as root)"


def program(name):
    """Return a program's path, or None. Debian's own comes first: a newer client elsewhere may not fit its daemon."""
    own = Path(sys.executable).parent  # uv comes with the requirements
    return shutil.which(name, path=f"/usr/bin:{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}:{own}")


@functools.cache
def index_answers():
    """Return whether pip, as configured here, finds a small package."""
    pip = [sys.executable, "-m", "pip", "--no-input", "--retries=0", "--timeout=5"]
    return not subprocess.run([*pip, "index", "versions", "iniconfig"], capture_output=True, check=False).returncode


@pytest.fixture(scope="session")
def project():
    """The project's root folder."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def folders_apart(tmp_path_factory):
    """Keep no test waiting for what others removed by the ten thousand."""
    place_apart(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session", autouse=True)
def no_witnesses():
    """Small wheels have the names of real ones, and other bytes than the locks of others say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphcrate.compat.facts.witnesses.witnessed", dict)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_further_channels():
    """No test reaches a channel that no candidate names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(addresses.ROOTS, Channel.ASTRAL, "http://127.0.0.1:1")
        yield
