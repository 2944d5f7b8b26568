"""Unit tests start no process and open no connection beyond loopback. Python's audit events say who tries."""

import contextlib
import copy
import datetime
import functools
import ipaddress
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import typer.main

from dssesign import keys
from gpunames import models
from graphcrate.compat.facts import gpu_table
from graphcrate.host.disk import key_files
from graphcrate.host.disk.trees import remove_tree

PROCESSES = {
    "subprocess.Popen",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
}
CONNECTIONS = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0}  #: event → index of its address


MEMORY, ROOM = Path("/dev/shm"), 2 << 30  #: a file system in memory, and what it must have free for a worker's tests
FOLDERS = "graphcrate-unit-tests-"  #: begins the names there; the number of their process follows

#: what the suites of Debian were like is known of this day: bullseye had no updates any more, bookworm had LTS
TODAY = datetime.date(2026, 11, 25)


class ForbiddenError(BaseException):
    """A unit test reached outside. Not an Exception, so that no code under test takes it for a failure of its own."""


class Guard:
    """Forbids while `test` names a test. An audit hook stays for the life of the process."""

    def __init__(self):
        self.test = None
        self.seen = []

    def __call__(self, event, arguments):
        if self.test is None:
            return
        if event in PROCESSES:
            self.forbid(f"{self.test} starts a process ({event} {arguments!r})")
        if event in CONNECTIONS:
            address = arguments[CONNECTIONS[event]]
            if not (is_number(address) if event == "socket.getaddrinfo" else is_local(address)):
                self.forbid(f"{self.test} reaches beyond loopback ({event} {address!r})")

    def forbid(self, message):
        self.seen.append(message)
        raise ForbiddenError(message)


def is_local(address):
    """A Unix socket, or loopback."""
    if not isinstance(address, tuple):
        return True
    return address[0] in ("localhost", "") or ipaddress.ip_address(address[0]).is_loopback


def is_number(host):
    """A host that no name server is asked for."""
    if host in ("localhost", b"localhost", "", b"", None):
        return True
    try:
        ipaddress.ip_address(host if isinstance(host, str) else host.decode())
    except ValueError:
        return False
    return True


guard = Guard()
sys.addaudithook(guard)


@pytest.fixture(scope="session")
def tmp_path_factory(request, tmp_path_factory):
    """Make folders in memory where it has room: ext4 takes no inode that was freed a moment ago, and looks for others.

    Leftovers of failed tests come to where pytest keeps them.
    """
    if not (os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM):
        yield tmp_path_factory
        return
    for killed in MEMORY.glob(f"{FOLDERS}*"):
        with contextlib.suppress(FileNotFoundError):  # another worker removes it
            if not Path("/proc", killed.name.split("-")[-2]).exists() and killed.stat().st_uid == os.geteuid():
                remove_tree(killed)
    in_memory = copy.copy(tmp_path_factory)
    in_memory._basetemp = Path(tempfile.mkdtemp(prefix=f"{FOLDERS}{os.getpid()}-", dir=MEMORY))
    yield in_memory
    if request.session.testsfailed:
        shutil.move(in_memory._basetemp, tmp_path_factory.getbasetemp())
    else:
        remove_tree(in_memory._basetemp)


@pytest.fixture(scope="session", autouse=True)
def passwords_stretched_once():
    """Take scrypt's quarter of a second once for a password and a salt, not each time that a test opens the key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_stretch", functools.cache(keys._stretch))
        yield


@pytest.fixture(scope="session", autouse=True)
def command_lines_made_once():
    """Make typer's commands once, not for each command that a test types: all options of all verbs are in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session")
def key_pairs(tmp_path_factory):
    """Two pairs of keys, private and public, with the password `canary`, which takes long to stretch."""
    return [key_files.make_pair(tmp_path_factory.mktemp("keys"), "canary") for _ in range(2)]


@pytest.fixture
def gpus_are(monkeypatch):
    """Put a table of GPUs in place of the real one, so that a row for a new GPU changes no expectation."""

    def put(table):
        names = {"all_gpus": "known", "models_by_capability": "by_capability"}
        for ours, theirs in names.items():
            cached = getattr(models, theirs)
            cached()  # those who have imported it keep the real table
            monkeypatch.setattr(gpu_table, ours, cached.__wrapped__)
            monkeypatch.setattr(models, theirs, cached.__wrapped__)
        monkeypatch.setattr(gpu_table, "gpus", lambda: table)
        monkeypatch.setattr(models, "common", lambda: table)
        monkeypatch.setattr(models, "model", models.model.__wrapped__)

    return put


@pytest.fixture(autouse=True)
def stay_inside(request):
    guard.seen.clear()
    guard.test = request.node.name
    yield
    guard.test = None
    assert not guard.seen


@pytest.fixture(autouse=True)
def one_day(monkeypatch):
    """Code that judges by the date gets this one."""
    monkeypatch.setattr("graphcrate.host.settings.today", lambda: TODAY)


