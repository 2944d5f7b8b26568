"""What a REF is taken for, which suites it gets, and what is refused. Engines are in tests/engines."""

import json

import pytest

from graphcrate.artifacts.formats import squashfs
from graphcrate.engines.runners import RUNNERS, pyxis
from graphcrate.engines.slurm import cluster
from graphcrate.engines.slurm.parse import Partition
from graphcrate.engines.trials import addressing, forms
from graphcrate.engines.trials import artifact as subject
from graphcrate.engines.trials.testing import cell_of, check_partitions
from graphcrate.host import gpu
from graphcrate.host.cache import Cache
from graphcrate.host.context import Context
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.job import Runtime
from graphcrate.model.lock import encode
from graphcrate.model.plan import ConfigStep
from graphcrate.model.report import Artifact, BuildReport
from graphcrate.model.trial import Resources
from graphcrate.oci.image import make_image
from graphcrate.oci.layer import LayerWriter
from graphcrate.oci.layout import read_layout, write_layout
from graphcrate.smoke import suites as smoke
from tests import ROOT

SIF = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0".ljust(600, b"\0")


@pytest.fixture
def ctx(tmp_path):
    ctx = Context(root=ROOT, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin"})
    yield ctx
    ctx.cache.close()


@pytest.fixture
def ours(tmp_path):
    """dist/torch/1 with its layout and report; the output folder."""
    folder = tmp_path / "dist" / "torch" / "1"
    cache = Cache(tmp_path / "cache")
    with (tmp_path / "layer").open("wb") as stream:
        layer = LayerWriter(stream, 0).finish("base")
    cache.adopt(tmp_path / "layer", cache.blob(layer.digest))
    config = ConfigStep(environment={"PATH": "/usr/bin"}, labels={}, command=("sh",))
    layout = write_layout(folder / "oci", make_image([layer], config, 0, {}), cache.blob, "1")
    cache.close()
    artifact = Artifact(engine="embedded", kind="layout", reference=str(folder / "oci"), digest=layout.digest, bytes=1)
    report = BuildReport(
        name="torch", tag="1", digest=layout.digest, artifact=artifact, layout=str(folder / "oci"), bytes=1,
        candidate="pypi", torch="2.0.1", torch_cuda="11.7", cuda="11.7", python="3.11", packages=(), smoke=None,
        seconds=1.0,
    )  # fmt: skip
    (folder / "report.json").write_bytes(encode(report))
    return tmp_path / "dist"


def test_the_digest_of_a_name_is_that_of_the_image_that_is_there(ctx, ours):
    digest = read_layout(ours / "torch" / "1" / "oci").digest
    assert find(f"torch:1@{digest}", ctx, ours).layout == digest
    for wrong in ("sha256:" + "0" * 64, "junk"):
        with pytest.raises(UsageError, match=f"is {digest} now, and {wrong} was asked for"):
            find(f"torch:1@{wrong}", ctx, ours)
        with pytest.raises(UsageError, match=f"is {digest} now"):
            addressing.image(f"torch:1@{wrong}", Runtime.SINGULARITY, ours)
    (ours / "torch" / "1" / "torch.sif").touch()
    assert addressing.image(f"torch:1@{digest}", Runtime.SINGULARITY, ours).endswith("torch/1/torch.sif")


def test_a_digest_says_nothing_of_a_file_that_was_copied_here(ctx, ours):
    copied = ours / "torch" / "2" / "torch.sif"
    copied.parent.mkdir()
    copied.touch()
    found = addressing.image("torch:2@sha256:" + "0" * 64, Runtime.SINGULARITY, ours)
    assert found == str(copied.absolute())


def test_an_engines_build_of_the_same_lock_has_a_digest_of_its_own(ctx, ours):
    image = ours / "torch" / "1"
    digest = "sha256:" + "1" * 64
    report = json.loads((image / "report.json").read_text()) | {"digest": digest}
    (image / "docker").mkdir()
    (image / "docker" / "report.json").write_text(json.dumps(report))
    (image / "torch.sif").touch()
    assert addressing.image(f"torch:1@{digest}", Runtime.SINGULARITY, ours) == str((image / "torch.sif").absolute())


def find(ref, ctx, output, runner="auto", suites=(), **options):
    return subject.find(str(ref), runner, suites, ctx, output, **options)


def test_an_image_of_ours_is_opened_without_an_engine_and_gets_its_recipes_suites(ctx, ours):
    found = find("torch:1", ctx, ours)
    assert (found.runner, found.artifact.kind, found.suites) == ("embedded", "layout", ("torch",))
    assert found.layout == found.artifact.digest
    assert found.folder == ours / "torch" / "1" / "trials" / "embedded"
    by_path = find(ours / "torch" / "1" / "oci", ctx, ours)
    assert (by_path.artifact.digest, by_path.suites) == (found.artifact.digest, found.suites)


def test_what_an_image_passed_goes_with_its_folder_whatever_its_form(ctx, ours, tmp_path, monkeypatch):
    monkeypatch.setattr(forms.convert, "convert", lambda request, _: request.output.write_bytes(SIF))
    image = ours / "torch" / "1"
    passes = find("torch:1", ctx, ours).passes
    assert passes == image / "passes"
    (image / "apptainer").mkdir()
    (image / "apptainer" / "torch.sif").write_bytes(SIF)
    for ref in (image / "oci", image / "apptainer" / "torch.sif"):
        assert find(ref, ctx, ours, suites=("torch",)).passes.resolve() == passes.resolve()
    assert find("torch:1", ctx, ours, "apptainer").passes == passes
    assert find("registry.example.com/team/torch:1", ctx, ours, "slurm", pyxis=True).passes == passes
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "torch.sif").write_bytes(SIF)
    foreign = tmp_path / "elsewhere" / "torch.sif"
    assert find(foreign, ctx, ours, suites=("torch",)).passes == ours / "trials" / "passes"
    (tmp_path / "elsewhere" / "report.json").write_bytes((image / "report.json").read_bytes())
    assert find(foreign, ctx, ours, suites=("torch",)).passes == tmp_path / "elsewhere" / "passes"


