"""Trials and jobs in a real Slurm, with the small real image."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import program
from tests.engines.workplace import below, call, finish, until
from tests.pyxis import make_site

pytestmark = [pytest.mark.slow, pytest.mark.engine("slurm", "apptainer build")]

GOLDEN = Path(__file__).resolve().parent.parent / "unit" / "render" / "jobs"
#: stands in for an Apptainer whose programs go on until a file is gone
SLOW = """#!/bin/sh
[ "$1" != --version ] || exec {apptainer} "$@"
touch {begun}
while [ -e {begun} ]; do sleep 0.2; done
"""
#: stands in for an sbatch whose answer takes its time; bash, as dash ends at signals that are held back from it
SLOW_SBATCH = """#!/bin/bash
[ "$1" != --version ] || exec {sbatch} "$@"
{sbatch} "$@"
touch {folder}/accepted
sleep 2
"""


@pytest.fixture
def place(workplace, slurm, scratch):
    """The workplace in this Slurm, with an output folder of its own."""
    return workplace.having(**slurm.environment)


def ask(scratch, *more):
    return ("--runner", "slurm", "--suite", "torch", "--rerun", "--output", scratch / "100 % out", *more)


def test_a_suite_runs_as_a_job_through_apptainer(place, slurm, small_sif, scratch):
    finished = place.run("test", small_sif, *ask(scratch, "--partition", "a100", "--gres", "gpu:1", "--json"))
    told = finished.json
    (suite,) = told["suites"]
    assert (suite["status"], suite["partition"], suite["runtime"]) == ("passed", "a100", "apptainer")
    assert suite["node"] in ("n1", "n2")
    assert suite["job"].isdigit()
    assert "Phase: training on cpu" in finished.err  # its lines came along
    folder = scratch / "100 % out" / "trials" / small_sif.name / "slurm" / "a100-gpu1"
    assert json.loads((folder / "trial.json").read_text()) == told
    assert [path.name for path in (scratch / "100 % out" / "slurm").iterdir()] == [f"{suite['job']}.out"]
    assert slurm.jobs() == []


@pytest.mark.parametrize("by", ["apptainer", "pyxis"])
def test_suite_nccl_spreads_over_two_nodes_of_a_job(place, slurm, small_sqsh, small_sif, scratch, by):
    """Two nodes of one machine: gloo between them, over loopback."""
    here, image = place.having(GLOO_SOCKET_IFNAME="lo"), small_sif
    if by == "pyxis":
        site = make_site(scratch / "site", program("srun"), program("apptainer"), hook=False)
        here = here.having(PATH=site.path)
        image = small_sqsh
    asked = ("--runner", "slurm", "--partition", "a100", "--nodes", "2", "--suite", "nccl", "--output", scratch / "out")
    (suite,) = here.run("test", image, *asked, "--json").json["suites"]
    assert (suite["status"], suite["device"], suite["reason"]) == ("passed", "cpu", "")
    metrics = suite["metrics"]
    assert (metrics["world"], metrics["nodes"], metrics["backend"]) == (4, 2, "gloo")
    assert metrics["rates"]["all_reduce"][-1][0] == 16 << 20
    (drawing,) = scratch.rglob("smoke-nccl.svg")
    assert b"polyline" in drawing.read_bytes()
    if by == "pyxis":
        assert site.containers() == []


def test_what_does_not_exist_is_refused_with_what_does_or_in_slurms_words(place, slurm, small_sif, scratch):
    finished = place.run("test", small_sif, *ask(scratch, "--partition", "v100"))
    assert finished.code == 2
    assert "there is no partition 'v100'; there are a100, closed, dgx2" in finished.err
    finished = place.run("test", small_sif, *ask(scratch, "--partition", "a100", "--gres", "gpu:99"))
    assert finished.code == 7
    assert "Requested node configuration is not available" in finished.err
    assert not list((scratch / "100 % out").rglob("order-*"))
    assert slurm.jobs() == []


def test_a_job_that_never_starts_is_given_up_with_the_reason(place, slurm, small_sif, scratch):
    finished = place.run("test", small_sif, *ask(scratch, "--partition", "closed", "--wait", "0.1"))
    assert finished.code == 7
    assert "did not start within 0.1 min: PartitionDown" in finished.err
    until(lambda: not slurm.jobs() or "CANCELLED" in slurm.ask("squeue", "--states=all", "--format=%T"))
    assert "PENDING" not in slurm.ask("squeue", "--format=%T")


def test_an_interrupt_while_sbatch_answers_takes_the_job_back(place, slurm, small_sif, scratch):
    """As Ctrl-C in a terminal: to the command and to the sbatch that it started."""
    here = with_program(place, scratch, "sbatch", SLOW_SBATCH.format(sbatch=program("sbatch"), folder=scratch))
    process = here.start("test", small_sif, *ask(scratch, "--partition", "closed"))
    until((scratch / "accepted").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process).code == 130
    until(lambda: not slurm.jobs())


def with_program(place, scratch, name, text):
    """The same place with an executable of this text first in its PATH."""
    folder = scratch / "bin"
    folder.mkdir()
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return place.having(PATH=f"{folder}:{os.environ['PATH']}")


def test_node_that_goes_down_is_named_in_the_result(place, slurm, small_sif, scratch):
    begun = scratch / "begun"
    slow = SLOW.format(apptainer=program("apptainer"), begun=begun)
    here = with_program(place, scratch, "apptainer", slow)
    process = here.start("test", small_sif, *ask(scratch, "--partition", "dgx2"))
    until(begun.exists)  # and it does not end by itself
    node = slurm.ask("squeue", "--noheader", "--states=RUNNING", "--format=%N").strip()
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    try:
        finished = finish(process)
    finally:
        with contextlib.suppress(AssertionError):  # it may have come back by itself
            slurm.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
        begun.unlink()
        until(slurm.is_idle)
    assert finished.code == 7
    assert f"ended as NODE_FAIL on {node} (NodeDown)" in finished.err


def test_a_matrix_is_interrupted_and_goes_on(place, slurm, small_sif, scratch):
    other = scratch / "other.sif"
    other.write_bytes(small_sif.read_bytes() + b"\0")  # another file, the same image
    options = ("--matrix", "--partition", "dgx2,a100", "--suite", "torch", "--output", scratch)
    request = ("test", small_sif, other, *options)
    process = place.start(*request)
    until(lambda: len(reports(scratch)) in (1, 2, 3))
    os.kill(process.pid, signal.SIGINT)
    assert finish(process).code == 130
    until(lambda: not slurm.jobs())
    before = reports(scratch)
    cells = place.run(*request, "--json").json["cells"]
    assert [cell["state"] for cell in cells] == ["passed"] * 4
    assert before.items() <= reports(scratch).items()  # those were not run again
    again = place.run(*request)
    assert (again.code, again.out.startswith("4 passed")) == (0, True)
    for report in scratch.rglob("trial.json"):
        report.unlink()  # jobs again, on nodes that remember
    remembered = place.run(*request, "--json").json["cells"]
    assert {cell["job"] for cell in remembered}.isdisjoint(cell["job"] for cell in cells)
    assert all(cell["why"].endswith(", not run again") and cell["suites"][0]["remembered"] for cell in remembered)


def reports(folder):
    """The time of each report."""
    return {path: path.stat().st_mtime_ns for path in below(folder) if path.name == "trial.json"}


NO_TOOLS = {"tools": False, "image": {"NVIDIA_VISIBLE_DEVICES": "all"}}
KINDS = {"hook": {}, "no hook, scope job": {"hook": False, "scope": "job"}, "no tools": NO_TOOLS}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_pyxis_is_taken_where_srun_has_it(place, slurm, small_sqsh, scratch, kind):
    """On nodes without GPUs, with or without NVIDIA's tools and enroot's hooks."""
    site = make_site(scratch / "site", program("srun"), program("apptainer"), **kind)
    void = {"NVIDIA_VISIBLE_DEVICES": "void"} if Path("/dev/nvidiactl").exists() else {}  # else said by itself
    here = place.having(PATH=site.path, **void)
    asked = ask(scratch, "--suite", "torch,ddp", "--partition", "a100", "--json")
    image = scratch / "a.sqsh"  # nothing beside it says that it has no PyG: ddp finds its rank, and ends there
    os.link(small_sqsh, image)
    finished = here.run("test", image, *asked)
    assert finished.code == 10, finished.err
    told = json.loads(finished.out)
    assert told["artifact"]["kind"] == "sqsh"
    first, second = told["suites"]
    assert (first["status"], first["runtime"]) == ("passed", "pyxis")
    assert (second["status"], second["runtime"], second["layer"]) == ("failed", "pyxis", "PyG"), second["reason"]
    ((_, name, opened),) = site.imports()  # once for both
    assert name.endswith(f"_graphcrate-{first['job']}")
    assert opened == told["artifact"]["reference"] == str(image)
    assert site.containers() == []


def test_a_container_that_pyxis_cannot_start_is_told(place, slurm, built_image, scratch):
    site = make_site(scratch / "site", program("srun"), program("apptainer"))
    here = place.having(PATH=site.path, MELLANOX_VISIBLE_DEVICES="all")  # which goes along
    finished = here.run("test", built_image.layout, *ask(scratch, "--partition", "a100"))
    assert finished.code == 7
    assert "pyxis does not start" in finished.err
    assert "99-mellanox.sh exited with return code 1" in finished.err
    assert site.containers() == []


#: stands in for an Apptainer in which suites go on for ever, and nothing else
ENDLESS = """#!/bin/sh
case "$*" in
*/suites/*) touch {begun}; while :; do sleep 0.2; done ;;
esac
exec {apptainer} "$@"
"""


def cancelled(slurm, job):
    slurm.ask("scancel", job)


def killed(slurm, job):
    """Python of the job on its node, as the kernel kills it when memory runs out."""
    found = subprocess.run(["pgrep", "-f", f"slurm_node .*/{job}.json"], check=True, capture_output=True, text=True)
    conf = f"SLURM_CONF={slurm.environment['SLURM_CONF']}"  # another worker's cluster may have a job of this number
    ours = [pid for pid in found.stdout.split() if conf in Path("/proc", pid, "environ").read_text().split("\0")]
    for pid in ours:
        os.kill(int(pid), signal.SIGKILL)
    assert ours


