"""GPUs of each CUDA version: lists, the catalogue, the picture and `explain` say what an image's audit says."""

import json
import re

import pytest

from graphcrate.compat.facts import gpu_table
from graphcrate.compat.variants import explain, support
from graphcrate.compat.variants.targets import MachineRequest, Target
from graphcrate.model.lock_proof import decode_proof
from tests import ROOT
from tests.made import KNOWN, RECIPES
from tools import pictures

MAPS = {name: support.support(recipe) for name, recipe in RECIPES.items()}
CELLS = [(name, row, cuda) for name, found in MAPS.items() for row in found.rows for cuda in found.drivers]
PROOFS = [decode_proof(path.read_bytes()) for path in sorted((ROOT / "images").glob("*/*/*.proof.json"))]


def row_of(name, capability):
    return next(row for row in MAPS[name].rows if row.capability == capability)


def test_gpu_without_code_in_the_extensions_is_marked_built():
    rows = {name: support.support(KNOWN[name]).rows for name in ("pyg", "torch")}
    by_capability = {name: {row.capability: row.cells for row in found} for name, found in rows.items()}
    cells = by_capability["pyg"]["6.0"]
    assert {cuda: cell.mark for cuda, cell in cells.items()} == {
        **dict.fromkeys(("13.0", "12.8"), "rejected"),
        **dict.fromkeys(("12.6", "12.1", "11.8", "11.7", "11.6"), "built"),
    }
    assert "are compiled for 7.0, 8.0" in cells["11.8"].why
    assert {cell.mark for cell in by_capability["torch"]["6.0"].values()} == {"native", "rejected"}
    assert [by_capability["pyg"][capability]["11.8"].mark for capability in ("9.0", "7.0")] == ["jit", "native"]


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: f"{proof.recipe}-{proof.cuda}-{proof.candidate}")
def test_gpu_map_agrees_with_the_audits_of_proofs(proof):
    """Of the candidates that a cell names, this one; what only another runs is not this one's."""
    for capability, status in proof.gpus.items():
        cell = row_of(proof.recipe, capability).cells[proof.cuda]
        assert (cell.runs and proof.candidate in cell.ways) == (status in ("native", "jit")), capability


@pytest.mark.parametrize(("name", "row", "cuda"), CELLS, ids=lambda value: getattr(value, "capability", value))
def test_gpu_map_agrees_with_explain(name, row, cuda):
    model = row.models[0]
    judged = explain.explain(RECIPES[name], Target(gpus=(model,)), MachineRequest(gpu=model)).rows
    rows = [one for one in judged if one.cuda == cuda]
    cell = row.cells[cuda]
    assert (cell.mark != "rejected") == any(one.verdict.accepted for one in rows)
    assert (cell.mark == "built") == (cell.mark != "rejected" and all(one.plain == "rejected" for one in rows))


def test_explain_shows_the_gpu_option_for_each_cuda_to_be_built(typed, context):
    (context.root / "recipes").symlink_to(ROOT / "recipes")
    _, out, _ = typed("explain", "--gpu", "p100")
    running = [line for line in out.splitlines() if re.match(r"CUDA \S+  .* runs natively", line)]
    assert len(running) == 6
    chosen, *others = running  # its command is the answer, above the table
    assert re.search(r"^CUDA 12\.6: chosen, .* GPU=p100$", out, re.MULTILINE)
    assert "chosen" in chosen
    assert [line for line in others if "GPU=p100" not in line] == []


def test_list_json_and_the_matrix_picture_agree_with_the_gpu_map(typed, context):
    """`list --json` by candidate, and the picture in README."""
    (context.root / "recipes").symlink_to(ROOT / "recipes")
    rows = [one for one in json.loads(typed("list", "--json")[1]) if one["cuda"] != "cpu"]
    for one in rows:
        for model, capability in gpu_table.gpus().items():
            cell = row_of(one["recipe"], capability).cells[one["cuda"]]
            assert (model in one["gpus"]) == (cell.runs and one["candidate"] in cell.ways)
            if cell.mark == "built":
                assert (model in one["gpus_when_built_for"]) == (one["candidate"] in cell.ways)
    drawn = dict(pictures.pictures())[ROOT / "docs/pictures/matrix.svg"]
    assert "P100 …, CUDA 11.8: runs when built for it: GPU=" in drawn
    assert len(re.findall("<title>[^<]*: runs when built for it", drawn)) == sum(
        cell.mark == "built" for row in MAPS["pyg"].rows for cell in row.cells.values()
    )
