"""The kind of a REF, its suites, and refused ones. Engines are in tests/engines."""

import json
import os
import shutil
from types import SimpleNamespace

import pytest

from graphcrate.artifacts.locate import locate
from graphcrate.engines import pyxis, table
from graphcrate.engines.run_order import RunRequest
from graphcrate.engines.trials import artifact as subject
from graphcrate.engines.trials.matrix import new_cell
from graphcrate.host.process import Completed
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import encode
from graphcrate.model.report import Artifact, PackageLine
from graphcrate.model.runtime import RUNNER_FORMS
from graphcrate.model.trial import Resources
from graphcrate.oci.layout import read_layout
from graphcrate.render import job_image
from sifsquash import squashfs
from tests.made import refused
from tests.unit import small_layouts, tars
from tests.unit.artifacts.test_tree_readers import docker_archive

REGISTRY = "registry.example.com/team/torch:1"
PYXIS = (REGISTRY, "a.sqsh")  #: what pyxis alone opens
SIF = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0".ljust(600, b"\0")


@pytest.fixture
def conversions(monkeypatch):
    """Conversions: (form, force) of each."""
    made, convert = [], subject.convert

    def noted(request, ctx):
        made.append((request.to, request.force))
        return convert(request, ctx)

    monkeypatch.setattr(subject, "convert", noted)
    return made


@pytest.fixture
def ours(tmp_path):
    """dist/torch/1 with its layout and report; the output folder."""
    folder = tmp_path / "dist" / "torch" / "1"
    made = small_layouts.layout(folder, [], tag="1", environment={"PATH": "/usr/bin"})
    torch = PackageLine(name="torch", version="2.0.1", channel="pypi")
    (folder / "report.json").write_bytes(encode(small_layouts.report(made, packages=(torch,))))
    return tmp_path / "dist"


def find(ref, ctx, output, runner="auto", suites=(), **options):
    return subject.find(str(ref), runner, suites, ctx, output, **options)


def test_reference_with_another_digest_than_the_image_is_a_usage_error(ctx, ours):
    digest = read_layout(ours / "torch" / "1" / "oci").digest
    assert find(f"torch:1@{digest}", ctx, ours).layout == digest
    for wrong in ("sha256:" + "0" * 64, "junk"):
        with pytest.raises(UsageError, match=f"is {digest} now, and {wrong} was asked for"):
            find(f"torch:1@{wrong}", ctx, ours)
        with pytest.raises(UsageError, match=f"is {digest} now"):
            job_image.find_image(f"torch:1@{wrong}", "singularity", ours)


def test_job_with_an_image_digest_gets_its_sif_path(ours):
    image, digest = ours / "torch" / "1", "sha256:" + "1" * 64
    report = json.loads((image / "report.json").read_text()) | {"digest": digest}
    for folder in (image / "docker", ours / "torch" / "2"):
        folder.mkdir()
    (image / "docker" / "report.json").write_text(json.dumps(report))  # of the same lock, with a digest of its own
    copied = ours / "torch" / "2"  # states no digest
    for folder, known in ((image, read_layout(image / "oci").digest), (image, digest), (copied, digest)):
        (folder / "torch.sif").touch()
        file = job_image.find_image(f"torch:{folder.name}@{known}", "singularity", ours)
        assert file == str((folder / "torch.sif").absolute())


def test_built_image_uses_the_embedded_runner_and_its_recipes_suites(ctx, ours):
    for ref in ("torch:1", ours / "torch" / "1" / "oci"):
        found = find(ref, ctx, ours)
        assert (found.runner, found.artifact.kind, found.suites) == ("embedded", "layout", ("torch",))
        assert found.layout == found.artifact.digest
    assert find("torch:1", ctx, ours, suites=("ops",)).suites == ("ops",)
    assert find("torch:1", ctx, ours).folder == str(ours / "torch" / "1" / "trials" / "embedded")


def test_passes_folder_is_that_of_the_image_for_every_form(ctx, ours, tmp_path, conversions):
    image = ours / "torch" / "1"
    passes = find("torch:1", ctx, ours).passes
    assert passes == str(image / "passes")
    (image / "apptainer").mkdir()
    (image / "apptainer" / "torch.sif").write_bytes(SIF)
    for ref in (image / "oci", image / "apptainer" / "torch.sif"):
        assert find(ref, ctx, ours, suites=("torch",)).passes == passes
    assert find("torch:1", ctx, ours, "apptainer").passes == passes
    assert find(REGISTRY, ctx, ours, "slurm", pyxis=True).passes == passes
    foreign = tmp_path / "elsewhere" / "torch.sif"
    foreign.parent.mkdir()
    foreign.write_bytes(SIF)
    assert find(foreign, ctx, ours, suites=("torch",)).passes == str(ours / "trials" / "passes")
    shutil.copy(image / "report.json", foreign.parent)
    assert find(foreign, ctx, ours, suites=("torch",)).passes == str(foreign.parent / "passes")