def warned(slurm, job):
    """Its time limit, of more than five minutes, comes near."""
    slurm.ask("scontrol", "update", f"JobId={job}", "TimeLimit=1")


def out_of_time(slurm, job):
    """Its time limit is a minute, which ends now."""
    slurm.ask("scontrol", "update", f"JobId={job}", "EndTime=now")


def step_cancelled(slurm, job):
    """The step of the suite alone, as where its slurmstepd is lost; the job's Python goes on."""
    slurm.ask("scancel", f"{job}.1")


def node_down(slurm, job):
    node = slurm.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")


ENDS = {
    step_cancelled: "could not run the suites: Slurm took the step away: ",
    node_down: "ended as NODE_FAIL",
    cancelled: "ended as CANCELLED",
    killed: "ended as FAILED",
    warned: "could not run the suites: the job's time limit came",
    out_of_time: "ended as TIMEOUT",
}


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_job_that_is_ended_leaves_no_container_and_no_traceback(place, slurm, built_image, scratch, end):
    begun, apptainer = scratch / "begun", scratch / "apptainer"
    apptainer.write_text(ENDLESS.format(begun=begun, apptainer=program("apptainer")))
    apptainer.chmod(0o755)
    site = make_site(scratch / "site", program("srun"), str(apptainer))
    here = place.having(PATH=site.path, NVIDIA_VISIBLE_DEVICES="void")
    limit = ("--time", "1") if end is out_of_time else ()
    process = here.start("test", built_image.layout, *ask(scratch, "--partition", "a100", *limit))
    until(begun.exists)
    (job,) = slurm.jobs()
    assert site.containers() == [f"pyxis_graphcrate-{job}"]
    try:
        end(slurm, job)
        finished = finish(process)
    finally:
        for node in ("n1", "n2") if end is node_down else ():
            with contextlib.suppress(AssertionError):  # it may have come back by itself
                slurm.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
    assert (finished.code, f"job {job} {ENDS[end]}" in finished.err) == (7, True), finished.err
    until(lambda: not slurm.jobs())
    assert site.containers() == []
    told = finished.err + (scratch / "100 % out" / "slurm" / f"{job}.out").read_text()
    assert "Traceback" not in told
    assert "may be left" not in finished.err
    assert not list((scratch / "100 % out" / "slurm").glob("*.container"))


