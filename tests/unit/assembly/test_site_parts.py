"""Bases and layers of a shared cache: with their records a build goes on without wheels and Debian's packages."""

import hashlib
import shutil
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.assembly import site_parts, site_stock
from graphcrate.engines.embedded import records
from graphcrate.host.disk.sealed import kept_bytes
from graphcrate.inputs import bases
from graphcrate.inputs.bases import debian
from graphcrate.inputs.shared import entry
from graphcrate.inputs.shared.entry import CacheEntry, SharedFile
from graphcrate.inputs.wheels.install import Installation, Placed
from graphcrate.model import codec
from graphcrate.model.errors import IntegrityError
from graphcrate.model.lock import Lock
from graphcrate.model.plan import BaseStep, FilesStep, PlannedFile
from tests.made import bookworm, deb, refused
from tests.unit import tars
from tests.unit.conftest import Recorder
from tests.unit.engines.test_embedded_builder import (
    BASE,
    IMAGE,
    build,
    compiled_here,  # noqa: F401 (a fixture)
    planned,
    wheels,
    wheels_step,
)
from tests.unit.inputs.test_shared_cache import (
    SITE,
    STRANGER,
    keys,  # noqa: F401 (a fixture)
    user,  # noqa: F401 (a fixture)
)

DEBIAN = bookworm(deb("python3.11", "3.11.2-6"), deb("libc6", "2.36-9"))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


LOCK = Lock(
    recipe="r", cuda="cpu", candidate="pypi", torch_cuda="cpu", python="3.11", created=1, request_sha256="",
    base=DEBIAN, packages=(),
)  # fmt: skip


def on_debian(plan):
    return msgspec.structs.replace(plan, steps=(BaseStep(base=DEBIAN, image=IMAGE), *plan.steps[1:]))


class Site:
    """A first user has built an image of a base and two layers and given it; others have other caches."""

    def __init__(self, tmp_path, user):  # noqa: F811
        self.user, self.place = user, tmp_path / "site"
        packages, files = wheels(tmp_path, one={"one/__init__.py": b"x = 1\n"}, two={"two.py": b""})
        venv = FilesStep(title="venv", files=(PlannedFile(path="/opt/venv/bin/python", link="/usr/bin/python3"),))
        steps = (venv, wheels_step("first", packages[:1]), wheels_step("second", packages[1:]))
        plan = planned(*steps)
        self.plan = on_debian(plan)
        self.files = files
        self.lock = msgspec.structs.replace(LOCK, packages=packages)
        self.packages = {package.file.sha256 for package in packages}
        self.giver = user("giver", self.place, signs=True)
        cache = self.giver.ctx.cache
        (folder := tmp_path / "base").mkdir()
        self.record = tars.record(folder, "base", [tars.file("etc/debian_version", b"12")])
        cache.write(cache.blob(self.record.digest), (folder / self.record.digest[7:]).read_bytes())
        cache.keep(debian.record_path(DEBIAN, cache), msgspec.json.encode(self.record))
        self.base = msgspec.structs.replace(BASE, identity=bases.identity(DEBIAN), layers=(self.record,))
        self.layers = build(self.plan, files, cache, base=self.base)
        size = sum(layer.size for layer in (self.record, *self.layers))
        self.report = SimpleNamespace(seconds=100.0, bytes=size)
        site_parts.give(self.giver.cache, self.plan, self.report, self.giver.ctx)

    def take(self, name="second", check=""):
        """Be another user; what is here then."""
        self.second = self.user(name, self.place, check=check)
        self.taken = site_parts.take(self.second.cache, self.plan, self.second.ctx)
        return records.layered(self.plan, self.second.ctx.cache)

    def entries(self, kind):
        return sorted((self.place / "entries").glob(f"{kind}-*"))

    def give_other_files(self, path, replaced):
        """Sign an entry with these bytes under the names of its files."""
        blobs = self.place / "blobs/sha256"
        new = {name: SharedFile(name=name, size=len(data), sha256=sha256(data)) for name, data in replaced.items()}
        for name, file in new.items():
            (blobs / file.sha256).write_bytes(replaced[name])
        self.seal(path, files=tuple(new.get(file.name, file) for file in self.seal(path).files))

    def seal(self, path, signer=SITE, **changes):
        kind, _, key = path.stem.partition("-")
        known = entry.opened(path.read_bytes(), kind, key, [SITE.public_key()])
        assert isinstance(known, CacheEntry)
        path.write_bytes(entry.sealed(msgspec.structs.replace(known, **changes), signer))
        return known


