"""The standing of locks: places on loopback have their files, or lack them, or are silent."""

import contextlib
import json
import threading
from types import SimpleNamespace

import msgspec
import pysequoia
import pytest

from debroot import release
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.net import HttpError
from graphcrate.model.errors import LockedError, NetworkError
from graphcrate.model.lock import Compilation, DebianBase, DebianToolkit, Lock, encode
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources import search, wheel_mirrors
from patienthttp.errors import NoAnswer
from patienthttp.reach import Reach
from tests.made import deb, index_of, locked, place, refused, sdist
from tests.unit.small_debian import Debian, stanza
from tests.unit.wheel_server import Fault, WheelServer, small_wheel
from upkeep.standing import files as standing
from upkeep.standing import text as standing_text
from upkeep.standing.files import LockQuery
from upkeep.standing.values import LocksStanding

LISTED, NEXT_DAY = "20261124T021215Z", "20261125T021215Z"
PATH, TWIN = "pool/updates/main/b/bash/bash_5_amd64.deb", "pool/main/b/bash/bash_5_amd64.deb"
BASH = deb("bash", "5", size=11, path=PATH)
CONTENT = b"b" * 11
NUMPY, TQDM = small_wheel("numpy", "1.26.4"), small_wheel("tqdm", "4.66")


@pytest.fixture(scope="module")
def signer():
    return pysequoia.Tsk.generate("Someone <someone@debian.example>")


@pytest.fixture
def world(cache, progress, signer, no_places, tmp_path, monkeypatch):
    """Servers: an index, two mirrors of Debian, the archive of retired suites, snapshots; and what a person sets."""
    monkeypatch.setattr(search, "AGAIN", (0.0,))
    monkeypatch.setattr(wheel_mirrors, "MIRRORS", {})
    (tmp_path / "debian-archive-keys.asc").write_text(str(signer.extract_certificate()))
    monkeypatch.setattr(release, "KEYS", tmp_path)
    with contextlib.ExitStack() as stack:
        names = ("index", "mirror", "other", "retired", "snapshot")
        servers = {name: stack.enter_context(WheelServer()) for name in names}
        made = SimpleNamespace(**servers, signer=signer, cache=cache, progress=progress, patch=monkeypatch)
        made.debian = Debian(made.mirror, signer, cache, progress)
        made.environment = {
            **no_places,
            **index_of(made.index),
            "DEBIAN_MIRROR": f"{made.mirror.url('/debian')} {made.other.url('/debian')}",
            "DEBIAN_ARCHIVE": made.retired.url("/all"),
            "DEBIAN_SNAPSHOT": made.snapshot.url(""),
        }
        made.check = lambda *locks, **options: check(made, locks, options)
        yield made


def check(world, locks, options):
    asked = [
        LockQuery("torch", f"{number}.lock.json", "./build.py lock torch", lock) for number, lock in enumerate(locks)
    ]
    ctx = place(world.cache, world.environment)
    return standing.check(asked, SourceOptions(**options), ctx)


def lock(*wheels, debs=(BASH,), suite="bookworm", **fields):
    names = {"recipe": "torch", "cuda": "11.8", "candidate": "pypi", "torch_cuda": "11.8", "python": "3.11"}
    base = DebianBase(suite=suite, packages=debs, listed=LISTED)
    packages = tuple(one if hasattr(one, "file") else locked(one) for one in wheels)
    return Lock(**names, created=1, request_sha256="0" * 64, base=base, packages=packages, **fields)


def put_everywhere(world):
    for server in (world.mirror, world.other):
        server.put(f"/debian-security/{PATH}", CONTENT)
    for name, wheel in (("numpy", NUMPY), ("tqdm", TQDM)):
        world.index.simple(name, dict([wheel]))


def only(found):
    """The one file that was looked for, with the kinds of places that have it."""
    (file,) = found.files
    return file.state, [one.kind for one in file.places]


def ends(found):
    try:
        standing.raise_if_gone(found)
    except (LockedError, NetworkError) as error:
        return error.exit_code
    return 0


