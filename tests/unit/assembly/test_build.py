"""From a request to a report: the engine and what it is told, what is said; with engines that only remember."""

import contextlib
import dataclasses
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate import render
from graphcrate.assembly import making, pipeline, planned, summary, with_engine
from graphcrate.compat.plan import planning
from graphcrate.compat.variants import recipes
from graphcrate.compat.variants.request import BuildRequest, SourceOptions, SuiteOptions
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.engines import backend, table
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.host.engines import oci_engine
from graphcrate.inputs.bases import mirrors
from graphcrate.model.errors import BuildError, HostError, NetworkError, UsageError
from graphcrate.model.lock import decode_lock
from graphcrate.model.recipe import Additions, Channel
from graphcrate.model.report import Artifact, SmokeReport
from graphcrate.resolve.stack import base as resolve_base
from sifsquash.values import Compression
from tests import ROOT
from tests.commands import objections
from tests.made import build_request, index_of, place, refused
from tests.unit.small_index import LOCAL, put_torch
from tests.unit.smoke.test_gate import report

RECIPE = recipes.load(ROOT / "recipes" / "pyg.toml")
LOCK = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())


def plan_of(lock=LOCK):
    return planning.make_plan(RECIPE, lock, RECIPE.variant("11.8").candidates[1], examples={})


ARTIFACT = Artifact(engine="docker", kind="docker", reference="x:1", digest="sha256:0", bytes=1)


@dataclasses.dataclass(frozen=True)
class PlayedEngine(backend.Engine):
    """An engine that remembers its orders, or is not there, and has the artifacts in `store`."""

    missing: bool = False
    orders: list = dataclasses.field(default_factory=list)
    store: list = dataclasses.field(default_factory=list)

    def check(self, environment):
        if self.missing:
            raise HostError("it is not installed")
        return "1.0"

    def build(self, order):
        self.orders.append(order)
        return backend.Built(ARTIFACT)

    def exists(self, report, folder, environment):
        return report.artifact in self.store


@pytest.fixture
def there(monkeypatch):
    """Sets which engines are there, and that no mirror of Debian's is known; gives them by name."""
    monkeypatch.setattr(mirrors, "own_mirror", lambda *_, **__: None)

    def install(*names):
        found = {name: PlayedEngine(name, name not in names) for name in ("docker", "podman", "apptainer")}
        monkeypatch.setattr(table, "engine", {**found, "embedded": with_engine.EMBEDDED}.__getitem__)
        return found

    return install


def test_auto_engine_is_embedded_or_an_engine_if_that_fails(ctx, there, monkeypatch):
    podman = there("podman")["podman"]
    tried, error = [], HostError("user namespaces are off")

    def proven(job, _):
        tried.append(job.engine.name)
        if job.engine is with_engine.EMBEDDED:
            raise error
        return job.engine

    monkeypatch.setattr(pipeline, "_build_and_test", proven)
    request = BuildRequest(name="pyg", cuda="11.8")
    assert pipeline.build_image(request, ctx) is podman
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


def test_auto_engine_tries_no_other_where_none_would_mend_it(ctx, there, monkeypatch):
    """A cache without the right to run programs, a limit, uv that is not there: F14's kind."""
    there("podman")
    tried = []

    def proven(job, _):
        tried.append(job.engine.name)
        raise MachineError("no program can be run from the cache")

    monkeypatch.setattr(pipeline, "_build_and_test", proven)
    with pytest.raises(MachineError, match="no program can be run"):
        pipeline.build_image(BuildRequest(name="pyg", cuda="11.8"), ctx)
    assert (tried, ctx.progress.lines) == (["embedded"], [])


