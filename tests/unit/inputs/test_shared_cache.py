"""A site's shared cache: what is taken and given, and that no place of it decides what a build gets."""

import base64
import dataclasses
import json
import os
import secrets
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.host.sandbox import attach
from graphcrate.inputs import making
from graphcrate.inputs.making import Making
from graphcrate.inputs.shared import entry, places, site_cache
from graphcrate.inputs.shared.entry import CacheEntry, SharedFile
from graphcrate.inputs.shared.named import shared_cache
from graphcrate.model.errors import IntegrityError, UsageError
from tests.made import refused, sdist
from tests.unit import tars
from tests.unit.wheel_server import WheelServer

KEY = "ab" * 32
OTHER = "cd" * 32
PACKAGE = sdist("torch-scatter", "2.1.2")
WHEEL = "torch_scatter-2.1.2-cp311-cp311-linux_x86_64.whl"
CONTENT = b"a wheel" * 1000
MADE = "2026-11-29T00:00:00Z"
SITE, STRANGER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))


@dataclass
class Said:
    """Notes and warnings, as a person gets them."""

    lines: list = field(default_factory=list)

    def note(self, line):
        self.lines.append(line)

    warn = note

    @contextmanager
    def task(self, *_):
        yield self

    def advance(self, _):
        pass


@pytest.fixture
def keys(tmp_path):
    """Files of the site's key: private and public."""
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (private := tmp_path / "cosign.key").write_bytes(SITE.private_bytes(serialization.Encoding.PEM, *form))
    public = SITE.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "cosign.pub").write_bytes(public)
    return private, tmp_path / "cosign.pub"


@dataclass
class User:
    """A user with a cache of their own."""

    home: Path
    ctx: Context
    said: Said
    cache: site_cache.SiteCache

    def shelf(self, key):
        return self.home / "cache" / "compiled" / key

    def take(self, **wanted):
        self.taken = self.cache.take({self.shelf(key): package for key, package in (wanted or {KEY: PACKAGE}).items()})
        return sorted(path.name for path in self.home.glob("cache/compiled/*/*.whl"))

    def make(self, content=CONTENT, key=KEY):
        """Compile it."""
        (folder := self.shelf(key)).mkdir(parents=True)
        (folder / WHEEL).write_bytes(content)
        making.keep(folder, Making(maker=f"graphcrate 1 on {self.home.name}", made=MADE, seconds=90.0), self.ctx.cache)
        return [folder / WHEEL]


@pytest.fixture
def user(tmp_path, keys):
    """A function that makes a user of a shared cache in these places."""

    def enter(name, *named, signs=False, trusts=True, check=""):
        said = Said()
        environment = {"GRAPHCRATE_CACHE": str(tmp_path / name / "cache"), "REGISTRY_PLAIN_HTTP": "*"}
        ctx = Context(root=tmp_path, environment=environment)
        ctx.__dict__["progress"] = said
        options = SourceOptions(
            cache=tuple(map(str, named)),
            cache_trust=keys[1:] if trusts else (),
            cache_key=keys[0] if signs else None,
            cache_check=check,
        )
        return User(tmp_path / name, ctx, said, shared_cache(options, ctx))

    return enter


@pytest.fixture
def filled(user, tmp_path):
    """A folder that a first user has filled."""
    first = user("first", tmp_path / "shared", signs=True)
    first.cache.give(first.make())
    assert first.said.lines == [f"to the shared cache {tmp_path}/shared: {WHEEL}"]
    return tmp_path / "shared"


@pytest.fixture(params=["folder", "registry", "web"])
def place(request, user, filled, registry):
    """The same entry in each kind of place."""
    if request.param == "folder":
        yield str(filled)
    elif request.param == "registry":
        address = f"{registry.host}/team/cache"
        first = user("pusher", address, signs=True)
        first.cache.give(first.make())
        assert first.said.lines == [f"to the shared cache {address}: {WHEEL}"]
        yield address
    else:
        files = {f"/{path.relative_to(filled)}": path.read_bytes() for path in filled.rglob("*") if path.is_file()}
        with WheelServer() as server:
            server.bodies.update(files)
            yield server.url("").rstrip("/")


