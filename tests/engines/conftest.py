"""The small real image that tests of engines and of the main job share; it is built once, through the command line."""

import contextlib
import fcntl
import json
import os
import pwd
import secrets
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import msgspec
import pytest

from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.space import place_apart
from graphcrate.inputs.bases import Base as PreparedBase
from graphcrate.inputs.bases import debian
from graphcrate.model.lock import DebianBase, encode
from graphcrate.model.recipe import BaseSpec
from tests.conftest import IN_CI, PREPARED, program
from tests.engines.daemons import registry_server, shared_docker, shared_podman
from tests.engines.debian import make_base, pack_layout
from tests.engines.pushing import GRANTED, LOGIN
from tests.engines.pyxis_site import pyxis_site as start_pyxis_site
from tests.engines.shared import Shared, locked
from tests.engines.slurm_cluster import Cluster, slurm_cluster
from tests.engines.token_server import TokenServer
from tests.engines.two_hosts import two_hosts
from tests.engines.workplace import Finished, Workplace, copy_project, pyg_stack, small_stack
from tests.made import place
from tests.unit.authority import make_authority

HERE = Path(__file__).parent
SHARED = pytest.StashKey[Shared]()
GROUND = "graphcrate-tests-"  #: the folder of a run of the tests begins so
USER_LOCK = Path("/run/graphcrate-test-user.lock")  #: whose holder has the machine's one plain user for tests
#: files that take the longest begin first: else one worker ends minutes after the others
LONGEST = ("short_pages", "equality", "site_cache", "serve", "debian_base")
#: variable: a folder in which one run leaves the small image for the next one, as the stages of .ci/run do
KEPT = "TESTS_KEPT"
OF_IMAGE = ("first", "cache", "workplace.json", "image.json")  #: what has it, the record last
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


def pytest_collection_modifyitems(items):
    """Begin with the longest files, and give more time: fixtures count too, and wait for what another worker makes."""
    here = f"{HERE}{os.sep}"
    rank = {f"{here}test_{name}.py": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(str(item.path), len(rank)))
    for item in items:
        if str(item.path).startswith(here) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1200))


def pytest_collection_finish(session):
    """Enter the workers' shared folder before any test runs: a worker that stops a daemon knows who may need it."""
    if any("shared" in item.fixturenames for item in session.items):
        _remove_abandoned()
        run = getattr(session.config, "workerinput", {}).get("testrunuid") or secrets.token_hex(4)
        folder = Path(tempfile.gettempdir()) / f"{GROUND}{run[:8]}"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        place_apart(folder)
        session.config.stash[SHARED] = Shared(folder)
        if kept := os.environ.get(KEPT):
            with locked(Path(kept), fcntl.LOCK_EX):  # of all workers, the first one
                _move_image(Path(kept), folder)


@pytest.fixture(scope="session")
def shared(request):
    """The folder that all workers of this run share. Other users can enter it (pytest's own are closed to them)."""
    return request.config.stash[SHARED]


def pytest_sessionfinish(session):
    """Not the end of a fixture, which counts as the time of a test: other workers may go on for minutes."""
    if (shared := session.config.stash.get(SHARED, None)) is not None and shared.close():
        if kept := os.environ.get(KEPT):
            _move_image(shared.folder, Path(kept))
        remove_later(shared.folder)


def _move_image(folder, other):
    """Move the small image and its cache, where it was made."""
    if (folder / OF_IMAGE[-1]).exists() and "made" in json.loads((folder / OF_IMAGE[-1]).read_text()):
        for name in OF_IMAGE:
            (folder / name).rename(other / name)


