"""multi_node.py in a real image with PyG and its extensions: under a real Slurm, by torchrun; and the suite `ddp`.

docs/tutorials/multi-node.md is typed as it is written, with nodes that have no GPUs; Apptainer stands in for pyxis.
"""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import ROOT, program
from tests.engines.conftest import build
from tests.engines.daemons import free_ports
from tests.engines.typist import Typist, blocks, in_project, make_pyg_sif
from tests.engines.workplace import pyg_stack
from tests.pyxis import make_site

PAGE = ROOT / "docs" / "tutorials" / "multi-node.md"
PROGRAM = "/opt/graphcrate/examples/multi_node.py"
#: the processors here are few, and four processes wait for each other
THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo"}
#: holds batches of the suite's sampler in plain torch against the graph, as the GLT check does with GLT's
SAMPLES = """
import sys
sys.path.insert(0, "/opt/graphcrate/suites")
import torch
from proof import graphs, neighbours, sampling
made = graphs.generate()
graph, links = graphs.tensors(made), neighbours.link(made.edges, len(made.labels))
numbers = {ends: number for number, ends in enumerate(zip(links.sources, links.targets))}
random = torch.Generator().manual_seed(1)
for fan_outs in ([50, 50], [3, 2], [200, 200]):
    sampler = sampling.Sampler(graph, fan_outs)
    for _ in range(10):
        seeds = torch.randperm(len(graph.y), generator=random)[:64]
        batch = sampler.batch(seeds, random)
        nodes = batch.n_id.tolist()
        edges = [(nodes[b], nodes[a]) for a, b in batch.edge_index.t().tolist()]
        assert len(set(edges)) == len(edges)
        sample = neighbours.Sample(seeds.tolist(), nodes, [(*ends, numbers[ends]) for ends in edges])
        assert neighbours.objections(sample, links, fan_outs) == []
        assert torch.equal(batch.x, graph.x[nodes]) and torch.equal(batch.y, graph.y[nodes])
first, second = (sampler.batch(torch.arange(10), torch.Generator().manual_seed(3)) for _ in range(2))
assert torch.equal(first.n_id, second.n_id)
print("as the graph has it")
"""

pytestmark = [pytest.mark.weekly, pytest.mark.engine("slurm", "apptainer build")]


@pytest.fixture(scope="module")
def pyg_image(workplace, shared):
    """An image with PyG and what NeighborLoader samples with, compiled, not yet smoke-tested."""
    return build(workplace, shared, "pyg-source-image", pyg_stack("source"), "--no-smoke")


@pytest.fixture(scope="module")
def files(workplace, pyg_image, slurm):
    """A typist in a folder with pyg.sif, pyg.sqsh and two jobs, as the page's first commands leave it."""
    user = in_project(workplace, pyg_image, slurm.environment | THREADS, removed=("dist/pyg/*/pyg.sif", "pyg.s*"))
    ((make, *others),) = blocks(PAGE, "Get the image")
    changed = ("make sif CUDA=11.8 TARGET=a100 MIRROR=sjtu", make_pyg_sif("source"))
    assert user.type(make, changed).endswith("/pyg.sif\n")
    for command in others:
        user.type(command)
    return user


def trained(output, world):
    """Return whether a training of so many processes ended well; rank 0 alone speaks."""
    *epochs, last = output.splitlines()
    assert last.startswith(f"{world} processes, gloo: test accuracy "), output
    assert float(last.rpartition(" ")[2]) > 0.5
    assert re.fullmatch(r"a step takes [0-9.]+ ms, to sum its [0-9]+ bytes of gradients [0-9.]+ ms", epochs[-1])
    return [line for line in epochs if line.startswith("Epoch: ")]


