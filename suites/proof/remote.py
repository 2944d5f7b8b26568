"""A command on another host: through ssh (paramiko), inside tmux, so that it outlives the connection.

What it writes and its exit code are kept there, in ~/.local/state/graphcrate/RUN/RANK, until they have been fetched.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import shlex
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proof.hosts import Host

SECONDS_TO_CONNECT = 15.0
SECONDS_TO_ANSWER = 60.0  #: for a small command
SILENCE = 15  #: seconds without a sign of life from a host
SECONDS_BETWEEN_SIGNS = 5  #: of life, from a connection without traffic
KNOWN_HOSTS = "~/.ssh/known_hosts"
STATE = '"${XDG_STATE_HOME:-$HOME/.local/state}"/graphcrate'
#: Runs the command. The trap keeps the shell itself alive to write the exit code; programs that it starts end of TERM.
RUN = """\
echo $$ > {state}/pid
trap : TERM INT HUP
cd {folder} || exit 1
{exports}{command} > {state}/log 2>&1 < /dev/null
echo $? > {state}/exit.new && mv {state}/exit.new {state}/exit
"""
START = """\
set -e
mkdir -p {state}
cat > {state}/run.sh
: > {state}/log
tmux -L {session} new-session -d -s {session} sh {state}/run.sh
for each in 1 2 3 4 5 6 7 8 9 10; do [ -s {state}/pid ] && exit 0; sleep 0.3; done
echo 'tmux started nothing' >&2
exit 1
"""
STOP = """\
[ -s {state}/pid ] || exit 0
group=$(cat {state}/pid)
kill -TERM -$group 2> /dev/null || exit 0
for each in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    kill -0 -$group 2> /dev/null || exit 0
    sleep 0.2
done
kill -KILL -$group
tmux -L {session} kill-server 2> /dev/null
exit 0
"""


class Machine:
    """A host with a connection to it, for one run."""

    def __init__(self, host: Host, run: str, connect: Callable[[Host], Any]) -> None:
        self.host = host
        self.session = f"{run}-{host.rank}"
        self.run = f"{STATE}/{run}"
        self.state = f"{self.run}/{host.rank}"
        self._connect = connect
        self._client = connect(host)

    def reconnect(self) -> None:
        """A new connection in place of one that was lost. Raises Fault."""
        self.close()
        self._client = self._connect(self.host)

    def close(self) -> None:
        """End the connection; what runs there goes on."""
        with contextlib.suppress(Exception):
            self._client.close()

    def ask(self, script: str, given: str = "", seconds: float = SECONDS_TO_ANSWER) -> tuple[int, str]:
        """Run a script of sh there; its exit code and what it said. Raises Fault when the host does not answer."""
        filled = script.replace("{state}", self.state).replace("{run}", self.run).replace("{session}", self.session)
        try:
            self._check()
            stdin, stdout, stderr = self._client.exec_command(f"sh -c {shlex.quote(filled)}", timeout=seconds)
            stdin.write(given)
            stdin.channel.shutdown_write()
            said = stdout.read() + stderr.read()
            return stdout.channel.recv_exit_status(), said.decode(errors="replace").strip()
        except (OSError, EOFError, _ssh_error()) as error:
            raise Fault(Layer.NETWORK, f"{self.host} does not answer any more: {error or type(error).__name__}") from (
                error
            )

    def _check(self) -> None:
        transport = self._client.get_transport()
        if transport is None or not transport.is_active():
            raise EOFError("there is no connection any more")

    def complaints(self) -> list[str]:
        """List what is missing there, before anything is started."""
        first, folder = self.host.python[0], self.host.folder or "."
        no_folder, no_program = f"there is no folder {folder} (dst_paths)", f"there is no program {first} (python_bins)"
        script = (
            'command -v tmux > /dev/null || echo "tmux is not installed (apt-get install tmux)"\n'
            f"cd {_path(folder)} 2> /dev/null || echo {shlex.quote(no_folder)}\n"
            f"command -v {_path(first)} > /dev/null || echo {shlex.quote(no_program)}\n"
            '[ ! -e {state} ] || echo "a run of this name was started there: --attach or --stop it, or name another"\n'
        )
        _, said = self.ask(script)
        return [f"{self.host}: {line}" for line in said.splitlines()]

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a command in a tmux session named after the run. Raises Fault."""
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
        words = " ".join([_path(command[0]), *map(shlex.quote, command[1:])])
        script = RUN.format(state=self.state, folder=_path(self.host.folder or "."), exports=exports, command=words)
        code, said = self.ask(START, script)
        if code:
            raise Fault(Layer.MACHINE, f"{self.host}: the program could not be started: {said or f'exit code {code}'}")

    def follow(self, on_line: Callable[[str], None], already: int = 0) -> int | None:
        """Tell every line after the first `already` until it ends; its exit code, or None when it left none.

        Raises Fault when the connection is lost.
        """
        script = f'tail -n +{already + 1} -F --pid="$(cat {self.state}/pid)" {self.state}/log 2> /dev/null'
        try:
            self._check()
            _, stdout, _ = self._client.exec_command(f"sh -c {shlex.quote(script)}")
            for line in stdout:
                on_line(line.rstrip("\n"))
            if stdout.channel.recv_exit_status() < 0:
                raise EOFError("the connection was closed")
        except (OSError, EOFError, _ssh_error()) as error:
            raise Fault(Layer.NETWORK, f"the connection to {self.host} was lost: {error}") from error
        _, said = self.ask("cat {state}/exit 2> /dev/null")
        return int(said) if said.isdigit() else None

    def stop(self) -> None:
        """End what runs there: politely, after 3 s by force. Raises Fault when the host does not answer."""
        self.ask(STOP)

    def forget(self) -> None:
        """Remove what is kept there of an ended run."""
        with contextlib.suppress(Fault):
            self.ask("rm -r {state}; rmdir {run} 2> /dev/null")  # the run's own, where hosts share a home


