"""`explain`, and what `make image` takes and refuses by the same rules."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from graphcrate.build import pipeline
from graphcrate.compat import explain, facts, recipes, rules
from graphcrate.compat.targets import Said
from graphcrate.host.context import Context
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import decode_lock
from graphcrate.model.recipe import Candidate
from graphcrate.model.target import Target
from tests import ROOT

GOLDEN = Path(__file__).parent / "golden"
RECIPES = {path.stem: recipes.load(path) for path in (ROOT / "recipes").glob("*.toml")}
LOCKS = sorted((ROOT / "images").glob("*/*/*.lock.json"))


@pytest.fixture
def call(context, typed):
    for folder in ("recipes", "targets"):
        shutil.copytree(ROOT / folder, context.root / folder)
    return typed


def explained(recipe, cuda=None, **said):
    words = Said(**said)
    ctx = Context(root=ROOT, environment={})
    return explain.explain(RECIPES[recipe], explain.find_target(ctx, words), words, cuda)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("explain-dgx2", ("--target", "dgx2")),
        ("explain-v100-13.0", ("--cuda", "13.0", "--gpu", "v100")),
        ("explain-glt-a100", ("glt", "--target", "a100")),
        ("explain-torch-laptop", ("torch", "--target", "laptop")),
    ],
)
def test_the_answer_is_as_it_was_reviewed(call, name, arguments):
    code, out, _ = call("explain", *arguments)
    assert code == 0
    assert out == (GOLDEN / f"{name}.txt").read_text()


def test_dgx2_gets_the_newest_that_its_driver_runs():
    row = explain.chosen_row(explained("pyg", target="dgx2"))
    assert (row.cuda, row.candidate, row.verdict.status) == ("11.8", "pytorch", "native")
    assert row.command == "make image CUDA=11.8 TARGET=dgx2"


@pytest.mark.parametrize(
    ("recipe", "said", "cuda", "status"),
    [
        ("torch", {"gpu": "v100"}, "12.8", "native"),
        ("torch", {"gpu": "v100", "driver": "450.80.02"}, "11.8", "native"),
        ("torch", {"gpu": "t4", "driver": "580.95.05"}, "13.0", "native"),
        ("torch", {"gpu": "h100", "driver": "470.82.01"}, "11.8", "native"),
        ("pyg", {"gpu": "b200", "driver": "570.26"}, "12.8", "jit"),
        ("pyg", {"gpu": "p100", "driver": "550.54.15"}, "12.6", "native"),
        ("glt", {"target": "dgx2"}, "11.7", "native"),
        ("glt", {"gpu": "a100", "driver": "535.54.03"}, "12.1", "jit"),
        ("pyg", {"target": "laptop"}, "cpu", "native"),
        ("glt", {"target": "laptop"}, "12.1", "native"),
    ],
)
def test_what_is_chosen(recipe, said, cuda, status):
    row = explain.chosen_row(explained(recipe, **said))
    assert (row.cuda, row.verdict.status) == (cuda, status)


def test_an_image_that_only_runs_when_built_for_the_gpu_says_so():
    row = explain.chosen_row(explained("pyg", gpu="p100"))
    assert any(note.startswith("only when built for it (GPU=p100): ") for note in row.verdict.notes)


def test_the_first_constraint_of_every_other_has_source_and_fix():
    for row in explained("pyg", target="dgx2").rows:
        if not row.verdict.accepted:
            (reason,) = row.verdict.reasons
            assert reason.source
            assert reason.fix


def test_as_json_it_is_one_value(call):
    code, out, _ = call("explain", "--target", "dgx2", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["target"]["gpus"] == ["V100"]
    assert [row["cuda"] for row in found["rows"] if row["chosen"]] == ["11.8"]
    rejected = next(row for row in found["rows"] if row["cuda"] == "12.8")
    assert rejected["verdict"]["status"] == "rejected"
    assert rejected["verdict"]["reasons"][0]["fix"].startswith("driver >= 525.60.13")


def test_where_nothing_runs_the_code_says_so_too(call):
    code, out, err = call("explain", "--gpu", "v100", "--driver", "418.39")
    assert code == 4
    assert out.count("does not run") == 11
    assert "nothing of pyg runs on V100 (sm_70), driver 418.39" in err
    assert "driver >= 450.80.02" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--target", "dgx"), "the nearest is dgx2"),
        (("--target", "dgx2", "--driver", "535.54.03"), "target dgx2 has driver 450.80.02"),
        (("--target", "none.toml"), "there is no target 'none.toml'"),
        (("--cuda", "12.2"), "the nearest are 12.1"),
        (("--gpu", "v10"), "the nearest are V100"),
        (("pig",), "the nearest is pyg"),
        (("--runtime", "kubernetes"), "there is no runtime 'kubernetes'"),
        (("--driver", "new"), "no version"),
    ],
)
def test_bad_questions_are_refused(call, arguments, told):
    code, out, err = call("explain", *arguments)
    assert (code, out) == (2, "")
    assert told in err


def test_a_target_of_ones_own(call, tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('gpus = ["T4"]\ndrivers = ["580.95.05"]\n')
    code, out, _ = call("explain", "torch", "--target", str(mine))
    assert code == 0
    assert "CUDA 13.0  torch 2.12.1                 chosen, runs natively" in out
    mine.write_text('gpus = ["T4"]\ndriver = "580.95.05"\n')
    code, _, err = call("explain", "torch", "--target", str(mine))
    assert code == 3
    assert "mine.toml:2: driver" in err


def requested(monkeypatch, call, *arguments):
    """The request that `image` comes down to."""
    seen = []

    def stop(request, place, engine):
        seen.append(request)
        raise ResolutionError("far enough")

    monkeypatch.setattr(pipeline, "_build_and_test", stop)
    code, _, err = call("image", *arguments)
    return (seen[0] if seen else None), code, err


@pytest.mark.parametrize(
    ("arguments", "cuda", "gpu"),
    [
        ((), "11.8", None),
        (("--gpu", "v100", "--driver", "450.80.02"), "11.8", "v100"),
        (("--gpu", "v100"), "12.8", "v100"),
        (("--target", "pai-gn6v"), "12.8", "v100"),
        (("--target", "laptop"), "cpu", None),
        (("--cuda", "11.7", "--target", "dgx2"), "11.7", "v100"),
    ],
)
def test_image_takes_what_explain_chooses(monkeypatch, call, arguments, cuda, gpu):
    request, _, err = requested(monkeypatch, call, "pyg", *arguments)
    assert (request.cuda, request.gpu) == (cuda, gpu)
    chooses = bool(arguments) and "--cuda" not in arguments
    assert ("the newest of pyg that runs there" in err) == chooses


def test_image_says_what_it_assumes(monkeypatch, call):
    assert "assumed: driver 525.60.13 or newer" in requested(monkeypatch, call, "pyg", "--gpu", "v100")[2]


def test_image_ends_where_nothing_runs(monkeypatch, call):
    request, code, err = requested(monkeypatch, call, "pyg", "--gpu", "v100", "--driver", "418.39")
    assert (request, code) == (None, 4)
    assert "nothing of pyg runs" in err


def usable(cuda, **said):
    words = Said(**said)
    ctx = Context(root=ROOT, environment={})
    recipe = RECIPES["pyg"]
    candidates, out = explain.usable(ctx, recipe, recipe.variant(cuda), words)
    return [candidate.name for candidate in candidates], {one.candidate: one.constraint for one in out}


def test_where_nothing_is_said_every_candidate_will_do():
    assert usable("11.8") == (["pytorch", "compatible"], {})


def test_all_gpus_of_a_list_must_run():
    assert usable("11.8", gpu="v100,a100") == (["pytorch", "compatible"], {})
    assert usable("11.8", gpu="v100, h100") == (
        ["pytorch"],
        {"compatible": "torch 2.0.1 for CUDA 11.7 has no code for H100 (sm_90)"},
    )


def test_what_cannot_run_is_refused_with_what_does():
    with pytest.raises(UsageError) as caught:
        usable("13.0", gpu="a100,v100")
    assert caught.value.what == "CUDA 13.0 of pyg does not run on A100 (sm_80), V100 (sm_70)"
    assert caught.value.cause == "torch 2.12.1 for CUDA 13.0 has no code for V100 (sm_70)"
    assert caught.value.next_step.startswith("make image CUDA=12.8 GPU=a100,v100    (what runs there: 11.6, ")
    with pytest.raises(UsageError, match="does not run on dgx2") as caught:
        usable("12.1", target="dgx2", gpu="v100")
    assert caught.value.next_step.startswith("make image CUDA=11.8 TARGET=dgx2    (what runs there: 11.6, 11.7, 11.8)")


def test_gpus_that_no_torch_has_code_for_together():
    with pytest.raises(UsageError) as caught:
        usable("11.7", gpu="p4,v100,b300")
    assert "B300 (sm_103)" in caught.value.what
    assert "one image for each GPU" in caught.value.next_step


def test_the_torch_of_every_committed_lock_is_known_by_its_bytes():
    for path in LOCKS:
        lock = decode_lock(path.read_bytes())
        build = facts.torch_build(lock.package("torch").version, lock.torch_cuda)
        assert build is not None, path
        assert build.known == "measured", path
        assert build.source.startswith(f"torch-{build.torch}-"), path
        series = tuple(map(int, lock.python.split(".")))
        assert series >= tuple(map(int, build.python.removeprefix(">=").split(".")))[:2], path
        pinned = dict(pin.split("==") for pin in build.pins)
        assert {name: lock.package(name).version for name in pinned} == pinned, path


def test_the_gpus_that_list_names_are_those_that_run_natively():
    pairs = [(recipe, variant) for recipe in RECIPES.values() for variant in recipe.variants]
    for recipe, variant in pairs:
        for candidate in variant.candidates:
            named = set(facts.gpu_names(candidate))
            bare = msgspec.structs.replace(explain.stack_of(recipe, variant, candidate, None), extensions=(), glt="")
            native = {model for model in facts.gpus() if rules.judge(bare, Target(gpus=(model,))).status == "native"}
            assert named == native


def test_a_torch_that_nobody_measured_is_not_known_and_chosen_last():
    recipe = RECIPES["torch"]
    newest = Candidate(name="pypi", channels=recipe.variants[1].candidates[0].channels, torch="99.0", torch_cuda="12.8")
    variant = msgspec.structs.replace(recipe.variant("12.8"), cuda="12.9", candidates=(newest,))
    grown = msgspec.structs.replace(recipe, variants=(*recipe.variants, variant))
    found = explain.explain(grown, Target(gpus=("V100",)), Said(gpu="v100"))
    unknown = next(row for row in found.rows if row.cuda == "12.9")
    assert unknown.verdict.status == "unknown"
    assert explain.headline(unknown, found.target).startswith("not known: which GPUs torch 99.0")
    assert explain.chosen_row(found).cuda == "12.8"
    alone = msgspec.structs.replace(recipe, variants=(variant,))
    assert explain.chosen_row(explain.explain(alone, Target(gpus=("V100",)), Said(gpu="v100"))).cuda == "12.9"


def test_what_the_readme_shows_is_what_explain_says():
    shown = (ROOT / "README.md").read_text().partition("$ ./build.py explain --target dgx2\n")[2].partition("\n$ ")[0]
    told = (GOLDEN / "explain-dgx2.txt").read_text().splitlines()
    assert len(shown.splitlines()) > 5
    assert set(shown.splitlines()) - {"…"} <= set(told)
