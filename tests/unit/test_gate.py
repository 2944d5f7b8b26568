"""gate: only what was audited, keeps its contracts and passed its suites goes out; each reason is said with its fix."""

import dataclasses

import msgspec
import pytest

from graphcrate.model.audit import Audit
from graphcrate.model.audit import Finding as AuditFinding
from graphcrate.model.contract import Finding
from graphcrate.model.errors import GateError
from graphcrate.model.report import Artifact, BuildReport, Claim, Pass, SmokeReport
from graphcrate.publish import policy

DIGEST, OTHER = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"


def suite(name="dna", device="cpu", status="passed", **fields):
    return SmokeReport(suite=name, status=status, device=device, seconds=1.0, runtime="graphcrate", **fields)


def contract(status):
    return Finding(check="shell", title="a shell", runtimes=("pyxis",), status=status, seen="none", fix="add one")


def report(**fields):
    values = {
        "name": "pyg",
        "tag": "1",
        "digest": DIGEST,
        "layout": "x",
        "bytes": 1,
        "candidate": "c",
        "seconds": 1.0,
        "torch": "2.0.1",
        "torch_cuda": "11.8",
        "cuda": "11.8",
        "python": "3.11",
        "packages": (),
        "artifact": Artifact(engine="embedded", kind="layout", reference="x", digest=DIGEST, bytes=1),
        "smoke": suite(device="Tesla V100"),
        "suites": (suite(device="Tesla V100"), suite("ops")),
        "contracts": (contract("pass"), contract("warn")),
    }
    return BuildReport(**{**values, **fields})


def audit(digest=DIGEST, *findings):
    return Audit(
        subject="pyg:1",
        form="layout",
        digest=digest,
        python="3.11",
        binaries=1,
        bytes=1,
        glibc="2.17",
        glibcxx="",
        gpus=(),
        code=(),
        findings=findings,
        broken=(),
    )


def finding(severity):
    return AuditFinding(
        check="symbols", severity=severity, package="scatter", file="a.so", what="lacks x", fix="rebuild"
    )


def passed(one, image=DIGEST):
    claim = Claim(
        image=image,
        suite=one.suite,
        version="1",
        device=one.device,
        driver="",
        runtime=one.runtime,
        runtime_version="",
    )
    return Pass(claim=claim, when="2026", report=one)


def judged(of=None, its_audit=None, passes=(), suites=("dna", "ops"), **options):
    return policy.judge(of or report(), its_audit or audit(), passes, suites, **options)


def reasons(*arguments, **options):
    return [refusal.what for refusal in judged(*arguments, **options).refusals]


def test_a_good_image_goes_out():
    found = judged()
    assert found.refusals == ()
    assert not found.cpu_only
    assert [one.suite for one in found.suites] == ["dna", "ops"]


@pytest.mark.parametrize("severity", ["warn", "note"])
def test_warnings_do_not_stop_it(severity):
    assert reasons(None, audit(DIGEST, finding(severity))) == []


def test_an_audit_of_this_digest_is_wanted():
    assert policy.judge(report(), None, (), ()).refusals[0].what == f"there is no audit of this very image ({DIGEST})"
    assert reasons(None, audit(OTHER)) == [f"there is no audit of this very image ({DIGEST})"]
    assert reasons(None, audit(DIGEST, finding("fail"))) == ["audit: scatter a.so: lacks x"]


def test_contracts_are_wanted_and_kept():
    assert reasons(report(contracts=())) == ["no contract was checked"]
    assert reasons(report(contracts=(contract("fail"),))) == ["contract shell (pyxis): none"]


def test_every_suite_of_the_recipe_has_to_pass():
    assert reasons(suites=("dna", "ops", "ddp")) == ["the suite ddp has not passed in this very image"]
    broken = report(suites=(suite(device="Tesla V100"), suite("ops", status="failed", reason="extension: wrong sum")))
    assert reasons(broken) == ["the suite ops failed: extension: wrong sum"]
    untested = report(smoke=None, suites=())
    assert len(reasons(untested)) == 3


def test_what_passed_elsewhere_counts_for_this_digest_alone():
    untested = report(smoke=None, suites=())
    ran = [suite(device="NVIDIA A100"), suite("ops", device="NVIDIA A100")]
    assert reasons(untested, passes=[passed(one) for one in ran]) == []
    assert len(reasons(untested, passes=[passed(one, OTHER) for one in ran])) == 3


def test_a_failure_of_before_a_pass_does_not_stop_it():
    broken = report(suites=(suite(device="Tesla V100"), suite("ops", status="failed", reason="out of memory")))
    assert reasons(broken, passes=[passed(suite("ops"))]) == []


def test_a_gpu_is_wanted_where_the_image_is_for_one():
    on_cpu = report(smoke=suite(), suites=(suite(), suite("ops")))
    assert reasons(on_cpu) == ["no suite of pyg:1 has passed on a GPU, which it is built for"]
    assert judged(on_cpu).refusals[-1].fix.endswith("--allow-cpu-only, which is recorded beside the image")
    allowed = judged(on_cpu, allow_cpu_only=True)
    assert (allowed.refusals, allowed.cpu_only) == ((), True)
    assert not judged(allow_cpu_only=True).cpu_only  # it passed on one: nothing to allow
    for_cpu = msgspec.structs.replace(on_cpu, torch_cuda="cpu")
    assert (reasons(for_cpu), judged(for_cpu).cpu_only) == ([], False)
    assert reasons(on_cpu, passes=[passed(suite("ops", device="2 x Tesla V100"))]) == []


def test_what_could_not_go_out_after_a_build_is_refused_before(tmp_path, monkeypatch):
    request = policy.Request(ref="pyg", output=tmp_path)
    monkeypatch.setattr(policy.gpu, "is_here", lambda: False)
    with pytest.raises(GateError, match="this machine has none") as caught:
        policy.refuse_early(request, "pyg", "11.8")
    assert "ALLOW_CPU_ONLY=yes" in caught.value.next_step
    policy.refuse_early(request, "pyg", "cpu")
    policy.refuse_early(dataclasses.replace(request, allow_cpu_only=True), "pyg", "11.8")
    (tmp_path / "pyg/1/passes").mkdir(parents=True)
    (tmp_path / "pyg/1/passes/a.json").write_bytes(msgspec.json.encode(passed(suite(device="Tesla V100"))))
    policy.refuse_early(request, "pyg", "11.8")


def test_permission_is_for_the_gpu_alone():
    assert reasons(report(contracts=(contract("fail"),)), audit(OTHER), allow_cpu_only=True) != []


def test_every_refusal_says_what_to_do():
    everything = judged(report(contracts=(), smoke=None, suites=()), audit(OTHER))
    assert len(everything.refusals) == 5
    assert all(refusal.fix for refusal in everything.refusals)