@pytest.mark.parametrize("gpus", ["0", "1"])
def test_the_job_for_pyxis_runs_on_a_node_without_nvidias_tools(place, slurm, small_sqsh, scratch, gpus):
    """One that asks for GPUs says before the image is fetched that there is no driver."""
    site = make_site(scratch / "site", program("srun"), program("apptainer"), **NO_TOOLS)
    here = dataclasses.replace(slurm, environment={**slurm.environment, "PATH": site.path})
    os.link(small_sqsh, scratch / "a.sqsh")
    options = ("--runtime", "pyxis", "--partition", "a100", "--gpus", gpus)
    text = place.run("job", scratch / "a.sqsh", *options, "--command", "python -c 'import torch; print(torch.ones(1))'")
    code, out, err = submit(here, text.out, scratch)
    has_driver = Path("/dev/nvidiactl").exists()
    assert (code, "tensor([1.])" in out) == (0, True) or (has_driver and gpus == "1"), err
    assert ("no driver of NVIDIA on " in err) == (gpus == "1" and not has_driver)


@pytest.mark.parametrize("code", [0, 3])
def test_the_job_for_pyxis_on_two_nodes_ends_as_its_program_does(place, slurm, small_sqsh, scratch, code):
    site = make_site(scratch / "site", program("srun"), program("apptainer"), **NO_TOOLS)
    here = dataclasses.replace(slurm, environment={**slurm.environment, "PATH": site.path})
    os.link(small_sqsh, scratch / "a.sqsh")
    options = ("--runtime", "pyxis", "--partition", "dgx2", "--nodes", "2", "--gpus", "0")
    text = place.run(
        "job", "./a.sqsh", *options, "--command", f"sh -c 'echo $SLURM_NODEID of $WORLD_SIZE; exit {code}'"
    )
    ended, out, err = submit(here, text.out, scratch)
    # the first that fails may end the other before it speaks
    assert (ended == 0, {*out.splitlines()} <= {"0 of 2", "1 of 2"}, site.containers()) == (code == 0, True, []), err
    assert len(out.splitlines()) == 2 or code
    assert ("may be left" in err, "is removed" in err) == (False, code != 0)
    assert ("without InfiniBand the nodes talk TCP" in err) == (not Path("/dev/infiniband/rdma_cm").exists())


