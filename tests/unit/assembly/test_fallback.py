"""A `-compat` image is never a surprise: what it cannot do is known from the facts, and its plan says it, once."""

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from graphcrate.artifacts.reports import read_report
from graphcrate.assembly import locking, proving, summary, with_engine
from graphcrate.assembly.planned import Forecast
from graphcrate.checks import new_image, reading
from graphcrate.cli import tables
from graphcrate.compat.facts import driver_table, gpu_table
from graphcrate.compat.variants import catalog, explain, fallbacks, rules
from graphcrate.compat.variants.targets import Target
from graphcrate.engines import run_suites
from graphcrate.engines.backend import Built
from graphcrate.engines.embedded.engine import EmbeddedEngine
from graphcrate.host.context import Context
from graphcrate.model.lock import decode_lock
from graphcrate.model.report import Artifact, CandidateOutcome
from graphcrate.resolve.stack.locks import Resolution
from tests import ROOT
from tests.made import RECIPES, SHIPPED

REPOSITORY = Context(root=ROOT, environment={})
GOLDEN = Path(__file__).parent.parent / "golden"
ARTIFACT = Artifact(engine="embedded", kind="layout", reference="oci", digest=f"sha256:{'ab' * 32}", bytes=1)
OUT = CandidateOutcome(candidate="pytorch", chosen=False, constraint="pytorch channel: no answer", fix="try a mirror")


#: what golden files name: a row for a new GPU changes none of them
GPUS = {
    "V100": "7.0",
    "T4": "7.5",
    "A100": "8.0",
    "A10": "8.6",
    "L4": "8.9",
    "H100": "9.0",
    "H200": "9.0",
    "GH200": "9.0",
    "B200": "10.0",
    "GB200": "10.0",
    "B300": "10.3",
    "RTX5090": "12.0",
    "RTX_PRO_6000": "12.0",
}


@pytest.fixture
def call(context, monkeypatch, typed, gpus_are):
    """Types a command where layers are made and suites run in no time, and whose locks are those that are committed."""
    shutil.copytree(ROOT / "recipes", context.root / "recipes")

    def locked(choice, *_, **__):
        candidate = choice.variant.candidates[-1]
        lock = decode_lock(catalog.lock_path(REPOSITORY, choice.recipe, choice.variant, candidate).read_bytes())
        chosen = CandidateOutcome(candidate=candidate.name, chosen=True)
        return Resolution(lock=lock, candidate=candidate, outcomes=(OUT, chosen))

    gpus_are(GPUS)
    monkeypatch.setattr(proving, "draw", lambda *_: None)  # there is no layout to read
    monkeypatch.setattr(locking, "lock_stack", locked)
    monkeypatch.setattr(Forecast, "require_room", lambda *_: None)  # this disk may be smaller than what is not made

    def built(_engine, _plan, _lock, _sources, folder, *_, **__):
        return Built(msgspec.structs.replace(ARTIFACT, reference=str(folder / "oci")))

    monkeypatch.setattr(with_engine, "build", built)
    monkeypatch.setattr(EmbeddedEngine, "exists", lambda *_: True)
    monkeypatch.setattr(run_suites, "prove", lambda report, *_, **__: report)
    audit = new_image.Audited(binaries=1, fail=0, warn=0, note=0)
    monkeypatch.setattr(reading, "read_image", lambda *_: None)

    def vetted(report, *_):
        return new_image.Vetted(msgspec.structs.replace(report, audit=audit), None)

    monkeypatch.setattr(new_image, "vet", vetted)
    return typed


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("fallback-pyg-11.8", ("pyg", "--cuda", "11.8", "--mirror", "http://mirror/a b", "--flavour", "devel")),
        ("fallback-glt-11.6", ("glt", "--cuda", "11.6", "--channel", "pypi", "--no-smoke", "--output", "out")),
    ],
)
def test_fallback_limits_are_printed_once_by_build_and_fully_by_publish(call, name, arguments):
    printed = []
    title, *limits, out_of, insist = (GOLDEN / f"{name}.txt").read_text().splitlines()
    for begin in ("plan for ", "image   "):
        code, out, err = call("image", *arguments)
        assert (code, out.count("\n"), out.endswith(f"@{ARTIFACT.digest}\n")) == (0, 1, True)
        assert err.startswith(begin)
        new = begin == "plan for "
        assert [err.count(line.strip()) for line in (*limits, insist)] == [int(new)] * (len(limits) + 1), err
        assert [line[:5] for line in err.splitlines()[-2:]] == ["image", "next "]
        assert new or err.count("\n") == 2
        printed.append(out)
    assert printed[0] == printed[1]
    report = read_report(
        Path("out" if "out" in arguments else "dist") / printed[0].partition("@")[0].replace(":", "/") / "report.json"
    )
    assert list(summary.fallback_lines(report, insist.partition(": ")[2])) == [title, *limits, out_of, insist]