@pytest.mark.parametrize(
    ("runner", "pyxis", "engine", "form"),
    [("apptainer", False, "apptainer", "sif"), ("slurm", False, "apptainer", "sif"), ("slurm", True, "pyxis", "sqsh")],
)
def test_layout_is_converted_once_to_the_format_of_the_runner(ctx, ours, conversions, runner, pyxis, engine, form):
    artifact = find("torch:1", ctx, ours, runner, pyxis=pyxis).artifact
    path = ours / "torch" / "1" / f"torch.{form}"
    assert (artifact.engine, artifact.kind, artifact.bytes) == (engine, form, path.stat().st_size)
    assert artifact.reference == str(path)
    assert find("torch:1", ctx, ours, runner, pyxis=pyxis).artifact == artifact
    assert conversions == [(form, True)]
    # Another image's file by that name, which may be the younger one, proves nothing of this image.
    other = small_layouts.layout(ours.parent / "other", [tars.file("b")], tag="1")
    shutil.rmtree(ours / "torch/1/oci")
    other.path.rename(ours / "torch/1/oci")
    os.utime(path, (9e9, 9e9))
    assert find("torch:1", ctx, ours, runner, pyxis=pyxis).artifact.digest != artifact.digest
    assert conversions == [(form, True)] * 2


def test_registry_image_without_pyxis_is_to_be_converted(ctx, ours):
    for runner in ("auto", "embedded", "apptainer", "slurm"):
        with refused(UsageError, f"./build.py convert {REGISTRY} --to sif    makes a .sif"):
            find(REGISTRY, ctx, ours, runner)


def test_run_of_a_registry_image_needs_no_engine(ctx, registry_server, monkeypatch):
    registry_server.image("team/pyg", [[]], "1.0", run={"Env": ["A=1"], "Cmd": ["sh"]})
    ran = []
    monkeypatch.setattr(subject, "run_inside", lambda layout, *_: ran.append(layout) or 7)
    image = locate(f"docker://{registry_server.host}/team/pyg:1.0", ctx.root)
    assert subject.run(image, "auto", RunRequest(), ctx) == 7
    (layout,) = ran
    assert (dict(layout.environment), layout.blob(layout.layers[0].digest).is_file()) == ({"A": "1"}, True)


@pytest.mark.parametrize("runner", ["auto", "embedded"])
def test_run_of_a_saved_image_needs_no_engine(runner, ctx, tmp_path, monkeypatch):
    data = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}
    (tmp_path / "image.tar").write_bytes(docker_archive((), {**data, "config": {"Env": ["A=1"]}}))
    ran = []
    monkeypatch.setattr(subject, "run_inside", lambda layout, *_: ran.append(dict(layout.environment)) or 7)
    assert subject.run(locate(str(tmp_path / "image.tar"), ctx.root), runner, RunRequest(), ctx) == 7
    assert ran == [{"A": "1"}]


def test_saved_image_that_apptainer_shall_open_is_to_be_converted(ctx, tmp_path):
    (tmp_path / "image.tar").write_bytes(docker_archive())
    with refused(UsageError, "apptainer cannot open", f"./build.py convert {tmp_path}/image.tar --to sif    makes a"):
        find(tmp_path / "image.tar", ctx, tmp_path, "apptainer", suites=("torch",))


def test_pyxis_reference_to_a_registry_has_enroots_form(ctx, ours):
    registry = find(REGISTRY, ctx, ours, "slurm", pyxis=True)
    assert pyxis.container(registry.artifact) == "registry.example.com#team/torch:1"
    for other in (f"docker://{REGISTRY}", "registry.example.com#team/torch:1"):
        assert find(other, ctx, ours, "slurm", pyxis=True).artifact == registry.artifact
    assert registry.suites == ("torch",)  # by its name, as built here


def test_file_kind_follows_its_magic_and_its_suites_the_report_beside_it(ctx, ours, tmp_path):
    (tmp_path / "any.name").write_bytes(SIF)
    found = find(tmp_path / "any.name", ctx, ours, suites=("torch",))
    assert (found.runner, found.artifact.kind, found.layout) == ("apptainer", "sif", "")
    (ours / "torch" / "1" / "torch.sif").write_bytes(SIF)
    (tmp_path / "link.sif").symlink_to(ours / "torch" / "1" / "torch.sif")
    linked = find(tmp_path / "link.sif", ctx, ours)
    assert linked.suites == ("torch",)
    assert linked.artifact.reference == str((ours / "torch" / "1" / "torch.sif").resolve())