def test_locks_with_all_files_available_are_asked_once_and_end_with_0(world):
    put_everywhere(world)
    toolkit = DebianToolkit(version="11.8.89", suite="bookworm", packages=(BASH,), wheels=(locked(TQDM),))
    compiling = Compilation(architectures=(), compiler="g++", base=lock().base, tools=(locked(TQDM),), toolkit=toolkit)
    built = sdist("made", build=(locked(NUMPY),))
    world.index.simple("made", {built.file.name: b""})
    found = world.check(lock(NUMPY, TQDM), lock(NUMPY, built, compilation=compiling))
    counts = [(one.counts.files, one.counts.usual, one.counts.single) for one in found.locks]
    assert counts == [(3, 3, 0), (4, 3, 0)]  # of `made` the index has another file
    states = {one.name: (one.state, len(one.places)) for one in found.files}
    assert (states[NUMPY[0]], states[BASH.file.name]) == (("there", 1), ("there", 2))
    pages = [path for path in world.index.paths() if path.endswith(("/numpy/", "/tqdm/"))]
    assert sorted(pages) == ["/simple/numpy/", "/simple/tqdm/"]
    for server in (world.mirror, world.other):
        assert [one for one in server.asked if one.path.endswith(".deb")] == [server.asked[-1]]
        assert server.asked[-1].method == "HEAD"
    assert (world.retired.asked, world.snapshot.asked, found.silent) == ([], [], ())
    assert ends(world.check(lock(NUMPY, TQDM))) == 0


@pytest.mark.parametrize(
    ("server", "path", "kinds"),
    [
        ("mirror", f"/debian-security/{PATH}", ["mirror"]),
        ("mirror", f"/debian/{TWIN}", ["mirror"]),
        ("other", f"/debian/{TWIN}", ["mirror"]),
        ("retired", f"/all/debian-security/{PATH}", ["archive"]),
        ("retired", f"/all/debian/{TWIN}", ["archive"]),
        ("snapshot", f"/archive/debian-security/{LISTED}/{PATH}", ["snapshot"]),
        ("snapshot", f"/archive/debian/{NEXT_DAY}/{TWIN}", ["snapshot"]),
        ("snapshot", f"/file/{'1' * 40}", ["snapshot"]),
    ],
)
def test_deb_on_one_server_alone_is_there_and_counted_as_single(world, server, path, kinds):
    getattr(world, server).put(path, CONTENT)
    by_name = {"result": [{"hash": "2" * 40, "architecture": "arm64"}, {"hash": "1" * 40, "architecture": "amd64"}]}
    if "/file/" in path:
        world.snapshot.put("/mr/binary/bash/5/binfiles", json.dumps(by_name).encode())
    found = world.check(lock())
    assert only(found) == ("there", kinds)
    assert found.files[0].is_single
    counts = found.locks[0].counts
    assert (counts.usual, counts.elsewhere) == ((1, 0) if kinds == ["mirror"] else (0, 1))
    assert ends(found) == 0


def test_deb_without_a_path_is_found_by_the_current_package_list(world):
    world.debian.put("bookworm", [stanza("bash", "5", SHA256=BASH.file.sha256, Filename=TWIN)])
    world.mirror.put(f"/debian/{TWIN}", CONTENT)
    world.environment["DEBIAN_SNAPSHOT"] = "none"
    assert only(world.check(lock(debs=(msgspec.structs.replace(BASH, path=""),)))) == ("there", ["mirror"])


def test_deb_on_no_server_is_a_locked_error(world):
    found = world.check(lock())
    assert only(found) == ("nowhere", [])
    assert {(one.place.kind, one.why) for one in found.files[0].sightings} == {
        (kind, "does not have it") for kind in ("mirror", "archive", "snapshot")
    }
    with refused(LockedError, "1 locked file is nowhere any more", BASH.file.name, "./build.py lock torch"):
        standing.raise_if_gone(found)


def test_file_of_another_size_at_the_address_is_not_the_locked_file(world):
    put_everywhere(world)
    world.mirror.put(f"/debian-security/{PATH}", CONTENT + b"!")
    found = world.check(lock())
    first, second = found.files[0].sightings[:2]
    assert (first.has, first.why) == (False, "has another file there, of 12 bytes instead of 11")
    assert second.has
    world.other.put(f"/debian-security/{PATH}", b"")
    assert only(world.check(lock())) == ("nowhere", [])


