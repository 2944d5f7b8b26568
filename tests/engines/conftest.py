"""The small real image that tests of engines and of the main job share; it is built once, through the command line."""

import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import pytest

from tests.conftest import program
from tests.engines import pushing
from tests.engines.daemons import docker_daemon, podman_environment, registry_server
from tests.engines.debian import make_base, pack_layout
from tests.engines.pushing import LOGIN
from tests.engines.slurm_cluster import slurm_cluster
from tests.engines.token_server import TokenServer
from tests.engines.two_hosts import two_hosts
from tests.engines.workplace import Workplace, copy_project, pyg_stack, small_stack
from tests.unit.authority import make_authority

GROUND = "graphcrate-tests-"  #: the folder of a run of the tests begins so
USER_LOCK = Path("/run/graphcrate-test-user.lock")  #: whose holder has the machine's one plain user for tests
JUST_MADE = 60.0  #: seconds within which another run may not have locked its folder yet


@dataclass(frozen=True)
class Built:
    """An image that was built: what was asked for, the command's end, its report."""

    request: tuple
    finished: object
    report: dict
    layout: Path

    @property
    def reference(self):
        """As skopeo, podman and umoci name it."""
        return f"{self.layout}:{self.report['tag']}"


@pytest.fixture(scope="session")
def ground():
    """A folder that other users can enter too (pytest's own are closed to them); removed at the end."""
    _remove_abandoned()
    folder = _fresh(Path(tempfile.gettempdir()), GROUND)
    with _locked(folder, fcntl.LOCK_SH):
        yield folder
        _remove(folder)


