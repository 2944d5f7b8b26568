"""Locked .debs by their hashes, from whichever place has them: servers on loopback that lack, spoil or refuse them."""

import hashlib
import json
import socket

import msgspec
import pysequoia
import pytest

from debroot import mirrors, release
from graphcrate.inputs.bases import BaseDriftError, debs
from graphcrate.model.errors import IntegrityError, NetworkError
from patienthttp.errors import server_of
from tests.made import deb, file_of, place, refused
from tests.unit.small_debian import Debian, stanza
from tests.unit.wheel_server import Fault, WheelServer

LISTED = "20251125T021215Z"


def content(name):
    return f"the package {name} ".encode() * 200


def package(name, area="main", *, listed=True):
    """A locked package; `area`: of the pool; `listed`: the lock has its path."""
    file = file_of(f"{name}_1_amd64.deb", content(name))
    path = f"pool/{area}/{name[0]}/{name}/{file.name}" if listed else ""
    return msgspec.structs.replace(deb(name, path=path), file=file)


def put(server, package, root="/debian", path=None):
    server.put(f"{root}/{path or package.path}", content(package.name))


@pytest.fixture
def servers():
    with WheelServer() as first, WheelServer() as second, WheelServer() as third:
        yield first, second, third


class World:
    """Two mirrors, and a snapshot service."""

    def __init__(self, servers, cache, progress, environment):
        self.first, self.second, self.snapshot = servers
        self.cache, self.progress = cache, progress
        self.environment = {
            **environment,
            "DEBIAN_MIRROR": self.first.url("/debian"),
            "DEBIAN_FALLBACK": self.second.url("/debian"),
            "DEBIAN_SNAPSHOT": self.snapshot.url(""),
        }

    def fetch(self, *packages, listed=LISTED, **variables):
        ctx = place(self.cache, {**self.environment, **variables}, self.progress)
        found = debs.fetch_debs(packages, "bookworm", ctx, listed=listed)
        assert [path.read_bytes() for path in found] == [content(one.name) for one in packages]
        assert self.progress.done == self.progress.total, "each byte counts once"
        self.is_tidy()
        return found

    def is_tidy(self):
        """Nothing half-written is left, but for parts that a later run goes on with."""
        assert not list((self.cache.root / "tmp").glob("run-*/*"))
        assert all(path.is_dir() or path.stat().st_size for path in (self.cache.root / "files").glob("*/*"))

    def only_mirrors(self):
        self.environment["DEBIAN_SNAPSHOT"] = mirrors.NONE
        return self

    @property
    def lines(self):
        return self.progress.lines


@pytest.fixture
def world(servers, cache, progress, no_places):
    return World(servers, cache, progress, no_places)