@pytest.mark.parametrize("odd", ["pool/../../etc/passwd.deb", "http://elsewhere.example/pool/a.deb"])
def test_invalid_path_in_a_lock_is_not_requested(world, odd):
    found = world.check(lock(debs=(msgspec.structs.replace(BASH, path=odd),)))
    assert [one.path for one in world.snapshot.asked] == ["/mr/binary/bash/5/binfiles"]
    assert found.files[0].state == "nowhere"


def test_deb_with_a_silent_archive_is_unknown_and_not_nowhere(world):
    """Of mirrors, which are copies of each other, one answer is enough."""
    silence(world, "DEBIAN_SNAPSHOT")
    found = world.check(lock())
    assert only(found) == ("unknown", [])
    assert [one.why for one in found.silent] == ["connection refused"]
    assert ends(found) == 0
    world.environment["DEBIAN_SNAPSHOT"] = world.snapshot.url("")
    silence(world, "DEBIAN_MIRROR", f"{world.other.url('/debian')}")
    assert only(world.check(lock())) == ("nowhere", [])
    world.index.simple("numpy", dict([NUMPY]))
    silence(world, "DEBIAN_SNAPSHOT")
    assert ends(world.check(lock(NUMPY))) == 0


def silence(world, variable, more=""):
    """No server listens there but those of `more`."""
    world.environment[variable] = f"http://127.0.0.1:1/debian {more}".strip()


def test_http_403_makes_a_file_unknown(world):
    """A proxy that forbids a host answers for it."""
    answer_all(world.mirror, 403)
    answer_all(world.other, 403)
    found = world.check(lock())
    assert only(found) == ("unknown", [])
    assert {one.why for one in found.silent} == {"HTTP 403"}


def answer_all(server, status):
    class Always(dict):
        def get(self, path):
            return [Fault(status=status)]

    server.faults = Always()


def test_silent_servers_make_all_files_unknown_and_are_a_network_error(world):
    for variable in ("DEBIAN_MIRROR", "DEBIAN_ARCHIVE", "DEBIAN_SNAPSHOT", "UV_DEFAULT_INDEX"):
        silence(world, variable)
    found = world.check(lock(NUMPY))
    assert {one.state for one in found.files} == {"unknown"}
    assert [one.host for one in found.silent] == ["127.0.0.1:1"]
    with refused(NetworkError, "no server that may have them answers", "127.0.0.1:1: connection refused"):
        standing.raise_if_gone(found)
    assert found.suites[0].error


def test_local_index_gives_its_own_wheels_and_others_stay_unknown(world, tmp_path):
    page = tmp_path / "simple/numpy/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="{NUMPY[0]}#sha256={locked(NUMPY).file.sha256}">numpy</a>')
    world.environment["UV_INDEX"] = (tmp_path / "simple").as_uri()
    for variable in ("DEBIAN_MIRROR", "DEBIAN_ARCHIVE", "DEBIAN_SNAPSHOT", "UV_DEFAULT_INDEX"):
        silence(world, variable)
    found = world.check(lock(NUMPY, TQDM))
    assert [one.state for one in found.files] == ["there", "unknown", "unknown"]
    assert (found.locks[0].counts.elsewhere, ends(found)) == (1, 5)
    assert ends(world.check(lock(NUMPY, debs=()))) == 0


def test_silent_server_is_asked_once_by_all_threads():
    reach, asked, url = Reach(), [], "http://127.0.0.1:1/a.deb"

    def question():
        asked.append(1)
        raise HttpError.of(NoAnswer.NO_ANSWER, url)

    def ask():
        with pytest.raises(HttpError):
            reach.ask(url, question)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == [1]
    assert reach.silent == {"127.0.0.1:1": "no answer to the attempt to connect"}


# --- wheels and sdists ------------------------------------------------------------------------------------------------


@pytest.fixture
def wheels(world):
    """Locks of wheels alone."""
    world.look = lambda *wheels, **options: world.check(lock(*wheels, debs=()), **options)
    return world


def test_wheel_missing_from_the_index_is_nowhere_with_its_reason(wheels):
    wheels.index.simple("numpy", {NUMPY[0]: b"other bytes"})
    wheels.index.simple("tqdm", {})
    found = wheels.look(NUMPY, TQDM, small_wheel("gone", "1.0"))
    assert {one.state for one in found.files} == {"nowhere"}
    whys = [one.sightings[0].why for one in found.files]
    assert whys == ["has another file under this name", "does not list it", "does not have it"]
    assert ends(found) == 18


