"""Passes: what counts as the same again, where it is kept, and that only what is missing is run."""

import contextlib
import hashlib
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphcrate.engines import run_suites
from graphcrate.engines.backend import RuntimeVersion
from graphcrate.host.sandbox import gpu
from graphcrate.host.sandbox.gpu import HostGpu
from graphcrate.model.errors import HostError, SmokeError
from graphcrate.model.lock import encode
from graphcrate.model.report import Artifact, Pass, SmokeReport, SuiteClaim
from graphcrate.model.suite import SUITES
from graphcrate.model.trial import TrialOrder
from graphcrate.smoke import memory
from graphcrate.smoke import suites as smoke
from graphcrate.smoke.memory import content
from tests.made import place, refused
from tests.unit import small_layouts

IMAGE = f"sha256:{'7' * 64}"
NODE = {"device": "2 x Tesla V100", "driver": "535.54.03", "runtime": "apptainer", "runtime_version": "1.4.5"}
CLAIM = SuiteClaim(image=IMAGE, suite="dna", version="dna 1.1", **NODE)
PASSED = SmokeReport(suite="dna", status="passed", device="Tesla V100", seconds=41.0, driver="535.54.03")
FAILED = msgspec.structs.replace(PASSED, status="failed", reason="no CUDA")


# Where passes lie


def test_stored_pass_is_recalled_for_its_claim_only(tmp_path):
    folder = tmp_path / "passes"
    assert memory.recall(folder, CLAIM) is None
    assert memory.store_result(folder, CLAIM, PASSED) == ""
    found = memory.recall(folder, CLAIM)
    assert found.report == PASSED
    assert found.when.endswith("Z")
    (path,) = folder.iterdir()
    assert path.name.startswith("dna-")
    (folder / "new").touch()
    assert path.stat().st_mode == (folder / "new").stat().st_mode
    for other in [msgspec.structs.replace(CLAIM, **{name: "other"}) for name in SuiteClaim.__struct_fields__]:
        assert memory.recall(folder, other) is None
        memory._path(folder, other).write_bytes(path.read_bytes())  # a file by another's name
        assert memory.recall(folder, other) is None
    memory.store_result(folder, CLAIM, FAILED)  # forgets it
    assert memory.recall(folder, CLAIM) is None
    (tmp_path / "a file").touch()
    assert "dna will be run again next time" in memory.store_result(tmp_path / "a file", CLAIM, PASSED)


PROVEN = encode(Pass(claim=CLAIM, when="2026-11-22T05:00:00Z", report=PASSED))


@given(st.binary(max_size=200) | st.integers(0, len(PROVEN) - 2).map(lambda n: PROVEN[:n]))
@example(PROVEN.replace(b'"format": 2', b'"format": 1'))
@example(PROVEN.replace(b'"passed"', b'"failed"'))
@example(PROVEN.replace(b'"suite": "dna",\n    "status"', b'"suite": "ops",\n    "status"'))
def test_altered_pass_file_is_not_recalled(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("passes")
    assert data != PROVEN
    memory._path(folder, CLAIM).write_bytes(data)
    assert memory.recall(folder, CLAIM) is None
    memory.store_result(folder, CLAIM, PASSED)
    assert memory.recall(folder, CLAIM)


def test_registry_tag_has_no_stored_pass(tmp_path):
    assert [content(f"registry.example.com/team/pyg{end}") for end in (":1", f"@{IMAGE}")] == ["", IMAGE]
    assert content(IMAGE) == IMAGE
    unknown = msgspec.structs.replace(CLAIM, image="")
    assert memory.store_result(tmp_path, unknown, PASSED) == ""
    assert memory.recall(tmp_path, unknown) is None
    assert list(tmp_path.iterdir()) == []


# What a suite is

#: what is run, by version: whoever changes a suite's commands raises its version and writes the new hash here
COMMANDS = {
    "torch 1.2": "0e6c7cc36b01696e",
    "dna 1.1": "0bce8b8973dd308e",
    "ops 1.1": "c1f646243e1573ed",
    "ddp 1.1": "809e8805892c5a9c",
    "glt 1.1": "d5fa8da43e5eadf6",
    "glt-distributed 1.1": "ce38fe27c59dfd3f",
    "nccl 1.1": "5700b3298fd55f58",
}


@pytest.mark.parametrize("name", SUITES)
def test_suite_version_is_pinned_to_its_commands(name):
    suite = SUITES[name]
    limits = ((False, suite.cpu_limit), (True, suite.cuda_limit))
    commands = [smoke.command(suite, name, on_gpu=on_gpu, limit=limit) for on_gpu, limit in limits]
    told = repr((commands, smoke.CPU_ENVIRONMENT)).encode()
    assert COMMANDS[smoke.version_of(name)] == hashlib.sha256(told).hexdigest()[:16]
    assert (smoke.version_of(name, ["torch-sparse"]) != smoke.version_of(name)) == suite.requires


# What a node is


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [(None, "V V T"), ("0,2", "V T"), ("", ""), ("GPU-1f,MIG-22", "V V"), ("7", "V")],
)
def test_visible_gpus_follow_cuda_visible_devices(chosen, seen):
    assert gpu.visible(["V", "V", "T"], chosen) == seen.split()