@pytest.mark.parametrize("end", [warned, cancelled], ids=lambda end: end.__name__)
def test_the_job_for_pyxis_on_two_nodes_leaves_no_container_when_it_is_ended(place, slurm, small_sqsh, scratch, end):
    """Before its end is said where one may be, as Slurm kills a job that takes its time; then that it is removed."""
    site = make_site(scratch / "site", program("srun"), program("apptainer"), **NO_TOOLS)
    os.link(small_sqsh, scratch / "a.sqsh")
    options = ("--runtime", "pyxis", "--partition", "dgx2", "--nodes", "2", "--gpus", "0", "--time", "30")
    text = place.run("job", "./a.sqsh", *options, "--command", "sh -c 'touch begun-$SLURM_NODEID; sleep 600'").out
    (scratch / "job.sbatch").write_text(text)
    environment = {**os.environ, **slurm.environment, "PATH": site.path}
    submitted = [program("sbatch"), "--parsable", "job.sbatch"]
    done = subprocess.run(submitted, cwd=scratch, env=environment, capture_output=True, encoding="utf-8", check=True)
    job = done.stdout.strip()
    until(lambda: len(list(scratch.glob("begun-*"))) == 2)
    assert len(site.containers()) == 2
    end(slurm, job)
    until(lambda: not slurm.jobs())
    told = (scratch / f"{job}.err").read_text()
    assert site.containers() == [], told
    assert f"pyxis_{job}.0 may be left on n[1-2]: srun --partition=dgx2 --nodelist=n[1-2] " in told
    assert told.splitlines()[-1].endswith(f"pyxis_{job}.0 is removed")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sbatch")), ids=lambda path: path.name)
def test_slurm_would_take_each_reviewed_job(slurm, path, scratch):
    text = path.read_text().replace("#SBATCH --account=acct-gnn\n", "")  # sites alone have accounts
    (scratch / path.name).write_text(text)
    slurm.ask("sbatch", "--test-only", scratch / path.name)


def submit(slurm, text, folder):
    """Submit a job as a user does, wait for its end, and return its state and output."""
    (folder / "job.sbatch").write_text(text)
    environment = {**os.environ, **slurm.environment}
    job = call(program("sbatch"), "--parsable", "job.sbatch", environment=environment, folder=folder).strip()
    return slurm.ended(job), (folder / f"{job}.out").read_text(), (folder / f"{job}.err").read_text()


def test_a_job_on_two_nodes_gives_each_process_its_rank(place, slurm, small_sif, scratch):
    names = '("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")'
    show = f"python -c 'import os; print(*(os.environ[n] for n in {names}))'"
    options = ("--partition", "dgx2", "--nodes", "2", "--gpus", "2", "--per-gpu", "--command", show)
    code, out, err = submit(slurm, place.run("job", small_sif, "--runtime", "singularity", *options).out, scratch)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["0 0 4 n1", "1 1 4 n1", "2 0 4 n1", "3 1 4 n1"]