def test_stale_index_page_is_requested_again(wheels):
    wheels.index.simple("numpy", dict([NUMPY]), stale={})
    assert only(wheels.look(NUMPY)) == ("there", ["index"])
    assert len(wheels.index.asked) == 2


def test_wheel_on_a_public_mirror_alone_is_there_as_a_copy(wheels):
    """As a build does, no public mirror is asked for what may be a company's own."""
    own = f"--index-url {wheels.index.url('/simple')}"
    wheels.patch.setattr("graphcrate.resolve.sources.request_sources.emitted_indexes", lambda *_: own)
    wheels.patch.setattr(
        wheel_mirrors, "MIRRORS", {"nearby": wheel_mirrors.WheelMirror(pypi=wheels.mirror.url("/simple"))}
    )
    wheels.environment["WHEEL_FALLBACK"] = ""
    wheels.mirror.simple("numpy", dict([NUMPY]))
    found = wheels.look(NUMPY)
    assert (only(found), found.locks[0].counts.elsewhere) == (("there", ["copy"]), 1)
    two = {name: wheel_mirrors.WheelMirror(pypi=wheels.mirror.url(f"/{name}")) for name in ("simple", "other")}
    wheels.mirror.simple("numpy", dict([NUMPY]), prefix="/other")
    wheels.patch.setattr(wheel_mirrors, "MIRRORS", two)
    assert only(wheels.look(NUMPY)) == ("there", ["copy"])
    assert "/other/numpy/" not in wheels.mirror.paths(), "one public mirror that has it is enough"
    wheels.patch.setattr(wheel_mirrors, "MIRRORS", {"nearby": two["simple"]})
    wheels.index.simple("numpy", dict([NUMPY]))
    wheels.mirror.asked.clear()
    assert only(wheels.look(NUMPY)) == ("there", ["index"])
    assert [path for path in wheels.mirror.paths() if "simple" in path] == []
    found = wheels.look(NUMPY, mirror="nearby")
    assert only(found) == ("there", ["mirror", "index"])
    assert not found.files[0].is_single
    wheels.index.pages.clear()
    wheels.environment["WHEEL_FALLBACK"] = "none"
    assert only(wheels.look(NUMPY)) == ("nowhere", [])


def test_wheel_with_a_silent_extra_index_is_unknown(wheels):
    """Each may be the one that the wheel is from."""
    wheels.environment["UV_INDEX"] = wheels.mirror.url("/more")
    assert only(wheels.look(NUMPY)) == ("nowhere", [])
    wheels.environment["UV_INDEX"] = "http://127.0.0.1:1/more"
    assert only(wheels.look(NUMPY)) == ("unknown", [])
    wheels.index.simple("numpy", dict([NUMPY]))
    assert only(wheels.look(NUMPY)) == ("there", ["index"])


def test_index_page_without_hashes_counts_if_the_size_matches(wheels):
    wheels.index.simple("numpy", dict([NUMPY]), hashes=False)
    assert only(wheels.look(NUMPY)) == ("there", ["index"])
    wheels.index.put(f"/files/{NUMPY[0]}", b"less")
    assert only(wheels.look(NUMPY)) == ("nowhere", [])


def test_yanked_wheel_is_counted_with_its_reason(wheels):
    wheels.index.simple("numpy", dict([NUMPY]), yanked=(NUMPY[0],))
    wheels.index.simple("tqdm", dict([TQDM]))
    found = wheels.look(NUMPY, TQDM)
    assert [(one.is_yanked, one.yanked_for) for one in found.files] == [(True, "broken"), (False, "")]
    assert found.locks[0].counts.yanked == 1
    assert ends(found) == 0


def test_local_wheels_of_a_lock_are_not_requested(wheels):
    found = wheels.look(locked(NUMPY, Channel.LOCAL))
    assert only(found) == ("own", [])
    assert wheels.index.asked == []


# --- updates ----------------------------------------------------------------------------------------------------------