def test_gpu_device_names_count_and_model_or_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "GPUS", tmp_path / "gpus")
    monkeypatch.setattr(gpu, "CPUS", tmp_path / "cpuinfo")
    monkeypatch.setattr(gpu, "_query", lambda field: ("NVIDIA RTX A2000",))
    assert gpu.device({}, on_gpu=True) == "1 x NVIDIA RTX A2000"  # nvidia-smi is asked without the driver's files
    assert gpu.device({}, on_gpu=False) == "cpu"
    for number, model in enumerate(("Tesla V100-SXM3-32GB", "Tesla T4", "Tesla V100-SXM3-32GB")):
        (tmp_path / f"gpus/0000:{number}").mkdir(parents=True)
        (tmp_path / f"gpus/0000:{number}/information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 57\n")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC 7742 64-Core Processor\nflags : x\n")
    assert gpu.device({}, on_gpu=True) == "1 x Tesla T4, 2 x Tesla V100-SXM3-32GB"
    assert gpu.device({"CUDA_VISIBLE_DEVICES": "0"}, on_gpu=True) == "1 x Tesla V100-SXM3-32GB"
    assert gpu.device({}, on_gpu=False) == "cpu AMD EPYC 7742 64-Core Processor"


# What is run


class Image:
    """A runner whose image passes all suites but those in `failing`; it writes down what it ran."""

    def __init__(self, monkeypatch):
        self.ran, self.opened_times, self.failing, self.breaking, self.version = [], 0, set(), set(), "1.0"
        self.says = ""  # device that a suite names in place of the right one
        monkeypatch.setattr(run_suites.table, "runner", {"embedded": self}.__getitem__)
        monkeypatch.setattr(smoke.gpu, "detect", HostGpu)
        monkeypatch.setattr(smoke, "run", self.run)

    def runtime(self, environment):
        return RuntimeVersion("graphcrate", self.version)

    @contextlib.contextmanager
    def opened(self, artifact, *, cache, progress):
        self.opened_times += 1
        yield self

    def run(self, program, inside, folder, **options):
        name = program.name
        if name in self.breaking:
            raise HostError("no user namespaces")
        self.ran.append(name)
        device = self.says or ("gpu" if options["on_gpu"] else "cpu")
        status = "failed" if name in self.failing else "passed"
        return SmokeReport(suite=name, status=status, device=device, seconds=1.0)


ARTIFACT = Artifact(engine="embedded", kind="layout", reference="/oci", digest=IMAGE, bytes=1)


@pytest.fixture
def image(monkeypatch):
    return Image(monkeypatch)


@pytest.fixture
def ordered(tmp_path, progress):
    """A function that gives what orders these suites."""

    def order(*suites, artifact=ARTIFACT, rerun=False):
        paths = {"folder": str(tmp_path), "passes": str(tmp_path / memory.FOLDER)}
        progress.lines.clear()
        return TrialOrder(artifact=artifact, suites=suites, device="auto", rerun=rerun, **paths), place(
            None, {}, progress
        )

    return order