def refusing():
    """An address that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/debian"


# -- from the first place that has it


def test_debs_come_from_the_first_mirror_without_package_lists(world):
    bash, dash = package("bash"), package("dash", "updates/main")
    put(world.first, bash)
    put(world.first, dash, "/debian-security")
    put(world.second, bash)
    world.fetch(bash, dash)
    assert sorted(world.first.paths()) == [f"/debian-security/{dash.path}", f"/debian/{bash.path}"]
    assert world.second.asked == world.snapshot.asked == world.lines == []
    world.first.asked.clear()
    world.fetch(bash, dash)
    assert world.first.asked == [], "they are in the cache"


FAILURES = {
    "lacks it": ([Fault(status=404)] * 2, "HTTP 404"),
    "does not give it": ([Fault(status=403)] * 2, "HTTP 403"),
    "another file": ([Fault(wrong=True)], "has sha256"),
    "is busy": ([Fault(status=503), Fault(status=503)], "HTTP 503"),
    "cuts": ([Fault(cut_after=0), Fault(cut_after=0)], "connection was cut"),
    "asks for a login": ([Fault(status=407)], "HTTP 407"),
    "asks to wait for long": ([Fault(status=429, headers=(("Retry-After", "3600"),))], "HTTP 429"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_deb_that_a_mirror_fails_to_give_comes_from_the_next_with_a_note(world, failure):
    bash = package("bash")
    put(world.first, bash)
    put(world.second, bash)
    faults, said = FAILURES[failure]
    world.first.faults[f"/debian/{bash.path}"] = list(faults)
    world.fetch(bash)
    assert world.second.paths() == [f"/debian/{bash.path}"]
    (line,) = world.lines
    assert said in line
    assert not list((world.cache.root / "partial").iterdir())


@pytest.mark.parametrize("size", ["shorter", "longer"])
def test_deb_of_another_size_is_refused(world, size):
    bash = package("bash")
    whole = content("bash")
    world.first.put(f"/debian/{bash.path}", whole[:-1] if size == "shorter" else whole + b"x")
    put(world.second, bash)
    world.fetch(bash)
    assert "bytes instead of" in world.lines[0]


@pytest.mark.parametrize("there", [0, 1, 2])
def test_missing_debs_alone_are_downloaded(world, there):
    packages = [package(name) for name in ("bash", "dash", "zsh")]
    for one in packages:
        put(world.first, one)
    world.fetch(*packages[:there], *packages[there + 1 :])
    world.first.asked.clear()
    world.fetch(*packages)
    assert world.first.paths() == [f"/debian/{packages[there].path}"]


@pytest.mark.parametrize("left", [0, 1000])
def test_truncated_cached_deb_is_downloaded_again(world, left):
    """As a disk has it that lost power: dpkg would refuse the file in every build from then on."""
    bash = package("bash")
    put(world.first, bash)
    (cached,) = world.fetch(bash)
    cached.write_bytes(content("bash")[:left])
    world.fetch(bash)
    assert len(world.first.asked) == 2


@pytest.mark.parametrize(("listed_in", "there"), [("updates/main", "main"), ("main", "updates/main")])
def test_deb_moved_between_main_and_security_is_found(world, listed_in, there):
    bash, roots = package("bash", listed_in), {"main": "/debian", "updates/main": "/debian-security"}
    put(world.first, bash, roots[there], package("bash", there).path)
    world.fetch(bash)
    assert world.second.asked == world.lines == []


@pytest.mark.parametrize("time", [LISTED, "20251126T021215Z"])
def test_deb_on_the_snapshots_only_is_found_with_notes(world, time):
    bash = package("bash", "updates/main")
    put(world.snapshot, bash, f"/archive/debian-security/{time}")
    world.fetch(bash)
    assert [line.partition(" does not have")[0] for line in world.lines] == [
        world.first.address,
        world.second.address,
    ], "one line for each place that lacks it"


def test_deb_on_the_archive_of_retired_suites_only_is_found(world):
    bash = package("bash")
    put(world.second, bash, "/retired/debian")
    world.only_mirrors().fetch(bash, DEBIAN_ARCHIVE=world.second.url("/retired"))


# -- a server that has no time, breaks off, or is not there


def test_busy_mirror_is_retried_if_no_other_has_the_deb(world):
    bash = package("bash")
    put(world.first, bash)
    world.first.faults[f"/debian/{bash.path}"] = [Fault(status=503)] * 5
    world.fetch(bash)
    assert len(world.first.paths()) == 2 + 1 + 4, "both addresses, then the one that was busy"
    assert "asked again where no other place has bash_1_amd64.deb" in world.lines[0]


def test_mirror_that_served_other_debs_is_asked_for_more_after_a_busy_one(world):
    """One that served nothing would keep each of the others waiting for as long."""
    served, lost, late = (package(name) for name in ("aaa", "bbb", "ccc"))
    for one in (served, lost, late):
        put(world.first, one)
    world.first.faults[f"/debian/{lost.path}"] = [Fault(status=503)] * 99
    world.first.faults[f"/debian/{late.path}"] = [Fault(status=503)] * 3
    environment = {**world.only_mirrors().environment, "DEBIAN_FALLBACK": mirrors.NONE}
    for first, found in (((), []), ((served,), [True])):
        search = debs.DebSearch(place(world.cache, environment, world.progress), LISTED, "bookworm")
        assert [search.fetch(one, lambda _: None) for one in first] == found
        assert not search.fetch(lost, lambda _: None)
        assert search.fetch(late, lambda _: None) is bool(first)


def test_busy_mirrors_are_all_retried(world):
    """The first says at last that it has no such file: that must not end the search."""
    bash, path = package("bash"), f"/debian/{package('bash').path}"
    put(world.second, bash)
    world.first.faults[path] = [Fault(status=503)] * 2
    world.second.faults[path] = [Fault(status=503)] * 3
    world.only_mirrors().fetch(bash)


def test_cut_deb_download_continues_on_another_mirror(world, monkeypatch):
    monkeypatch.setattr("patienthttp.client.CHUNK", 500)
    bash, path = package("bash"), f"/debian/{package('bash').path}"
    for server in (world.first, world.second):
        put(server, bash)
    world.first.faults[path] = [Fault(cut_after=1000), Fault(status=404)]
    world.fetch(bash)
    assert [asked.headers.get("range") for asked in world.second.asked] == ["bytes=1000-"]


def test_partial_deb_with_wrong_bytes_is_discarded(world, monkeypatch):
    monkeypatch.setattr("patienthttp.client.CHUNK", 500)
    bash, path = package("bash"), f"/debian/{package('bash').path}"
    for server in (world.first, world.second):
        put(server, bash)
    world.first.faults[path] = [Fault(cut_after=1000, wrong=True), Fault(status=404)]
    world.fetch(bash)
    assert [asked.headers.get("range") for asked in world.second.asked] == ["bytes=1000-", None]


def test_unreachable_mirror_is_asked_once(world, monkeypatch):
    many, asked = [package(f"p{number}") for number in range(20)], []
    for one in many:
        put(world.second, one)
    download = debs.Client.download

    def counted(client, url, *arguments, **options):
        asked.append(server_of(url))
        return download(client, url, *arguments, **options)

    monkeypatch.setattr(debs.Client, "download", counted)
    monkeypatch.setattr(debs, "_THREADS", 1)
    mirror = refusing()
    world.fetch(*many, DEBIAN_MIRROR=mirror)
    assert asked.count(server_of(mirror)) == 1
    assert world.lines == [f"{server_of(mirror)}: connection refused; going on without it"]


def test_mirror_without_the_suite_is_asked_last(world):
    """A mirror from which a suite has gone is not asked before others for each of a hundred packages."""
    many = [package(f"p{number}") for number in range(60)]
    for one in many:
        put(world.second, one)
    world.fetch(*many)
    assert len(world.first.paths()) <= 2 * (debs._HOPELESS + debs._THREADS)
    assert len(world.lines) == 2, "that it lacks one, and how many it lacks"
    assert world.lines[1].startswith(f"{world.first.address} did not have ")


def test_deb_fetched_by_another_process_is_not_downloaded(world, monkeypatch):
    bash = package("bash")
    exclusively = world.cache.exclusively

    def late(name):
        target = world.cache.file(bash.file.sha256, bash.file.name)
        target.parent.mkdir(parents=True)
        target.write_bytes(content("bash"))
        return exclusively(name)

    monkeypatch.setattr(world.cache, "exclusively", late)
    world.fetch(bash)
    assert world.first.asked == []


# -- nowhere


def test_debs_that_are_nowhere_are_a_base_drift_error(world):
    there, gone = package("there"), [package("foo"), package("bar", "updates/main")]
    put(world.first, there)
    with refused(BaseDriftError, "2 packages (foo 1 and bar 1)", "bookworm base", "./build.py lock") as caught:
        world.fetch(there, *gone)
    assert "there" not in caught.value.what
    assert all(server.address in caught.value.cause for server in (world.first, world.second, world.snapshot))
    assert world.cache.file(there.file.sha256, there.file.name).is_file(), "what there was is kept"
    assert world.progress.done == there.file.size
    world.is_tidy()


def test_silent_mirrors_are_a_network_error_and_no_drift(world):
    dead, bash = {"DEBIAN_MIRROR": refusing(), "DEBIAN_FALLBACK": refusing()}, package("bash")
    with refused(NetworkError, "bash 1", "connection refused", "DEBIAN_MIRROR="):
        world.only_mirrors().fetch(bash, **dead)
    with refused(NetworkError, "bash 1", "DEBIAN_MIRROR="):
        world.fetch(bash, DEBIAN_MIRROR="", DEBIAN_FALLBACK="none")
    with refused(NetworkError, "bash 1", "malformed address"):
        world.fetch(bash, DEBIAN_MIRROR="http://[bad", DEBIAN_FALLBACK="none")


def test_busy_mirrors_are_a_network_error_and_no_drift(world):
    bash = package("bash")
    for server, root in ((world.first, "/debian"), (world.second, "/debian")):
        server.faults[f"{root}/{bash.path}"] = [Fault(status=503)] * 99
        server.faults[f"{root}-security/{bash.path.replace('pool', 'pool/updates')}"] = [Fault(status=503)] * 99
    with refused(NetworkError, "bash 1", f"{world.first.address}: HTTP 503", f"{world.second.address}: HTTP 503"):
        world.only_mirrors().fetch(bash)
    assert len(world.lines) == 2, "one line for each place"


def test_unanswered_deb_beside_a_gone_one_is_a_network_error(world):
    gone, unheard = package("gone"), package("unheard")
    world.first.faults[f"/debian/{unheard.path}"] = [Fault(status=503)] * 99  # and 404 at the other address
    with refused(NetworkError, "unheard 1") as caught:
        world.only_mirrors().fetch(gone, unheard, DEBIAN_FALLBACK=mirrors.NONE)
    assert "gone 1" not in caught.value.what
    with refused(BaseDriftError, "gone 1"):
        world.fetch(gone, DEBIAN_FALLBACK=mirrors.NONE)


def test_drift_error_names_unreached_mirrors(world):
    dead = refusing()
    with refused(BaseDriftError, f"Not reached: {server_of(dead)}: connection refused"):
        world.only_mirrors().fetch(package("bash"), DEBIAN_FALLBACK=dead)


# -- locks of before paths were locked


@pytest.fixture
def signed(servers, cache, progress, tmp_path, monkeypatch):
    """The first server's lists, signed by a key of this test's."""
    signer = pysequoia.Tsk.generate("Someone <someone@debian.example>")
    (tmp_path / "debian-archive-keys.asc").write_text(str(signer.extract_certificate()))
    monkeypatch.setattr(release, "KEYS", tmp_path)
    return Debian(servers[0], signer, cache, progress)


def test_deb_without_a_path_is_found_by_hash_in_the_lists(world, signed):
    bash, other = package("bash", listed=False), package("other")
    signed.put("bookworm", [stanza("bash", SHA256=bash.file.sha256, Filename="pool/main/b/bash_1+moved_amd64.deb")])
    world.first.put("/debian/pool/main/b/bash_1+moved_amd64.deb", content("bash"))
    put(world.first, other)
    world.fetch(bash, other, listed="")
    assert world.snapshot.asked == world.second.asked == []


def test_deb_without_a_path_and_not_in_the_lists_is_drift(world, signed):
    signed.put("bookworm", [stanza("bash", "2", SHA256="1" * 64)])
    with refused(BaseDriftError, "bash 1", "the lists of Debian bookworm"):
        world.only_mirrors().fetch(package("bash", listed=False), listed="")


def test_package_list_with_a_parent_path_is_ignored(world, signed):
    bash = package("bash", listed=False)
    signed.put("bookworm", [stanza("bash", SHA256=bash.file.sha256, Filename="../secret/bash_1_amd64.deb")])
    with refused(BaseDriftError, "bash 1"):
        world.only_mirrors().fetch(bash, listed="")
    assert not [path for path in world.first.paths() if "secret" in path]


def binfiles(server, package, *found):
    """Make the service know these files, (architecture, SHA-1), of a package."""
    answer = {"result": [{"architecture": architecture, "hash": one} for architecture, one in found], "package": "x"}
    server.put(f"/mr/binary/{package.name}/{package.version}/binfiles", json.dumps(answer).encode())


@pytest.mark.parametrize("listed", [True, False], ids=["with its path", "of an old lock"])
def test_snapshot_service_is_asked_last_by_name_and_version(world, listed):
    bash = package("bash", listed=listed)
    sha1 = hashlib.sha1(content("bash")).hexdigest()
    binfiles(world.snapshot, bash, ("arm64", "0" * 40), ("amd64", sha1))
    world.snapshot.put(f"/file/{sha1}", content("bash"))
    world.fetch(bash, listed=LISTED if listed else "")
    assert world.snapshot.paths()[-2:] == ["/mr/binary/bash/1/binfiles", f"/file/{sha1}"]


def test_snapshot_request_quotes_name_and_version(world):
    odd = msgspec.structs.replace(package("bash", listed=False), name="../../x", version="1/../2?a#b")
    with refused(BaseDriftError, "no place has 1 package"):
        world.fetch(odd, listed="")
    (path,) = world.snapshot.paths()
    assert path == "/mr/binary/../../x/1/../2?a#b/binfiles", "every odd character was quoted"


ODD_ANSWERS = {
    "no JSON": b"<html>",
    "no text": b"\xff\xfe",
    "without end": b"[" * 100_000,
    "another form": b'{"result": {"a": 1}}',
    "no hash": b'{"result": [{"architecture": "amd64", "hash": "../../../etc/passwd"}]}',
    "a hash and more": json.dumps({"result": [{"architecture": "amd64", "hash": "0" * 40 + "\n"}]}).encode(),
    "nothing": b'{"result": []}',
    "another file": json.dumps({"result": [{"architecture": "amd64", "hash": "0" * 40}]}).encode(),
}


@pytest.mark.parametrize("answer", ODD_ANSWERS)
def test_invalid_answer_of_the_snapshot_service_is_ignored(world, answer):
    world.snapshot.put("/mr/binary/bash/1/binfiles", ODD_ANSWERS[answer])
    world.snapshot.put(f"/file/{'0' * 40}", b"not it" * 900)
    with refused(BaseDriftError, "bash 1"):
        world.fetch(package("bash"))
    assert not [path for path in world.snapshot.paths() if "passwd" in path]
    world.is_tidy()
    assert not list((world.cache.root / "files").iterdir())


def test_busy_snapshot_service_is_named_in_the_drift_error(world):
    world.snapshot.faults["/mr/binary/bash/1/binfiles"] = [Fault(status=503)] * 99
    with refused(BaseDriftError, "bash 1", f"Not reached: {world.snapshot.address}: HTTP 503"):
        world.fetch(package("bash"))


# -- locks of anybody's


@pytest.mark.parametrize(
    "change",
    [
        {"path": "pool/../../etc/bash_1_amd64.deb"},
        {"path": "pool/main/b/bash_1_amd64.deb?x"},
        {"path": "pool/main/b\nX: y/bash_1_amd64.deb"},
        {"path": "dists/bookworm/InRelease"},
        {"file": {"name": "../../../../home/bash_1_amd64.deb"}},
        {"file": {"name": "bash\x1b[31m.deb"}},
        {"file": {"sha256": "../../../x"}},
        {"file": {"sha256": "A" * 64}},
    ],
    ids=str,
)
def test_deb_with_a_hostile_path_or_name_is_refused(world, change):
    bash = package("bash")
    if "file" in change:
        change = {"file": msgspec.structs.replace(bash.file, **change["file"])}
    with refused(IntegrityError, "'bash'", "./build.py lock") as caught:
        world.fetch(msgspec.structs.replace(bash, **change))
    assert str(caught.value).replace("\n", "").isprintable()
    assert world.first.asked == world.second.asked == world.snapshot.asked == []


@pytest.mark.parametrize("listed", ["../../x", "yesterday", "20261325T021215Z", "2026115T021215Z", "20261105T21215Z"])
def test_lock_with_an_invalid_listed_time_is_refused(world, listed):
    with refused(IntegrityError, listed):
        world.fetch(package("bash"), listed=listed)
    assert world.first.asked == []


def test_drift_error_hides_mirror_passwords(world):
    mirror = world.first.url("/debian").replace("//", "//me:secret@")
    with refused(BaseDriftError, world.first.address) as caught:
        world.only_mirrors().fetch(package("bash"), DEBIAN_MIRROR=mirror)
    assert "secret" not in str(caught.value) + "".join(world.lines)