def _remove_abandoned():
    """Remove the leftovers of killed runs: tens of gigabytes each."""
    for folder in Path(tempfile.gettempdir()).glob(f"{GROUND}*"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # removed by, or in use by, another run
            if folder.stat().st_uid != os.geteuid() or time.time() - folder.stat().st_mtime < JUST_MADE:
                continue
            with locked(folder / "users", fcntl.LOCK_EX | fcntl.LOCK_NB):
                remove_later(folder)


def remove_later(folder):
    """Remove a folder in the background: a hundred thousand files take a disk minutes."""
    for mounted in _mounts_below(folder):
        subprocess.run(["umount", "--lazy", mounted], check=False)
    subprocess.run(["setsid", "--fork", "nice", "rm", "-rf", "--one-file-system", folder], check=True)


@pytest.fixture(scope="session")
def ground(shared):
    """The folder that all workers share. A module takes names of its own."""
    return shared.folder


@pytest.fixture(scope="session")
def own(ground, worker_id):
    """A folder of this worker's, for what it takes no time to make once more."""
    (folder := ground / worker_id).mkdir()
    return folder


def _mounts_below(folder):
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return sorted((line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")), reverse=True)


@pytest.fixture(scope="session")
def workplace(shared):
    """A copy of the project with a cache of its own."""
    shared.made("workplace", lambda: str(copy_project(shared.folder / "first")))
    return Workplace(shared.folder / "first", shared.folder / "cache")


@pytest.fixture(scope="session")
def built_image(workplace, shared):
    """The small image, with its smoke test passed. Other tests must not change it."""
    return build(workplace, shared, "image", small_stack())


@pytest.fixture(scope="session")
def pyg_image(workplace, shared):
    """An image with PyG and no compiled extension, not yet smoke-tested. Other tests must not change it."""
    return build(workplace, shared, "pyg-image", pyg_stack(), "--no-smoke")


def build(workplace, shared, name, request, *more):
    """Lock and build an image once for all workers, under a name."""

    def make():
        locked = workplace.run("lock", *request).ok()
        assert (workplace.folder / locked.out.strip()).is_file()
        return vars(workplace.run("image", *request, *more))

    finished = Finished(**shared.made(name, make))
    assert finished.code == 0, finished.err
    name, _, tag = finished.out.partition("@")[0].partition(":")
    folder = workplace.folder / "dist" / name / tag
    return Built(request, finished, json.loads((folder / "report.json").read_text()), folder / "oci")


@pytest.fixture(scope="session")
def small_sif(workplace, built_image, shared):
    """The small image as a SIF with zstd, which takes a fraction of gzip's time. Other tests must not change it."""
    return _converted("sif", workplace, built_image, shared)


@pytest.fixture(scope="session")
def small_sqsh(workplace, built_image, shared):
    """The small image as squashfs with zstd. `os.link` brings it elsewhere; other tests must not change it."""
    return _converted("sqsh", workplace, built_image, shared)


def _converted(form, workplace, built_image, shared):
    def make():
        fast = ("--to", form, "--compression", "zstd", "--output", shared.folder / f"small.{form}")
        return workplace.run("convert", built_image.layout, *fast, "--json").json["path"]

    return Path(shared.made(form, make))


@pytest.fixture(scope="module")
def cache(ground):
    """An empty cache of a module's own, on the tests' disk, which other users can enter."""
    cache = Cache(ground / f"cache-{secrets.token_hex(4)}")
    yield cache
    cache.close()
    remove_later(cache.root)


@dataclass(frozen=True)
class Bookworm:
    """A base as Debian's archives have it today; `cache` has its packages and the base itself."""

    lock: DebianBase
    cache: Cache
    base: PreparedBase


@pytest.fixture(scope="session")
def bookworm(shared):
    """The base of a small stack, from the archives that this machine knows. Other tests must not change it."""
    cache = Cache(shared.folder / "bookworm")
    cache.root.chmod(0o755)  # plain users install its packages, too
    there = place(cache, os.environ)

    small = shared.folder / "cache"

    def make():
        made = debian.lock(BaseSpec(suite="bookworm"), "3.11", there)
        _link_files(small, made, cache)
        debian.prepare(made, there)
        return encode(made).decode()

    lock = msgspec.json.decode(shared.made("bookworm", make), type=DebianBase)
    yield Bookworm(lock, cache, debian.prepare(lock, there))
    cache.close()


def _link_files(small, lock, cache):
    """Link the packages of a base, where another cache has them: not a base, whose layer some chown."""
    for file in (package.file for package in lock.packages):
        with contextlib.suppress(FileNotFoundError):
            target = cache.file(file.sha256, file.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(small / target.relative_to(cache.root), target)


@dataclass(frozen=True)
class Base:
    """Debian as a registry's `debian:bookworm-slim`: no Python, apt's sources usable. Its files' tar, and a layout."""

    tar: Path
    layout: Path


@pytest.fixture(scope="session")
def debian_base(shared):
    """The base of real engines' builds where no registry can be reached."""
    base = Base(shared.folder / "base" / "files.tar", shared.folder / "base" / "oci")

    def make():
        base.tar.parent.mkdir()
        pack_layout(make_base(base.tar), base.layout)

    shared.made("debian-base", make)
    return base


@pytest.fixture(scope="module")
def docker(shared):
    """Address of a Docker daemon of our own, which other modules use too. For `engine("docker daemon")`."""
    with shared.turn("docker"):
        yield shared_docker(shared)


@pytest.fixture(scope="module")
def docker_base(docker, debian_base, shared):
    """`debian:bookworm-slim` in that daemon, as if it were pulled; its name."""
    name = "debian:bookworm-slim"
    command = [program("docker"), "--host", docker, "import", "--change", "CMD bash", debian_base.tar, name]
    shared.made("docker-base", lambda: subprocess.run(command, check=True, capture_output=True) and name)
    return name


@pytest.fixture(scope="module")
def podman(shared):
    """Environment in which podman keeps all it has in a folder of ours. For `engine("podman", "runc", "root")`."""
    with shared.turn("podman"):
        yield shared_podman(shared)


@pytest.fixture(scope="session")
def apptainer(own):
    """Environment in which Apptainer keeps its cache and its unpacked files here. For `engine("apptainer build")`.

    Its SIF is not compressed, which would take most of a build's time.
    """
    folders = {"APPTAINER_CACHEDIR": own / "apptainer" / "cache", "APPTAINER_TMPDIR": own / "apptainer" / "tmp"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    fast = {"APPTAINER_MKSQUASHFS_ARGS": "-noD -noF"}
    return {**os.environ, **fast, **{name: str(folder) for name, folder in folders.items()}}


@pytest.fixture(scope="session")
def registry(shared):
    """Address of a registry of our own, without TLS. For `engine("docker-registry")`."""
    return shared.running("registry-server", lambda: registry_server(shared.folder / "registry"))


@pytest.fixture(scope="session")
def authority(own):
    """A certificate authority and a certificate for this machine."""
    (own / "authority").mkdir()
    return make_authority(own / "authority")


@pytest.fixture(scope="session")
def basic_registry(own):
    """Address of a registry that requires `pushing.LOGIN` by Basic. For `engine("docker-registry")`."""
    folder = own / "basic-registry"
    folder.mkdir()
    hashed = bcrypt.hashpw(LOGIN.password.encode(), bcrypt.gensalt(4)).decode()
    (folder / "users").write_text(f"{LOGIN.user}:{hashed}\n")
    with registry_server(folder, auth={"htpasswd": {"realm": "tests", "path": f"{folder}/users"}}) as address:
        yield address


@pytest.fixture(scope="session")
def tokens(authority):
    """A token server that knows `pushing.LOGIN`."""
    with TokenServer(authority, LOGIN, GRANTED) as server:
        yield server


@pytest.fixture(scope="session")
def token_registry(own, tokens):
    """Address of a registry that takes these tokens. For `engine("docker-registry")`."""
    with registry_server(own / "token-registry", auth=tokens.settings()) as address:
        yield address


@pytest.fixture(scope="session")
def hosts(own):
    """Two hosts with sshd, and a person at a third. For `engine("two hosts")`."""
    folder = own / "hosts"
    folder.mkdir()
    with two_hosts(folder) as made:
        yield made


@pytest.fixture(scope="session")
def slurm(shared, own, worker_id):
    """A Slurm of two nodes of this worker's own: tests take nodes down. For `engine("slurm")`."""
    folder = own / "slurm"
    return Cluster(folder, shared.running(f"slurm-daemons-{worker_id}", lambda: slurm_cluster(folder)))


@pytest.fixture
def dist_alone(shared):
    """Let one test at a time type pages in the project: what their commands make in dist has one name for all."""
    with shared.turn("dist", alone=True):
        yield


@pytest.fixture
def scratch(ground):
    """An empty folder on the same disk as the caches, open to other users; removed after the test."""
    folder = ground / f"scratch-{secrets.token_hex(4)}"  # podman can make an image's name of it
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    remove_later(folder)


@pytest.fixture
def plain_user():
    """A user without rights, with a home and ranges of subordinate ids as useradd gives them; made where we may."""
    if not (IN_CI or PREPARED):
        pytest.skip("making a user for a test is for make test-engines")
    name = "graphcrate-test"
    remove = ["userdel", "--remove", name]
    USER_LOCK.touch()
    with locked(USER_LOCK, fcntl.LOCK_EX):
        subprocess.run(remove, check=False, capture_output=True)  # what a killed run left
        subprocess.run(["useradd", "--create-home", name], check=True, capture_output=True)
        try:
            yield pwd.getpwnam(name)
        finally:
            subprocess.run(remove, check=False, capture_output=True)


def as_user(user, *command):
    """A command that runs as this user, by whom the folder `HOME` is named."""
    return [program("setpriv"), f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]


@pytest.fixture
def pyxis_site(own, plain_user):
    """A cluster with the real pyxis on two hosts, which a plain user logs in to. For `engine("pyxis", "two hosts")`."""
    folder = own / "pyxis"
    own.chmod(0o755)
    subprocess.run(["usermod", "--password", "*", plain_user.pw_name], check=True)  # else sshd calls it locked
    for name in ("hosts", "site"):
        (folder / name).mkdir(parents=True)
    with two_hosts(folder / "hosts", plain_user) as hosts, start_pyxis_site(folder / "site", hosts) as site:
        yield site


@pytest.fixture
def browser(scratch):
    """Headless Chromium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium")
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={scratch}/browser"):
        options.add_argument(word)
    options.add_argument("--window-size=1300,900")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(program("chromedriver")))
    yield driver
    driver.quit()
