"""The benches that write sections of docs/performance.md: their pure parts, on reports made up here."""

import pytest

from bench import container_cost, programs
from bench.page import PAGE, Section
from bench.programs import Measured, section
from graphcrate.model.report import SmokeReport
from graphcrate.model.suite import SUITES

VERSIONS = {"torch": "2.3.1+cu121", "pyg": "2.5.3", "torch_sparse": "0.6.18", "graphlearn_torch": "0.2.4"}


def report(suite, status="passed", reason="", **metrics):
    return SmokeReport(suite=suite, status=status, device="cpu", seconds=9.0, metrics=metrics, reason=reason)


def test_a_section_takes_the_place_of_the_older_one():
    one = Section("one", "bench/one.py")
    page = f"# Title\n{one.begin}old\n{one.end}\n## Next\n"
    assert one.put(page, "new\n") == page.replace("old", "new")
    for broken in ("", page.replace(one.begin, ""), page.replace(one.end, "")):
        with pytest.raises(ValueError, match="no place for the section: <!-- one: written by bench/one"):
            one.put(broken, "new\n")
    for bench in (container_cost, programs):
        text = PAGE.read_text(encoding="utf-8")
        assert text.count(bench.SECTION.begin) == text.count(bench.SECTION.end) == 1


def test_a_container_is_held_against_outside_round_by_round():
    outside = [container_cost.Figure(1.0, 4.0, 20.0), container_cost.Figure(2.0, 5.0, 30.0)]
    inside = [container_cost.Figure(1.1, 6.0, 21.0), container_cost.Figure(1.8, 7.0, 31.0)]
    lines = container_cost.section({"outside": outside, "docker 28": inside}, "here").splitlines()
    assert lines[0] == "here."
    assert lines[-2:] == [
        "| outside | 1.500 |  | 4.5 | 25.0 |",
        "| docker 28 | 1.450 | 1.000 (0.900 … 1.100) | 6.5 | 26.0 |",
    ]
    assert container_cost.seconds("1m2.50s") == 62.5


def test_each_program_has_its_own_figure():
    assert set(programs.PROGRAMS) <= set(SUITES)
    assert programs.told(report("dna", seconds_per_epoch=0.8)) == "0.8 s/epoch"
    assert programs.told(report("ddp", iterations_per_second=12, seconds_per_epoch=2.0)) == "12 iterations/s"
    assert programs.told(report("glt-distributed", iterations_per_second=9.5)) == "9.5 iterations/s"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (report("ddp", "failed", "rank 1 died", iterations_per_second=3.0), "ddp failed: rank 1 died"),
        (report("dna"), "dna gives no seconds_per_epoch"),
        *((report("ddp", iterations_per_second=value), "ddp gives no iterations_per_second") for value in (0.0, "nan")),
    ],
)
def test_a_run_without_its_figure_ends_the_bench(found, words):
    with pytest.raises(SystemExit, match=words):
        programs.told(found)


def test_the_table_has_a_row_for_each_image_program_and_device():
    runs = tuple(
        report("ddp", iterations_per_second=value, versions=VERSIONS, backend="nccl") for value in (30, 10, 20)
    )
    text = section("today", [Measured("glt:1", "ddp", "2 x NVIDIA A100-SXM4-40GB", runs)])
    assert text == (
        "today.\n\n| image | with | program | device | median (least … most) |\n|---|---|---|---|---|\n"
        "| `glt:1` | torch 2.3.1+cu121, PyG 2.5.3, GLT 0.2.4, nccl | `ddp.py`, 2 processes "
        "| 2 x NVIDIA A100-SXM4-40GB | 20.000 (10.000 … 30.000) iterations/s |\n"
    )