def test_updates_are_split_into_security_and_others_by_archive(world):
    put_everywhere(world)
    same, old, both = deb("same", "1"), deb("old", "1"), deb("both", "1")
    security = "pool/updates/main/p_amd64.deb"
    world.debian.put("bookworm", [stanza("same"), stanza("old", "1.1"), stanza("both", "1.2"), stanza("gcc", "13")])
    world.debian.put(
        "bookworm-security",
        [stanza("bash", "5.1", Filename=security), stanza("both", "1.1", Filename=security)],
        root="/debian-security",
    )
    compiler = DebianBase(suite="bookworm", packages=(BASH, deb("gcc", "12")), listed=LISTED)
    compiling = Compilation(architectures=(), compiler="g++", base=compiler, tools=())
    found = world.check(lock(debs=(BASH, same, old, both), compilation=compiling))
    assert [(one.of, one.name, one.locked, one.newest, one.is_security) for one in found.locks[0].updates] == [
        ("base", "bash", "5", "5.1", True),
        ("base", "both", "1", "1.2", True),  # a point release took over what was newer than the lock in security
        ("compiler", "gcc", "12", "13", False),
        ("base", "old", "1", "1.1", False),
    ]
    (suite,) = found.suites
    assert (suite.suite, suite.has_security, suite.error) == ("bookworm", True, "")


def test_updates_of_an_arm64_lock_are_from_arm64s_lists(world):
    """A package may have been built again for one platform alone: its version differs then."""
    put_everywhere(world)
    ported = deb("bash", "5", size=11, path=PATH.replace("amd64", "arm64"), architecture="arm64")
    world.debian.put("bookworm", [stanza("bash", "5")])
    world.debian.put("bookworm", [stanza("bash", "5+b1", Architecture="arm64")], stem="binary-arm64/Packages")
    found = world.check(lock(), lock(debs=(ported,)))
    assert [[one.newest for one in of.updates] for of in found.locks] == [[], ["5+b1"]]
    assert [of.title for of in found.locks] == ["torch 11.8 pypi", "torch 11.8 pypi for linux/arm64"]
    assert [(suite.suite, suite.platform) for suite in found.suites] == [("bookworm", ""), ("bookworm", "linux/arm64")]


def test_missing_or_expired_package_lists_are_reported_and_end_with_0(world):
    put_everywhere(world)
    world.debian.put("bookworm", [stanza("bash", "6")])
    found = world.check(lock())
    assert not found.suites[0].has_security
    assert [one.newest for one in found.locks[0].updates] == ["6"]
    world.debian.put("bookworm", [], until="Sat, 28 Nov 2020 02:10:46 UTC")
    for failing in (found, world.check(lock())):
        assert ends(failing) == 0
    assert "was valid until" in world.check(lock()).suites[0].error


def test_lock_of_lists_that_were_not_its_suites_is_doubted(world):
    """Fixes that were out by then, packages of another suite, lists newer than today's; and what the lock says."""
    put_everywhere(world)
    fix = "pool/updates/main/a/a/a_2_amd64.deb"
    placed = Fault(headers=(("Last-Modified", "Mon, 01 Sep 2025 10:00:00 GMT"),))
    world.mirror.put(f"/debian-security/{fix}", b"!")
    world.mirror.faults[f"/debian-security/{fix}"] = [placed] * 9
    world.debian.put("bookworm", [stanza("a"), stanza("b")], date="Wed, 10 Sep 2025 10:00:00 UTC")
    world.debian.put("bookworm-security", [stanza("a", "2", Filename=fix)], root="/debian-security")

    def doubts(listed, *debs, **fields):
        base = DebianBase(suite="bookworm", packages=debs, listed=listed, **fields)
        found = world.check(msgspec.structs.replace(lock(), base=base))
        return [(one.kind, one.names) for one in found.locks[0].doubts], found

    held_back, found = doubts("20250905T000000Z", deb("a", "1"), deb("b", "1"))
    assert held_back == [("late", ("a 1 → 2",))]
    assert "it lacks security updates that were out when it was locked: a 1 → 2" in str(standing_text.answer(found))
    assert doubts("20250902T000000Z", deb("a", "1"))[0] == [], "it may not have reached the mirrors by then"
    assert doubts("20250905T000000Z", deb("a", "2"), deb("b", "13"))[0] == [("ahead", ("b 13",))]
    assert doubts("20250911T000000Z", deb("b", "13"))[0] == [("older", ("2025-09-10", "2025-09-11"))]
    assert doubts("20250801T000000Z", deb("a", "1"), without_security=True)[0] == [("unfixed", ())]


