"""Which engine builds, from what, and what it is told; with engines that only remember."""

from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.build import pipeline, with_engine
from graphcrate.compat import planning, recipes
from graphcrate.compat.request import BuildRequest, SourceOptions
from graphcrate.engines import builders, render, runners
from graphcrate.host.context import Context
from graphcrate.inputs.bases import apt
from graphcrate.model.errors import BuildError, HostError, UsageError
from graphcrate.model.lock import decode_lock
from graphcrate.model.recipe import Channel
from graphcrate.model.report import Artifact
from graphcrate.resolve import base as resolve_base
from tests import ROOT

RECIPE = recipes.load(ROOT / "recipes" / "pyg.toml")
LOCK = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())


def plan_of(lock=LOCK):
    return planning.make_plan(RECIPE, lock, RECIPE.variant("11.8").candidates[1], examples={})


@pytest.fixture
def ctx(tmp_path):
    environment = {"HOME": str(tmp_path), "GRAPHCRATE_CACHE": str(tmp_path / "cache"), "PIP_CONFIG_FILE": "/dev/null"}
    made = Context(root=ROOT, environment=environment)
    vars(made)["progress"] = Said()
    return made


class Said:
    """Progress that remembers."""

    def __init__(self):
        self.lines = []

    def note(self, message):
        self.lines.append(message)


class Engine:
    """A builder that remembers its orders, or is not there."""

    def __init__(self, name, *, missing=False):
        self.name, self.missing, self.orders = name, missing, []

    def check(self, environment):
        if self.missing:
            raise HostError(f"{self.name} is not installed")
        return f"{self.name} 1.0"

    def build(self, order):
        self.orders.append(order)
        return Artifact(engine=self.name, kind="docker", reference="x:1", digest="sha256:0", bytes=1)


@pytest.fixture
def there(monkeypatch):
    """Sets which engines are there; gives them by name."""

    def install(*names):
        found = {name: Engine(name, missing=name not in names) for name in ("docker", "podman", "apptainer")}
        known = {name: (lambda engine=engine: engine) for name, engine in found.items()}
        monkeypatch.setattr(builders, "BUILDERS", known)
        return found

    return install


def test_the_first_engine_that_answers_is_taken(ctx, there):
    there("podman", "apptainer")
    assert with_engine.first_that_answers(ctx) is with_engine.find("podman")
    there()
    assert with_engine.first_that_answers(ctx) is None


def test_an_engine_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match="embedded, docker, podman, apptainer, singularity"):
        with_engine.find("kaniko")


def test_automatic_means_embedded_and_an_engine_only_where_that_cannot_work(ctx, there, monkeypatch):
    there("podman")
    tried = []

    def proven(request, ctx, engine):
        tried.append(engine.name)
        if engine is with_engine.EMBEDDED:
            raise HostError("mmdebstrap is not installed")
        return engine

    monkeypatch.setattr(pipeline, "_build_and_test", proven)
    assert pipeline.build_image(BuildRequest(name="pyg", cuda="11.8"), ctx) is with_engine.find("podman")
    assert tried == ["embedded", "podman"]
    assert ctx.progress.lines == ["mmdebstrap is not installed; building with podman instead"]
    with pytest.raises(HostError, match="mmdebstrap"):
        pipeline.build_image(BuildRequest(name="pyg", cuda="11.8", engine="embedded"), ctx)
    there()
    with pytest.raises(HostError, match="mmdebstrap"):
        pipeline.build_image(BuildRequest(name="pyg", cuda="11.8"), ctx)


def test_another_fault_than_the_machines_is_not_left_to_an_engine(ctx, there, monkeypatch):
    there("docker")

    def broken(request, ctx, engine):
        assert engine is with_engine.EMBEDDED
        raise BuildError("two wheels own one path")

    monkeypatch.setattr(pipeline, "_build_and_test", broken)
    with pytest.raises(BuildError):
        pipeline.build_image(BuildRequest(name="pyg", cuda="11.8"), ctx)


def test_an_engine_gets_the_locks_own_base(ctx, there, tmp_path, monkeypatch):
    docker = there("docker")["docker"]
    own = SimpleNamespace(layers=())
    monkeypatch.setattr(resolve_base, "prepare_base", lambda ctx, base: own)
    monkeypatch.setattr(apt, "find_mirror", no_mirror)
    artifact, _ = with_engine.find("docker").build(plan_of(), LOCK, SourceOptions(), tmp_path / "out", ctx)
    assert docker.orders[0].base is own
    assert artifact.notes == ()
    assert (tmp_path / "out").is_dir()
    assert docker.orders[0].certificates is None


