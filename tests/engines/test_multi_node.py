"""multi_node.py in a small real image with PyG: as a suite, under a real Slurm, by torchrun, and when things go wrong.

docs/tutorials/multi-node.md is typed as it is written, with nodes that have no GPUs; Apptainer stands in for pyxis.
"""

import json
import os
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT, program
from tests.engines.ports import free_ports
from tests.engines.typist import Typist, blocks, make_pyg_sif, untyped
from tests.engines.workplace import pyg_stack
from tests.pyxis import make_site

PAGE = ROOT / "docs" / "tutorials" / "multi-node.md"
PROGRAM = "/opt/graphcrate/examples/multi_node.py"
#: the processors here are few, and four processes wait for each other
THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
#: compares batches of the sampler in plain torch with the graph, edge by edge
SAMPLES = """
import sys
sys.path.insert(0, "/opt/graphcrate/examples")
import torch
from proof import data, graphs, sampling
graph = data.from_graph(graphs.generate())
edges = set(map(tuple, graph.edge_index.t().tolist()))
degrees = torch.bincount(graph.edge_index[1], minlength=len(graph.y)).tolist()
random = torch.Generator().manual_seed(1)
for fan_outs in ([50, 50], [3, 2], [200, 200]):
    sampler = sampling.Sampler(graph, fan_outs)
    for _ in range(10):
        seeds = torch.randperm(len(graph.y), generator=random)[:64]
        batch = sampler.batch(seeds, random)
        nodes = batch.n_id.tolist()
        drawn = [(nodes[a], nodes[b]) for a, b in batch.edge_index.t().tolist()]
        assert nodes[:64] == seeds.tolist() and len(set(nodes)) == len(nodes)
        assert len(set(drawn)) == len(drawn) and set(drawn) <= edges
        assert torch.equal(batch.x, graph.x[nodes]) and torch.equal(batch.y, graph.y[nodes])
        came = {}
        for source, target in drawn:
            came.setdefault(target, []).append(source)
        frontier, seen = set(nodes[:64]), set(nodes[:64])
        for fan_out in fan_outs:
            got = {node: came.pop(node, []) for node in frontier}
            assert all(len(sources) == min(fan_out, degrees[node]) for node, sources in got.items())
            frontier = {source for sources in got.values() for source in sources} - seen
            seen |= frontier
        assert not came and seen == set(nodes)
first, second = (sampler.batch(torch.arange(10), torch.Generator().manual_seed(3)) for _ in range(2))
assert torch.equal(first.n_id, second.n_id)
print("as the graph has it")
"""

pytestmark = [pytest.mark.weekly, pytest.mark.engine("slurm", "apptainer build")]


def verdict(output):
    return json.loads(next(line for line in reversed(output.splitlines()) if line.startswith('{"suite"')))


def passed(output, world, how, backend="gloo"):
    """The verdict of a training that went well: rank 0's, the only one."""
    told = verdict(output)
    assert sum(line.startswith('{"suite"') for line in output.splitlines()) == 1
    assert told["status"] == "passed", output
    assert (told["world"], told["backend"], told["started_by"]) == (world, backend, how)
    assert told["metrics"]["gradient_error"] < 1e-5
    assert told["metrics"]["iterations_per_second"] > 0
    return told


def typist(workplace, pyg_image, slurm, environment=None):
    surroundings = {"GRAPHCRATE_CACHE": str(workplace.cache), **workplace.environment, **slurm.environment, **THREADS}
    changes = [("<tag>", pyg_image.report["tag"])]
    return Typist(workplace.folder, {**surroundings, **(environment or {})}, changes)


@pytest.fixture(scope="module")
def files(workplace, pyg_image, slurm):
    """A typist in a folder with pyg.sif and pyg.sqsh, as the page's first commands leave it."""
    for path in (*workplace.folder.glob("dist/pyg/*/pyg.sif"), *workplace.folder.glob("pyg.s*")):
        path.unlink(missing_ok=True)
    user = typist(workplace, pyg_image, slurm)
    ((make, convert),) = blocks(PAGE, "Get the image")
    assert user.type(make, ("make sif CUDA=11.8", make_pyg_sif())).endswith("/pyg.sif\n")
    user.type(convert)
    return user


