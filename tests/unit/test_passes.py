"""Passes: what counts as the same again, where it is kept, and that only what is missing is run."""

import contextlib
import os
import stat
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate import memory, passes, proving, smoke
from graphcrate.errors import HostError
from graphcrate.host import hardware
from graphcrate.host.gpu import HostGpu
from graphcrate.memory import Memory
from graphcrate.model.lock import encode
from graphcrate.model.passes import Claim, Ground, Pass
from graphcrate.model.report import Artifact, BuildReport, SmokeReport
from graphcrate.runners import Runtime

IMAGE = f"sha256:{'7' * 64}"
GROUND = Ground(device="2 x Tesla V100", driver="535.54.03", runtime="apptainer", runtime_version="1.4.5")
CLAIM = Claim(image=IMAGE, suite="dna", suite_hash="a" * 64, ground=GROUND)
PASSED = SmokeReport(suite="dna", status="passed", device="Tesla V100", seconds=41.0, driver="535.54.03")
PROVEN = Pass(claim=CLAIM, when="2026-11-22T05:00:00Z", report=PASSED)
#: one other word each
OTHERS = [
    msgspec.structs.replace(CLAIM, image=f"sha256:{'8' * 64}"),
    msgspec.structs.replace(CLAIM, suite="ops"),
    msgspec.structs.replace(CLAIM, suite_hash="b" * 64),
    *(
        msgspec.structs.replace(CLAIM, ground=msgspec.structs.replace(GROUND, **{name: "other"}))
        for name in Ground.__struct_fields__
    ),
]


def test_a_pass_counts_for_just_its_claim():
    data = encode(PROVEN)
    assert passes.read(data, CLAIM) == PROVEN
    assert [passes.read(data, other) for other in OTHERS] == [None] * len(OTHERS)
    assert len({passes.key(claim) for claim in (CLAIM, *OTHERS)}) == len(OTHERS) + 1


@pytest.mark.parametrize(
    "changed",
    [
        msgspec.structs.replace(PROVEN, format=passes.FORMAT + 1),
        msgspec.structs.replace(PROVEN, report=msgspec.structs.replace(PASSED, status="failed", reason="no CUDA")),
        msgspec.structs.replace(PROVEN, report=msgspec.structs.replace(PASSED, suite="ops")),
    ],
)
def test_what_was_changed_by_hand_or_by_another_version_does_not_count(changed):
    assert passes.read(encode(changed), CLAIM) is None


@given(st.binary(max_size=200) | st.integers(0, len(encode(PROVEN)) - 2).map(lambda n: encode(PROVEN)[:n]))
def test_what_cannot_be_read_does_not_count(data):
    assert passes.read(data, CLAIM) is None


def test_a_tag_on_a_registry_stands_for_nothing():
    assert passes.claim("registry.example.com/team/pyg:1", "dna", "a", GROUND) is None
    assert passes.claim(f"registry.example.com/team/pyg@{IMAGE}", "dna", "a" * 64, GROUND) == CLAIM
    assert passes.claim(IMAGE, "dna", "a" * 64, GROUND) == CLAIM


def test_only_passes_are_remembered():
    failed = msgspec.structs.replace(PASSED, status="failed", reason="no CUDA")
    assert passes.made(CLAIM, PASSED, PROVEN.when) == PROVEN
    assert passes.made(CLAIM, failed, PROVEN.when) is None


def test_a_person_is_told_what_is_not_run():
    assert passes.told(PROVEN) == (
        "dna passed on this kind of node before (2026-11-22, 2 x Tesla V100, driver 535.54.03, apptainer 1.4.5): "
        "not run again; --rerun runs it"
    )
    assert passes.recalled(PROVEN).remembered == PROVEN.when
    assert passes.forgotten(passes.recalled(PROVEN)) == PASSED


# What a suite is


def test_a_suite_is_its_commands_its_variables_and_its_judge():
    whole = passes.suite_hash([["python", "dna.py"]], {"A": "b"}, b"judge")
    others = [
        passes.suite_hash([["python", "dna.py", "--every=3"]], {"A": "b"}, b"judge"),
        passes.suite_hash([["python", "dna.py"]], {"A": "c"}, b"judge"),
        passes.suite_hash([["python", "dna.py"]], {"A": "b"}, b"a kinder judge"),
    ]
    assert whole not in others
    assert whole == passes.suite_hash([["python", "dna.py"]], {"A": "b"}, b"judge")


@pytest.mark.parametrize("name", smoke.SUITES)
def test_limits_arguments_and_required_packages_are_part_of_a_suite(name, monkeypatch):
    suite = smoke.SUITES[name]
    before = smoke.hash_of(name)
    assert (smoke.hash_of(name, ["torch-sparse"]) != before) == suite.requires
    changes = {"cpu_limit": 7}, {"cuda_limit": 7}, {"cpu": (*suite.cpu, "--x")}, {"cuda": (*suite.cuda, "--x")}
    for change in changes:
        monkeypatch.setitem(smoke.SUITES, name, msgspec.structs.replace(suite, **change))
        assert smoke.hash_of(name) != before