@pytest.fixture
def tried(ordered, image, progress):
    def run(*suites, **options):
        results = run_suites.run_suites(*ordered(*suites, **options)).suites
        return [(result.suite, result.status, bool(result.remembered)) for result in results], list(progress.lines)

    return run


def test_unchanged_image_is_tested_once_per_kind_of_node(tried, image):
    assert tried("torch", "dna") == ([("torch", "passed", False), ("dna", "passed", False)], [])
    results, said = tried("torch", "dna")
    assert results == [("torch", "passed", True), ("dna", "passed", True)]
    assert (image.ran, image.opened_times) == (["torch", "dna"], 1)
    assert [line.partition(" (")[0] for line in said] == [
        f"{name} passed on this kind of node before" for name in ("torch", "dna")
    ]
    assert tried("ops", "torch")[0] == [("ops", "passed", False), ("torch", "passed", True)]
    image.breaking = {"ddp"}
    with pytest.raises(HostError):
        tried("glt", "ddp")
    image.breaking = set()
    tried("glt", "ddp")
    assert image.ran == ["torch", "dna", "ops", "glt", "ddp"], "what passed before a break counts"


def test_suite_that_measures_is_run_each_time_and_leaves_no_pass(tried, image, tmp_path):
    for _ in range(2):
        assert tried("torch", "nccl")[0][1] == ("nccl", "passed", False)
    assert image.ran == ["torch", "nccl", "nccl"]
    assert not list((tmp_path / memory.FOLDER).glob("nccl*"))


def test_suite_gets_the_variables_that_it_inherits(monkeypatch):
    monkeypatch.setattr(
        smoke.settings,
        "environment",
        lambda: {"NCCL_IB_HCA": "mlx5", "FI_PROVIDER": "efa", "HOME": "/h", "A_NCCL_": "1"},
    )
    assert set(smoke.variables(True, SUITES["nccl"].inherits)) == {"NCCL_IB_HCA", "FI_PROVIDER", "OMP_NUM_THREADS"}
    assert set(smoke.variables(True, SUITES["torch"].inherits)) == {"OMP_NUM_THREADS"}


def test_suites_run_again_on_rerun_after_a_failure_or_a_change(tried, image):
    passed, failed = [("torch", "passed", False)], [("torch", "failed", False)]
    assert tried("torch") == (passed, [])
    assert tried("torch", rerun=True) == (passed, [])
    assert tried("torch")[0] == [("torch", "passed", True)]
    image.failing = {"torch"}
    assert [tried("torch", rerun=rerun)[0] for rerun in (True, False)] == [failed, failed]  # an older pass is gone
    image.failing = set()
    assert tried("torch")[0] == passed
    image.version = "1.1"
    tag = "registry.example.com/team/torch:1"  # may name another image by now
    for digest in (ARTIFACT.digest, f"sha256:{'9' * 64}", tag, tag):
        assert tried("torch", artifact=msgspec.structs.replace(ARTIFACT, digest=digest))[0] == passed
    assert image.ran == ["torch"] * 9


def test_report_with_remembered_passes_is_unchanged(ordered, image, progress):
    fresh = small_layouts.report(SimpleNamespace(digest=IMAGE, path="/oci", tag="1"), artifact=ARTIFACT)

    def prove(report, *suites, rerun=False, below=None):
        return run_suites.prove(report, *ordered(*suites, rerun=rerun), below=below)

    proven = prove(fresh, "torch")
    assert (proven.smoke.status, image.ran) == ("passed", ["torch"])
    assert prove(proven, "torch") is proven
    remembered = prove(fresh, "torch")
    assert (remembered.smoke.status, bool(remembered.smoke.remembered), image.ran) == ("passed", True, ["torch"])
    assert prove(remembered, "torch") is remembered
    assert progress.lines == []
    assert prove(proven, "torch", rerun=True) is not proven
    image.failing = {"ops"}
    failed = prove(proven, "torch", "ops")
    assert (failed.smoke.suite, failed.smoke.status) == ("ops", "failed")
    assert prove(failed, "torch", "ops") is not failed
    assert image.ran == ["torch", "torch", "ops", "ops"]
    above = prove(fresh, "dna", below=failed)  # has all layers of the other, and so its results
    assert [result.suite for result in above.suites] == ["torch", "ops", "dna"]