def test_retired_suite_is_read_from_its_archive_and_reported(world):
    put_everywhere(world)
    world.debian = Debian(world.retired, world.signer, world.cache, world.progress)
    world.debian.put("bullseye", [stanza("bash", "6")], root="/all/debian")
    found = world.check(lock(suite="bullseye"))
    assert "no security updates since" in found.suites[0].kept
    assert [one.newest for one in found.locks[0].updates] == ["6"]


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def mine(world, context):
    """A person's own recipe with two locks beside it."""
    context.environment.update(world.environment)
    (context.root / "mine.toml").write_text('extends = "torch"\n')
    for name in ("mine.cu118.pypi", "mine.cu121.pypi", "mined.cu118.pypi"):
        value = msgspec.structs.replace(lock(NUMPY, TQDM), cuda="12.1" if "121" in name else "11.8")
        (context.root / f"{name}.lock.json").write_bytes(encode(value))
    return world


def test_lock_check_prints_a_line_per_lock_with_its_notes(mine, typed):
    put_everywhere(mine)
    code, out, err = typed("lock", "--check", "mine.toml")
    assert code == 0, err
    assert [line.split()[:4] for line in out.splitlines() if line.startswith("mine.toml")] == [
        ["mine.toml", "11.8", "pypi", "3"],
        ["mine.toml", "12.1", "pypi", "3"],
    ]
    mine.index.simple("tqdm", dict([TQDM]), yanked=(TQDM[0],))
    mine.other.bodies.clear()  # the mirror alone has it
    mine.debian.put("bookworm-security", [stanza("bash", "5.1", Filename=PATH)], root="/debian-security")
    mine.debian.put("bookworm", [])
    code, out, err = typed("lock", "--check", "mine.toml", "--cuda", "11.8")
    assert code == 0, err
    assert "12.1" not in out
    assert "alone answers" not in out
    for told in ("bash 5 → 5.1", f"{TQDM[0]}: broken", f"1 at {mine.mirror.address} alone: {BASH.file.name}"):
        assert told in out


def test_lock_check_json_has_all_locks_and_files(mine, typed):
    put_everywhere(mine)
    code, out, _ = typed("lock", "--check", "mine.toml", "--json")
    found = msgspec.json.decode(out, type=LocksStanding)
    assert (code, len(found.locks), len(found.files)) == (0, 2, 3)
    assert found.locks[0].path == "mine.cu118.pypi.lock.json"
    assert {*found.locks[0].files} == {one.sha256 for one in found.files}


def test_lock_check_of_a_gone_file_ends_with_18_and_the_lock_command(mine, typed):
    code, out, err = typed("lock", "--check", "mine.toml", "--cuda", "12.1")
    assert code == 18
    assert f"nowhere  {BASH.file.name} (bash 5)" in out
    assert f"{mine.mirror.address}: does not have it" in out
    assert "./build.py lock mine.toml --cuda 12.1" in err


def test_lock_check_names_the_only_server_that_answers(mine, typed, context):
    put_everywhere(mine)
    mirror = mine.mirror.url("/debian")
    nobody = "http://127.0.0.1:1/debian"
    context.environment.update(DEBIAN_MIRROR=f"{mirror} {nobody}", DEBIAN_ARCHIVE=nobody, DEBIAN_SNAPSHOT="none")
    _, out, _ = typed("lock", "--check", "mine.toml")
    assert f"of the places of Debian's packages {mine.mirror.address} alone answers" in out
    assert "not reached: 127.0.0.1:1 (connection refused)" in out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("lock",), 2, "lock needs a recipe"),
        (("lock", "mine.toml", "--json"), 2, "has no option --json"),
        (("lock", "--check", "--channel", "pypi", "--extensions", "none"), 2, "--channel and --extensions"),
        (("lock", "--check", "other.toml"), 3, "other.toml"),
        (("lock", "--check", "mine.toml", "--cuda", "12.8"), 9, "has no lock beside it"),
    ],
)
def test_lock_check_with_invalid_arguments_is_refused(mine, typed, arguments, code, says):
    ended, _, err = typed(*arguments)
    assert (ended, says in err) == (code, True), err