def submitted(user, command):
    """Type an sbatch, wait for the job, and return what it printed."""
    number = user.type(command, ("sbatch ", "sbatch --parsable --wait ")).strip()
    return (user.folder / f"{number}.out").read_text()


# As the page has it


def test_the_suite_in_the_image(workplace, pyg_image):
    told = workplace.run("test", pyg_image.layout, "--suite", "ddp", "--json")
    (suite,) = told.json["suites"]
    assert (suite["suite"], suite["status"], suite["device"], suite["reason"]) == ("ddp", "passed", "cpu", "")
    assert suite["metrics"]["all_reduce"] == "gloo over 2"
    assert suite["metrics"]["sampler"] == "own"  # no extension is installed that samples


def test_the_sampler_in_plain_torch_brings_what_the_graph_has(files):
    (files.folder / "samples.py").write_text(SAMPLES)
    assert files.type("singularity run pyg.sif python samples.py") == "as the graph has it\n"


def test_on_one_machine(files):
    (start,), (torchrun,) = blocks(PAGE, "On one machine first")
    told = passed(files.type(start), 2, "--ranks on one machine")
    low, high = told["metrics"]["accuracy_band"]
    assert low <= told["metrics"]["test_accuracy"] <= high
    again = passed(files.type(torchrun), 2, "torchrun")
    assert again["metrics"]["test_accuracy"] == pytest.approx(told["metrics"]["test_accuracy"], abs=0.02)


def test_slurm_with_singularity(files, pyg_image):
    (job,), (write,), (run,) = blocks(PAGE, "Slurm with Singularity")
    files.type(write)
    script = (files.folder / "examples" / "slurm" / "multi_node_singularity.sbatch").read_text()
    assert (files.folder / "multi_node.sbatch").read_text() == script
    told = passed(submitted(files, job), 4, "RANK and MASTER_ADDR under srun")
    assert told["hosts"] == ["n1", "n2"]
    told = passed(files.type(run), 2, "srun")
    assert told["hosts"] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ({}, "RANK and MASTER_ADDR under srun"),
        ({"hook": False}, "srun"),
        ({"hook": False, "scope": "job"}, "srun"),
    ],
    ids=["hook", "no hook", "no hook, scope job"],
)
def test_slurm_with_pyxis(workplace, pyg_image, slurm, files, scratch, kind, how):
    site = make_site(scratch / "site", program("srun"), program("apptainer"), **kind)
    user = typist(workplace, pyg_image, slurm, {"PATH": site.path})
    session, (job,), (write,) = blocks(PAGE, "Slurm with pyxis")
    told = passed(user.type("\n".join(session)), 2, how)
    assert told["hosts"] == ["n1", "n2"]
    assert site.containers() == []  # no later image can be mistaken for this one
    user.type(write)
    script = (user.folder / "examples" / "slurm" / "multi_node_pyxis.sbatch").read_text()
    assert (user.folder / "multi_node.sbatch").read_text() == script
    passed(submitted(user, job), 4, "RANK and MASTER_ADDR under srun")
    assert site.containers() == []
    assert len(site.imports()) == 4  # once on each node, of the session and of the job


def test_the_suite_where_pyxis_has_no_hook(workplace, pyg_image, slurm, scratch):
    site = make_site(scratch / "site", program("srun"), program("apptainer"), hook=False)
    here = replace(workplace, environment={**workplace.environment, **slurm.environment, "PATH": site.path})
    ask = ("--runner", "slurm", "--partition", "a100", "--suite", "ddp", "--rerun", "--output", scratch)
    (suite,) = here.run("test", pyg_image.layout, *ask, "--json").json["suites"]
    assert (suite["suite"], suite["status"], suite["reason"]) == ("ddp", "passed", "")