def test_asked_suites_come_before_the_recipes(ctx, ours):
    assert find("torch:1", ctx, ours, suites=("ops",)).suites == ("ops",)
    with pytest.raises(UsageError, match="no smoke suite 'nonsense'"):
        find("torch:1", ctx, ours, suites=("nonsense",))


@pytest.mark.parametrize(("runner", "form"), [("apptainer", "sif"), ("slurm", "sif")])
def test_a_layout_is_made_into_what_the_runner_opens(ctx, ours, monkeypatch, runner, form):
    def convert(request, _):
        request.output.write_bytes(SIF)
        assert (request.to, request.force) == (form, True)

    monkeypatch.setattr(forms.convert, "convert", convert)
    found = find("torch:1", ctx, ours, runner)
    assert (found.artifact.kind, found.artifact.bytes) == ("sif", len(SIF))
    assert found.artifact.reference == str(ours / "torch" / "1" / "torch.sif")
    monkeypatch.setattr(forms.convert, "convert", None)  # it is there now
    assert find("torch:1", ctx, ours, runner).artifact == found.artifact


def test_with_pyxis_slurm_gets_a_squashfs(ctx, ours, monkeypatch):
    monkeypatch.setattr(forms.convert, "convert", lambda request, _: request.output.write_bytes(squashfs.MAGIC))
    found = find("torch:1", ctx, ours, "slurm", pyxis=True)
    assert (found.artifact.kind, found.artifact.engine) == ("sqsh", "pyxis")
    registry = find("registry.example.com/team/torch:1", ctx, ours, "slurm", pyxis=True)
    assert pyxis.container(registry.artifact) == "registry.example.com#team/torch:1"
    for other in ("docker://registry.example.com/team/torch:1", "registry.example.com#team/torch:1"):
        assert find(other, ctx, ours, "slurm", pyxis=True).artifact == registry.artifact
    assert registry.suites == ("torch",)  # by its name, as built here


@pytest.mark.parametrize("ref", ["a.sqsh", "registry.example.com/team/torch:1"])
def test_what_pyxis_alone_opens_is_told_how(ctx, ours, tmp_path, monkeypatch, ref):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sqsh").write_bytes(squashfs.MAGIC)
    with pytest.raises(UsageError, match="runs in Slurm, with pyxis") as caught:
        find(ref, ctx, ours, "auto", ("torch",))
    assert caught.value.next_step.startswith("--runner slurm --partition NAME")
    with pytest.raises(UsageError, match="srun has no --container-image here") as caught:
        find(ref, ctx, ours, "slurm", ("torch",))
    assert caught.value.next_step.startswith("give a .sif")


def test_a_file_is_what_its_first_bytes_say(ctx, ours, tmp_path):
    (tmp_path / "any.name").write_bytes(SIF)
    found = find(tmp_path / "any.name", ctx, ours, suites=("torch",))
    assert (found.runner, found.artifact.kind, found.layout) == ("apptainer", "sif", "")
    (tmp_path / "text").write_text("nothing of the kind")
    with pytest.raises(UsageError, match="is no image"):
        find(tmp_path / "text", ctx, ours)


def test_a_sif_beside_its_build_gets_the_suites_of_that(ctx, ours, tmp_path):
    (ours / "torch" / "1" / "torch.sif").write_bytes(SIF)
    (tmp_path / "link.sif").symlink_to(ours / "torch" / "1" / "torch.sif")
    assert find(tmp_path / "link.sif", ctx, ours).suites == ("torch",)


