"""gate: only what was audited, keeps its contracts and passed its suites goes out; each reason is said with its fix."""

import dataclasses
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.model.audit import Audit, AuditFinding
from graphcrate.model.contract import ContractFinding
from graphcrate.model.errors import GateError
from graphcrate.model.report import OwnTests, Pass, SmokeReport, SuiteClaim
from graphcrate.publish import policy
from graphcrate.smoke.own import programs
from tests.made import refused
from tests.unit import small_layouts

DIGEST, OTHER = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"


def suite(name="dna", device="cpu", status="passed", image=DIGEST, **fields):
    driver = "" if device.startswith("cpu") else "535.54.03"
    values = {"seconds": 1.0, "runtime": "graphcrate", "image": image, "driver": driver, **fields}
    return SmokeReport(suite=name, status=status, device=device, **values)


def contract(status):
    return ContractFinding(
        check="shell", title="a shell", runtimes=("pyxis",), status=status, seen="none", fix="add one"
    )


def report(**fields):
    layout, suites = SimpleNamespace(digest=DIGEST, path="x", tag="1"), (suite(device="Tesla V100"), suite("ops"))
    values = {"name": "pyg", "torch_cuda": "11.8", "smoke": suites[0], "suites": suites}
    return small_layouts.report(layout, **{**values, "contracts": (contract("pass"), contract("warn")), **fields})


def audit(digest=DIGEST, *findings):
    about = {"subject": "pyg:1", "form": "layout", "python": "3.11", "binaries": 1, "bytes": 1}
    about |= {"glibc": "2.17", "glibcxx": "", "gpus": (), "code": (), "broken": ()}
    return Audit(**about, digest=digest, findings=findings)


def finding(severity):
    about = {"check": "symbols", "package": "scatter", "file": "a.so", "what": "lacks x", "fix": "rebuild"}
    return AuditFinding(severity=severity, **about)


def passed(one, image=DIGEST):
    about = {"suite": one.suite, "device": one.device, "runtime": one.runtime}
    claim = SuiteClaim(image=image, version="1", driver="", runtime_version="", **about)
    return Pass(claim=claim, when="2026", report=one)


def judged(of=None, its_audit=None, passes=(), suites=("dna", "ops"), **options):
    return policy.judge(of or report(), its_audit or audit(), passes, suites, **options)


def reasons(*arguments, **options):
    return [refusal.what for refusal in judged(*arguments, **options).refusals]


FAILED = report(suites=(suite(device="Tesla V100"), suite("ops", status="failed", reason="extension: wrong sum")))
UNTESTED = report(smoke=None, suites=())
NO_AUDIT = f"there is no audit of this very image ({DIGEST})"


@pytest.mark.parametrize(
    ("image", "its_audit", "wanted", "expected"),
    [
        (None, None, ("dna", "ops"), []),
        (None, audit(DIGEST, finding("warn"), finding("note")), ("dna", "ops"), []),
        (None, audit(OTHER), (), [NO_AUDIT]),
        (None, audit(DIGEST, finding("fail")), (), ["audit: scatter a.so: lacks x"]),
        (report(contracts=()), None, (), ["no contract was checked"]),
        (report(contracts=(contract("fail"),)), None, (), ["contract shell (pyxis): none"]),
        (None, None, ("dna", "ops", "ddp"), ["the suite ddp has not passed in this very image"]),
        (FAILED, None, ("ops",), ["the suite ops failed: extension: wrong sum"]),
    ],
)
def test_publish_refusals_of_an_image_have_fixes(image, its_audit, wanted, expected):
    found = judged(image, its_audit, suites=wanted)
    assert [refusal.what for refusal in found.refusals] == expected
    assert all(refusal.fix for refusal in found.refusals)
    assert not found.cpu_only


def test_publish_refusals_add_up_and_allow_cpu_only_removes_the_gpu_one():
    assert policy.judge(report(), None, (), ()).refusals[0].what == NO_AUDIT
    broken = msgspec.structs.replace(UNTESTED, contracts=())
    assert [len(reasons(broken, audit(OTHER), allow_cpu_only=allowed)) for allowed in (False, True)] == [5, 4]