@pytest.mark.parametrize(
    ("cut", "engines"), [("no", ["embedded", "podman"]), ("yes", ["embedded"]), ("all", ["embedded"])]
)
def test_slim_build_does_not_fall_back_to_an_engine(ctx, there, monkeypatch, cut, engines):
    there("podman")
    tried = []

    def proven(job, _):
        tried.append(job.engine.name)
        if job.engine is with_engine.EMBEDDED:
            raise HostError("user namespaces are off")
        return job.engine

    monkeypatch.setattr(pipeline, "_build_and_test", proven)
    request = build_request(gpu="v100", slim=cut)
    with pytest.raises(HostError, match="user namespaces") if len(engines) == 1 else contextlib.nullcontext():
        pipeline.build_image(request, ctx)
    assert tried == engines
    with pytest.raises(UsageError) if cut != "no" else contextlib.nullcontext():
        pipeline.build_image(msgspec.structs.replace(request, engine="podman"), ctx)
    assert tried == [*engines, *(["podman"] if cut == "no" else [])]


@pytest.mark.parametrize("kind", [HostError, BuildError, NetworkError])
def test_failing_fallback_engine_names_the_embedded_error(ctx, there, monkeypatch, kind):
    there("podman")
    first = HostError(
        "no program can be run here", cause="It is noexec.", next_step="GRAPHCRATE_CACHE=/path make image"
    )

    def proven(job, _):
        raise (
            first if job.engine is with_engine.EMBEDDED else kind("FROM", cause="No base.", next_step="podman pull x")
        )

    monkeypatch.setattr(pipeline, "_build_and_test", proven)
    with refused(kind, "FROM", "No base.", "no program can be run here", "It is noexec", "podman pull x") as caught:
        pipeline.build_image(BuildRequest(name="pyg", cuda="11.8"), ctx)
    assert caught.value.next_step.startswith(first.next_step)


@pytest.mark.parametrize("made", [True, False])
def test_engine_build_gets_the_locked_base_or_pulls_one_with_a_note(ctx, there, tmp_path, monkeypatch, made):
    docker, own = there("docker")["docker"], SimpleNamespace(layers=())

    def prepare(ctx, base):
        if not made:
            raise HostError("user namespaces are off")
        return own

    monkeypatch.setattr(resolve_base, "prepare_base", prepare)
    artifact, _ = with_engine.build(docker, plan_of(), LOCK, SourceOptions(), tmp_path / "out", ctx)
    assert (tmp_path / "out").is_dir()
    assert docker.orders[0].base is (own if made else None)
    assert docker.orders[0].certificates is None
    steps = ["step 1 of 4: make the base", *artifact.notes, "step 2 of 4: build with docker"]
    assert ctx.progress.lines == steps
    assert ["debian:bookworm-slim" in note for note in artifact.notes] == ([] if made else [True])


def test_network_mirrors_become_declared_build_arguments(monkeypatch):
    def arguments(index, lock=LOCK, **options):
        environment = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": index}
        return with_engine.arguments(plan_of(lock), lock, SourceOptions(**options), environment)

    index = "https://me:secret@index.example/simple"
    torch = msgspec.structs.replace(LOCK.package("torch"), channel=Channel.PYTORCH)
    packages = tuple(torch if one.name == "torch" else one for one in LOCK.packages)
    monkeypatch.setattr(mirrors, "own_mirror", lambda *_, **__: None)
    assert arguments(f"{index}/") == {"PACKAGE_INDEX": index}
    assert arguments(index, msgspec.structs.replace(LOCK, packages=packages), mirror="nju") == {
        "PYTORCH_INDEX": "https://mirror.nju.edu.cn/pytorch/whl/cu117",
        "PACKAGE_INDEX": "https://mirror.nju.edu.cn/pypi/web/simple",
    }
    monkeypatch.setattr(mirrors, "own_mirror", lambda *_, **__: SimpleNamespace(main="http://deb.example/debian/"))
    assert arguments("file:///srv/simple") == {"DEBIAN_MIRROR": "http://deb.example/debian"}