@pytest.fixture
def typed(monkeypatch, capsys):
    """Types a command of build.py, which hands some to upkeep: (exit code, stdout, stderr)."""
    from graphcrate.cli import main
    from graphcrate.host.defects import TRACEBACK
    from graphcrate.model.command import is_upkeeps
    from upkeep import __main__ as upkeep

    monkeypatch.setenv(TRACEBACK, "1")  # a defect that a test meets is shown whole

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["build.py", *map(str, arguments)])
        code = 0
        try:
            (upkeep if is_upkeeps(arguments) else main).main()
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


# --- what many tests need ---------------------------------------------------------------------------------------------
# Imports stand inside: of graphcrate a test loads what it needs itself.


@pytest.fixture
def cache(tmp_path):
    from graphcrate.host.disk.cache import Cache

    opened = Cache(tmp_path / "cache")
    yield opened
    opened.close()


@pytest.fixture
def context(tmp_path, monkeypatch):
    """An empty folder as the project, with a cache of its own: what commands work in, and the working folder."""
    from graphcrate.host.context import Context

    made = Context(root=tmp_path, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)})
    monkeypatch.setattr(Context, "here", classmethod(lambda kind: made))
    monkeypatch.chdir(tmp_path)
    yield made
    made.cache.close()


@pytest.fixture
def no_places(monkeypatch):
    """The environment of a user who knows no mirror of Debian's, on a machine that is no Debian."""
    from debroot import mirrors

    monkeypatch.setattr(mirrors, "of_machine", lambda *_: None)
    monkeypatch.setattr("patienthttp.retry.FIRST_PAUSE", 0.0)
    return dict.fromkeys(("DEBIAN_FALLBACK", "DEBIAN_ARCHIVE", "DEBIAN_SNAPSHOT"), mirrors.NONE)


@pytest.fixture
def server():
    """A package index on loopback."""
    from tests.unit.wheel_server import WheelServer

    with WheelServer() as running:
        yield running


@pytest.fixture
def registry_server():
    """A registry on loopback, to be read."""
    from tests.unit.registry_server import RegistryServer

    with RegistryServer() as running:
        yield running


@pytest.fixture
def registry():
    """A strict registry on loopback, to push to."""
    from tests.unit.registry_server import RegistryServer

    with RegistryServer(strict=True) as running:
        yield running


@pytest.fixture
def channels(server, monkeypatch):
    """The same server in place of PyTorch's and PyG's channels; nothing waits before a retry."""
    from graphcrate.compat.facts import addresses
    from graphcrate.model.recipe import Channel

    monkeypatch.setattr("patienthttp.retry.FIRST_PAUSE", 0.0)
    monkeypatch.setattr("graphcrate.resolve.sources.search.AGAIN", (0.001, 0.002))
    monkeypatch.setitem(addresses.ROOTS, Channel.PYTORCH, server.url("/whl"))
    monkeypatch.setitem(addresses.ROOTS, Channel.PYG, server.url("/whl"))
    return server


@pytest.fixture
def mirrors(monkeypatch):
    """Two servers in place of the public mirrors, empty."""
    from graphcrate.resolve.sources import wheel_mirrors
    from tests.unit.wheel_server import WheelServer

    with WheelServer() as one, WheelServer() as two:
        known = {
            name: wheel_mirrors.WheelMirror(pytorch=server.url("/whl/{tag}"), pypi=server.url("/simple"))
            for name, server in {"one": one, "two": two}.items()
        }
        monkeypatch.setattr(wheel_mirrors, "MIRRORS", known)
        yield one, two


@pytest.fixture
def program(monkeypatch):
    """Stands in for uv and for the resolution of bases and toolkits; remembers what it was asked."""
    from graphcrate.resolve.stack import pinning
    from tests.unit import small_index

    stand_in = small_index.Uv()
    monkeypatch.setattr(pinning, "compile_requirements", stand_in)
    small_index.stand_in_bases(monkeypatch)
    return stand_in


@pytest.fixture
def lock(channels, cache, program):
    """Locks a candidate of a small recipe with what the small index has: `small_index.locked`."""
    from tests.unit import small_index

    small_index.fill(channels)
    return functools.partial(small_index.locked, channels, cache)


@pytest.fixture
def world(channels, cache, program, progress, monkeypatch):
    """The world in which candidates are chosen."""
    from tests.unit import resolve_world, small_index

    small_index.fill(channels)
    return resolve_world.World(channels, cache, progress, monkeypatch)


class Recorder:
    """Progress that remembers: `lines` of notes, `total` announced and `done` reported by tasks."""

    width = 0  # no terminal

    def __init__(self):
        self.lines, self.total, self.done = [], 0, 0
        self._lock = threading.Lock()

    def note(self, message):
        self.lines.append(message)

    def warn(self, message):
        self.note(message)

    @contextlib.contextmanager
    def task(self, description, total, unit="", *, brief=False):
        self.total += total
        yield self

    def advance(self, amount):
        with self._lock:
            self.done += amount


@pytest.fixture
def progress():
    return Recorder()


@pytest.fixture
def ctx(tmp_path, progress):
    """This project with a cache and a home of its own; what it notes is in `progress`."""
    from graphcrate.host.context import Context
    from tests import ROOT

    environment = {"GRAPHCRATE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path), "PATH": "/usr/bin"}
    made = Context(root=ROOT, environment={**environment, "PIP_CONFIG_FILE": "/dev/null"})
    vars(made)["progress"] = progress
    yield made
    made.cache.close()
