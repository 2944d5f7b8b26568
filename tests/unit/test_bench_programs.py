"""The benches that write sections of docs/performance.md: their pure parts, on reports made up here."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (report("dna", seconds_per_epoch=0.8), "0.8 s/epoch"),
        (report("ddp", iterations_per_second=12, seconds_per_epoch=2.0), "12 iterations/s"),
        (report("glt-distributed", iterations_per_second=9.5), "9.5 iterations/s"),
        (
            report("ddp", "failed", "rank 1 died", iterations_per_second=3.0),
            "ddp failed: rank 1 died",
        ),
        (report("dna"), "dna gives no seconds_per_epoch"),
        (report("ddp", iterations_per_second=0.0), "ddp gives no iterations_per_second"),
        (report("ddp", iterations_per_second="nan"), "ddp gives no iterations_per_second"),
    ],
)
def test_each_program_has_its_own_figure_and_a_run_without_one_ends_the_bench(found, told):
    assert set(programs.PROGRAMS) <= set(SUITES)
    if told[0].isdigit():
        assert programs.told(found) == told
    else:
        with pytest.raises(SystemExit, match=told):
            programs.told(found)


@pytest.fixture
def ran(monkeypatch):
    """What was run where in an image whose recipe has a suite without a figure, on a machine with a GPU."""
    done = []

    def run_suite(name, inside, folder, *, say, device, packages):
        done.append((inside, name, device, packages))
        return report(name, seconds_per_epoch=0.1 * len(done), iterations_per_second=float(len(done)))

    runner = SimpleNamespace(
        runtime=lambda environment: None,
        opened=lambda artifact, **more: contextlib.nullcontext(artifact.reference),
    )
    artifact = SimpleNamespace(kind="layout", reference="an image")
    trial = SimpleNamespace(artifact=artifact, suites=("dna", "ops", "ddp"), packages=("torch",))
    monkeypatch.setattr(programs.artifact, "find", lambda *words: trial)
    monkeypatch.setattr(programs.backend, "runner", {"layout": runner}.__getitem__)
    monkeypatch.setattr(programs.smoke, "run_suite", run_suite)
    monkeypatch.setattr(programs.gpu, "device", lambda environment, on_gpu: "a GPU" if on_gpu else "a CPU")
    return done


PLACE = SimpleNamespace(
    environment={}, progress=None, cache=SimpleNamespace(folder=lambda: contextlib.nullcontext(Path("scratch")))
)


@pytest.mark.parametrize(("on_gpu", "devices"), [(False, ["cpu"]), (True, ["cuda", "cpu"])])
def test_every_suite_with_a_figure_runs_on_every_device_in_turn(on_gpu, devices, ran, capsys):
    given = SimpleNamespace(runner="embedded", output=Path("dist"), rounds=2)
    found = programs.measured("pyg:1", given, PLACE, on_gpu)
    turn = [("an image", suite, device, ("torch",)) for suite in ("dna", "ddp") for device in devices]
    assert ran == turn * 2
    words = {"cuda": "a GPU", "cpu": "a CPU"}
    assert [one[:3] for one in found] == [("pyg:1", suite, words[device]) for _, suite, device, _ in turn]
    assert all(len(one.reports) == 2 for one in found)
    assert "round 2 of 2: pyg:1: ddp on cpu: " in capsys.readouterr().err


def test_an_image_without_such_a_suite_is_told(ran, monkeypatch):
    torch = SimpleNamespace(suites=("torch",), packages=())
    monkeypatch.setattr(programs.artifact, "find", lambda *words: torch)
    with pytest.raises(SystemExit, match="torch:1 is tested by torch, and none of them has a figure"):
        programs.measured("torch:1", SimpleNamespace(runner="embedded", output=Path("dist"), rounds=1), PLACE, False)


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