def test_image_key_depends_on_plan_engine_and_text_or_layer_format(tmp_path, monkeypatch):
    plan = plan_of()

    def keys():
        return [table.engine(name).key(each) for name in ("docker", "podman", "embedded") for each in (plan, other)]

    other = msgspec.structs.replace(plan, tag="other")
    folders = {table.engine(name).folder(tmp_path) for name in table.ENGINES}
    assert len(folders) == len(table.ENGINES)
    before = keys()
    monkeypatch.setattr(render, "dockerfile", lambda plan: "other")
    monkeypatch.setattr(planning, "LAYER_FORMAT", planning.LAYER_FORMAT + 1)
    assert len({*before, *keys()}) == 12


def test_an_image_exists_where_its_engine_has_its_digest(tmp_path, monkeypatch):
    built = report(artifact=ARTIFACT, digest=f"sha256:{'0' * 64}")
    for store, there in (({}, False), ({"x:1": {"Id": "sha256:0"}}, True), ({"x:1": {"Id": "sha256:1"}}, False)):
        known = SimpleNamespace(inspect=store.get)
        monkeypatch.setattr(oci_engine, "find", lambda *_, known=known: known)
        assert table.engine("docker").exists(built, tmp_path, {}) is there
    assert not with_engine.EMBEDDED.exists(built, tmp_path, {}), "no layout, whatever docker has"


def test_local_files_of_an_engine_build_are_the_wheels_of_the_folder(lock, cache, server, tmp_path):
    content = put_torch(tmp_path, "2.13.0+cpu")
    local, ctx = SourceOptions(wheels=tmp_path), place(cache, index_of(server))
    found = with_engine.local_files(lock(LOCAL, local), local, ctx)
    assert [path.read_bytes() for path in found.values()] == [content]


def test_source_date_epoch_sets_the_image_time_or_is_refused():
    assert [planned.created(epoch) for epoch in ("", "0", "1700000000")] == [None, 0, 1_700_000_000]
    for epoch in ("yesterday", "-1", "1.5", "1e9", "\N{SUPERSCRIPT TWO}", "9" * 20, " "):
        with pytest.raises(UsageError, match="invalid time") as caught:
            planned.created(epoch)
        assert caught.value.next_step.startswith("SOURCE_DATE_EPOCH=$(date +%s) make …")


def test_folder_at_the_path_of_an_alias_is_refused_before_the_build(tmp_path):
    alias = tmp_path / "pyg" / "0.1.0-debian12"
    making.check_output(alias.parent, [alias])
    alias.mkdir(parents=True)
    with pytest.raises(UsageError, match="exists and is not a link") as caught:
        making.check_output(alias.parent, [alias])
    assert caught.value.next_step.startswith("mv ")


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        ({}, "make image CUDA=11.8"),
        ({"name": "glt", "gpu": "v100,a100"}, "make image STACK=glt CUDA=11.8 GPU=v100,a100"),
        ({"target": "dgx2", "driver": "535"}, "make image CUDA=11.8 TARGET=dgx2 DRIVER=535"),
        ({"channel": "pytorch", "engine": "docker"}, "make image CUDA=11.8 CHANNEL=pytorch ENGINE=docker"),
        ({"mirror": "https://me:secret@host:1/simple"}, "make image CUDA=11.8 MIRROR=https://host:1/simple"),
        ({"extensions": "none", "toolkit": "pypi"}, "make image CUDA=11.8 EXTENSIONS=none TOOLKIT=pypi"),
        ({"wheels": Path("a b"), "devel": True}, "make image CUDA=11.8 'WHEELS=a b' FLAVOUR=devel"),
        ({"verb": "lock", "name": "torch"}, "./build.py lock torch --cuda 11.8"),
        ({"verb": "publish", "gpu": "v100", "engine": "embedded"}, "make publish CUDA=11.8 GPU=v100"),
        ({"verb": "publish", "additions": Additions(apt=("git",))}, "make image CUDA=11.8 APT=git"),
        ({"recipe": Path("mine.toml"), "name": "torch"}, "make image RECIPE=mine.toml CUDA=11.8"),
        ({"recipe": Path("mine.toml"), "verb": "render"}, "./build.py render mine.toml --cuda 11.8"),
        ({"verb": "render", "mirror": "nju"}, "./build.py render pyg --cuda 11.8"),  # which is configured
        (
            {"recipe": Path("mine.toml"), "output": Path("/there"), "run": False},
            "./build.py image mine.toml --cuda 11.8 --output /there --no-smoke",
        ),
        ({"recipe": Path("mine.toml"), "rerun": True}, "./build.py image mine.toml --cuda 11.8 --rerun"),
        (
            {"locked": True, "slim": "yes", "rerun": True},
            "./build.py image pyg --cuda 11.8 --slim yes --locked --rerun",
        ),
        ({"locked": True}, "make image CUDA=11.8 LOCKED=yes"),
        (
            {"additions": Additions(packages=("a", "b")), "words": ("a",), "requirements": (Path("r.txt"),)},
            "make image CUDA=11.8 WITH=a REQUIREMENTS=r.txt",
        ),
        (
            {"requirements": (Path("r.txt"), Path("environment.yml"))},
            "./build.py image pyg --cuda 11.8 --requirements r.txt --requirements environment.yml",
        ),
        ({"additions": Additions(packages=("a", "b"))}, "make image CUDA=11.8 'WITH=a b'"),
        ({"rerun": True, "gpu": "t4"}, "./build.py image pyg --cuda 11.8 --gpu t4 --rerun"),
        ({"packs": Compression.ZSTD, "gpu": "v100"}, "make image CUDA=11.8 GPU=v100 PACK=zstd"),
        (
            {"name": "torch", "output": Path("a b"), "run": False, "device": "cpu"},
            "./build.py image torch --cuda 11.8 --output 'a b' --no-smoke --device cpu",
        ),
    ],
)
def test_build_request_command_has_all_settings(request_, command):
    made = build_request(**request_).command()
    assert str(made) == command
    assert objections(made) == []