@pytest.mark.parametrize("sampler", ["NeighborLoader", "own"])  # the image of the second takes the tag of the first
def test_ddp_suite_passes_with_each_sampler(workplace, pyg_image, shared, sampler):
    own = sampler == "own"
    image = build(workplace, shared, "pyg-image", pyg_stack(), "--no-smoke") if own else pyg_image
    (suite,) = workplace.run("test", image.layout, "--suite", "ddp", "--json").json["suites"]
    assert (suite["suite"], suite["status"], suite["device"], suite["reason"]) == ("ddp", "passed", "cpu", "")
    assert suite["metrics"]["all_reduce"] == "gloo over 2"
    assert suite["metrics"]["gradient_error"] < 1e-5
    assert suite["metrics"]["sampler"] == sampler


@pytest.mark.parametrize("by", ["apptainer", "pyxis"])
def test_suites_ddp_and_nccl_pass_over_two_nodes(files, workplace, slurm, scratch, by):
    here, image = workplace.having(**slurm.environment, **THREADS), files.folder / "pyg.sif"
    if by == "pyxis":
        site = make_site(scratch / "site", program("srun"), program("apptainer"), hook=False)
        here, image = here.having(PATH=site.path), files.folder / "pyg.sqsh"
    asked = ("--runner", "slurm", "--partition", "a100", "--nodes", "2", "--suite", "ddp,nccl")
    ddp, nccl = here.run("test", image, *asked, "--output", scratch / "out", "--json").json["suites"]
    assert [(suite["suite"], suite["status"]) for suite in (ddp, nccl)] == [("ddp", "passed"), ("nccl", "passed")]
    assert ddp["metrics"]["all_reduce"] == "gloo over 4"
    assert (nccl["metrics"]["world"], nccl["metrics"]["nodes"]) == (4, 2)


def test_the_sampler_in_plain_torch_brings_what_the_graph_has(files):
    (files.folder / "samples.py").write_text(SAMPLES)
    assert files.type("singularity run pyg.sif python samples.py") == "as the graph has it\n"


def test_torchrun_command_of_the_page_trains_two_processes(files):
    ((torchrun,),) = blocks(PAGE, "On one machine first")
    assert len(trained(files.type(torchrun), 2)) == 6


def test_singularity_job_of_the_page_trains_four_processes(files):
    (job,), (run,) = blocks(PAGE, "Slurm with Singularity")
    trained(files.submit(job)[0], 4)
    trained(files.type(run), 2)


@pytest.mark.parametrize(
    "kind",
    [{}, {"hook": False}, {"hook": False, "scope": "job"}],
    ids=["hook", "no hook", "no hook, scope job"],
)
def test_pyxis_job_of_the_page_trains_and_leaves_no_container(files, scratch, kind):
    site = make_site(scratch / "site", program("srun"), program("apptainer"), **kind)
    user = Typist(files.folder, {**files.environment, "PATH": site.path}, files.changes)
    (job,), session = blocks(PAGE, "Slurm with pyxis")
    trained(user.type("\n".join(session)), 2)
    assert site.containers() == []  # no later image can be mistaken for this one
    trained(user.submit(job)[0], 4)
    assert site.containers() == []
    assert len(site.imports()) == 4  # once on each node, of the session and of the job


def test_two_hosts_without_slurm_train_together(files):
    port = str(free_ports(1)[0])
    here = [("=n1 ", "=127.0.0.1 "), ("29500", port)]
    both = [command for (command,) in blocks(PAGE, "Without Slurm")]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda command: files.type(command, *here), both)
    trained(first, 2)
    assert "Epoch" not in second


def test_own_training_loop_of_the_page_sums_over_four_processes(files, scratch):
    ((program_file, write, job),) = blocks(PAGE, "Your own training loop")
    files.type(program_file)
    files.type(write, ("/data/ogb", str(scratch)))
    assert files.submit(job)[0] == "the sum over 4 processes is 4\n"


def test_other_number_of_processes_than_gpus_is_refused(files):
    command = f"singularity run pyg.sif torchrun --standalone --nproc-per-node=2 {PROGRAM} --ngpu_per_node 4"
    assert "not 4 on each node" in files.typed(command, code=1).stderr