def test_a_second_user_gets_the_same_wheel_from_each_kind_of_place(place, user):
    second = user("second", place)
    assert second.take() == [WHEEL]
    assert (second.shelf(KEY) / WHEEL).read_bytes() == CONTENT
    assert second.said.lines == ["from a shared cache, signed by a key that you trust: torch-scatter"]


def test_what_a_place_lacks_is_left_to_compile_without_a_word(place, user):
    second = user("second", place)
    assert second.take(**{OTHER: PACKAGE}) == []
    assert second.said.lines == []


def test_a_file_with_other_bytes_than_were_signed_is_not_taken(filled, user):
    (blob,) = filled.glob("blobs/sha256/*")
    blob.chmod(0o644)
    blob.write_bytes(CONTENT.replace(b"wheel", b"whEel"))
    second = user("second", filled)
    assert second.take() == []
    assert second.said.lines == [f"{filled}: {WHEEL} is not taken: it has other bytes than were signed"]


def alter(**changes):
    """Change fields of what is signed, and leave the signature."""

    def change(data):
        envelope = json.loads(data)
        payload = json.loads(base64.b64decode(envelope["payload"]))
        payload["predicate"] |= changes
        envelope["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
        return json.dumps(envelope).encode()

    return change


def entry_of(*files, name=WHEEL, sha256="", **changes):
    file = SharedFile(name=name, size=len(CONTENT), sha256=sha256 or tars.sha256(CONTENT)[7:])
    fields = {"kind": "compiled", "key": KEY, "files": (file, *files), "seconds": 9.0}
    return CacheEntry(**{**fields, "maker": "graphcrate 1 on n1", "made": "2026-11-29T00:00:00Z", **changes})


WORTHLESS = {
    "nothing": (lambda _: b"", ""),
    "no-json": (lambda _: b"<html>", "it is not a signed statement"),
    "json-of-another-kind": (lambda _: b'{"a": 1}', "it is not a signed statement"),
    "altered": (alter(seconds=1), "no key that you trust has signed it"),
    "stranger": (lambda _: entry.sealed(entry_of(), STRANGER), "no key that you trust has signed it"),
    "other-key": (
        lambda _: entry.sealed(entry_of(key=OTHER), SITE),
        "it is the entry of compiled cdcdcdcdcdcd, under ",
    ),
    "other-kind": (lambda _: entry.sealed(entry_of(kind="base"), SITE), "it is the entry of base abababababab, under "),
    "no-file-name": (lambda _: entry.sealed(entry_of(name="../x.whl"), SITE), "of another version of graphcrate"),
    "no-hash": (lambda _: entry.sealed(entry_of(sha256="Z" * 64), SITE), "of another version of graphcrate"),
    "no-files": (lambda _: entry.sealed(entry_of(files=()), SITE), "of another version of graphcrate"),
    "a-year": (lambda _: entry.sealed(entry_of(seconds=3e7), SITE), "of another version of graphcrate"),
    "twice": (lambda _: entry.sealed(entry_of(entry_of().files[0]), SITE), "two files of one name"),
    "more": (lambda _: entry.sealed(entry_of(SharedFile.of(Path(__file__))), SITE), "it is more than a wheel"),
    "no-wheel": (lambda _: entry.sealed(entry_of(name="a.txt"), SITE), "a.txt is not a wheel"),
    "other-package": (
        lambda _: entry.sealed(entry_of(name=WHEEL.replace("scatter", "sparse")), SITE),
        "torch_sparse-2.1.2-cp311-cp311-linux_x86_64.whl is another package",
    ),
    "other-version": (
        lambda _: entry.sealed(entry_of(name=WHEEL.replace("2.1.2", "2.1.1")), SITE),
        "torch_scatter-2.1.1-cp311-cp311-linux_x86_64.whl is another package",
    ),
}


@pytest.mark.parametrize("case", WORTHLESS)
def test_an_entry_that_does_not_count_is_not_taken_and_the_reason_is_said(filled, user, case):
    change, why = WORTHLESS[case]
    (path,) = filled.glob("entries/*")
    path.write_bytes(change(path.read_bytes()))
    second = user("second", filled)
    assert second.take() == []
    assert bool(second.said.lines) == bool(why)
    assert why in "".join(second.said.lines)


@given(st.binary(max_size=300))
def test_any_bytes_as_an_entry_give_a_reason(data):
    assert isinstance(entry.opened(data, "compiled", KEY, [SITE.public_key()]), str)


def test_links_and_pipes_in_a_shared_folder_are_not_followed(filled, user, tmp_path):
    (path,) = filled.glob("entries/*")
    (outside := tmp_path / "outside").write_bytes(path.read_bytes())
    for make in (lambda: path.symlink_to(outside), lambda: os.mkfifo(path)):
        path.unlink()
        make()
        second = user("second", filled)
        assert second.take() == []
        assert "going on without it" in second.said.lines[-1]


def test_a_place_that_never_answers_is_left_after_its_time_and_the_next_one_is_asked(filled, user, monkeypatch):
    monkeypatch.setattr(site_cache, "SECONDS", 2.0)
    second = user("second", filled, filled)
    hanging = threading.Event()
    slow = places.CacheFolder("slow", filled)
    read = places.CacheFolder.read
    monkeypatch.setattr(
        places.CacheFolder,
        "read",
        lambda place, tag: (hanging.wait(30), None)[1] if place is slow else read(place, tag),
    )
    second.cache = dataclasses.replace(second.cache, places=[slow, *second.cache.places])
    assert second.take() == [WHEEL]
    hanging.set()
    assert second.said.lines[0].startswith("the shared cache slow cannot be read: it took more than ")


@pytest.mark.parametrize(
    ("part", "fault"),
    [*((part, code) for part in ("/manifests/", "/blobs/") for code in (401, 403, 500)), ("/blobs/", "truncate")],
)
def test_a_registry_that_fails_costs_one_line_and_is_asked_no_more(registry, user, part, fault, monkeypatch):
    monkeypatch.setattr(places, "_LONGEST_PAUSE", 0.0)
    address = f"{registry.host}/team/cache"
    first = user("pusher", address, signs=True)
    first.cache.give(first.make())
    registry.faults[part] = [fault] * 99
    second = user("second", address)
    assert second.take() == []
    assert second.take(**{OTHER: PACKAGE}) == []
    assert len([line for line in second.said.lines if "going on without it" in line]) == 1, second.said.lines


def test_one_in_so_many_entries_is_compiled_here_and_another_result_is_refused_for_good(filled, user):
    second = user("second", filled, check="1")
    assert second.take() == []
    second.cache.compare(second.taken, second.make())
    third = user("third", filled, check="1")
    third.take()
    with refused(IntegrityError, "is another file than the one in", "graphcrate", "One of the two is faulty"):
        third.cache.compare(third.taken, third.make(b"changed"))
    (third.shelf(KEY) / WHEEL).unlink()
    again = user("third", filled)
    assert again.take() == []
    assert "made here it was another file" in again.said.lines[-1]


def test_each_build_chooses_other_entries_to_check(filled, user):
    assert user("second", filled).cache.pick is secrets.randbelow
    for picked, wheels in ((0, []), (1, [WHEEL])):
        second = user(f"user{picked}", filled, check="20")
        second.cache = dataclasses.replace(second.cache, pick=lambda share, picked=picked: picked)
        assert second.take() == wheels
        assert [*second.taken.compared] == ([] if wheels else [KEY])


def test_a_wheel_of_another_maker_is_given_on_under_that_makers_name(filled, user, tmp_path):
    """And one that an older version brought, without a record, under no maker's."""
    second = user("second", tmp_path / "own", filled, signs=True)
    second.take()
    second.cache.give(second.home.glob("cache/compiled/*/*.whl"))
    (path,) = (tmp_path / "own").glob("entries/*")
    known = entry.opened(path.read_bytes(), "compiled", KEY, [SITE.public_key()])
    assert (known.maker, known.made, known.seconds) == ("graphcrate 1 on first", MADE, 90.0)
    (third := user("third", tmp_path / "third", signs=True)).make()
    (third.shelf(KEY) / "made.json").unlink()
    third.cache.give(third.home.glob("cache/compiled/*/*.whl"))
    (path,) = (tmp_path / "third").glob("entries/*")
    known = entry.opened(path.read_bytes(), "compiled", KEY, [SITE.public_key()])
    assert known.maker.startswith("unknown, given by graphcrate ")


def test_wheel_that_a_trusted_key_gives_on_is_taken_by_its_signature_and_not_where_its_makers_alone_is(
    filled, user, tmp_path
):
    """The reader trusts the giver, who trusts a stranger."""
    own = tmp_path / "own"
    (path,) = filled.glob("entries/*")
    path.write_bytes(entry.sealed(entry_of(), STRANGER))
    for name, named in {"elsewhere": (own, filled), "there": (filled,)}.items():
        giver = user(name, *named, signs=True)
        giver.cache = dataclasses.replace(giver.cache, trusted=[STRANGER.public_key()])
        assert giver.take() == [WHEEL]
        giver.cache.give(giver.home.glob("cache/compiled/*/*.whl"))
    reader = user("reader", filled)
    assert reader.take() == [], "it was there: no second signature was put"
    assert reader.said.lines == [f"{filled}: torch-scatter is not taken: no key that you trust has signed it"]
    assert user("other", filled, own).take() == [WHEEL]


def test_a_private_key_is_not_read_to_look_at_a_cache(keys, tmp_path):
    """It may ask for a password. Where nothing else is trusted, what it signed is."""
    environment = {"GRAPHCRATE_REMOTE_CACHE": "/tmp", "GRAPHCRATE_CACHE_KEY": "/no/such.key"}
    ctx = Context(root=tmp_path, environment=environment)
    options = SourceOptions(cache_trust=keys[1:])
    assert shared_cache(options, ctx, gives=False).signer is None
    with refused(UsageError, "/no/such.key"):
        shared_cache(options, ctx)
    environment["GRAPHCRATE_CACHE_KEY"] = str(keys[0])
    assert shared_cache(SourceOptions(), ctx, gives=False).signer is not None


def test_what_is_there_is_not_given_again_and_a_strangers_entry_is_replaced(filled, user):
    giver = user("giver", filled, signs=True)
    made = giver.make()
    giver.cache.give(made)
    assert giver.said.lines == []
    (path,) = filled.glob("entries/*")
    path.write_bytes(entry.sealed(entry_of(), STRANGER))
    giver.cache.give(made)
    assert user("second", filled).take() == [WHEEL]


def test_a_place_that_cannot_be_written_ends_no_build(user, tmp_path):
    (tmp_path / "shared").write_text("a file")
    giver = user("giver", tmp_path / "shared", signs=True)
    giver.cache.give(giver.make())
    assert "cannot be written" in giver.said.lines[-1]


@pytest.mark.parametrize(
    ("named", "options", "words"),
    [
        ("nowhere", {}, ("'nowhere' is not a place of a shared cache", "/shared/cache")),
        ("/no/such/folder", {}, ("is not a place of a shared cache",)),
        ("/tmp", {"trusts": False}, ("has no key to check it by", "CACHE_TRUST=cosign.pub")),
        ("https://site.example/c", {"signs": True}, ("is a web server, which is read alone",)),
        ("/tmp", {"check": "often"}, ("'often' is not one in how many entries to check",)),
    ],
)
def test_a_cache_that_nothing_could_come_of_is_a_usage_error_before_anything_is_built(user, named, options, words):
    with refused(UsageError, *words):
        user("u", named, **options)


def test_no_cache_is_asked_where_none_is_named_and_variables_stand_for_options(keys, tmp_path):
    assert shared_cache(SourceOptions(), Context(root=tmp_path, environment={})) is None
    environment = {"GRAPHCRATE_REMOTE_CACHE": f"{tmp_path}/a /tmp", "GRAPHCRATE_CACHE_TRUST": str(keys[1])}
    environment |= {"GRAPHCRATE_CACHE_KEY": str(keys[0]), "GRAPHCRATE_CACHE_CHECK": "7"}
    found = shared_cache(SourceOptions(), Context(root=tmp_path, environment=environment))
    assert [place.name for place in found.places] == [f"{tmp_path}/a", "/tmp"]
    assert (len(found.trusted), found.signer is not None, found.share) == (1, True, 7)


def test_password_of_a_key_is_asked_for_once_in_a_run(user, keys, tmp_path, monkeypatch):
    """A matrix makes an image after the other, at night."""
    asked = []
    monkeypatch.setattr(attach, "ask_password", lambda prompt: asked.append(prompt) or "hush")
    form = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"hush")
    keys[0].write_bytes(SITE.private_bytes(serialization.Encoding.PEM, *form))
    for name in ("first", "second"):
        assert user(name, tmp_path / "site", signs=True).cache.signer.private_numbers() == SITE.private_numbers()
    assert asked == [f"password of {keys[0]}: "]