@pytest.fixture
def site(tmp_path, user):  # noqa: F811
    return Site(tmp_path, user)


def test_second_user_builds_on_layers_and_base_without_a_wheel_or_a_package_of_debian(site):
    assert site.take() == site.packages
    cache = site.second.ctx.cache
    left = records.to_bring(site.plan, site.lock, cache)
    assert (left.packages, left.base.packages) == ((), ())
    assert debian.made(DEBIAN, cache) == site.record
    assert build(site.plan, {}, cache, base=site.base) == site.layers
    assert site.second.said.lines == [
        "from a shared cache, signed by a key that you trust: layers Debian bookworm, first, second"
    ]
    assert [part.title for part in site.second.cache.parts] == ["Debian bookworm", "first", "second"]
    assert sum(part.seconds for part in site.second.cache.parts) == pytest.approx(100, abs=20)


def test_layer_whose_blob_is_here_needs_its_records_alone(site):
    second = site.user("second", site.place)
    for layer in (site.record, *site.layers):
        second.ctx.cache.write(
            second.ctx.cache.blob(layer.digest), site.giver.ctx.cache.blob(layer.digest).read_bytes()
        )
    for layer in (site.record, *site.layers):
        (site.place / "blobs/sha256" / layer.digest[7:]).unlink(missing_ok=True)
    assert site.take() == site.packages


def test_maker_of_parts_stays_who_made_them_when_they_are_given_on(site, tmp_path):
    site.take()
    on = site.user("second", tmp_path / "other", signs=True)
    (path,) = site.entries("base")
    made = site.seal(path)
    site_parts.give(on.cache, site.plan, site.report, on.ctx)
    data = (tmp_path / "other/entries" / path.name).read_bytes()
    known = entry.opened(data, "base", made.key, [SITE.public_key()])
    assert (known.maker, known.made, known.seconds) == (made.maker, made.made, made.seconds)


def drop_record(known):
    return {"files": tuple(file for file in known.files if file.name != "layer.json")}


def two_blobs(known):
    return {"files": (*known.files, SharedFile(name="0" * 64, size=1, sha256="0" * 64))}


WORTHLESS = {
    "record is missing": (drop_record, "it is another layer"),
    "two blobs": (two_blobs, "it is another layer"),
    "a file that is no record": (
        lambda known: {"files": (*known.files, SharedFile(name="../x.json"[3:], size=1, sha256="0" * 64))},
        "it is another layer",
    ),
    "of another key": (lambda _: {"key": "0" * 64}, "under another name"),
}


@pytest.mark.parametrize("case", WORTHLESS)
def test_entry_that_is_no_layer_is_said_and_the_layer_is_made_here(site, case):
    change, why = WORTHLESS[case]
    for path in site.entries("layer"):
        site.seal(path, **change(site.seal(path)))
    assert site.take() == frozenset()
    assert len([line for line in site.second.said.lines if why in line]) == 2
    assert site.second.said.lines[-1].endswith("layers Debian bookworm")


def test_strangers_layers_are_not_taken(site):
    for path in (*site.entries("layer"), *site.entries("base")):
        site.seal(path, STRANGER)
    assert site.take() == frozenset()
    assert site.second.cache.parts == []


def test_record_of_another_blob_is_not_taken(site):
    """A key's holder may sign anything, and a blob under a record's name is not looked at again."""
    first, second = site.entries("layer")
    known, other = site.seal(first), site.seal(second)
    strange = {file.name: file for file in other.files}["layer.json"]
    files = tuple(strange if file.name == "layer.json" else file for file in known.files)
    site.seal(first, files=files)
    assert len(site.take()) == 1
    assert len([line for line in site.second.said.lines if "its record is of another layer" in line]) == 1


def test_flipped_bit_in_any_file_leaves_that_layer_to_be_made(site):
    for number, path in enumerate(sorted((site.place / "blobs/sha256").iterdir())):
        whole = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        have = site.take(f"user{number}")
        made = debian.made(DEBIAN, site.second.ctx.cache)
        assert (len(have), made is None) in ((1, False), (2, True))
        path.write_bytes(whole)


def test_parts_that_are_there_are_not_given_again(site):
    before = [path.stat().st_mtime_ns for path in (site.place / "entries").iterdir()]
    site_parts.give(site.giver.cache, site.plan, site.report, site.giver.ctx)
    assert [path.stat().st_mtime_ns for path in (site.place / "entries").iterdir()] == before


