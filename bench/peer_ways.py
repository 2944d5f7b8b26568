"""Builds by Docker, buildah and Apptainer for bench/peers.py, each in a folder of its own, with time and size."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.clones import KEPT
from bench.conversion import children_seconds, peak_disk, used
from bench.main_job import family
from bench.page import say
from bench.peer_files import FILES, SECRETS, BuildContext
from tests.engines.install import find, offered_by_apt, prepare_apptainer
from tools.prepare import apt_install, quiet

LACKS_CAPABILITY = "Requesting capability set"  #: says Apptainer to root that has not all of them
#: The machine's mounts stay as they are, and what is mounted from the disk is not counted twice.
APART = ("setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "--propagation", "slave")
DOCKER = "/usr/bin/docker"  #: Debian's: another on the PATH may lack BuildKit's plugin
SECONDS_TO_START = 60


class StepError(Exception):
    """A step that did not end well; its text fits into a cell of a table."""


@dataclass(frozen=True)
class Cost:
    """The cost of a way up to the end of a step. `size`: bytes of the file that it made, None for a store."""

    seconds: float
    processor: float
    size: int | None
    disk: int
    most: int


@dataclass(frozen=True)
class Step:
    """A row. `end` says which step of ours it is compared with; `cost` is None where it failed, for the reason."""

    name: str
    gives: str
    end: Literal["image", "sif"]
    cost: Cost | None
    reason: str = ""
    measure: bool = False  #: whether it is what others to the same end are compared with


@dataclass
class Way:
    """One way to an image, which keeps all it has below `folder`; what its steps take adds up."""

    folder: Path
    daemon: int | None = None  #: the process that works for its commands
    door: str = ""  #: where that listens
    seconds: float = 0.0
    processor: float = 0.0
    most: int = 0

    def __post_init__(self) -> None:
        for name in ("home", "tmp"):
            (self.folder / name).mkdir(parents=True)

    @property
    def log(self) -> Path:
        """Return the output of the last command."""
        return self.folder / "log"

    def environment(self) -> dict[str, str]:
        """Of this machine's, what reaches the network; all places are in the folder."""
        places = {"HOME": "home", "TMPDIR": "tmp", "APPTAINER_TMPDIR": "tmp", "APPTAINER_CACHEDIR": "home"}
        variables = {name: os.environ[name] for name in KEPT if name in os.environ}
        variables |= {name: str(self.folder / place) for name, place in places.items()}
        variables |= {"DOCKER_BUILDKIT": "1", "DOCKER_HOST": self.door}
        return variables | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}

    def run(self, command: Sequence[str], cwd: Path) -> str:
        """Run a command to its end; what it printed. Raises StepError."""
        words = [word for word in command if word not in APART]
        say(" ".join(words)[:160])
        try:
            with self.log.open("w") as stream:
                done = subprocess.run(
                    command, cwd=cwd, env=self.environment(), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                    check=False,
                )  # fmt: skip
        except FileNotFoundError as error:
            raise StepError(f"{error.filename} is not here") from error
        said = self.log.read_text(errors="replace")
        if done.returncode:
            raise StepError(f"{Path(words[0]).name} ended with {done.returncode}: {last_words(said)}")
        return said

    def take(self, command: Sequence[str], cwd: Path, result: Path | None = None) -> Cost:
        """The same, measured. Processor seconds are those of all processes that work for it."""
        os.sync()  # what the step before left to be written is not this one's
        before, start = children_seconds() + of_family(self.daemon), time.monotonic()
        with peak_disk(self.folder) as peak:
            self.run(command, cwd)
            self.seconds += time.monotonic() - start
        self.processor += children_seconds() + of_family(self.daemon) - before
        disk = used(self.folder)
        self.most = max(self.most, peak(), disk)
        size = None if result is None else used(result) if result.is_dir() else result.stat().st_size
        return Cost(self.seconds, self.processor, size, disk, self.most)