# What a node is


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [
        (None, ["V100", "V100", "T4"]),
        ("0,2", ["V100", "T4"]),
        ("2", ["T4"]),
        ("", []),
        ("GPU-1f,MIG-22", ["V100", "V100"]),
        ("7", ["V100"]),
    ],
)
def test_gpus_are_those_that_may_be_used(chosen, seen):
    assert hardware.visible(["V100", "V100", "T4"], chosen) == seen


def test_a_node_is_told_in_words(tmp_path, monkeypatch):
    for number in range(3):
        (tmp_path / f"0000:{number}").mkdir()
        text = f"Model: \t\t {'Tesla T4' if number == 1 else 'Tesla V100-SXM3-32GB'}\nIRQ:   \t\t 57\n"
        (tmp_path / f"0000:{number}" / "information").write_text(text)
    monkeypatch.setattr(hardware, "GPUS", tmp_path)
    assert hardware.device({}, on_gpu=True) == "1 x Tesla T4, 2 x Tesla V100-SXM3-32GB"
    assert hardware.device({"CUDA_VISIBLE_DEVICES": "0"}, on_gpu=True) == "1 x Tesla V100-SXM3-32GB"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC 7742 64-Core Processor\nflags : x\n")
    monkeypatch.setattr(hardware, "CPUS", tmp_path / "cpuinfo")
    assert hardware.device({}, on_gpu=False) == "cpu AMD EPYC 7742 64-Core Processor"
    monkeypatch.setattr(hardware, "CPUS", tmp_path / "none")
    assert hardware.device({}, on_gpu=False) == "cpu"


def test_without_the_drivers_files_nvidia_smi_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "GPUS", tmp_path / "none")
    monkeypatch.setattr(hardware.gpu, "gpu_names", lambda: ("NVIDIA RTX A2000",))
    assert hardware.device({}, on_gpu=True) == "1 x NVIDIA RTX A2000"


# Where passes lie


def test_a_pass_is_kept_and_found(tmp_path):
    kept = Memory(tmp_path / "passes")
    assert kept.recall(CLAIM) is None
    assert kept.settle(CLAIM, PASSED) == ""
    found = kept.recall(CLAIM)
    assert found.report == PASSED
    assert found.when.endswith("Z")
    (path,) = (tmp_path / "passes").iterdir()
    assert path.name.startswith("dna-")
    assert Memory(tmp_path / "passes", rerun=True).recall(CLAIM) is None
    assert all(kept.recall(other) is None for other in OTHERS)


def test_a_suite_that_fails_later_is_forgotten(tmp_path):
    kept = Memory(tmp_path)
    kept.settle(CLAIM, PASSED)
    kept.settle(CLAIM, msgspec.structs.replace(PASSED, status="failed", reason="no CUDA"))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_kept_of_an_image_that_has_no_digest(tmp_path):
    assert Memory(tmp_path).settle(None, PASSED) == ""
    assert Memory(tmp_path).recall(None) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_and_no_failure(tmp_path):
    (tmp_path / "passes").write_text("in the way")
    assert "dna will be run again next time" in Memory(tmp_path / "passes").settle(CLAIM, PASSED)


def test_a_half_written_pass_is_none(tmp_path):
    kept = Memory(tmp_path)
    kept.settle(CLAIM, PASSED)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    assert kept.recall(CLAIM) is None
    kept.settle(CLAIM, PASSED)
    assert kept.recall(CLAIM)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask()


def umask():
    before = os.umask(0)
    os.umask(before)
    return before


# What is run


class Image:
    """A runner whose image passes all suites but those in `failing`; it writes down what it ran."""

    def __init__(self, monkeypatch, *, failing=(), version="1.0"):
        self.ran, self.opened_times, self.failing, self.version = [], 0, set(failing), version
        monkeypatch.setattr(proving, "RUNNERS", {"layout": lambda: self})
        monkeypatch.setattr(smoke.gpu, "detect", HostGpu)
        monkeypatch.setattr(smoke, "run_suite", self.run_suite)

    def runtime(self, environment):
        return Runtime("graphcrate", self.version)

    @contextlib.contextmanager
    def opened(self, artifact, *, cache, progress):
        self.opened_times += 1
        yield self

    def run_suite(self, name, inside, folder, **options):
        self.ran.append(name)
        if name in self.failing:
            return SmokeReport(suite=name, status="failed", device="cpu", seconds=1.0, reason="no luck", layer="torch")
        return SmokeReport(suite=name, status="passed", device="cpu", seconds=1.0)