def test_passes_of_another_digest_do_not_count_for_publish():
    ran = [suite(device="NVIDIA A100"), suite("ops", device="NVIDIA A100")]
    assert reasons(UNTESTED, passes=[passed(one) for one in ran]) == []
    assert len(reasons(UNTESTED, passes=[passed(one, OTHER) for one in ran])) == 3
    assert reasons(FAILED, passes=[passed(suite("ops"))]) == []  # a failure of before a pass does not stop it


def test_publish_of_a_cuda_image_needs_a_gpu_pass():
    on_cpu = report(smoke=suite(), suites=(suite(), suite("ops")))
    assert reasons(on_cpu) == ["no suite of pyg:1 has passed on a GPU, which it is built for"]
    assert (
        judged(on_cpu)
        .refusals[-1]
        .fix.endswith("ALLOW_CPU_ONLY=yes (--allow-cpu-only), which is recorded beside the image")
    )
    allowed = judged(on_cpu, allow_cpu_only=True)
    assert (allowed.refusals, allowed.cpu_only) == ((), True)
    assert not judged(allow_cpu_only=True).cpu_only  # it passed on one: nothing to allow
    for_cpu = msgspec.structs.replace(on_cpu, torch_cuda="cpu")
    assert (reasons(for_cpu), judged(for_cpu).cpu_only) == ([], False)
    assert reasons(on_cpu, passes=[passed(suite("ops", device="2 x Tesla V100"))]) == []


@pytest.mark.parametrize(
    ("device", "driver"), [("cuda", ""), ("Tesla V100", ""), ("none", "535.1"), ("", "535.1"), ("cpu x", "535.1")]
)
def test_publish_takes_no_device_that_the_runner_did_not_see_for_a_gpu(device, driver):
    ran = (suite(device=device, driver=driver), suite("ops", device=device, driver=driver))
    assert reasons(report(smoke=ran[0], suites=ran)) == ["no suite of pyg:1 has passed on a GPU, which it is built for"]


def test_remembered_pass_of_a_cpu_that_says_a_gpu_does_not_count_for_publish(tmp_path, monkeypatch):
    forged = passed(suite(device="cuda", driver="535.1"))
    forged = msgspec.structs.replace(forged, claim=msgspec.structs.replace(forged.claim, device="cpu AMD EPYC"))
    assert "the suite dna has not passed in this very image" in reasons(UNTESTED, passes=[forged])
    (tmp_path / "pyg/1/passes").mkdir(parents=True)
    (tmp_path / "pyg/1/passes/a.json").write_bytes(msgspec.json.encode(forged))
    monkeypatch.setattr(policy.gpu, "is_here", lambda: False)
    with refused(GateError, "no suite of pyg has passed on a GPU"):
        policy.refuse_early(policy.PublishRequest(ref="pyg", output=tmp_path), "pyg", "11.8")


EMULATED = suite("emulated", device="cpu (emulating an ARM machine)")


@pytest.mark.parametrize(
    ("ran", "allowed", "refused_for", "cpu_only", "emulated"),
    [
        ((EMULATED,), {"allow_emulated"}, [], True, True),
        ((EMULATED,), set(), ["an emulator alone has tried pyg:1"], False, False),
        # what one option allows the other does not
        ((EMULATED,), {"allow_cpu_only"}, ["an emulator alone has tried pyg:1"], False, False),
        ((suite(), suite("ops")), {"allow_emulated"}, ["no suite of pyg:1 has passed on a GPU"], False, False),
        ((suite(), suite("ops")), {"allow_cpu_only"}, [], True, False),
        # beside the suites an emulator's proof counts for nothing, and is no reason to leave one of them out
        ((EMULATED, suite(device="Tesla V100"), suite("ops")), {"allow_emulated"}, [], False, False),
        ((EMULATED, suite(device="Tesla V100")), {"allow_emulated"}, ["the suite ops has not passed"], False, False),
    ],
)
def test_proof_of_an_emulator_stands_for_all_suites_where_that_is_allowed(
    ran, allowed, refused_for, cpu_only, emulated
):
    found = judged(report(smoke=None, suites=ran), **dict.fromkeys(allowed, True))
    assert [what for what, why in zip(found.refusals, refused_for, strict=True) if why not in what.what] == []
    assert (found.cpu_only, found.emulated) == (cpu_only, emulated)


