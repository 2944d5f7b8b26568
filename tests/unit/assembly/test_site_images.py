"""Whole images of a shared cache: taken where they count, made here where they do not, the same bytes either way."""

import json
import pickle
import shutil
from pathlib import Path

import msgspec
import pytest

from graphcrate.assembly import pipeline, site_images
from graphcrate.host import trace
from graphcrate.host.context import Context
from graphcrate.host.sandbox import gpu
from graphcrate.inputs.shared import entry, places, site_cache
from graphcrate.inputs.shared.entry import IMAGE, CacheEntry, SharedFile
from tests.unit.house.test_wiring import world  # noqa: F401 (a fixture)
from tests.unit.inputs.test_shared_cache import SITE, STRANGER, keys  # noqa: F401 (a fixture)

BUILD = ("image", "torch", "--cuda", "cpu")


#: what the registry of a filled cache has
STATE = ("documents", "blobs", "homes")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder for what the first user made, which is the same bytes for each test; empty before the first one."""
    return tmp_path_factory.mktemp("filled")


class Site:
    """A first user has built the image and given it to `place`; a second one has other folders."""

    def __init__(self, world, keys, place):  # noqa: F811
        self.world, self.private, self.public, self.place = world, *keys, place

    def fill(self, filled):
        """Be the first user: in the first test for its kind of place, in others by what was kept of that."""
        mine, on_disk = self.world.root / "first", isinstance(self.place, Path)
        kept = filled / ("folder" if on_disk else "registry")
        if not kept.exists():
            self.digest = self.typed("first", "--cache-key", str(self.private)).partition("@")[2]
            assert f"to the shared cache {self.place}: torch:1.0-cpu-py311\n" in self.err
            self.world.ran.clear()
            shutil.copytree(mine, kept / "first")
            if on_disk:
                shutil.copytree(self.place, kept / "place")
            state = {name: getattr(self.world.registry, name) for name in STATE}
            (kept / "state").write_bytes(pickle.dumps((self.digest, state)))
            return self
        shutil.copytree(kept / "first", mine)
        if on_disk:
            shutil.copytree(kept / "place", self.place)
        self.digest, state = pickle.loads((kept / "state").read_bytes())
        vars(self.world.registry).update(state)
        return self

    def typed(self, user, *options, code=0):
        """Build as a user, who has the locked files; what was printed."""
        environment = {**self.world.place.environment, "GRAPHCRATE_CACHE": str(self.world.root / user / "cache")}
        environment["REGISTRY_PLAIN_HTTP"] = "*"
        shutil.copytree(self.world.root / "cache/files", self.world.root / user / "cache/files", dirs_exist_ok=True)
        self.world.place = Context(root=self.world.root, environment=environment)
        trust = () if "--cache-key" in options else ("--cache-trust", str(self.public))
        self.output = self.world.root / user / "dist"
        words = ("--cache", str(self.place), *trust, "--output", str(self.output), *options)
        ended, out, self.err = self.world.typed(*BUILD, *words)
        self.world.place.cache.close()
        assert ended == code, self.err
        return out.strip()

    @property
    def is_taken(self):
        """Tell whether the image came from the cache, by what was said and by what was written."""
        (report,) = self.output.glob("torch/1*/report.json")
        said = "from a shared cache, signed by a key that you trust: torch:1.0-cpu-py311" in self.err
        assert bool(json.loads(report.read_bytes())["shared"]) == said
        assert ("step 1 of 4" in self.err) != said
        return said

    def seal(self, signer=SITE, **changes):
        """Sign the entry again, with other fields."""
        (path,) = Path(self.place).glob("entries/image-*")
        known = self.entry(path)
        path.write_bytes(entry.sealed(msgspec.structs.replace(known, **changes), signer))

    def entry(self, path):
        known = entry.opened(path.read_bytes(), IMAGE, path.stem.removeprefix("image-"), [SITE.public_key()])
        assert isinstance(known, CacheEntry)
        return known

    def blob(self, name):
        """The path of a file of the entry."""
        (path,) = Path(self.place).glob("entries/image-*")
        (file,) = [file for file in self.entry(path).files if file.name == name]
        return Path(self.place, "blobs/sha256", file.sha256)

    def put(self, name, change):
        """Change one of its files, and sign that."""
        (path,) = Path(self.place).glob("entries/image-*")
        changed = change(self.blob(name).read_bytes())
        (Path(self.place) / "new").write_bytes(changed)
        new = SharedFile.of(Path(self.place) / "new", name)
        (Path(self.place) / "new").rename(Path(self.place, "blobs/sha256", new.sha256))
        self.seal(files=tuple(new if file.name == name else file for file in self.entry(path).files))


@pytest.fixture
def site(world, keys, tmp_path, filled):  # noqa: F811
    return Site(world, keys, tmp_path / "site").fill(filled)


@pytest.fixture
def unfilled(world, keys, registry, monkeypatch):  # noqa: F811
    monkeypatch.setattr(places, "_LONGEST_PAUSE", 0.0)
    return Site(world, keys, f"{registry.host}/team/cache")


@pytest.fixture
def on_registry(unfilled, filled):
    return unfilled.fill(filled)


@pytest.mark.parametrize("kind", ["site", "on_registry"])
def test_a_second_user_with_another_cpu_takes_the_image_and_its_tests_count(request, kind, monkeypatch):
    site = request.getfixturevalue(kind)
    monkeypatch.setattr(gpu, "cpu_model", lambda: "Another CPU")
    assert site.typed("second").partition("@")[2] == site.digest
    assert site.is_taken
    assert site.world.ran == []
    last = site.err.splitlines()[-1]
    assert last.startswith(f"from    the shared cache {site.place}: torch:1.0-cpu-py311, "), last
    assert "; made by graphcrate " in last
    assert site.typed("second").partition("@")[2] == site.digest, "and it is there from then on"


def test_plan_says_that_the_image_is_there_and_fetches_nothing(site):
    assert f"  site      {site.place} has this image, " in site.typed("second", "--plan")
    assert not list(site.output.glob("*/*"))


def test_trace_and_summary_say_what_came_from_where_and_what_that_saved(site, tmp_path):
    site.seal(seconds=600.0)
    trace.begin({trace.VARIABLE: str(tmp_path / "trace.json")}, ["image"])
    site.typed("second")
    trace.end()
    assert "; making that took 10 minutes; made by graphcrate " in site.err.splitlines()[-1]
    events = {event["name"]: event.get("args") for event in json.loads((tmp_path / "trace.json").read_text())}
    title = f"torch:1.0-cpu-py311 from the shared cache {site.place}"
    (report,) = site.output.glob("torch/1*/report.json")
    (part,) = json.loads(report.read_bytes())["shared"]
    assert events[title]["bytes"] == part["bytes"] > 1000
    assert part["seconds"] == 600


def test_image_of_a_proof_is_built_here_though_the_cache_has_it(site, monkeypatch):
    def build(request, ctx):
        parts = msgspec.structs.replace(request.sources, parts_only=True)
        return real(msgspec.structs.replace(request, sources=parts), ctx)

    real = pipeline.build_image
    monkeypatch.setattr(pipeline, "build_image", build)
    assert site.typed("second").partition("@")[2] == site.digest
    assert not site.is_taken
    assert site.world.ran != []


def test_layers_that_are_here_are_not_fetched_again(site):
    here, other = site.world.root / "first/cache/blobs", site.world.root / "second/cache/blobs"
    shutil.copytree(here, other)
    layers = {path.name for path in here.glob("sha256/*")}
    for blob in Path(site.place).glob("blobs/sha256/*"):
        if blob.name in layers:
            blob.unlink()
    assert site.typed("second").partition("@")[2] == site.digest
    assert site.is_taken


def test_tests_run_here_where_the_entry_has_no_pass_of_this_digest(site):
    (path,) = Path(site.place).glob("entries/image-*")
    site.seal(files=tuple(file for file in site.entry(path).files if not file.name.startswith("pass-")))
    assert site.typed("second").partition("@")[2] == site.digest
    assert site.is_taken
    assert len(site.world.ran) == 1


def other_report(**fields):
    return lambda data: json.dumps({**json.loads(data), **fields}).encode()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda site: site.seal(STRANGER), "no key that you trust has signed it"),
        (lambda site: site.seal(key="0" * 64), "it is the entry of image 000000000000, under another name"),
        (lambda site: site.seal(kind="compiled"), "it is the entry of compiled "),
        (lambda site: site.seal(files=(SharedFile(name="a", size=1, sha256="0" * 64),)), "it is not an image"),
        (lambda site: site.put("report.json", other_report(build_key="0")), "it is not an image of this plan"),
        (lambda site: site.put("report.json", other_report(tag="other")), "it is not an image of this plan"),
        (lambda site: site.put("report.json", other_report(suites=[])), "it is not an image of this plan"),
        (lambda site: site.put("report.json", other_report(layers=[])), "it is not an image of this plan"),
        (lambda site: site.put("report.json", other_report(digest=f"sha256:{'0' * 64}")), "is missing"),
        (lambda site: site.put("report.json", lambda _: b"<html>"), "is not taken: "),
        (lambda site: site.blob("lock.json").unlink(), "No such file"),
        (lambda site: site.blob("lock.json").write_bytes(b"1"), "it has other bytes than were signed"),
    ],
)
def test_an_entry_that_is_no_image_of_this_plan_is_said_and_the_image_is_made_here(site, change, why):
    for blob in Path(site.place).glob("blobs/sha256/*"):
        blob.chmod(0o644)
    change(site)
    assert site.typed("second").partition("@")[2] == site.digest
    assert not site.is_taken
    assert why in site.err
    assert len(site.world.ran) == 1


def test_an_older_entry_under_its_own_name_is_the_same_image(site):
    """An entry may be put back by all who can write there: its key is the plan's, so are its bytes."""
    (path,) = Path(site.place).glob("entries/image-*")
    older = path.read_bytes()
    site.seal(made="2030-01-01T00:00:00Z")
    path.write_bytes(older)
    assert site.typed("second").partition("@")[2] == site.digest
    assert site.is_taken