def _remove_abandoned():
    """What killed runs left: tens of gigabytes each."""
    for folder in Path(tempfile.gettempdir()).glob(f"{GROUND}*"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # removed by, or in use by, another run
            if folder.stat().st_uid != os.geteuid() or time.time() - folder.stat().st_mtime < JUST_MADE:
                continue
            with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                _remove(folder)


@contextlib.contextmanager
def _locked(path, how):
    """Hold a lock on a folder or file. The kernel ends it with this process, however that ends."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _remove(folder):
    for mounted in _mounts_below(folder):
        subprocess.run(["umount", "--lazy", mounted], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _fresh(parent, prefix):
    """A new folder, named so that podman can make an image's name of it: mkdtemp's underscores are not for that."""
    folder = parent / f"{prefix}{secrets.token_hex(4)}"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def _mounts_below(folder):
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return sorted((line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")), reverse=True)


@pytest.fixture(scope="session")
def workplace(ground):
    """A copy of the project with an empty cache and a fresh lock for the small image."""
    place = Workplace(copy_project(ground / "first"), ground / "cache")
    locked = place.run("lock", *small_stack())
    assert locked.code == 0, locked.err
    assert (place.folder / locked.out.strip()).is_file()
    return place


@pytest.fixture(scope="session")
def built_image(workplace):
    """The small image, with its smoke test passed. Other tests must not change it."""
    request = small_stack()
    return _built(workplace, request, workplace.run("image", *request))


def _built(workplace, request, finished):
    assert finished.code == 0, finished.err
    name, _, tag = finished.out.partition("@")[0].partition(":")
    folder = workplace.folder / "dist" / name / tag
    report = workplace.run("inspect", folder / "oci", "--json").json
    return Built(request, finished, report, folder / "oci")


@pytest.fixture(scope="session")
def pyg_image(workplace):
    """An image with PyG and no compiled extension, not yet smoke-tested. Other tests must not change it."""
    request = pyg_stack()
    locked = workplace.run("lock", *request)
    assert locked.code == 0, locked.err
    return _built(workplace, request, workplace.run("image", *request, "--no-smoke"))


@dataclass(frozen=True)
class Base:
    """Debian as a registry's `debian:bookworm-slim`: no Python, apt's sources usable. Its files' tar, and a layout."""

    tar: Path
    layout: Path


@pytest.fixture(scope="session")
def debian_base(ground):
    """What builds of real engines start from where no registry can be reached."""
    (ground / "base").mkdir()
    tar = make_base(ground / "base" / "files.tar")
    return Base(tar, pack_layout(tar, ground / "base" / "oci"))


@pytest.fixture(scope="session")
def docker(ground):
    """Address of a Docker daemon of our own whose builds reach the network. For `engine("docker daemon")`."""
    folder = ground / "docker"
    folder.mkdir()
    with docker_daemon(folder) as address:
        yield address


@pytest.fixture(scope="session")
def docker_base(docker, debian_base):
    """`debian:bookworm-slim` in that daemon, as if it were pulled; its name."""
    name, command = "debian:bookworm-slim", [program("docker"), "--host", docker, "import", "--change", "CMD bash"]
    subprocess.run([*command, debian_base.tar, name], check=True, capture_output=True)
    return name


@pytest.fixture(scope="session")
def podman(ground):
    """Environment in which podman keeps all it has in a folder of ours. For `engine("podman", "runc", "root")`."""
    folder = ground / "podman"
    folder.mkdir()
    yield (environment := podman_environment(folder))
    subprocess.run([program("podman"), "system", "reset", "--force"], env=environment, check=False, capture_output=True)


@pytest.fixture(scope="session")
def apptainer(ground):
    """Environment in which Apptainer keeps its cache and its unpacked files here. For `engine("apptainer build")`."""
    folders = {"APPTAINER_CACHEDIR": ground / "apptainer" / "cache", "APPTAINER_TMPDIR": ground / "apptainer" / "tmp"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    return {**os.environ, **{name: str(folder) for name, folder in folders.items()}}


@pytest.fixture(scope="session")
def registry(ground):
    """Address of a registry of our own, without TLS. For `engine("docker-registry")`."""
    folder = ground / "registry"
    folder.mkdir()
    with registry_server(folder) as address:
        yield address


@pytest.fixture(scope="session")
def authority(ground):
    """A certificate authority and a certificate for this machine."""
    (ground / "authority").mkdir()
    return make_authority(ground / "authority")


@pytest.fixture(scope="session")
def basic_registry(ground):
    """Address of a registry that wants `pushing.LOGIN` by Basic. For `engine("docker-registry")`."""
    folder = ground / "basic-registry"
    folder.mkdir()
    hashed = bcrypt.hashpw(LOGIN.password.encode(), bcrypt.gensalt(4)).decode()
    (folder / "users").write_text(f"{LOGIN.user}:{hashed}\n")
    with registry_server(folder, auth={"htpasswd": {"realm": "tests", "path": f"{folder}/users"}}) as address:
        yield address


@pytest.fixture(scope="session")
def tokens(authority):
    """A token server that knows `pushing.LOGIN`."""
    with TokenServer(authority, LOGIN.user, LOGIN.password, pushing.GRANTED) as server:
        yield server


@pytest.fixture(scope="session")
def token_registry(ground, tokens):
    """Address of a registry that takes these tokens. For `engine("docker-registry")`."""
    folder = ground / "token-registry"
    folder.mkdir()
    with registry_server(folder, auth=tokens.settings()) as address:
        yield address


@pytest.fixture(scope="session")
def hosts(ground):
    """Two hosts with sshd, and a person at a third. For `engine("two hosts")`."""
    folder = ground / "hosts"
    folder.mkdir()
    with two_hosts(folder) as made:
        yield made


@pytest.fixture(scope="session")
def slurm(ground):
    """A Slurm of two nodes of our own. For `engine("slurm")`."""
    with slurm_cluster(ground / "slurm") as cluster:
        yield cluster


@pytest.fixture
def scratch(ground):
    """An empty folder on the same disk as the caches, open to other users; removed after the test."""
    folder = _fresh(ground, "scratch-")
    yield folder
    for mounted in _mounts_below(folder):
        subprocess.run(["umount", mounted], check=False)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def plain_user():
    """(uid, gid) of a user without rights, with ranges of subordinate ids as useradd gives them; made where we may."""
    if os.environ.get("CI") != "true" and os.environ.get("ENGINES") != "install":
        pytest.skip("making a user for a test needs ENGINES=install")
    name = "graphcrate-test"
    USER_LOCK.touch()
    with _locked(USER_LOCK, fcntl.LOCK_EX):
        subprocess.run(["userdel", name], check=False, capture_output=True)  # what a killed run left
        subprocess.run(["useradd", "--no-create-home", name], check=True, capture_output=True)
        try:
            yield tuple(int(subprocess.check_output(["id", option, name])) for option in ("-u", "-g"))
        finally:
            subprocess.run(["userdel", name], check=False, capture_output=True)
