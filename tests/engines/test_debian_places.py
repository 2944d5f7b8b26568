"""A locked Debian from archives that have lost files: real packages on loopback servers that no list names.

Each case loses something else, and each begins with an empty cache. That the files are the same is proved by their
hashes; that a base of them has the same digest by installing it where the way of the files was the oddest (`digest`).
"""

import contextlib
import hashlib
import json

import msgspec
import pysequoia
import pytest

from debroot import lists, mirrors
from debroot.reading import PACKINGS
from graphcrate.assembly import pipeline
from graphcrate.compat.variants.request import BuildRequest, SuiteOptions
from graphcrate.host.context import Context
from graphcrate.host.disk import inflating
from graphcrate.host.disk.cache import Cache
from graphcrate.inputs.bases import debian, debs
from graphcrate.model.limits import LIST, Gauge
from graphcrate.model.lock import decode_lock, encode
from tests.faults import project
from tests.faults.ways import pretending
from tests.made import deb, place
from tests.unit.conftest import Recorder
from tests.unit.small_debian import Debian
from tests.unit.wheel_server import WheelServer

pytestmark = [pytest.mark.slow, pytest.mark.engine("user namespaces")]
YEAR = 365 * 86400
IMAGE = (*project.IMAGE, "--no-smoke")
PLACES = ("DEBIAN_MIRROR", "DEBIAN_FALLBACK", "DEBIAN_ARCHIVE", "DEBIAN_SNAPSHOT")
ROOTS = {"pool/updates/": "/debian-security", "pool/": "/debian"}
ON_REGISTRY, ON_DEBIAN = 'provider = "registry", reference = "{base}"', 'provider = "debian", suite = "bookworm"'
RECIPE = project.RECIPE.replace(ON_REGISTRY, ON_DEBIAN)


class Servers:
    """A mirror, and a server for what a case needs besides, with the files of a lock."""

    def __init__(self, mirror, other, bookworm):
        self.mirror, self.other, self.lock = mirror, other, bookworm.lock
        self._files = bookworm.cache

    def put(self, server, root, packages):
        """Let a server have these packages, each below the root of its archive: `root` says where, with {archive}."""
        for package in packages:
            archive = next(archive for begin, archive in ROOTS.items() if package.path.startswith(begin))
            found = self._files.file(package.file.sha256, package.file.name)
            server.put(root.format(archive=archive) + f"/{package.path}", found.read_bytes())

    def asked(self):
        return [*self.mirror.paths(), *self.other.paths()]


@pytest.fixture
def servers(bookworm):
    with WheelServer() as mirror, WheelServer() as other:
        yield Servers(mirror, other, bookworm)


def all_in_the_mirror(servers):
    servers.put(servers.mirror, "{archive}", servers.lock.packages)
    return servers.lock, {}


def half_in_the_main_archive_alone(servers):
    """Every second package was locked from the security archive's list, and a point release took it over since."""
    in_main = [in_pool(one, "pool/") for one in servers.lock.packages]
    servers.put(servers.mirror, "{archive}", in_main)
    half = [in_pool(one, "pool/updates/") if number % 2 else one for number, one in enumerate(in_main)]
    return msgspec.structs.replace(servers.lock, packages=tuple(half)), {}


def in_pool(package, pool):
    """The package as if that archive had it."""
    path = pool + package.path.removeprefix("pool/updates/").removeprefix("pool/")
    return msgspec.structs.replace(package, path=path)


def only_in_the_snapshots(servers):
    servers.put(servers.other, f"/archive{{archive}}/{servers.lock.listed}", servers.lock.packages)
    return servers.lock, {"DEBIAN_SNAPSHOT": servers.other.url("")}


def only_in_the_archive_of_retired_suites(servers):
    servers.put(servers.other, "{archive}", servers.lock.packages)
    return servers.lock, {"DEBIAN_ARCHIVE": servers.other.url("")}


def lists_that_are_over(servers):
    for suite in ("bookworm", "bookworm-updates"):
        servers.mirror.put(f"/debian/dists/{suite}/InRelease", b"Valid-Until: Sat, 28 Nov 2020 02:10:46 UTC\n")
    return all_in_the_mirror(servers)


def no_lists(servers):
    """A mirror that has lost half of the files too, and a snapshot service that has those. Its image is made below."""
    servers.put(servers.mirror, "{archive}", servers.lock.packages[::2])
    servers.put(servers.other, f"/archive{{archive}}/{servers.lock.listed}", servers.lock.packages[1::2])
    return servers.lock, {"DEBIAN_SNAPSHOT": servers.other.url("")}


@pytest.mark.parametrize(
    ("case", "digest"),
    [
        (all_in_the_mirror, False),
        (half_in_the_main_archive_alone, True),
        (only_in_the_snapshots, True),
        (only_in_the_archive_of_retired_suites, False),
        (lists_that_are_over, False),
        (no_lists, False),
    ],
    ids=lambda value: value.__name__ if callable(value) else "and its digest" if value else "",
)
def test_the_same_base_from_whoever_has_its_files(servers, bookworm, scratch, monkeypatch, case, digest):
    """Proves that the lock's files come, whole and in the lock's order, with no list asked for; and the digest."""
    monkeypatch.setattr(mirrors, "of_machine", lambda *_: None)
    lock, variables = case(servers)
    variables = {**dict.fromkeys(PLACES, mirrors.NONE), "DEBIAN_MIRROR": servers.mirror.url("/debian"), **variables}
    with contextlib.closing(Cache(scratch / "cache")) as cache:
        there = place(cache, variables, Recorder())
        if digest:
            assert debian.prepare(lock, there).layers[0].digest == bookworm.base.layers[0].digest
        found = debs.fetch_debs(lock.packages, lock.suite, there, listed=lock.listed)
        assert [sha256_of(path) for path in found] == [package.file.sha256 for package in bookworm.lock.packages]
        assert not list((cache.root / "partial").iterdir())
    assert [path for path in servers.asked() if "/dists/" in path] == []