#: a field of a request, of each of its values → another value of it than the usual one
CHANGED = {
    "name": "glt",
    "cuda": "12.1",
    "platform": "linux/arm64",
    "target": "dgx2",
    "gpu": "v100",
    "driver": "535",
    "channel": "pypi",
    "mirror": "nju",
    "wheels": Path("w"),
    "extensions": "none",
    "toolkit": "pypi",
    "pyg_lib": "git",
    "cache": ("/shared/cache",),
    "cache_trust": (Path("cosign.pub"),),
    "cache_key": Path("cosign.key"),
    "cache_check": "20",
    "devel": True,
    "locked": True,
    "recipe": Path("mine.toml"),
    "slim": "yes",
    "packs": Compression.ZSTD,
    "run": False,
    "device": "cpu",
    "rerun": True,
    "keep_going": True,
    "engine": "docker",
    "output": Path("there"),
    "verb": "lock",
    "requirements": (Path("r.txt"),),
    "words": ("a",),
    "additions": Additions(packages=("einops",)),
    "without_security": True,
    "trust_paths": True,
}
#: fields that no option of a command that builds says
NOT_TYPED = {
    **dict.fromkeys(("runtimes", "runtime_version", "kernel", "glibc"), "of `explain` and `check` alone"),
    "further": "what requirements files say, which are typed",
    "parts_only": "of `matrix` alone",
    **dict.fromkeys(
        ("constraints", "hashes", "expected", "channels", "notes"), "of requirements files, which are typed"
    ),
    **dict.fromkeys(
        (
            "environment",
            "files",
            "programs",
            "directories",
            "workdir",
            "command",
            "labels",
            "smoke",
            "smoke_minutes",
            "allow",
        ),
        "of a recipe's file alone, which is typed",
    ),
    "walled": "a recipe without `trust_paths`",
}
FIELDS = [
    field
    for value in (BuildRequest, MachineRequest, SourceOptions, SuiteOptions)
    for field in value.__struct_fields__
    if field not in ("machine", "sources", "suites", *NOT_TYPED)
]


#: fields of the additions, but for those that a file alone says → another value
ADDED = {
    "packages": ("einops",),
    "apt": ("git",),
    "build_apt": ("swig",),
    "build_environment": {"USE_CUDA": "on"},
    "flavour": "jupyter",
}