def test_pass_with_another_driver_does_not_count(tried, image, monkeypatch):
    there = HostGpu(("/dev/nvidia0",), {}, {})
    monkeypatch.setattr(smoke.gpu, "detect", lambda: there)
    monkeypatch.setattr(gpu, "device", lambda *_, on_gpu: "1 x Tesla T4" if on_gpu else "cpu")
    for version, remembered in (("535.1", False), ("535.1", True), ("550.2", False), ("550.2", True)):
        monkeypatch.setattr(gpu, "driver_version", lambda version=version: version)
        assert tried("torch")[0] == [("torch", "passed", remembered)], version
    there = HostGpu()  # a run without a GPU has no driver, whatever is installed
    assert tried("torch")[0] == [("torch", "passed", False)]
    monkeypatch.setattr(gpu, "driver_version", lambda: "570.3")
    assert tried("torch")[0] == [("torch", "passed", True)]


@pytest.mark.parametrize(
    ("seen", "said", "device"),
    [
        ("2 x Tesla T4", "Tesla T4", "Tesla T4"),
        ("2 x Tesla T4, 1 x NVIDIA A100", "NVIDIA A100", "NVIDIA A100"),
        ("1 x Tesla T4", "NVIDIA H100", "1 x Tesla T4"),
        ("1 x Tesla T4", "cuda:0", "1 x Tesla T4"),
        ("1 x Tesla T4", "T4", "1 x Tesla T4"),
    ],
)
def test_device_of_a_result_is_one_that_the_runner_saw(ordered, image, monkeypatch, seen, said, device):
    monkeypatch.setattr(smoke.gpu, "detect", lambda: HostGpu(("/dev/nvidia0",), {}, {}))
    monkeypatch.setattr(gpu, "device", lambda *_, on_gpu: seen)
    image.says = said
    assert [result.device for result in run_suites.run_suites(*ordered("torch")).suites] == [device]


@pytest.mark.parametrize(("claimed", "reported"), [("cpu AMD EPYC", "cuda"), ("1 x Tesla T4", "cpu")])
def test_pass_whose_report_names_another_kind_of_device_is_not_recalled(tmp_path, claimed, reported):
    claim = msgspec.structs.replace(CLAIM, device=claimed)
    memory.store_result(tmp_path, claim, msgspec.structs.replace(PASSED, device=reported))
    assert memory.recall(tmp_path, claim) is None


@pytest.mark.parametrize("number", range(3))
def test_failed_suite_is_named_whatever_its_position(number):
    results = [SmokeReport(suite=name, status="passed", device="cpu", seconds=1.0) for name in ("torch", "dna", "ddp")]
    run_suites.raise_if_failed("pyg:1", results, "dist")
    name = results[number].suite
    results[number] = msgspec.structs.replace(results[number], status="failed", reason="the loss grew")
    with refused(SmokeError, f"{name} failed in pyg:1: the loss grew", f"smoke-{name}.log"):
        run_suites.raise_if_failed("pyg:1", results, "dist")


def test_failed_import_suite_names_the_with_or_apt_command():
    failed = SmokeReport(suite="imports", status="failed", device="cpu", seconds=1.0, metrics={"ask": "torchdata<0.10"})
    with refused(
        SmokeError, "imports failed in pyg:1", "make image WITH=torchdata<0.10; or less dist/smoke-imports.log"
    ):
        run_suites.raise_if_failed("pyg:1", [failed], "dist", "make image WITH={}".format)
    failed = msgspec.structs.replace(failed, metrics={"apt": "git"})
    with refused(SmokeError, "imports failed in pyg:1", "make image APT=git; or less dist/smoke-imports.log"):
        run_suites.raise_if_failed("pyg:1", [failed], "dist", with_apt="make image APT={}".format)