ARTIFACT = Artifact(engine="embedded", kind="layout", reference="/oci", digest=IMAGE, bytes=1)


@pytest.fixture
def tried(tmp_path):
    said = []
    place = SimpleNamespace(environment={}, cache=None, progress=SimpleNamespace(note=said.append))

    def run(*suites, artifact=ARTIFACT, rerun=False):
        said.clear()
        kept = Memory(tmp_path / memory.FOLDER, rerun)
        results = proving.run_suites(artifact, suites, tmp_path, place, "auto", memory=kept)
        return [(result.suite, result.status, bool(result.remembered)) for result in results], list(said)

    return run


def test_an_unchanged_image_is_not_tested_twice_on_the_same_kind_of_node(tried, monkeypatch):
    image = Image(monkeypatch)
    assert tried("torch", "dna") == ([("torch", "passed", False), ("dna", "passed", False)], [])
    results, said = tried("torch", "dna")
    assert results == [("torch", "passed", True), ("dna", "passed", True)]
    assert (image.ran, image.opened_times) == (["torch", "dna"], 1)
    assert [line.partition(" (")[0] for line in said] == [
        f"{name} passed on this kind of node before" for name in ("torch", "dna")
    ]
    assert tried("ops", "torch")[0] == [("ops", "passed", False), ("torch", "passed", True)]
    assert image.ran == ["torch", "dna", "ops"]


def test_rerun_runs_it_and_remembers_the_new_pass(tried, monkeypatch):
    image = Image(monkeypatch)
    tried("torch")
    assert tried("torch", rerun=True) == ([("torch", "passed", False)], [])
    assert tried("torch")[0] == [("torch", "passed", True)]
    assert image.ran == ["torch", "torch"]


def test_a_failure_is_run_again_and_ends_an_older_pass(tried, monkeypatch):
    image = Image(monkeypatch)
    tried("torch")
    image.failing = {"torch"}
    assert tried("torch", rerun=True)[0] == [("torch", "failed", False)]
    assert tried("torch")[0] == [("torch", "failed", False)]
    image.failing = set()
    assert tried("torch")[0] == [("torch", "passed", False)]
    assert image.ran == ["torch"] * 4


def test_another_version_of_the_runtime_or_another_image_is_tested(tried, monkeypatch):
    image = Image(monkeypatch)
    tried("torch")
    image.version = "1.1"
    tried("torch")
    tried("torch", artifact=msgspec.structs.replace(ARTIFACT, digest=f"sha256:{'9' * 64}"))
    tried("torch", artifact=msgspec.structs.replace(ARTIFACT, digest="registry.example.com/team/torch:1"))
    tried("torch", artifact=msgspec.structs.replace(ARTIFACT, digest="registry.example.com/team/torch:1"))
    assert image.ran == ["torch"] * 5


def test_a_break_after_the_first_suite_keeps_its_pass(tried, monkeypatch):
    image = Image(monkeypatch)

    def breaks(name, *arguments, **options):
        if name == "dna":
            raise HostError("no user namespaces")
        return image.run_suite(name, *arguments, **options)

    monkeypatch.setattr(smoke, "run_suite", breaks)
    with pytest.raises(HostError):
        tried("torch", "dna")
    monkeypatch.setattr(smoke, "run_suite", image.run_suite)
    tried("torch", "dna")
    assert image.ran == ["torch", "dna"]


def test_a_report_that_says_so_already_stays_as_it_is(tmp_path, monkeypatch):
    image, said = Image(monkeypatch), []
    place = SimpleNamespace(environment={}, cache=None, progress=SimpleNamespace(note=said.append))
    fresh = BuildReport(
        name="torch", tag="1", digest=IMAGE, artifact=ARTIFACT, layout="/oci", bytes=1, candidate="pypi", torch="2.0.1",
        torch_cuda="", cuda="cpu", python="3.11", packages=(), smoke=None, seconds=1.0,
    )  # fmt: skip

    def prove(report, *suites, rerun=False):
        return proving.prove(report, suites, tmp_path, place, "auto", Memory(tmp_path / "passes", rerun))

    proven = prove(fresh, "torch")
    assert (proven.smoke.status, image.ran) == ("passed", ["torch"])
    assert prove(proven, "torch") is proven
    remembered = prove(fresh, "torch")
    assert (remembered.smoke.status, bool(remembered.smoke.remembered), image.ran) == ("passed", True, ["torch"])
    said.clear()
    assert prove(remembered, "torch") is remembered
    assert said == []
    assert prove(proven, "torch", rerun=True) is not proven
    image.failing = {"ops"}
    failed = prove(proven, "torch", "ops")
    assert (failed.smoke.suite, failed.smoke.status) == ("ops", "failed")
    assert prove(failed, "torch", "ops") is not failed
    assert image.ran == ["torch", "torch", "ops", "ops"]
