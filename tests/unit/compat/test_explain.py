"""`explain`, and what `make image` takes and refuses by the same rules."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from graphcrate.assembly import pipeline
from graphcrate.cli import tables
from graphcrate.compat.facts import gpu_table
from graphcrate.compat.variants import catalog, explain, rules
from graphcrate.compat.variants.choice import select_variant
from graphcrate.compat.variants.targets import MachineRequest, Target
from graphcrate.host.context import Context
from graphcrate.model.errors import ResolutionError, UsageError
from tests import ROOT
from tests.made import KNOWN, OF_ONE_DAY, RECIPES, SHIPPED, build_request, refused

GOLDEN = Path(__file__).parent.parent / "golden"
CTX = Context(root=ROOT, environment={})


@pytest.fixture
def call(context, typed):
    shutil.copytree(OF_ONE_DAY, context.root / "recipes")
    shutil.copytree(ROOT / "targets", context.root / "targets")
    return typed


def test_explain_output_equals_its_golden_file(call):
    for name, arguments in (
        ("explain-dgx2", ("--target", "dgx2")),
        ("explain-dgx2-verbose", ("--target", "dgx2", "--verbose")),
        ("explain-v100-13.0", ("--cuda", "13.0", "--gpu", "v100")),
        ("explain-glt-a100", ("glt", "--target", "a100")),
        ("explain-torch-laptop", ("torch", "--target", "laptop")),
    ):
        code, out, _ = call("explain", *arguments)
        assert (code, out) == (0, (GOLDEN / f"{name}.txt").read_text())


@pytest.mark.parametrize(
    ("recipe", "said", "chosen", "status"),
    [
        ("torch", {"gpu": "v100"}, "12.8", "native"),
        ("torch", {"gpu": "v100", "driver": "450.80.02"}, "11.8", "native"),
        ("torch", {"gpu": "t4", "driver": "580.95.05"}, "13.0", "native"),
        ("pyg", {"gpu": "b200", "driver": "570.26"}, "12.8", "jit"),
        ("pyg", {"gpu": "p100", "driver": "550.54.15"}, "12.6", "native"),
        ("glt", {"target": "dgx2"}, "11.7", "native"),
        ("glt", {"gpu": "a100", "driver": "535.54.03"}, "12.1", "jit"),
        ("glt", {"target": "laptop"}, "12.1", "native"),
    ],
)
def test_explain_chooses_the_cuda_for_a_machine(recipe, said, chosen, status):
    words = MachineRequest(**said)
    found = explain.explain(KNOWN[recipe], catalog.find_target(CTX, words), words)
    row = explain.chosen_row(found)
    assert (row.cuda, row.verdict.status) == (chosen, status)
    assert ("only when built for it (GPU=p100): " in " ".join(row.verdict.notes)) == (said.get("gpu") == "p100")


def test_explain_json_has_target_rows_and_command(call):
    code, out, _ = call("explain", "--target", "dgx2", "--json")
    found = json.loads(out)
    assert (code, found["target"]["gpus"]) == (0, ["V100"])
    assert [row["command"] for row in found["rows"] if row["chosen"]] == ["make image CUDA=11.8 TARGET=dgx2"]
    rejected = next(row["verdict"] for row in found["rows"] if row["cuda"] == "12.8")
    assert (rejected["status"], rejected["reasons"][0]["fix"][:19]) == ("rejected", "driver >= 525.60.13")


def test_explain_of_an_unknown_target_is_refused_and_own_target_files_are_read(call):
    Path("mine.toml").write_text('gpus = ["T4"]\ndrivers = ["580.95.05"]\n')
    Path("wrong.toml").write_text('gpus = ["T4"]\ndriver = "580.95.05"\n')
    for arguments, code, words in (
        (("--target", "dgx"), 2, "the nearest is dgx2"),
        (("--target", "none.toml"), 2, "there is no file none.toml"),
        (("--cuda", "12.2"), 2, "the nearest are 12.1"),
        (("--cuda", "12.2"), 2, "explain pyg --driver 12.2 says what runs where nvidia-smi shows it"),
        (("torch", "--target", "mine.toml"), 0, "CUDA 13.0  torch 2.12.1               chosen, runs natively"),
        (("--driver", "12.4"), 0, "driver 550.54.14 (nvidia-smi: CUDA 12.4)"),
        (("torch", "--target", "wrong.toml"), 3, "wrong.toml:2: driver"),
    ):
        ended, out, err = call("explain", *arguments)
        assert (ended, bool(out), words in out + err) == (code, code == 0, True)


def test_explain_of_a_machine_that_runs_nothing_gives_reasons(call):
    code, out, err = call("explain", "--gpu", "v100", "--driver", "418.39")
    assert (code, out.count("does not run")) == (4, 9)  # those for the CPU are left out
    assert re.search(r"(?s)nothing of pyg runs on V100 \(sm_70\), driver 418\.39.*driver >= 450\.80\.02", err)


@pytest.mark.parametrize(
    ("gpu", "driver", "cuda", "step"),
    [
        ("rtx5090", "550.54", "12.8", "driver >= 570.26\n"),
        ("h100", "450.80.02", "11.8", "driver >= 520.61.05\n"),
        ("gh200", "550.54.15", "13.0", "driver >= 580.65.06; for this GPU"),
        ("rtx4090,v100", "418.87.01", "11.6", "driver >= 520.61.05\n"),
    ],
)
def test_explain_of_a_driver_that_is_too_old_names_the_one_that_runs_something(gpu, driver, cuda, step, call):
    code, _, err = call("explain", "--gpu", gpu, "--driver", driver)
    assert code == 4
    assert f"CUDA {cuda} would run with another driver: " in err
    assert f"next:  {step}" in err


def test_list_of_gpus_says_which_are_in_arm64_machines(call):
    assert "GH200, GB200 and GB300: in machines for arm64" in call("list", "--gpus")[1]


@pytest.mark.parametrize(
    ("arguments", "cuda", "gpu", "words"),
    [
        ((), "11.8", "", ""),
        (("--gpu", "v100"), "12.8", "v100", "assumed: driver 525.60.13 to R580"),
        (("--target", "laptop"), "cpu", "", "CUDA cpu for laptop: no GPU"),
        (("--cuda", "11.7", "--target", "dgx2"), "11.7", "v100", ""),
        (("--gpu", "v100", "--driver", "418.39"), None, None, "nothing of pyg runs on V100"),
    ],
)
def test_image_builds_the_cuda_that_explain_chooses(monkeypatch, call, arguments, cuda, gpu, words):
    seen = []

    def stop(job, _):
        seen.append((job.contents.variant.cuda, job.contents.gpu))
        raise ResolutionError("far enough")

    monkeypatch.setattr(pipeline, "_build_and_test", stop)
    code, _, err = call("image", "pyg", *arguments)
    assert (code, seen) == (4, [(cuda, gpu)] if cuda else [])
    assert words in err
    assert ("the newest of pyg that runs there" in err) == bool(words and cuda)


def usable(cuda, **said):
    found = select_variant(build_request(cuda=cuda, **said), CTX)
    return [candidate.name for candidate in found.usable], {one.candidate: one.constraint for one in found.out}


def test_gpu_list_needs_a_candidate_for_all():
    out = {"compatible": "torch 2.0.1 for CUDA 11.7 has no code for H100 (sm_90)"}
    assert usable("11.8") == usable("11.8", gpu="v100,a100") == (["pytorch", "compatible"], {})
    assert usable("11.8", gpu="v100, h100") == (["pytorch"], out)


@pytest.mark.parametrize(
    ("cuda", "said", "what", "cause", "next_step"),
    [
        ("13.0", {"gpu": "a100,v100"}, "on A100 (sm_80), V100 (sm_70)", "no code for V100", "CUDA=12.8 GPU=a100,v100 "),
        ("12.1", {"target": "dgx2"}, "does not run on dgx2: V100", "CUDA 12 needs driver", "CUDA=11.8 TARGET=dgx2 "),
        ("11.7", {"gpu": "p4,v100,b300"}, "B300 (sm_103)", "no code for", "… GPU=p4    (one image for each"),
    ],
)
def test_cuda_that_the_gpu_cannot_run_is_refused_with_an_alternative(cuda, said, what, cause, next_step):
    with refused(UsageError, what, cause, f"next:  make image {next_step}"):
        usable(cuda, **said)


def test_gpu_without_any_variant_is_refused_with_list_gpus():
    for cuda in ("12.1", None):
        with refused((UsageError, ResolutionError), "B200 (sm_100)", "next:  ./build.py list --gpus "):
            select_variant(build_request(name="glt", cuda=cuda, gpu="b200"), CTX)


def test_gpu_names_of_a_candidate_are_its_native_gpus():
    for recipe, variant, candidate in SHIPPED:
        bare = msgspec.structs.replace(explain.stack_of(recipe, variant, candidate, None), extensions=(), glt="")
        native = {model for model in gpu_table.gpus() if rules.judge(bare, Target(gpus=(model,))).status == "native"}
        assert set(gpu_table.gpu_names(candidate)) == native


def test_unmeasured_torch_is_chosen_last():
    recipe = RECIPES["torch"]
    newest = msgspec.structs.replace(recipe.variant("12.8").candidates[0], torch="99.0")
    variant = msgspec.structs.replace(recipe.variant("12.8"), cuda="12.9", candidates=(newest,))
    grown, alone = (msgspec.structs.replace(recipe, variants=(*more, variant)) for more in (recipe.variants, ()))
    found, only = (explain.explain(one, Target(gpus=("V100",)), MachineRequest(gpu="v100")) for one in (grown, alone))
    lines = "\n".join(line for line, _ in explain.answer(found).lines())
    assert "CUDA 12.9  torch 99.0" in lines
    assert "not known: which GPUs torch 99.0 for CUDA 12.8 has code for" in lines
    assert (explain.chosen_row(found).cuda, explain.chosen_row(only).cuda) == ("12.8", "12.9")


def test_checks_page_shows_the_golden_explain_output():
    page = (ROOT / "docs" / "checks.md").read_text().partition("$ ./build.py explain --target dgx2\n")[2]
    shown = page.partition("\n```")[0].splitlines()
    assert len(shown) > 5
    assert set(shown) - {"…"} <= set((GOLDEN / "explain-dgx2.txt").read_text().splitlines())


def test_marks_of_gpus_are_told_apart_where_the_locale_has_ascii_alone(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    monkeypatch.setattr(sys, "stdout", stream)
    meanings = [part.split(" ", 1) for part in tables.legend().split("   ")]
    assert len({sign for sign, _ in meanings}) == len(meanings) == 5
    assert all(sign.isascii() for sign, _ in meanings)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert tables.legend().startswith("● runs")