def test_each_typed_field_of_additions_is_in_the_command():
    assert {*ADDED, "name"} == set(Additions.__struct_fields__) - NOT_TYPED.keys()  # a recipe's file has the name
    for field, value in ADDED.items():
        changed = build_request(additions=Additions(**{field: value})).command()
        assert str(changed) != str(build_request().command()), field
        assert objections(changed) == []


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_of_a_build_request_is_in_its_command(field):
    changed = build_request(**{field: CHANGED[field]}).command()
    assert str(changed) != str(build_request().command())
    assert objections(changed) == []


def test_build_request_round_trips_through_provenance():
    asked = {"gpu": "v100,a100", "driver": "535", "target": "dgx2", "channel": "pypi", "toolkit": "pypi", "devel": True}
    request = build_request(name="glt", cuda="11.7", extensions="source", slim="yes", **asked)
    assert BuildRequest.again(request.parameters("pypi")) == request


def test_plan_and_report_name_the_cost_of_a_missing_package():
    lock = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
    (missing,) = lock.missing
    assert missing.cost
    assert f"; without it: {missing.cost}" in missing.told
    assert f"  missing   {missing.told}" in summary.plan_lines("pyg:1", lock, (), "", 0)
    assert msgspec.structs.replace(missing, cost="").told == f"pyg-lib: {missing.reason}"


DNA = SmokeReport(
    suite="dna", status="passed", device="cpu", seconds=31.5, metrics={"test_accuracy": 0.844, "epochs": 39}
)
OPS = SmokeReport(suite="ops", status="passed", device="cpu", seconds=3.0)
REPORT = msgspec.structs.replace(report(), suites=(DNA, OPS), layout="dist/pyg/1/oci", bytes=2_650_000_000)


def test_summary_lines_have_tests_image_and_next_command():
    name = REPORT.image
    assert list(summary.lines(REPORT, 75.6)) == [
        "tested  dna (accuracy 0.84, 39 epochs) and ops passed on cpu",
        f"image   {name}, 2.65 GB, after 76 s",
        f"next    ./build.py run {name} -- python …; ./build.py convert {name} --to sif; "
        f"./build.py test {name} on a node with a GPU",
    ]


def test_summary_warns_of_packages_with_disabled_features():
    said = "transformers: Disabling PyTorch because PyTorch >= 2.6 is required but found 2.0.1"
    imports = msgspec.structs.replace(OPS, suite="imports", metrics={"said": [said]})
    assert f"warning {said}" in summary.lines(msgspec.structs.replace(REPORT, suites=(DNA, imports)), 1)


def test_summary_names_gpu_and_failed_suite_and_omits_tests_never_run():
    on_gpu = msgspec.structs.replace(DNA, device="Tesla V100", driver="535.54.03")
    failed = msgspec.structs.replace(OPS, status="failed")
    lines = list(summary.lines(msgspec.structs.replace(REPORT, suites=(on_gpu, failed)), 1))
    assert lines[0] == "tested  dna (accuracy 0.84, 39 epochs) passed on Tesla V100 and cpu; ops failed"
    assert "test" not in lines[-1]
    assert [line[:5] for line in summary.lines(msgspec.structs.replace(REPORT, suites=()), 1)] == ["image", "next "]


def test_note_with_many_packages_is_shortened():
    many = "`pip check` complains: torch pins other versions of a, b-c, d.e, f; the recipe overrides them"
    short = "`pip check` complains: torch pins other versions of a, b-c and 2 more; the recipe overrides them"
    few = "nvcc 11.8 makes no code for 9.0, 10.0, which is a pity: a, b and c"
    assert [summary._shortened(note) for note in (many, few)] == [short, few]


def test_unknown_engine_is_refused_with_all_names():
    with refused(UsageError, "there is no engine 'kaniko'; there are embedded, docker, podman, apptainer, singularity"):
        table.engine("kaniko")