def test_without_slurm(files):
    port = str(free_ports(1)[0])
    # one machine plays both: processes know a host by the name that Slurm gives it, else by its own
    here = [("=n1 ", "=127.0.0.1 "), ("29500", port)]
    names = [("singularity", f"SLURMD_NODENAME={name} singularity") for name in ("n1", "n2")]
    both = [command for (command,) in blocks(PAGE, "Without Slurm")]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda command, name: files.type(command, *here, name), both, names)
    passed(first, 2, "torchrun")
    assert "{" not in second


def test_ones_own_data(files):
    ((run,),) = blocks(PAGE, "Your data")
    told = passed(files.type(run, ("20000", "2000")), 2, "--ranks on one machine")
    assert "accuracy_band" not in told["metrics"]
    assert told["metrics"]["epochs"] == 3


def test_every_block_of_the_page_is_typed():
    assert untyped(PAGE, Path(__file__)) == []


# When things go wrong


def test_a_rank_that_is_killed_under_slurm_is_named_by_the_other(files, slurm):
    command = [program("srun"), "--nodes=2", "--ntasks-per-node=1", "--kill-on-bad-exit=0"]
    command += [program("singularity"), "run", "pyg.sif", "python", PROGRAM, "--epochs", "500"]
    job = subprocess.Popen(
        command,
        cwd=files.folder,
        env=files.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    try:
        while not (line := job.stdout.readline()).startswith("Epoch: 001"):
            assert line, job.wait()
        victim = process_of("SLURM_PROCID=1")
        os.kill(victim, signal.SIGKILL)
        start = time.monotonic()
        told = verdict(job.communicate(timeout=120)[0])
    finally:
        job.kill()
        job.communicate()
    assert time.monotonic() - start < 30
    assert (told["status"], told["layer"], told["phase"]) == ("failed", "machine", "training on cpu")
    assert told["reason"].startswith(f"machine: rank 1 (n2, pid {victim}) died: it was killed")


def process_of(variable):
    """The process of a training that has a variable with this value."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if variable.encode() in environment and PROGRAM.encode() in command and b"python" in command[0]:
                return int(entry.name)
    raise AssertionError(f"no process has {variable}")


def test_a_port_in_use_is_named(files):
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        told = verdict(files.type(f"singularity run pyg.sif python {PROGRAM} --ranks 2 --port {port}", code=1))
    assert told["layer"] == "network"
    assert f"port {port} of {socket.gethostname()} is in use" in told["reason"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("srun --nodes=2 --ntasks-per-node=1 {} --ngpu_per_node 2", "n1 has 1 of the 2 processes, and --ngpu_per_node"),
        ("MASTER_ADDR=nowhere srun --nodes=2 --ntasks-per-node=1 {} --patience 4", "nobody knows"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=n1 {}", "but no MASTER_PORT"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29617 {} --patience 3", "never came"),
        ("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29618 {} --patience 3", "refused"),
        ("{} --ranks 2 --device cuda", "cannot use a GPU"),
        ("{} --ranks 3 --dataset random --graph-nodes 2", "the graph has 2 nodes, and a 60/20/20 split needs 3"),
        ("{} --ranks 2 --dataset nothing.npz", "nothing.npz is neither generated nor random nor a file"),
        ("{} --ranks 2 --limit 2", "not finished within the limit"),
    ],
    ids=lambda text: text.partition(" ")[0] if "{" in text else text[:20],
)
def test_bad_input_is_told(files, arguments, said):
    command = arguments.format(f"singularity run pyg.sif python {PROGRAM}")
    told = files.typed(command, code=1)
    reason = verdict(told.stdout)["reason"]
    if pyg_stack()[2] != "cpu" and "cuda" in arguments:
        said = "driver"
    assert said in reason


def test_few_nodes_neither_hang_nor_divide_by_zero(files):
    command = f"singularity run pyg.sif python {PROGRAM} --ranks 3 --dataset random --graph-nodes 4 --epochs 1"
    told = passed(files.type(command), 3, "--ranks on one machine")
    assert told["metrics"]["iterations"] == 1