def of_family(ancestor: int | None) -> float:
    """Processor seconds of a process and all that it started, with those that have ended and were waited for."""
    ticks = 0
    for process in family(ancestor) if ancestor else ():
        try:
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(word) for word in words[11:15])  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def last_words(said: str) -> str:
    """The last line that says something, for a cell of a table."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1].replace("|", "/")[:200] if lines else "without a word"


def install(name: str) -> None:
    """Install a peer by apt-get where it is missing. Raises StopError."""
    if name == "apptainer":
        prepare_apptainer()
        return
    programs = {"buildah": "buildah"} if name == "buildah" else {"dockerd": "docker.io", "runc": "runc"}
    if name == "docker" and offered_by_apt("docker-cli"):  # packages of their own from Debian 13 on
        programs |= {DOCKER: "docker-cli", "/usr/libexec/docker/cli-plugins/docker-buildx": "docker-buildx"}
    apt_install([package for program, package in programs.items() if not find(program)])


def by_docker(way: Way, context: BuildContext) -> Iterator[Step]:
    """An image in the daemon's store, an archive, and the SIF that Apptainer makes of it.

    Raises StepError, and StopError where Apptainer cannot be installed.
    """
    archive, sif = way.folder / "peer.tar", way.folder / "peer.sif"
    with docker_daemon(way):
        for base in context.bases:
            way.run([DOCKER, "import", str(context.tar(base)), f"localhost/{base}"], context.files)
        version = way.run([DOCKER, "version", "--format", "{{.Server.Version}}"], context.files).strip()
        build = [DOCKER, "build", "--network", "host", "--progress", "plain", "--tag", "peer"]
        cost = way.take([*build, *secret_options(context), "."], context.files)
        yield Step(f"Docker {version}, `docker build`", "an image in its store", "image", cost)
        cost = way.take([DOCKER, "save", "--output", str(archive), "peer"], context.files, archive)
        yield Step("… and `docker save`", "an archive, not compressed", "image", cost)
        install("apptainer")
        cost = apptainer_build(way, [str(sif), f"docker-archive:{archive}"], context, sif)
        yield Step("… and `apptainer build` of that", "SIF", "sif", cost)


def by_buildah(way: Way, context: BuildContext) -> Iterator[Step]:
    """An image in buildah's store, and an OCI layout of it. Raises StepError."""
    layout = way.folder / "oci"
    buildah = [*APART, "buildah", "--root", str(way.folder / "root"), "--runroot", str(way.folder / "run")]
    buildah += ["--storage-driver", "overlay"]
    for base in context.bases:
        said = way.run([*buildah, "pull", "--quiet", f"oci:{context.base(base)}:latest"], context.files)
        way.run([*buildah, "tag", said.split()[-1], f"localhost/{base}"], context.files)
    version = way.run(["buildah", "--version"], context.files).split()[2]
    # no runtime's control groups: some kernels and crun do not go together
    build = [*buildah, "build", "--isolation", "chroot", "--network", "host", "--tag", "peer"]
    cost = way.take([*build, *secret_options(context), "."], context.files)
    yield Step(f"buildah {version}, `buildah build`", "an image in its store", "image", cost)
    cost = way.take([*buildah, "push", "peer", f"oci:{layout}:peer"], context.files, layout)
    yield Step("… and `buildah push peer oci:…`", "OCI layout", "image", cost)


def by_apptainer(way: Way, context: BuildContext) -> Iterator[Step]:
    """A SIF. Raises StepError."""
    sif = way.folder / "peer.sif"
    version = way.run(["apptainer", "--version"], context.files).split()[-1]
    bound = ["--bind", f"{context.files}:{FILES},{context.secrets}:{SECRETS}"]
    cost = apptainer_build(way, [*bound, str(sif), "peer.def"], context, sif)
    yield Step(f"Apptainer {version}, `apptainer build`", "SIF", "sif", cost)


PEERS = {"docker": by_docker, "buildah": by_buildah, "apptainer": by_apptainer}


def apptainer_build(way: Way, words: Sequence[str], context: BuildContext, sif: Path) -> Cost:
    """Build as root, or as root of a user namespace where this one lacks capabilities. Raises StepError."""
    try:
        return way.take(["apptainer", "build", *words], context.files, sif)
    except StepError:
        if LACKS_CAPABILITY not in way.log.read_text(errors="replace"):
            raise
    say("root lacks capabilities here: again with --fakeroot, which alone is measured")
    return way.take(["apptainer", "build", "--fakeroot", "--force", *words], context.files, sif)


def secret_options(context: BuildContext) -> list[str]:
    """Options of docker and buildah that show a build this machine's settings; no layer has them."""
    files = sorted(context.secrets.iterdir())
    return [word for path in files for word in ("--secret", f"id={path.name},src={path}")]


@contextmanager
def docker_daemon(way: Way) -> Iterator[None]:
    """A daemon with a store below the way's folder, the machine's own network, and no bridge. Raises StepError."""
    # the path of a socket has at most 107 characters
    sockets = Path(tempfile.mkdtemp(prefix="peers-", dir="/run"))
    way.door = f"unix://{sockets}/door"
    command = [*APART, "dockerd", "--host", way.door, "--pidfile", str(sockets / "pid")]
    command += ["--data-root", str(way.folder / "root"), "--exec-root", str(sockets)]
    command += ["--bridge", "none", "--iptables=false"]
    log = way.folder / "daemon"
    with log.open("w") as stream:
        daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=way.environment()
        )
    try:
        end = time.monotonic() + SECONDS_TO_START
        while quiet([DOCKER, "version"], way.environment()).returncode:
            if daemon.poll() is not None or time.monotonic() > end:
                raise StepError(f"dockerd does not start: {last_words(log.read_text(errors='replace'))}")
            time.sleep(0.5)
        way.daemon = daemon.pid
        yield
    finally:
        way.daemon, way.door = None, ""
        daemon.terminate()
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(sockets, ignore_errors=True)