def test_archive_is_loaded_into_docker_and_a_docker_name_is_inspected(ctx, ours, tmp_path, monkeypatch):
    image = Artifact(engine="docker", kind="docker", reference="x:1", digest="sha256:1", bytes=2)
    monkeypatch.setattr(subject.oci.StoreEngine, "load", lambda *_: image)
    monkeypatch.setattr(subject.oci.StoreEngine, "inspect", lambda _, name, __: image if name == "x:1" else None)
    (tmp_path / "image.tar").write_bytes(b"\0" * 257 + b"ustar".ljust(255, b"\0"))
    assert find(tmp_path / "image.tar", ctx, ours, suites=("torch",)).artifact == image
    assert find("docker:x:1", ctx, ours, suites=("torch",)).runner == "docker"
    with pytest.raises(UsageError, match="docker cannot open docker:y:1"):
        find("docker:y:1", ctx, ours)


@pytest.mark.parametrize(
    ("ref", "runner", "suites", "message", "next_step"),
    [
        ("a.sif", "embedded", ("torch",), "embedded cannot open", "--runner apptainer"),
        ("torch:1", "kubernetes", (), "there is no runner 'kubernetes'", ""),
        ("torch:2", "auto", (), "there are torch:1", ""),
        ("torch:1", "auto", ("nonsense",), "no smoke suite 'nonsense'", ""),
        ("torch:1", "auto", ("dna",), "dna needs torch-geometric, which torch:1 does not have", "--suite torch or"),
        ("a.sif", "auto", (), "no suites are known", "--suite"),
        ("text", "auto", (), "is not an image", ""),
        *((ref, "auto", ("torch",), "with pyxis a .sqsh or", "--runner slurm --partition NAME") for ref in PYXIS),
        ("a.sqsh", "slurm", ("torch",), "slurm cannot open", "elsewhere give a .sif"),
    ],
)
def test_untestable_reference_is_refused_with_a_next_step(
    ctx, ours, tmp_path, monkeypatch, ref, runner, suites, message, next_step
):
    monkeypatch.chdir(tmp_path)
    for name, content in {"a.sif": SIF, "a.sqsh": squashfs.MAGIC, "text": b"no image at all"}.items():
        (tmp_path / name).write_bytes(content)
    with refused(UsageError, message, next_step):
        find(ref, ctx, ours, runner, suites)


def test_several_nodes_are_for_suites_that_spread(ctx, ours):
    order = find("torch:1", ctx, ours, suites=("nccl",), nodes=2)
    cell = new_cell(order, Resources(partition="a100", gres="gpu:8"))
    assert cell.order.folder.endswith("/a100-gpu8-2nodes")
    with refused(UsageError, "the suite torch runs on one node, and --nodes is 2", "--suite ddp or nccl"):
        find("torch:1", ctx, ours, suites=("nccl", "torch"), nodes=2)
    with refused(UsageError, "--nodes 0: at least one is needed", "--nodes 2 --suite ddp"):
        find("torch:1", ctx, ours, suites=("nccl",), nodes=0)


def test_output_of_docker_load_gives_the_reference(monkeypatch):
    def load(code, *lines):
        about = {"Id": "sha256:1", "Size": 2}
        engine = SimpleNamespace(call=lambda *_: Completed(code, lines), inspect=lambda _: about)
        monkeypatch.setattr(subject.oci.oci_engine, "find", lambda *_: engine)
        return subject.oci.StoreEngine("docker").load("/a.tar", {}).reference

    assert load(0, "Loaded image: localhost/torch:1") == "localhost/torch:1"
    assert load(0, "Loaded image ID: sha256:ab") == "sha256:ab"
    for code, *lines in ((0, "something else"), (1, "Loaded image: x:1", "no space left")):
        with pytest.raises(UsageError, match=f"docker loads no image from /a.tar: {lines[-1]}"):
            load(code, *lines)


def test_trial_cell_has_absolute_paths_and_a_folder_per_partition(ctx, ours, monkeypatch, conversions):
    monkeypatch.chdir(ours.parent)
    found = find("torch:1", ctx, ours.relative_to(ours.parent), "slurm")
    cell = new_cell(found, Resources(partition="a100", gres="gpu:1"))
    assert cell.order.artifact.reference.startswith("/")
    assert cell.order.folder == str(ours / "torch" / "1" / "trials" / "slurm" / "a100-gpu1")


def test_engine_of_every_artifact_has_a_runner():
    for engine in (*(name for name in RUNNER_FORMS if name != "slurm"), "pyxis"):
        runner = table.runner(engine)
        assert all(map(callable, (runner.runtime, runner.opened)))