def test_an_archive_is_loaded_and_a_name_is_looked_up(ctx, ours, tmp_path, monkeypatch):
    image = Artifact(engine="docker", kind="docker", reference="x:1", digest="sha256:1", bytes=2)
    monkeypatch.setattr(forms, "load", lambda engine, path, _: image)
    monkeypatch.setattr(forms, "inspect", lambda engine, name, _: image if name == "x:1" else None)
    (tmp_path / "image.tar").write_bytes(b"\0" * 257 + b"ustar".ljust(255, b"\0"))
    assert find(tmp_path / "image.tar", ctx, ours, suites=("torch",)).artifact == image
    assert find("docker:x:1", ctx, ours, suites=("torch",)).runner == "docker"
    with pytest.raises(UsageError, match="docker cannot open docker:y:1"):
        find("docker:y:1", ctx, ours)


def test_what_a_runner_cannot_open_is_refused_with_one_that_can(ctx, ours, tmp_path):
    (tmp_path / "a.sif").write_bytes(SIF)
    with pytest.raises(UsageError, match="embedded cannot open") as caught:
        find(tmp_path / "a.sif", ctx, ours, "embedded", ("torch",))
    assert "--runner apptainer" in caught.value.next_step
    with pytest.raises(UsageError, match="there is no runner 'kubernetes'"):
        find("torch:1", ctx, ours, "kubernetes")
    with pytest.raises(UsageError, match="there are torch:1"):
        find("torch:2", ctx, ours)


def test_without_a_recipe_somebody_has_to_name_the_suites(ctx, ours, tmp_path):
    (tmp_path / "foreign.sif").write_bytes(SIF)
    with pytest.raises(UsageError, match="which suites") as caught:
        find(tmp_path / "foreign.sif", ctx, ours)
    assert "--suite" in caught.value.next_step


def test_loaded_images_are_named_as_the_engines_say_it():
    assert forms._loaded(["Loaded image: localhost/torch:1"]) == "localhost/torch:1"
    assert forms._loaded(["Loaded image ID: sha256:ab"]) == "sha256:ab"
    assert forms._loaded(["something else"]) == ""


def test_a_cell_has_absolute_paths_and_a_folder_for_each_partition(ctx, ours, monkeypatch):
    monkeypatch.chdir(ours.parent)
    monkeypatch.setattr(forms.convert, "convert", lambda request, _: request.output.write_bytes(SIF))
    found = find("torch:1", ctx, ours.relative_to(ours.parent), "slurm")
    cell = cell_of(found, Resources(partition="a100", gres="gpu:1"), "auto")
    assert cell.order.artifact.reference.startswith("/")
    assert cell.order.folder == str(ours / "torch" / "1" / "trials" / "slurm" / "a100-gpu1")


def test_unknown_partitions_are_refused_with_those_that_exist():
    class Known:
        def partitions(self):
            return (Partition("dgx2", True, "", "gpu:16"), Partition("old", False))

    check_partitions(["dgx2"], Known())
    with pytest.raises(UsageError, match=r"no partition 'a100'; there are dgx2 \(gpu:16\), old \(down\)"):
        check_partitions(["dgx2", "a100"], Known())


def test_every_kind_of_artifact_has_a_runner():
    kinds = set(Artifact.__annotations__["kind"].__args__)
    assert kinds == set(RUNNERS)
    for load in RUNNERS.values():
        runner = load()
        assert callable(runner.runtime)
        assert callable(runner.opened)
        assert callable(runner.exists)


def test_no_slurm_here_says_where_else(monkeypatch):
    monkeypatch.setattr(cluster.process, "find", lambda _: None)
    with pytest.raises(HostError, match="Slurm is not installed here") as caught:
        cluster.find({"PATH": "/nowhere"})
    assert "--runner apptainer" in caught.value.next_step


def test_a_job_knows_where_it_is(monkeypatch):
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_JOB_PARTITION"):
        monkeypatch.delenv(name, raising=False)
    assert cluster.here() == {}
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("SLURM_JOB_PARTITION", "a100")
    assert cluster.here() == {"job": "12", "node": "n1", "partition": "a100"}
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "10")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    assert cluster.here()["job"] == "10_3"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39\nGCC version: 11\n",
            "535.54.03",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build  (dvs)\n", "550.90.07"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  450.80.02  Wed Sep 23 01:13:39 UTC 2020\n", "450.80.02"),
        ("", ""),
        ("something else", ""),
    ],
)
def test_the_drivers_version(text, version):
    assert gpu.read_driver_version(text) == version


def test_suites_exist_for_what_recipes_ask():
    assert {"torch", "dna", "ops", "ddp", "glt"} <= set(smoke.SUITES)
