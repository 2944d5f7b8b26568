"""Docker, podman and a registry of the tests' own: the machine's containers, images and network stay untouched."""

import contextlib
import json
import os
import random
import socket
import subprocess

from tests.conftest import program
from tests.engines.workplace import until

#: A mount and a network namespace; the daemon starts once its network is there. When pytest dies, so does the daemon.
APART = ["setpriv", "--pdeathsig", "TERM", "unshare", "--net", "--mount", "--propagation", "slave"]
WAIT_FOR_NETWORK = 'echo apart && read -r _ && exec "$@" </dev/null'
#: the name server that slirp4netns offers; it asks those of the machine
NAME_SERVER = "10.0.2.3"
MACHINE = "10.0.2.2"  #: how the daemon, its builds and its containers reach this machine's loopback
#: Ports of the first worker, and how many each worker has: lower than what the kernel gives to connections and
#: `bind(0)` (32768 on), so that none is somebody else's by the time a program takes it; above those of examples/.
FIRST_PORT, PORTS_EACH, WORKERS = 12_000, 1_000, 8
_given = set()


def free_ports(count):
    """Unused ports, each given once: for programs that are told a number and take it seconds later."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    first = FIRST_PORT + PORTS_EACH * worker
    free = (port for port in random.sample(range(first, first + PORTS_EACH), PORTS_EACH) if _is_free(port))
    found = [next(free) for _ in range(count)]
    _given.update(found)
    return found


def _is_free(port):
    with socket.socket() as door, contextlib.suppress(OSError):
        door.bind(("", port))
        return port not in _given
    return False


@contextlib.contextmanager
def docker_daemon(folder):
    """Address of a daemon that keeps everything below `folder`; its containers and builds reach the network.

    slirp4netns carries their packets as a plain program would: no bridge and no firewall rule outside the namespace.
    """
    door, log = folder / "docker.sock", folder / "log"
    command = [program("dockerd"), "--host", f"unix://{door}", "--pidfile", folder / "pid", "--dns", NAME_SERVER]
    command += ["--data-root", folder / "root", "--exec-root", folder / "exec", "--insecure-registry", f"{MACHINE}/32"]
    version = [program("docker"), "--host", f"unix://{door}", "version"]
    with log.open("w") as stream, contextlib.ExitStack() as stack:
        daemon = subprocess.Popen(
            [*APART, "sh", "-c", WAIT_FOR_NETWORK, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
        )
        stack.callback(stop, daemon)
        assert daemon.stdout.readline() == b"apart\n", log.read_text()
        stack.callback(stop, start_network(daemon.pid, stream))
        daemon.stdin.write(b"go\n")
        daemon.stdin.close()
        # its socket is there a little before it takes calls
        with log_of(log):
            until(lambda: not subprocess.run(version, capture_output=True, check=False).returncode, process=daemon)
        yield f"unix://{door}"


def start_network(pid, log):
    """Connect the namespace of a process through slirp4netns; returns once that is done."""
    read, write = os.pipe()
    command = ["setpriv", "--pdeathsig", "TERM", program("slirp4netns"), "--configure", "--mtu=65520"]
    command += [f"--ready-fd={write}", "--netns-type=path", f"/proc/{pid}/ns/net", "tap0"]
    slirp = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[write])
    os.close(write)
    with os.fdopen(read, "rb") as ready:
        assert ready.read(1) == b"1", f"slirp4netns ended with {slirp.wait(10)}"
    return slirp


@contextlib.contextmanager
def log_of(path):
    """Show the end of a log, or of all in a folder, where an assertion fails."""
    try:
        yield
    except AssertionError as error:
        logs = [f"{log.name}: {log.read_text()[-3000:]}" for log in (path.glob("*.log") if path.is_dir() else [path])]
        raise AssertionError("\n".join([str(error), *logs])) from error


def stop(process):
    """Ask it to end, and insist."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@contextlib.contextmanager
def registry_server(folder, *, auth=None, tls=None):
    """Address (host:port) of a registry on this machine's loopback; its images are below `folder`, which is made.

    `auth`: that part of its settings. `tls`: (certificate, key), else it speaks without.
    """
    folder.mkdir(exist_ok=True)
    (port,) = free_ports(1)
    settings, log = folder / "registry.yml", folder / "log"
    http = {"addr": f"127.0.0.1:{port}"}
    if tls is not None:
        http["tls"] = {"certificate": str(tls[0]), "key": str(tls[1])}
    storage = {"filesystem": {"rootdirectory": f"{folder}/images"}}
    document = {"version": 0.1, "storage": storage, "http": http, **({"auth": auth} if auth else {})}
    settings.write_text(json.dumps(document))  # YAML, too
    with log.open("w") as stream, contextlib.ExitStack() as stack:
        command = ["setpriv", "--pdeathsig", "TERM", program("docker-registry"), "serve", settings]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        stack.callback(stop, server)
        with log_of(log):
            until(lambda: listens(port), process=server)
        yield f"127.0.0.1:{port}"


def listens(port):
    """Return whether something takes connections there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def shared_docker(shared):
    """Address of the one Docker daemon of all workers. Its builds reach the network."""
    (shared.folder / "docker").mkdir(exist_ok=True)
    return shared.running("docker-daemon", lambda: docker_daemon(shared.folder / "docker"))


def shared_podman(shared):
    """os.environ with the settings of the one podman of all workers: its storage apart, the machine's network."""
    folder = shared.folder / "podman"
    folder.mkdir(exist_ok=True)
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/run"\n'
    )
    # the limits: a machine without CAP_SYS_RESOURCE cannot raise them to podman's own
    (folder / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\nnetns = "host"\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
    )
    files = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_STORAGE_CONF": "storage.conf"}
    return {**os.environ, **{name: str(folder / file) for name, file in files.items()}}