def test_a_flipped_bit_in_any_blob_changes_no_byte_of_the_image(site):
    for number, blob in enumerate(sorted(Path(site.place).glob("blobs/sha256/*"))):
        whole = blob.read_bytes()
        blob.chmod(0o644)
        blob.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        assert site.typed(f"user{number}").partition("@")[2] == site.digest
        assert not site.is_taken
        blob.write_bytes(whole)


@pytest.mark.parametrize("part", ["/manifests/", "/blobs/"])
@pytest.mark.parametrize("fault", [401, 500, "truncate", "wrong"])
@pytest.mark.parametrize("number", [0, 3])
def test_a_registry_that_fails_at_any_request_costs_a_line_and_the_image_is_made(on_registry, part, fault, number):
    site = on_registry
    site.world.registry.faults[part] = [None] * number + [fault] * 99
    assert site.typed("second").partition("@")[2] == site.digest
    assert len([line for line in site.err.splitlines() if "going on without it" in line]) <= 1
    assert not [path for path in (site.world.root / "second/dist").rglob(".*") if path.is_file()]


@pytest.mark.parametrize(
    ("part", "fault"),
    [("/blobs/uploads/", 401), ("/blobs/uploads/", 500), ("/manifests/", 401), ("/manifests/", 507)],
)
@pytest.mark.parametrize("number", [0, 2])
def test_a_registry_that_breaks_off_while_it_is_filled_has_no_half_of_an_image(unfilled, part, fault, number):
    site, registry = unfilled, unfilled.world.registry
    registry.faults[part] = [None] * number + [fault] * 99
    site.typed("first", "--cache-key", str(site.private))
    is_whole = any("image-" in name for name in registry.documents)
    assert is_whole != ("going on without it" in site.err)
    registry.faults.clear()
    site.typed("second")
    assert site.is_taken == is_whole


def test_prune_while_reading_leaves_the_image_to_be_made_here(site, monkeypatch):
    fetch = places.CacheFolder.fetch

    def pruned(place, known, target, advance):
        if known.name == "lock.json":
            shutil.rmtree(Path(site.place) / "blobs")
        return fetch(place, known, target, advance)

    monkeypatch.setattr(places.CacheFolder, "fetch", pruned)
    monkeypatch.setattr(site_cache, "THREADS", 1)
    assert site.typed("second").partition("@")[2] == site.digest
    assert not site.is_taken


def test_a_disk_without_room_for_the_image_costs_a_line(site, monkeypatch):
    monkeypatch.setattr(site_images, "_GROWTH", 1 << 40)
    assert site.typed("second").partition("@")[2] == site.digest
    assert not site.is_taken
    assert "needs " in site.err


def test_an_image_that_failed_or_was_not_tested_is_not_given(world, keys, tmp_path):  # noqa: F811
    words = ("--cache", str(tmp_path / "site"), "--cache-key", str(keys[0]))
    assert world.typed(*BUILD, "--no-smoke", *words)[0] == 0
    assert not (tmp_path / "site").exists()