def _path(text: str) -> str:
    """A path for the shell there: quoted, but with a home for its `~/`."""
    return f'"$HOME"/{shlex.quote(text[2:])}' if text.startswith("~/") else shlex.quote(text)


def _ssh_error() -> Any:  # noqa: ANN401
    import paramiko

    return paramiko.SSHException


def connector(accept_new: bool, identity: Path | None) -> Callable[[Host], Any]:
    """The way to connect: with the agent and the keys of ~/.ssh, or `identity`; never with a password. Raises Fault."""
    try:
        import paramiko
    except ImportError as error:
        raise Fault(
            Layer.MACHINE, f"{error}: `pip install paramiko pyyaml`, or start this program inside an image with GLT"
        ) from error

    class Refuse(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:  # noqa: ANN401
            raise Unknown(key.get_name(), key.asbytes())

    writing = threading.Lock()

    class Accept(paramiko.AutoAddPolicy):
        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:  # noqa: ANN401
            with writing:  # each connection reads the file and writes it whole
                super().missing_host_key(client, hostname, key)

    def connect(host: Host) -> Any:  # noqa: ANN401
        client = paramiko.SSHClient()
        known = Path(KNOWN_HOSTS).expanduser()
        if accept_new:
            known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            known.touch()
        if known.is_file():
            client.load_host_keys(str(known))
        client.set_missing_host_key_policy(Accept() if accept_new else Refuse())
        settings = _ssh_settings(host, identity)
        try:
            client.connect(
                **settings,
                timeout=SECONDS_TO_CONNECT,
                banner_timeout=SECONDS_TO_CONNECT,
                auth_timeout=SECONDS_TO_CONNECT,
            )
        except Exception as error:
            client.close()
            layer = Layer.NETWORK
            raise Fault(layer, f"{host}: {explain(error, host, settings)}") from error
        transport = client.get_transport()
        transport.set_keepalive(SECONDS_BETWEEN_SIGNS)  # for routers that forget silent connections
        keep_alive(transport.sock)  # a host that is gone
        return client

    return connect


class Unknown(Exception):  # noqa: N818  a host is
    """A host with an unknown key."""

    def __init__(self, kind: str, key: bytes) -> None:
        super().__init__(kind)
        self.kind = kind
        self.fingerprint = "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _ssh_settings(host: Host, identity: Path | None) -> dict[str, Any]:
    """Return the settings of paramiko's connect, with the user's ~/.ssh/config taken into account."""
    import paramiko

    settings: dict[str, Any] = {"hostname": host.address, "port": host.port, "username": host.user}
    config = Path("~/.ssh/config").expanduser()
    if config.is_file():
        found = paramiko.SSHConfig.from_path(str(config)).lookup(host.address)
        settings["hostname"] = found.get("hostname", host.address)
        if found.get("identityfile"):
            settings["key_filename"] = [path for path in found["identityfile"] if Path(path).is_file()]
    if identity is not None:
        settings.update(key_filename=[str(identity)], look_for_keys=False, allow_agent=False)
    return settings


def explain(error: Exception, host: Host, settings: Mapping[str, Any]) -> str:
    """Explain why there is no connection, and what to type."""
    import paramiko

    where = f"-p {host.port} {host.user}@{host.address}"
    if isinstance(error, Unknown):
        return (
            f"its key is not in {KNOWN_HOSTS}; it shows {error.kind} {error.fingerprint}. Compare that with the host's "
            f"own (`ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` there), then `ssh-keyscan -p {host.port} "
            f"{host.address} >> {KNOWN_HOSTS}`; or --accept-new-hosts takes every new key"
        )
    if isinstance(error, paramiko.BadHostKeyException):
        return (
            f"its key is another than the one in {KNOWN_HOSTS}: the host was set up again, or somebody is between. If "
            f"you know why: `ssh-keygen -R '[{host.address}]:{host.port}'`, then connect once with `ssh {where}`"
        )
    if isinstance(error, (paramiko.PasswordRequiredException, paramiko.AuthenticationException)):
        keys = ", ".join(map(str, settings.get("key_filename", []))) or "the agent's and those in ~/.ssh"
        return (
            f"it refuses the user {host.user} with these keys: {keys}. `ssh-copy-id {where}` puts yours there, "
            f"--identity FILE takes another, `ssh-add` one with a passphrase"
        )
    if isinstance(error, socket.gaierror):
        return f"nobody knows this name here ({error.strerror}); an IP address works too"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        reasons = {getattr(each, "strerror", str(each)) for each in error.errors.values()}
        return (
            f"port {host.port} takes no connection ({', '.join(sorted(map(str, reasons)))}): sshd does not run there, "
            "listens on another port (`ports` in the config), or a firewall is between"
        )
    if isinstance(error, (socket.timeout, TimeoutError)):
        return f"no answer within {SECONDS_TO_CONNECT:g} s: the host is down, or a firewall is between"
    return f"{type(error).__name__}: {error}; `ssh {where} true` tells more"


def keep_alive(door: socket.socket) -> None:
    """Have the kernel close a connection whose other host is silent for SILENCE seconds."""
    settings = (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE // 3),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE // 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE * 1000),
    )
    for level, option, value in settings:
        with contextlib.suppress(OSError):  # a sandboxed kernel may not know one
            door.setsockopt(level, option, value)
