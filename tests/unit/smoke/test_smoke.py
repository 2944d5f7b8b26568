import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof.verdict import Layer

from graphcrate.host.process import Completed
from graphcrate.host.sandbox.gpu import HostGpu
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.suite import SUITES
from graphcrate.smoke import suites
from graphcrate.smoke import verdict as judging

VERDICT = {"suite": "dna", "status": "passed", "device": "cpu", "layer": None, "phase": "judging", "reason": ""}
VERDICT |= {"epochs": 39, "epochs_planned": 200, "stopped": "proven", "seconds": 31.5}
VERDICT |= {
    "metrics": {"accuracy_band": [0.75, 0.95], "test_accuracy": 0.84, "first_loss": 1.9, "last_loss": 0.9},
    "versions": {"torch": "2.0.1", "torch_cuda": "11.7", "pyg": "2.3.1"},
}
CURVE = ("Phase: importing torch", "Phase: training on cpu", "Epoch: 010, Loss: 1.7, Train: 0.3, Val: 0.3, Test: 0.3")


def line(**changes):
    return json.dumps({**VERDICT, **changes})


class Inside:
    """Says its lines and ends; remembers how it was called; draws when asked to."""

    def __init__(self, *lines, returncode=0, error=None, drawing=b"<svg/>"):
        self.lines, self.returncode, self.error, self.drawing = lines, returncode, error, drawing

    def run(self, command):
        argv = self.argv = command.argv
        self.environment, self.timeout, self.gpu = command.environment, command.timeout, command.gpu
        for each in self.lines:
            command.on_line(each)
        if self.error:
            raise self.error
        (bind,) = command.binds
        assert (bind.target, bind.read_only) == ("/out", False)
        if "--curve" in argv and self.drawing:
            (bind.source / argv[argv.index("--curve") + 1].removeprefix("/out/")).write_bytes(self.drawing)
        return Completed(self.returncode, self.lines[-200:])


@pytest.fixture(autouse=True)
def gpus(monkeypatch):
    there = []
    monkeypatch.setattr(suites.gpu, "detect", lambda: HostGpu(devices=tuple(there)))
    return there


def run_dna(inside, folder, say=print, device="auto"):
    on_gpu = suites.runs_on_gpu(device)
    return suites.run(suites.suite("dna", on_gpu=on_gpu), inside, folder, say=say, on_gpu=on_gpu)


def judged(*lines, returncode=0, on_gpu=False):
    return suites.judge_output("dna", lines, returncode, 33.0, on_gpu=on_gpu)


def test_passing_suite_gives_a_report_a_log_and_a_curve(tmp_path):
    inside, said = Inside(*CURVE, line()), []
    report = run_dna(inside, tmp_path / "image", say=said.append)
    assert (report.suite, report.status, report.device, report.reason) == ("dna", "passed", "cpu", "")
    figures = {name: VERDICT[name] for name in ("epochs", "epochs_planned", "stopped", "versions")}
    assert report.metrics == {**VERDICT["metrics"], **figures}
    assert said == [f"  | {each}" for each in CURVE]
    written = {path.name: path.read_text() for path in (tmp_path / "image").iterdir()}
    assert written == {"smoke-dna.log": "\n".join([*CURVE, line(), ""]), "smoke-dna.svg": "<svg/>"}


