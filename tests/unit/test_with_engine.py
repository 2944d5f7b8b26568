"""Which engine builds, from what, and what it is told; with engines that only remember."""

from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.build import pipeline, with_engine
from graphcrate.compat import planning, recipes
from graphcrate.compat.request import BuildRequest, SourceOptions
from graphcrate.engines import backend, render
from graphcrate.inputs.bases import archive
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.lock import decode_lock
from graphcrate.model.recipe import Channel
from graphcrate.model.report import Artifact
from graphcrate.resolve import base as resolve_base
from tests import ROOT
from tests.made import index_of, place
from tests.unit.small_index import LOCAL, put_torch

RECIPE = recipes.load(ROOT / "recipes" / "pyg.toml")
LOCK = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())


def plan_of(lock=LOCK):
    return planning.make_plan(RECIPE, lock, RECIPE.variant("11.8").candidates[1], examples={})


ARTIFACT = Artifact(engine="docker", kind="docker", reference="x:1", digest="sha256:0", bytes=1)


class Engine:
    """A builder that remembers its orders, or is not there."""

    def __init__(self, missing):
        self.missing, self.orders = missing, []

    def check(self, environment):
        if self.missing:
            raise HostError("it is not installed")
        return "1.0"

    def build(self, order):
        self.orders.append(order)
        return ARTIFACT


@pytest.fixture
def there(monkeypatch):
    """Sets which engines are there, and that no mirror of Debian's is known; gives them by name."""
    monkeypatch.setattr(archive, "own_mirror", lambda _: None)

    def install(*names):
        found = {name: Engine(name not in names) for name in ("docker", "podman", "apptainer")}
        monkeypatch.setattr(backend, "builder", found.__getitem__)
        return found

    return install


def test_automatic_means_embedded_and_an_engine_only_where_that_cannot_work(ctx, there, monkeypatch):
    there("podman")
    tried, error = [], HostError("user namespaces are off")

    def proven(job):
        tried.append(job.engine.name)
        if job.engine is with_engine.EMBEDDED:
            raise error
        return job.engine

    monkeypatch.setattr(pipeline, "_build_and_test", proven)
    request = BuildRequest(name="pyg", cuda="11.8")
    assert pipeline.build_image(request, ctx) is with_engine.find("podman")
    assert tried == ["embedded", "podman"]
    assert ctx.progress.lines == ["user namespaces are off; building with podman instead"]
    with pytest.raises(HostError, match="user namespaces"):
        pipeline.build_image(msgspec.structs.replace(request, engine="embedded"), ctx)
    there()
    with pytest.raises(HostError, match="user namespaces"):
        pipeline.build_image(request, ctx)
    there("docker")
    error = BuildError("two wheels own one path")  # is not the machine's fault
    with pytest.raises(BuildError):
        pipeline.build_image(request, ctx)
    assert tried[2:] == ["embedded"] * 3


@pytest.mark.parametrize("made", [True, False])
def test_an_engine_gets_the_locks_own_base_and_else_pulls_its_like_and_it_is_said(
    ctx, there, tmp_path, monkeypatch, made
):
    docker, own = there("docker")["docker"], SimpleNamespace(layers=())

    def prepare(ctx, base):
        if not made:
            raise HostError("user namespaces are off")
        return own

    monkeypatch.setattr(resolve_base, "prepare_base", prepare)
    artifact, _ = with_engine.find("docker").build(plan_of(), LOCK, SourceOptions(), tmp_path / "out", ctx)
    assert (tmp_path / "out").is_dir()
    assert docker.orders[0].base is (own if made else None)
    assert docker.orders[0].certificates is None
    steps = ["step 1 of 4: make the base", *artifact.notes, "step 2 of 4: build with docker"]
    assert ctx.progress.lines == steps
    assert ["debian:bookworm-slim" in note for note in artifact.notes] == ([] if made else [True])


def test_mirrors_on_the_network_become_build_arguments_that_the_text_knows(monkeypatch):
    def arguments(index, lock=LOCK, **options):
        environment = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": index}
        return with_engine.arguments(plan_of(lock), lock, SourceOptions(**options), environment)

    index = "https://me:secret@index.example/simple"
    torch = msgspec.structs.replace(LOCK.package("torch"), channel=Channel.PYTORCH)
    packages = tuple(torch if one.name == "torch" else one for one in LOCK.packages)
    monkeypatch.setattr(archive, "own_mirror", lambda _: None)
    assert arguments(f"{index}/") == {"PACKAGE_INDEX": index}
    assert arguments(index, msgspec.structs.replace(LOCK, packages=packages), mirror="nju") == {
        "PYTORCH_INDEX": "https://mirror.nju.edu.cn/pytorch/whl/cu117",
        "PACKAGE_INDEX": "https://mirror.nju.edu.cn/pypi/web/simple",
    }
    monkeypatch.setattr(archive, "own_mirror", lambda *_: SimpleNamespace(main="http://deb.example/debian/"))
    assert arguments("file:///srv/simple") == {"DEBIAN_MIRROR": "http://deb.example/debian"}


def test_an_image_depends_on_plan_engine_and_text_or_the_form_of_layers(tmp_path, monkeypatch):
    plan = plan_of()

    def keys():
        return [with_engine.find(name).key(one) for name in ("docker", "podman", "embedded") for one in (plan, other)]

    other = msgspec.structs.replace(plan, tag="other")
    folders = {engine.folder(tmp_path) for engine in with_engine.ENGINES.values()}
    assert len(folders) == len(with_engine.ENGINES)
    before = keys()
    monkeypatch.setattr(render, "dockerfile", lambda plan: "other")
    monkeypatch.setattr(with_engine, "LAYER_FORMAT", with_engine.LAYER_FORMAT + 1)
    assert len({*before, *keys()}) == 12


def test_an_image_is_asked_for_where_it_lies(ctx, tmp_path, monkeypatch):
    report, there = SimpleNamespace(artifact=ARTIFACT, digest=f"sha256:{'0' * 64}"), []
    builder = SimpleNamespace(exists=lambda artifact, environment: artifact in there)
    monkeypatch.setattr(backend, "builder", {"docker": builder}.__getitem__)
    assert not with_engine.find("docker").exists(report, tmp_path, ctx)
    there.append(ARTIFACT)
    assert with_engine.find("docker").exists(report, tmp_path, ctx)
    assert not with_engine.EMBEDDED.exists(report, tmp_path, ctx), "no layout, whatever docker has"


def test_an_engine_gets_the_wheels_of_a_folder(lock, cache, server, tmp_path):
    content = put_torch(tmp_path, "2.13.0+cpu")
    local, ctx = SourceOptions(wheels=tmp_path), place(cache, index_of(server))
    found = with_engine.local_files(lock(LOCAL, local), local, ctx)
    assert [path.read_bytes() for path in found.values()] == [content]
