"""Each sentence about an image has its word, its command and its day; what nothing ran is not shown."""

import msgspec
import pytest

from graphcrate.assembly import why
from graphcrate.compat import proofs
from graphcrate.host.context import Context
from graphcrate.model.contract import ContractFinding
from graphcrate.model.lock import encode
from graphcrate.model.report import Audited, Pass
from graphcrate.smoke import memory
from tests.unit.smoke.test_gate import DIGEST, report, suite
from tests.unit.smoke.test_passes import CLAIM

AUDIT = Audited(binaries=1, fail=0, warn=0, note=0, gpus={"7.0": "native", "8.0": "jit", "9.0": "fails"})


@pytest.fixture
def nowhere(tmp_path):
    return Context(root=tmp_path, environment={})


def said(image, folder, ctx):
    return {(one.word, one.what): (one.by, one.when) for one in why.shown(image, folder, ctx)}


def test_sentences_of_an_image_have_their_word_and_command(tmp_path, nowhere):
    contract = ContractFinding(check="x", title="x", runtimes=("pyxis",), status="fail", seen="no")
    image = report(suites=(suite("dna", device="cpu EPYC", driver="", image=DIGEST),))
    image = msgspec.structs.replace(image, audit=AUDIT, contracts=(contract,), notes=("hash of a.whl: witnesses only",))
    found = said(image, tmp_path, nowhere)
    name = image.image
    assert found["tested", "dna passed on cpu EPYC by graphcrate"] == (f"./build.py test {name} --suite dna", "")
    assert found["expected", "it runs on GPUs of sm_70 and sm_80"] == (f"./build.py audit {name}", "")
    assert ("expected", "Docker, Apptainer and PAI can run it: no contract is broken") in found
    assert found["witnessed", "hash of a.whl: witnesses only"][0] == f"./build.py lock pyg --cuda {image.cuda}"
    assert found["not shown", "that it runs on a GPU"][0] == f"./build.py test {name} on a node with one"
    assert {word for word, _ in found} == {"tested", "expected", "witnessed", "not shown"}


def test_pass_beside_an_image_says_when_where_and_by_which_runtime_it_was_tested(tmp_path, nowhere):
    image = report(suites=())
    claim = msgspec.structs.replace(CLAIM, image=DIGEST, suite="dna", device="2 x Tesla V100", driver="450.80.02")
    claim = msgspec.structs.replace(claim, runtime="apptainer", runtime_version="1.4.5")
    kept = Pass(claim=claim, when="2026-11-20T10:00:00Z", report=suite("dna", device="Tesla V100"))
    (tmp_path / memory.FOLDER).mkdir()
    (tmp_path / memory.FOLDER / "a.json").write_bytes(encode(kept))
    (tmp_path / memory.FOLDER / "damaged.json").write_text("{")
    found = said(image, tmp_path, nowhere)
    what = "dna passed on 2 x Tesla V100, driver 450.80.02 by apptainer 1.4.5"
    assert found["tested", what][1] == "2026-11-20"
    assert ("not shown", "that it runs on a GPU") not in found
    (never,) = (sentence for word, sentence in found if word == "not shown")
    assert "Apptainer" not in never
    assert "pyxis" in never
    other = msgspec.structs.replace(claim, image=f"sha256:{'1' * 64}")
    (tmp_path / memory.FOLDER / "a.json").write_bytes(encode(msgspec.structs.replace(kept, claim=other)))
    assert {word for word, _ in said(image, tmp_path, nowhere)} == {"expected", "not shown"}, "contracts alone"


def test_result_of_the_image_below_and_of_an_emulator_are_not_called_tested(tmp_path, nowhere):
    below = suite("dna", device="cpu", image=f"sha256:{'2' * 64}")
    found = said(report(suites=(below, suite("emulated", device="cpu", image=DIGEST))), tmp_path, nowhere)
    assert {word for word, _ in found} == {"expected", "emulated", "not shown"}


def test_answer_heads_sentences_by_the_meaning_of_their_word(tmp_path, nowhere):
    image = report(suites=(suite("dna", device="cpu EPYC", image=DIGEST),))
    lines = [line for line, _ in why.answer(image, why.shown(image, tmp_path, nowhere)).lines()]
    assert lines[0] == f"{image.image}@{image.digest}"
    assert f"tested: {proofs.WORDS['tested']}" in lines
    assert not any(line.startswith("proved") for line in lines), "a word without a sentence is left out"
