"""Unit tests start no process and open no connection beyond loopback. Python's audit events say who tries."""

import ipaddress
import sys

import pytest

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


@pytest.fixture(autouse=True)
def stay_inside(request):
    guard.seen.clear()
    guard.test = request.node.name
    yield
    guard.test = None
    assert not guard.seen


@pytest.fixture
def typed(monkeypatch, capsys):
    """Types a command of build.py: (exit code, stdout, stderr)."""
    from graphcrate import cli

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["build.py", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run