def test_where_that_cannot_be_made_the_engine_pulls_its_like_and_it_is_said(ctx, there, tmp_path, monkeypatch):
    docker = there("docker")["docker"]

    def cannot(ctx, base):
        raise HostError("mmdebstrap is not installed")

    monkeypatch.setattr(resolve_base, "prepare_base", cannot)
    monkeypatch.setattr(apt, "find_mirror", no_mirror)
    artifact, _ = with_engine.find("docker").build(plan_of(), LOCK, SourceOptions(), tmp_path, ctx)
    assert docker.orders[0].base is None
    assert "debian:bookworm-slim" in artifact.notes[0]
    assert ctx.progress.lines == list(artifact.notes)


def no_mirror(suite, environment):
    raise HostError("no Debian mirror is known on this machine")


def test_mirrors_become_build_arguments_that_the_text_knows(monkeypatch):
    monkeypatch.setattr(apt, "find_mirror", no_mirror)
    environment = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "https://me:secret@index.example/simple/"}
    assert with_engine.arguments(plan_of(), LOCK, SourceOptions(), environment) == {
        "PACKAGE_INDEX": "https://me:secret@index.example/simple"
    }
    packages = tuple(
        msgspec.structs.replace(package, channel=Channel.PYTORCH) if package.name == "torch" else package
        for package in LOCK.packages
    )
    lock = msgspec.structs.replace(LOCK, packages=packages)
    found = with_engine.arguments(plan_of(lock), lock, SourceOptions(mirror="nju"), {"PIP_CONFIG_FILE": "/dev/null"})
    assert found["PYTORCH_INDEX"] == "https://mirror.nju.edu.cn/pytorch/whl/cu117"
    assert set(found) == {"PYTORCH_INDEX", "PACKAGE_INDEX"}


def test_only_addresses_on_the_network_reach_a_container(monkeypatch):
    monkeypatch.setattr(
        apt, "find_mirror", lambda suite, environment: SimpleNamespace(main="http://deb.example/debian/")
    )
    environment = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "file:///srv/simple"}
    assert with_engine.arguments(plan_of(), LOCK, SourceOptions(), environment) == {
        "DEBIAN_MIRROR": "http://deb.example/debian"
    }


def test_an_image_depends_on_plan_engine_and_text(monkeypatch):
    plan = plan_of()
    keys = {with_engine.find("docker").key(plan), with_engine.find("podman").key(plan)}
    keys.add(with_engine.find("docker").key(msgspec.structs.replace(plan, tag="other")))
    monkeypatch.setattr(render, "dockerfile", lambda plan: "other")
    keys.add(with_engine.find("docker").key(plan))
    assert len(keys) == 4


def test_an_embedded_image_depends_on_the_form_of_its_layers(monkeypatch):
    plan, embedded = plan_of(), with_engine.EMBEDDED
    keys = {embedded.key(plan), embedded.key(msgspec.structs.replace(plan, tag="other"))}
    monkeypatch.setattr(with_engine, "LAYER_FORMAT", with_engine.LAYER_FORMAT + 1)
    keys.add(embedded.key(plan))
    assert len(keys) == 3


def test_each_engine_has_a_folder_of_an_image_to_itself(tmp_path):
    folders = {engine.folder(tmp_path) for engine in with_engine.ENGINES.values()}
    assert len(folders) == len(with_engine.ENGINES)
    assert with_engine.EMBEDDED.folder(tmp_path) == tmp_path


def test_an_image_is_asked_for_where_it_lies(ctx, tmp_path, monkeypatch):
    artifact = Artifact(engine="docker", kind="docker", reference="x:1", digest="sha256:0", bytes=1)
    report = SimpleNamespace(artifact=artifact, digest=f"sha256:{'0' * 64}")
    answers = {"x:1": False}
    runner = SimpleNamespace(exists=lambda artifact, environment: answers[artifact.reference])
    monkeypatch.setattr(runners, "RUNNERS", {"docker": lambda: runner})
    docker = with_engine.find("docker")
    assert not docker.exists(report, tmp_path, ctx)
    answers["x:1"] = True
    assert docker.exists(report, tmp_path, ctx)
    assert not with_engine.EMBEDDED.exists(report, tmp_path, ctx), "no layout, whatever docker has"