def forged(site):
    """Sign another record for the wheel `one`: of a file more, with bytes of the signer."""
    cache = site.giver.ctx.cache
    first, _ = records.layers(site.plan, cache)
    (path,) = first.installation_paths()
    whole = codec.unpack(kept_bytes(path), Installation)
    more = Placed(path="/opt/venv/lib/python3.11/site-packages/one/zz.pth", mode=0o644, content=b"import os")
    data = msgspec.msgpack.encode(msgspec.structs.replace(whole, files=(*whole.files, more)))
    (entry_path,) = (each for each in site.entries("layer") if first.key in each.name)
    site.give_other_files(entry_path, {path.name: data})
    return path.relative_to(cache.root)


def test_layer_that_is_made_here_has_its_wheels_files_alone_whatever_record_a_key_has_signed(site):
    forged(site)
    assert site.take() == site.packages
    other = on_debian(planned(wheels_step("other", site.plan.steps[2].packages)))
    (made,) = build(other, site.files, site.second.ctx.cache, base=site.base)
    (clean,) = build(other, site.files, site.user("clean").ctx.cache, base=site.base)
    assert made == clean


def test_record_of_a_wheel_that_is_ours_stays(site):
    path = forged(site)
    cache = site.user("second", site.place).ctx.cache
    build(on_debian(planned(wheels_step("other", site.plan.steps[2].packages))), site.files, cache, base=site.base)
    ours = (cache.root / path).read_bytes()
    assert site.take() == site.packages
    assert (cache.root / path).read_bytes() == ours


def test_parts_that_are_picked_are_made_here_and_the_same_bytes_pass(site):
    assert site.take(check="1") == frozenset()
    cache = site.second.ctx.cache
    assert debian.made(DEBIAN, cache) is None
    assert len(site.taken.compared) == 3
    assert build(site.plan, site.files, cache, base=site.base) == site.layers
    site_parts.compare(site.second.cache, site.taken, site.plan, site.second.ctx)
    assert site.second.cache.parts == []


def test_picked_layer_with_other_bytes_is_an_error_and_refused_for_good(site):
    _, first, other = site.layers
    for path in site.entries("layer"):
        known = site.seal(path)
        files = {file.name: file for file in known.files}
        if first.digest[7:] in files:
            files[first.digest[7:]] = SharedFile(name=other.digest[7:], size=other.size, sha256=other.digest[7:])
            site.seal(path, files=tuple(files.values()))
    site.take(check="1")
    build(site.plan, site.files, site.second.ctx.cache, base=site.base)
    with refused(IntegrityError, "the layer first, made here, is another file", "cache prune"):
        site_parts.compare(site.second.cache, site.taken, site.plan, site.second.ctx)
    shutil.rmtree(site.second.ctx.cache.root / "layers")
    assert len(site.take()) == 1
    assert any("first is not taken: made here it was another file" in line for line in site.second.said.lines)


def test_no_compiler_runs_in_a_base_that_a_shared_cache_gave(site, monkeypatch):
    """A check of a compiled wheel that ran in its signer's base would find what they wish."""
    gcc, grown = deb("g++-12", "12.2.0"), []
    compiler = bookworm(*DEBIAN.packages, gcc)
    monkeypatch.setattr(debian, "fetch_debs", lambda packages, *_, **__: grown.append(packages) or [])
    monkeypatch.setattr(debian, "install", lambda _, root, *__: root.mkdir())
    site.take()
    ctx = SimpleNamespace(cache=site.second.ctx.cache, progress=Recorder())
    for lock in (compiler, DEBIAN):
        tree = debian.prepare_compiler(lock, DEBIAN, ctx).rootfs
        assert tree.name == "grown"
    assert grown == [compiler.packages, DEBIAN.packages]


def test_push_and_pull_bring_bases_and_layers_of_the_clones_locks(site, tmp_path, monkeypatch):
    """As they bring wheels: what was built without a shared cache, for who will build without one."""
    monkeypatch.setattr(site_stock, "plans", lambda ctx: [site.plan, site.plan])
    giver = site.user("giver", tmp_path / "other", signs=True)
    given = site_stock.push(giver.cache, tmp_path / "dist", giver.ctx)
    assert sorted((line.tag.partition("-")[0], line.title) for line in given) == [
        ("base", "Debian bookworm"),
        ("layer", "first"),
        ("layer", "second"),
    ]
    second = site.user("second", tmp_path / "other")
    assert records.layered(site.plan, second.ctx.cache) == frozenset()
    assert site_stock.pull(second.cache, second.ctx) == given
    assert records.layered(site.plan, second.ctx.cache) == site.packages
    assert debian.made(DEBIAN, second.ctx.cache) is not None
    assert site_stock.pull(second.cache, second.ctx) == [], "all of it is here"
