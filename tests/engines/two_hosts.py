"""Two hosts on one machine: network namespaces with an address and an sshd each, and one for the client.

All three see the same files. A person at the third has a home with a key that both hosts take; a plain user, if asked.
"""

import contextlib
import os
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import program
from tests.engines.daemons import log_of, stop
from tests.engines.workplace import call, kill, until

SSHD = """\
Port 22
ListenAddress {address}
HostKey {folder}/key-{number}
PidFile none
AuthorizedKeysFile {folder}/home/.ssh/id_ed25519.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
SetEnv HOME={folder}/home
LogLevel ERROR
"""


@dataclass(frozen=True)
class Hosts:
    """Addresses of two hosts and of the third; `prefix` goes before a command that the person runs there."""

    folder: Path
    names: tuple
    addresses: tuple
    prefix: tuple
    third: str
    person: str  #: the third's name

    @property
    def home(self):
        return self.folder / "home"

    def at(self, number, *command):
        """The words that start a command on a host (0 or 1), without ssh."""
        return [program("ip"), "netns", "exec", self.names[number], *map(str, command)]

    def start(self, *command, **options):
        """Start a command where the person is, as a process group of its own."""
        return subprocess.Popen(
            [*self.prefix, *map(str, command)],
            env={**os.environ, "HOME": str(self.home), **options.pop("environment", {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,
            **options,
        )

    def run(self, *command, timeout=120, **options):
        """(exit code, what it said)."""
        process = self.start(*command, **options)
        try:
            said, _ = process.communicate(timeout=timeout)
        except BaseException:
            kill(process)
            raise
        return process.returncode, said


@contextlib.contextmanager
def two_hosts(folder, user=None):
    """Make them, with all files in `folder`; take everything away at the end. `user`: who the person is, else root."""
    mark = secrets.token_hex(3)
    bridge, person, names = f"gcb{mark}", f"gc-{mark}-p", tuple(f"gc-{mark}-{number}" for number in range(2))
    part = 1 + int(mark, 16) % 250
    addresses = tuple(f"10.231.{part}.{10 + number}" for number in range(2))
    (folder / "home" / ".ssh").mkdir(parents=True, mode=0o700)
    _key(folder / "home" / ".ssh" / "id_ed25519")
    if user:
        folder.chmod(0o755)
        call("chown", "-R", f"{user.pw_uid}:{user.pw_gid}", folder / "home")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with contextlib.ExitStack() as stack:
        for name in (person, *names):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name, check=False)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", person, "link", "add", bridge, "type", "bridge")
        _ip("-n", person, "address", "add", f"10.231.{part}.1/24", "dev", bridge)
        _ip("-n", person, "link", "set", bridge, "up")
        for number, (name, address) in enumerate(zip(names, addresses, strict=True)):
            end = f"v{number}{mark}"
            _ip("-n", person, "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", person, "link", "set", end, "master", bridge, "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            stack.callback(stop, _sshd(folder, name, number, address))
        prefix = (program("ip"), "netns", "exec", person)
        drop = (
            (program("setpriv"), f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups") if user else ()
        )
        hosts = Hosts(folder, names, addresses, (*prefix, *drop), f"10.231.{part}.1", person)
        _learn_keys(hosts)
        yield hosts


def _ip(*words, check=True):
    subprocess.run([program("ip"), *words], check=check, capture_output=True)


def _key(path):
    subprocess.run([program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def _sshd(folder, name, number, address):
    _key(folder / f"key-{number}")
    config = folder / f"sshd-{number}.conf"
    config.write_text(SSHD.format(address=address, folder=folder, number=number))
    command = [program("ip"), "netns", "exec", name, "setpriv", "--pdeathsig", "TERM", program("sshd"), "-D", "-e"]
    with (folder / f"sshd-{number}.log").open("w") as log:
        return subprocess.Popen([*command, "-f", config], stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _learn_keys(hosts):
    """Run what a user types once: `ssh-keyscan` for both."""
    known = hosts.home / ".ssh" / "known_hosts"

    def learnt():
        command = [*hosts.prefix, program("ssh-keyscan"), "-t", "ed25519", *hosts.addresses]
        known.write_bytes(subprocess.run(command, capture_output=True, check=False).stdout)
        return known.read_text().count("ssh-ed25519") == len(hosts.addresses)

    with log_of(hosts.folder):
        until(learnt, 20)