@pytest.mark.parametrize(("gpus", "insists"), [("v100", False), ("a100", False), ("v100,8.6", False), ("", True)])
def test_torch_that_a_fallback_stands_in_for_is_named_where_the_named_gpus_gain_by_it(call, gpus, insists):
    machine = ["--gpu", gpus] if gpus else []
    assert ("insist on torch" in call("image", "torch", "--cuda", "11.8", *machine)[2]) == insists
    (path,) = Path("dist/torch").glob("*-cu118*/report.json")
    said = "\n".join(summary.fallback_lines(read_report(path), "COMMAND"))
    assert ("insist on torch" in said, "is a fall-back" in said) == (insists, True)


def test_torch_that_has_code_for_a_named_gpu_is_named():
    known = fallbacks.fallback(RECIPES["torch"].variant("11.8"), RECIPES["torch"].variant("11.8").candidates[1])
    assert "H100" in summary.insistence(known, "COMMAND", ("V100", "GH200"))


def test_preferred_image_has_no_fallback_lines(call):
    assert "fall-back" not in call("image", "pyg", "--cuda", "11.7")[2]
    code, _, err = call("image", "pyg", "--cuda", "11.7")
    assert (code, [line[:6] for line in err.splitlines()]) == (0, ["image ", "next  "])


def test_fallback_limits_are_in_plan_report_and_inspect(call):
    _, _, err = call("image", "torch", "--cuda", "11.8")
    (report,) = (read_report(path) for path in Path("dist/torch").glob("*-cu118*/report.json"))
    assert set(report.fallback.gains) == {"H100", "H200", "GH200"} < set(report.fallback.no_code)
    shown = "".join(f"{line}\n" for line, _ in tables.inspect(report, {}, "dist").lines())
    for text in (err.partition("  base ")[0], shown):
        assert report.fallback.meaning in text
        assert all(re.search(rf"\bit {re.escape(limit)}[;\n]", text) for limit in report.fallback.limits)


def test_json_of_an_unchanged_fallback_has_the_current_reason(call, monkeypatch):
    call("image", "torch", "--cuda", "11.8")
    monkeypatch.setattr(f"{__name__}.OUT", msgspec.structs.replace(OUT, constraint="pytorch channel: HTTP 403"))
    _, out, _ = call("image", "torch", "--cuda", "11.8", "--json")
    assert json.loads(out)["outcomes"][0]["constraint"] == "pytorch channel: HTTP 403"


@pytest.mark.parametrize(
    ("recipe", "variant", "candidate"), [one for one in SHIPPED if one[2].torch_cuda != one[1].cuda]
)
def test_fallback_limits_equal_those_of_the_rules(recipe, variant, candidate):
    said = fallbacks.fallback(variant, candidate)
    bare = msgspec.structs.replace(explain.stack_of(recipe, variant, candidate, None), extensions=(), glt="")
    rejected = {one for one in gpu_table.gpus() if rules.judge(bare, Target(gpus=(one,))).status == "rejected"}
    assert set(said.no_code) == rejected
    oldest = driver_table.oldest_driver(variant.cuda)
    assert oldest == "450.80.02", "minor-version compatibility of CUDA 11"
    assert said.limits[0].startswith(f"needs driver {oldest} or newer, to R580 for ")
    verdicts = [rules.judge(bare, Target(gpus=("V100",), drivers=(driver,))) for driver in (oldest, "450.51")]
    assert [verdict.accepted for verdict in verdicts] == [True, False]


def test_fallback_with_ptx_of_a_newer_cuda_needs_a_newer_driver():
    ptx = "needs driver 515.43.04 or newer for what CUDA 11.7 makes as PTX (CUDA 11.6: 510.39.01)"
    assert ptx in fallbacks.fallback_limits("1.13.1", "11.7", "11.6")
    assert not any("PTX" in limit for limit in fallbacks.fallback_limits("2.0.1", "11.7", "11.8"))
    assert fallbacks.fallback_limits("2.0.1", "11.7", "11.7") == ()
    assert fallbacks.fallback_limits("99.0", "11.7", "11.8") == ("needs driver 450.80.02 or newer",)  # code not known


def test_fallback_without_a_preferred_candidate_has_no_gains():
    variant = RECIPES["torch"].variant("11.8")
    said = fallbacks.fallback(
        msgspec.structs.replace(variant, candidates=variant.candidates[1:]), variant.candidates[1]
    )
    assert (said.torch, said.gains, bool(said.no_code)) == ("", (), True)
