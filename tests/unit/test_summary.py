"""The last lines of a build."""

import msgspec

from graphcrate.build import summary
from graphcrate.model.report import SmokeReport
from tests.unit.test_gate import report

DNA = SmokeReport(
    suite="dna", status="passed", device="cpu", seconds=31.5, metrics={"test_accuracy": 0.844, "epochs": 39}
)
OPS = SmokeReport(suite="ops", status="passed", device="cpu", seconds=3.0)
REPORT = msgspec.structs.replace(report(), suites=(DNA, OPS), layout="dist/pyg/1/oci", bytes=2_650_000_000)


def test_what_was_tested_the_image_and_what_to_type_next():
    name = REPORT.image
    assert list(summary.lines(REPORT, 75.6)) == [
        "tested  dna (accuracy 0.84, 39 epochs) and ops passed on cpu",
        f"image   {name}, 2.65 GB, after 76 s",
        f"mind    no suite of it has run on a GPU yet: ./build.py test {name} on a node with one",
        f"next    ./build.py run {name} -- python …; ./build.py convert {name} --to sif",
    ]


def test_an_image_that_ran_on_a_gpu_and_one_that_was_not_tested():
    on_gpu = msgspec.structs.replace(DNA, device="Tesla V100", driver="535.54.03")
    failed = msgspec.structs.replace(OPS, status="failed")
    lines = list(summary.lines(msgspec.structs.replace(REPORT, suites=(on_gpu, failed)), 1))
    assert lines[0] == "tested  dna (accuracy 0.84, 39 epochs) passed on Tesla V100 and cpu; ops failed"
    assert not any(line.startswith("mind") for line in lines)
    assert [line[:5] for line in summary.lines(msgspec.structs.replace(REPORT, suites=()), 1)] == ["image", "next "]