@pytest.mark.parametrize("options", [{"allow_cpu_only": True}, {}])
def test_publish_of_an_image_for_another_machine_is_refused_before_the_build(tmp_path, monkeypatch, options):
    """Also on a GPU, for the CPU, and where a pass on a CPU is enough: nothing of it passes here."""
    monkeypatch.setattr(policy.gpu, "is_here", lambda: True)
    monkeypatch.setattr(policy.emulation, "is_native", lambda platform: False)
    request = policy.PublishRequest(ref="pyg", output=tmp_path, **options)
    for cuda in ("11.8", "cpu"):
        with refused(GateError, "this machine runs no suite of an image for"):
            policy.refuse_early(request, "pyg", cuda)
    policy.refuse_early(dataclasses.replace(request, allow_emulated=True), "pyg", "11.8")


def test_publish_without_a_gpu_is_refused_before_the_build(tmp_path, monkeypatch):
    request = policy.PublishRequest(ref="pyg", output=tmp_path)
    monkeypatch.setattr(policy.gpu, "is_here", lambda: False)
    with refused(GateError, "this machine has none", "ALLOW_CPU_ONLY=yes"):
        policy.refuse_early(request, "pyg", "11.8")
    policy.refuse_early(request, "pyg", "cpu")
    policy.refuse_early(dataclasses.replace(request, allow_cpu_only=True), "pyg", "11.8")
    (tmp_path / "pyg/1/passes").mkdir(parents=True)
    (tmp_path / "pyg/1/passes/a.json").write_bytes(msgspec.json.encode(passed(suite(device="cpu"))))
    with refused(GateError, "this machine has none"):
        policy.refuse_early(request, "pyg", "11.8")
    (tmp_path / "pyg/1/passes/b.json").write_bytes(msgspec.json.encode(passed(suite(device="Tesla V100"))))
    policy.refuse_early(request, "pyg", "11.8")


def test_publish_needs_passes_of_the_current_own_tests():
    own = OwnTests(imports=("lightning",), commands=("python train.py",))
    ran = (suite(device="Tesla V100"), suite("ops"), suite("imports"))
    lacking = ["its test own-1 has not passed in this very image"]
    assert reasons(report(own=own, suites=ran)) == lacking
    failed = suite("own-1", status="failed", reason="exit code 3")
    assert reasons(report(own=own, suites=(*ran, failed))) == ["its test own-1 failed: exit code 3"]
    assert judged(report(own=own, suites=(*ran, failed))).refusals[0].fix == "./build.py test pyg:1"
    now = programs(own)[1]
    for version, expected in ((now.version, []), ("own-1 of another command", lacking)):
        one = passed(suite("own-1"))
        one = msgspec.structs.replace(one, claim=msgspec.structs.replace(one.claim, version=version))
        assert reasons(report(own=own, suites=ran), passes=[one]) == expected


def test_passes_of_the_stack_image_do_not_count_and_those_of_a_converted_sif_do():
    below = report(suites=(suite(device="Tesla V100", image=OTHER), suite("ops", image=OTHER)), smoke=None)
    assert len(reasons(below)) == 3  # each suite, and the GPU
    file = f"sha256:{'ef' * 32}"
    in_a_sif = [suite(device="Tesla V100", image=file, layout=DIGEST), suite("ops", image=file, layout=DIGEST)]
    assert reasons(below, passes=[passed(one, file) for one in in_a_sif]) == []
    of_another = [msgspec.structs.replace(one, layout=OTHER) for one in in_a_sif]
    assert len(reasons(below, passes=[passed(one, file) for one in of_another])) == 3
    no_digest = [msgspec.structs.replace(one, image="") for one in in_a_sif]
    assert len(reasons(below, passes=[passed(one, "") for one in no_digest])) == 3
    failed_below = report(suites=(suite(status="failed", image=OTHER), suite("ops", image=OTHER)), smoke=None)
    assert reasons(failed_below)[0] == "the suite dna has not passed in this very image"
