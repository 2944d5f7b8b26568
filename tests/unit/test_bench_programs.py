"""The benches that write sections of docs/performance.md: their pure parts, on reports made up here."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import container_cost, programs
from bench.page import PAGE, Section, spread
from bench.programs import Measured, figure, in_words, section
from graphcrate.model.report import SmokeReport
from graphcrate.model.suite import SUITES

VERSIONS = {"torch": "2.3.1+cu121", "pyg": "2.5.3", "torch_sparse": "0.6.18", "graphlearn_torch": "0.2.4"}


def report(suite, status="passed", reason="", **metrics):
    return SmokeReport(suite=suite, status=status, device="cpu", seconds=9.0, metrics=metrics, reason=reason)


# The page


def test_a_section_takes_the_place_of_the_older_one():
    one = Section("one", "bench/one.py")
    page = f"# Title\n{one.begin}old\n{one.end}\n## Next\n"
    assert one.begin == "<!-- one: written by bench/one.py -->\n"
    assert one.put(page, "new\n") == f"# Title\n{one.begin}new\n{one.end}\n## Next\n"
    assert one.put(one.put(page, "new\n"), "old\n") == page


@pytest.mark.parametrize("page", ["", "<!-- one: written by bench/one.py -->\nold\n", "old\n<!-- end of one -->\n"])
def test_a_page_without_its_place_is_told(page):
    with pytest.raises(ValueError, match="no place for the section: <!-- one: written by"):
        Section("one", "bench/one.py").put(page, "new\n")


@pytest.mark.parametrize("bench", [container_cost, programs])
def test_the_page_has_a_place_for_each(bench):
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(bench.SECTION.begin) == page.count(bench.SECTION.end) == 1
    assert bench.SECTION.put(page, "new\n") != page


def test_median_least_and_most():
    assert spread([1.02, 0.99, 1.004]) == "1.004 (0.990 … 1.020)"
    assert spread([2.0], digits=1) == "2.0 (2.0 … 2.0)"


# What a container costs


def test_a_container_is_held_against_outside_round_by_round():
    outside = [container_cost.Figure(1.0, 4.0, 20.0), container_cost.Figure(2.0, 5.0, 30.0)]
    inside = [container_cost.Figure(1.1, 6.0, 21.0), container_cost.Figure(1.8, 7.0, 31.0)]
    lines = container_cost.section({"outside": outside, "docker 28": inside}, "here").splitlines()
    assert lines[0] == "here."
    assert lines[-2:] == [
        "| outside | 1.500 |  | 4.5 | 25.0 |",
        "| docker 28 | 1.450 | 1.000 (0.900 … 1.100) | 6.5 | 26.0 |",
    ]


def test_what_a_shell_says_of_processor_time():
    assert container_cost.seconds("1m2.50s") == 62.5


# The programs


def test_every_program_is_a_suite_s():
    assert set(programs.PROGRAMS) <= set(SUITES)


@pytest.mark.parametrize(
    ("suite", "metrics", "told"),
    [
        ("dna", {"seconds_per_epoch": 0.8}, "0.8 s/epoch"),
        ("ddp", {"iterations_per_second": 12, "seconds_per_epoch": 2.0}, "12 iterations/s"),
        ("glt-distributed", {"iterations_per_second": 9.5}, "9.5 iterations/s"),
    ],
)
def test_each_program_has_its_own_figure(suite, metrics, told):
    assert programs.told(report(suite, **metrics)) == told


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            report("ddp", "failed", "network: rank 1 died", iterations_per_second=3.0),
            "ddp failed: network: rank 1 died",
        ),
        (report("dna"), "dna gives no seconds_per_epoch"),
        (report("ddp", iterations_per_second=0.0), "ddp gives no iterations_per_second"),
        (report("ddp", iterations_per_second="nan"), "ddp gives no iterations_per_second"),
    ],
)
def test_a_run_without_a_figure_ends_the_bench(found, said):
    with pytest.raises(SystemExit, match=said):
        figure(found)


def test_versions_and_backend_are_told():
    assert in_words({"versions": VERSIONS, "backend": "nccl"}) == "torch 2.3.1+cu121, PyG 2.5.3, GLT 0.2.4, nccl"
    assert in_words({"versions": {"torch": "2.13.0"}}) == "torch 2.13.0"
    assert in_words({}) == ""


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