def sha256_of(path):
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# -- whole images


@pytest.fixture(scope="module")
def small(bookworm, ground):
    """A project of one stack of a few megabytes on that base, with its lock, and its image of today."""
    folder = ground / "places"
    with WheelServer() as index:
        project.fill_index(index)
        made = project.make_project(folder, index.url("/simple"), "")
        (made.folder / "recipes/torch.toml").write_text(RECIPE.format(python="3.11", base=""))
        project.copy_cache(bookworm.cache.root, made.cache)
        project.lock(made)
        yield made, project.report(made, made.run(*IMAGE, "--json"))


def unreachable(place):
    """The place behind a firewall that lets nothing through: only loopback can be reached."""
    return place.having(http_proxy="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9")


def test_a_copy_of_the_project_with_its_clock_five_years_ahead_and_a_mirror_that_lost_half_makes_todays_image(
    small, servers, scratch
):
    """Proves it of the whole command line with an empty cache: base, wheels, layers and the image's digest."""
    made, today = small
    servers.lock = decode_lock(next(made.folder.glob("images/torch/*/*.lock.json")).read_bytes()).base
    _, variables = no_lists(servers)
    later = project.copy(made, scratch).having(**{"DEBIAN_MIRROR": servers.mirror.url("/debian"), **variables})
    later = pretending(unreachable(later), f"clock={5 * YEAR}")
    report = project.report(later, later.run(*IMAGE, "--locked", "--json"))
    assert (report["digest"], report["drift"]) == (today["digest"], [])
    assert [path for path in servers.asked() if "/dists/" in path] == []


def test_a_package_that_is_nowhere_is_replaced_by_todays_and_it_is_said(small, bookworm, servers, scratch, monkeypatch):
    """Proves the way of drift with real packages: another base, from lists that a test key signed, and what it says."""
    made, _ = small
    copy = project.copy(made, scratch)
    project.copy_cache(made.cache, copy.cache)
    committed = next(copy.folder.glob("images/torch/*/*.lock.json"))
    lock = decode_lock(committed.read_bytes())
    gone = deb("tzdata", "2000a", path="pool/main/t/tzdata/tzdata_2000a_amd64.deb")
    packages = tuple(gone if one.name == "tzdata" else one for one in lock.base.packages)
    assert gone in packages
    base = msgspec.structs.replace(lock.base, packages=packages)
    committed.write_bytes(encode(msgspec.structs.replace(lock, base=base)))
    before = committed.read_bytes()

    monkeypatch.setattr(mirrors, "of_machine", lambda *_: None)
    signer = pysequoia.Tsk.generate("Someone <someone@debian.example>")
    (scratch / "debian-archive-keys.asc").write_text(str(signer.extract_certificate()))
    monkeypatch.setattr("debroot.release.KEYS", scratch)
    environment = {**dict.fromkeys(PLACES, mirrors.NONE), "DEBIAN_MIRROR": servers.mirror.url("/debian")}
    ctx = Context(
        root=copy.folder, environment={**copy.environment, **environment, "GRAPHCRATE_CACHE": str(copy.cache)}
    )
    vars(ctx)["progress"] = progress = Recorder()
    with contextlib.closing(ctx.cache):
        made_up = Debian(servers.mirror, signer, ctx.cache, progress)
        made_up.put("bookworm", stanzas(bookworm, lock.base))
        made_up.put("bookworm-security", [], root="/debian-security")
        request = BuildRequest(name="torch", cuda="cpu", suites=SuiteOptions(run=False), output=scratch / "dist")
        report = pipeline.build_image(request, ctx)
    assert report.layers[0].digest == bookworm.base.layers[0].digest
    (drift,) = report.drift
    assert (drift.name, drift.locked) == ("tzdata", "2000a")
    said = "\n".join(progress.lines)
    assert "no place has 1 package (tzdata 2000a) of the lock's Debian bookworm base; taking the packages of" in said
    assert f"of today are tzdata 2000a → {drift.taken}" in said
    built = json.loads((scratch / "dist/torch" / report.tag / "lock.json").read_bytes())
    assert [one["name"] for one in built["drift"]] == ["tzdata"]
    assert committed.read_bytes() == before


def stanzas(bookworm, base):
    """The entries of Debian's own lists for the packages of a base."""
    wanted, found = {package.file.sha256 for package in base.packages}, {}
    for path in (bookworm.cache.root / "bases/lists").iterdir():
        for packing in PACKINGS:
            with contextlib.suppress(Exception), path.open("rb") as packed:
                text = b"".join(inflating.pieces(path.name, packing, packed, Gauge(LIST, path.name)))
                for one in lists.parse(text):
                    if one.field("SHA256") in wanted:
                        found[one.name] = one
                break
    assert len(found) == len(wanted)
    return [f"{one.text.strip()}\n\n" for one in found.values()]