def test_suite_on_several_nodes_shares_a_folder_that_all_see(tmp_path):
    """Their temporary files are their own."""
    program = suites.suite("nccl", on_gpu=False, nodes=2)
    assert "--per-node" in program.argv
    assert "--per-node" not in suites.suite("nccl", on_gpu=False).argv
    seen = []

    class Nodes(Inside):
        def run(self, command):
            seen.append((command.nodes, command.network, command.binds[0].source.parent))
            return super().run(command)

    verdict = json.dumps({**VERDICT, "suite": "nccl", "metrics": {}})
    report = suites.run(program, Nodes(verdict), tmp_path, say=print, on_gpu=False)
    assert (report.status, seen) == ("passed", [(2, True, tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["smoke-nccl.log", "smoke-nccl.svg"]


def test_ddp_on_several_nodes_is_another_proof_than_on_one():
    alone, spread = (suites.suite("ddp", on_gpu=False, nodes=nodes) for nodes in (1, 2))
    assert ("--per-node" in alone.argv, "--per-node" in spread.argv) == (False, True)
    assert (alone.version, spread.version) == ("ddp 1.1", "ddp 1.1 on 2 nodes")
    assert (alone.inherits, "GLOO_" in spread.inherits) == ((), True)


def test_curve_that_is_a_symlink_is_not_copied(tmp_path):
    """Else an image could have a file of the host copied beside it, and published."""
    (tmp_path / "secret").write_text("the host's")

    class Linking(Inside):
        def run(self, command):
            (bind,) = command.binds
            (bind.source / "dna.svg").symlink_to(tmp_path / "secret")
            self.drawing = None
            return super().run(command)

    run_dna(Linking(*CURVE, line()), tmp_path / "image")
    assert {path.name for path in (tmp_path / "image").iterdir()} == {"smoke-dna.log"}


@pytest.mark.parametrize(
    ("there", "device", "on_gpu"),
    [([], "auto", False), (["/dev/nvidia0"], "auto", True), (["/dev/nvidia0"], "cpu", False)],
)
def test_suite_on_gpu_runs_all_epochs_and_on_cpu_until_proven(tmp_path, gpus, there, device, on_gpu):
    gpus += there
    said = "Tesla V100" if on_gpu else "cpu"
    inside = Inside(line(device=said, sm="sm_70"))
    report = run_dna(inside, tmp_path, device=device)
    assert (report.status, report.device, report.metrics["sm"]) == ("passed", said, "sm_70")
    assert inside.argv[:2] == ["/opt/venv/bin/python", "/opt/graphcrate/suites/dna.py"]
    assert inside.argv[inside.argv.index("--device") + 1] == ("cuda" if on_gpu else "cpu")
    assert inside.timeout > float(inside.argv[inside.argv.index("--limit") + 1])
    assert inside.gpu is on_gpu
    shares_the_machine = {"OMP_WAIT_POLICY": "PASSIVE", "MKL_CBWR": "COMPATIBLE"}.items() <= inside.environment.items()
    assert shares_the_machine is ("--until-proven" in inside.argv) is not on_gpu


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "Tesla V100", "gpu", "CPU", "cpu "])
def test_suite_that_was_given_no_gpu_and_names_one_has_failed(tmp_path, device):
    report = run_dna(Inside(line(device=device)), tmp_path)
    assert (report.status, report.device) == ("failed", "cpu")
    assert "it was given no GPU" in report.reason


def test_failed_suite_keeps_its_reason_and_removes_the_old_curve(tmp_path):
    (tmp_path / "smoke-dna.svg").write_text("old")
    reason = "extension: torch_scatter 2.1.2 cannot be imported: undefined symbol (while importing torch_scatter 2.1.2)"
    inside = Inside(*CURVE, line(status="failed", reason=reason), returncode=1, drawing=None)
    report = run_dna(inside, tmp_path)
    assert (report.status, report.reason) == ("failed", reason)
    assert not (tmp_path / "smoke-dna.svg").exists()


def test_hanging_suite_fails_with_its_phase_and_a_host_error_is_raised(tmp_path):
    inside = Inside(*CURVE, error=BuildError("python dna.py did not finish within 1830 s and was ended"))
    report = run_dna(inside, tmp_path)
    assert (report.status, report.layer) == ("failed", "machine")
    assert report.reason.startswith("machine: python dna.py did not finish within 1830 s")
    assert "while training on cpu" in report.reason
    assert "1830" in (tmp_path / "smoke-dna.log").read_text()
    with pytest.raises(HostError, match="namespaces"):
        run_dna(Inside(error=HostError("no user namespaces")), tmp_path)


def band(**metrics):
    return line(metrics={**VERDICT["metrics"], **metrics})


FAILING = line(status="failed", layer="extension", reason="extension: torch_sparse cannot be imported (while …)")
CRASHING = (*CURVE[:1], "Phase: importing torch_scatter 2.1.2 (extension)", "Fatal Python error: Segmentation fault")


@pytest.mark.parametrize(
    ("lines", "returncode", "layer", "seen"),
    [
        ((), 1, "", "no output"),
        (("Traceback", "ImportError: libcupti.so.12"), 1, "", "libcupti.so.12"),
        ((line(metrics=[]),), 0, "", "cannot be read"),
        ((line(status="fine"),), 0, "", "cannot be read"),
        ((line().replace("0.84", "NaN"),), 0, "", "cannot be read"),
        ((line(), line()[:-9]), 0, "", "cannot be read"),
        ((line(suite="torch"),), 0, "", "'torch'"),
        (CURVE, 139, "", "SIGSEGV; an extension built for another torch"),  # programs of older images name no suspect
        (CURVE, -11, "", "SIGSEGV"),
        (CURVE, 137, "machine", "memory"),
        (CURVE, 3, "", "exit code 3 while training on cpu"),
        (CRASHING, 139, "extension", "SIGSEGV"),  # what was under way is suspected
        (CRASHING, -9, "machine", "SIGKILL"),  # the signal says more
        (CRASHING, -7, "extension", "SIGBUS"),  # a file that is cut off, not memory
        (("Phase: training on cpu (torch)",), 135, "machine", "/dev/shm"),
        (("Phase: training on cpu (odd)",), 134, "", "SIGABRT"),
        ((*CRASHING, line()), 139, "extension", "said passed, then it was ended by SIGSEGV"),
        # the program's word is not enough
        ((*CURVE, band(test_accuracy=0.31)), 0, "training", "0.31 is outside"),
        ((*CURVE, band(test_accuracy=0.99)), 0, "training", "0.99 is outside"),
        ((*CURVE, band(test_accuracy=None)), 0, "training", "None is outside"),
        ((*CURVE, band(accuracy_band=[0.5])), 0, "training", "is outside"),
        ((*CURVE, band(accuracy_band="wide")), 0, "training", "is outside"),
        ((*CURVE, line(status="failed", reason="")), 1, "", "gives no reason"),
        ((FAILING,), 1, "extension", "torch_sparse cannot be imported"),
        ((line(status="failed", reason="odd"),), 1, "", "odd"),
    ],
)
def test_suite_without_a_verdict_or_with_an_exit_code_fails_with_its_layer(lines, returncode, layer, seen):
    report = judged(*lines, returncode=returncode)
    assert (report.status, report.layer, seen in report.reason) == ("failed", layer, True), report
    named = [each for each in judging.LAYERS if report.reason.startswith(f"{each}: ")]
    assert named == [layer][: bool(layer)]
    assert f"{layer}: {layer}: " not in report.reason


def test_suite_on_cpu_beside_a_gpu_fails_as_driver():
    report = judged(line(), on_gpu=True)
    assert (report.status, report.layer) == ("failed", "driver")
    assert "ran on the CPU although there is a GPU" in report.reason
    assert judged(line()).layer == ""


def test_judged_layers_are_those_of_the_suite_programs():
    assert {layer.value for layer in Layer} == set(judging.LAYERS)


def test_verdict_without_a_band_or_followed_by_other_output_passes():
    verdict = line(metrics={"last_loss": 0.001})
    assert judged(*CURVE, verdict, "terminate called without an active exception").status == "passed"


@given(st.integers(min_value=1, max_value=len(line()) - 1))
def test_truncated_verdict_fails(length):
    assert judged(*CURVE, line()[:length]).status == "failed"


@given(st.lists(st.text() | st.just('{"suite"') | st.just("Phase: "), max_size=5), st.integers(-64, 255))
def test_garbage_output_fails_with_a_reason(lines, returncode):
    report = judged(*lines, returncode=returncode)
    assert report.status == "failed"
    assert report.reason


def test_ops_command_requires_the_extensions_of_the_image():
    def argv(name, *packages):
        return suites.command(SUITES[name], name, on_gpu=False, limit=60, packages=packages)

    packages = ("torch", "torch-sparse", "torch-scatter")
    assert argv("ops", *packages)[-2:] == ["--require", "torch_scatter,torch_sparse"]
    assert "--require" not in argv("ops", "torch") + argv("dna", *packages)
