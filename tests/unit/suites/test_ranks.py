"""A process's rank in its job, from what srun, enroot, torchrun and job scripts set."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof import ranks
from proof.ranks import Place, expand, from_environment, on_node, port_of, tasks_by_node
from proof.verdict import Fault, Layer

from tests import pyxis

NAMES = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
JOB = {"SLURM_JOB_ID": "1207", "SLURM_JOB_NODELIST": "gpu[01-09]", "SLURM_NTASKS": "5"}
STEP = JOB | {"SLURM_STEP_ID": "1", "SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_NUM_NODES": "3"}
STEP |= {"SLURM_STEP_NODELIST": "gpu[07-09]", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1"}
STEP |= {"SLURM_PROCID": "4", "SLURM_LOCALID": "0", "SLURM_NODEID": "2"}
IMAGE = {"PATH": "/opt/venv/bin", "PYTORCH_VERSION": "2.0.1", "NVIDIA_VISIBLE_DEVICES": "all"}


def under_pyxis(job=STEP, image=IMAGE, named=(), **kind):
    """The variables of a task on a site of this kind."""
    site = pyxis.Site("", "", "", **kind)
    return pyxis.in_task(pyxis.started(image, job, site, lambda nodes: next(expand(nodes)), named), job)


TORCHRUN = {**NAMES, "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
FIRST = {"SLURM_PROCID": "0", "SLURM_NODEID": "0"}
OWN = {**STEP, "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "4711"}  #: an address of one's own
SCRIPT = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
PORT = ranks.FIRST_PORT + 3 * 1208
SRUN = Place(4, 5, 0, 1, "gpu07", PORT, "srun")
HOOK = "RANK and MASTER_ADDR under srun"
OF_A_JOB = "one process of a job with 2 tasks (srun would start one for each)"


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, Place(0, 1, 0, 1, "127.0.0.1", 0, "one process")),
        # some sites set them for all
        ({"MASTER_ADDR": "n1", "MASTER_PORT": "1"}, Place(0, 1, 0, 1, "127.0.0.1", 0, "one process")),
        (NAMES, Place(3, 4, 1, 0, "n1", 29500, "RANK and MASTER_ADDR")),  # of enroot's hook or a job script
        (TORCHRUN, Place(3, 4, 1, 2, "n1", 29501, "torchrun")),  # its agent keeps the port that it names
        ({**TORCHRUN, "MASTER_PORT": "65535"}, Place(3, 4, 1, 2, "n1", 65534, "torchrun")),
        ({**STEP, **TORCHRUN}, Place(3, 4, 1, 2, "n1", 29501, "torchrun")),  # once on each node: ranks are not Slurm's
        (STEP, SRUN),
        ({**STEP, **FIRST}, Place(0, 5, 0, 2, "gpu07", PORT, "srun")),
        (OWN, Place(4, 5, 0, 1, "10.0.0.7", 4711, "srun")),
        (under_pyxis(OWN, hook=False), Place(4, 5, 0, 1, "10.0.0.7", 4711, "srun")),
        (under_pyxis(hook=False), SRUN),
        (
            under_pyxis({**STEP, **FIRST, "SLURM_STEP_NUM_TASKS": "1"}, hook=False),
            Place(0, 1, 0, 2, "gpu07", PORT, "srun"),
        ),
        (under_pyxis(), Place(4, 5, 0, 1, "gpu07", 62207, HOOK)),
        (under_pyxis(OWN), Place(4, 5, 0, 1, "gpu07", 62207, HOOK)),
        (under_pyxis(OWN, named=["MASTER_ADDR"]), Place(4, 5, 0, 1, "10.0.0.7", 62207, HOOK)),
        *((under_pyxis(image={"PATH": "/usr/bin"}, hook=hook), SRUN) for hook in (True, False)),  # without PyTorch
        (SCRIPT, Place(0, 1, 0, 1, "127.0.0.1", 0, OF_A_JOB)),
        (under_pyxis(SCRIPT, hook=False), Place(0, 1, 0, 1, "127.0.0.1", 0, OF_A_JOB)),
    ],
)
def test_rank_is_read_from_srun_torchrun_or_enroot_variables(variables, place):
    assert from_environment(variables) == place


@pytest.mark.parametrize("name", sorted(NAMES))
def test_missing_rank_variable_is_a_network_fault(name):
    with pytest.raises(Fault, match=f"no {name}: a process of several") as caught:
        from_environment({key: value for key, value in NAMES.items() if key != name})
    assert caught.value.layer is Layer.NETWORK
    assert ("--nproc-per-node" in str(caught.value)) == (name == "LOCAL_RANK")  # PAI's DLC gives all but this


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({**NAMES, "RANK": "4"}, "RANK=4 is not one of WORLD_SIZE=4"),
        ({**NAMES, "RANK": "x"}, "RANK='x' is no number of processes"),
        ({**NAMES, "WORLD_SIZE": "-1"}, "WORLD_SIZE='-1' is no number"),
        ({**NAMES, "WORLD_SIZE": "9" * 30}, "is no number of processes"),
        ({**NAMES, "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK=2, 2 processes on this node"),
        ({**NAMES, "LOCAL_WORLD_SIZE": "5"}, "WORLD_SIZE=4 do not go together"),
        ({**NAMES, "MASTER_PORT": "70000"}, "MASTER_PORT='70000' is no port"),
        *(({**NAMES, "MASTER_PORT": port}, f"'{port}' is no port") for port in ("0", "65536")),
        (
            {**STEP, **NAMES, "RANK": "0", "WORLD_SIZE": "5"},
            "RANK=0, and Slurm's SLURM_PROCID=4: RANK was probably set once before srun",
        ),
        ({**under_pyxis(hook=False), "RANK": "3"}, "no WORLD_SIZE"),  # a rank that is not Slurm's is half set
        ({**under_pyxis(hook=False), "LOCAL_RANK": "1"}, "no WORLD_SIZE"),
        ({**STEP, "SLURM_PROCID": "5"}, "SLURM_PROCID=5 is not one of"),
        ({**STEP, "SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""}, "SLURM_STEP_NODELIST is empty"),
        ({**STEP, "SLURM_STEP_NODELIST": "n[1-"}, "no list of nodes"),
        ({**STEP, "SLURM_LOCALID": ""}, "SLURM_LOCALID='' is no number"),
    ],
)
def test_contradicting_rank_variables_are_a_fault(variables, said):
    with pytest.raises(Fault, match=said):
        from_environment(variables)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("", []),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[1-2,07],login", ["n1", "n2", "n07", "login"]),
        ("gpu-[098-101]", ["gpu-098", "gpu-099", "gpu-100", "gpu-101"]),
        ("r[1-2]n[3-4]x,a.b-c", ["r1n3x", "r1n4x", "r2n3x", "r2n4x", "a.b-c"]),
        *((text, None) for text in ("n[1-", "n]1[", "n[[1]]", "n[]", "n[1-2", "n[a-b]", "n[3-1]", "n[1-99999999]")),
    ],
)
def test_slurm_node_and_task_lists_are_expanded(text, hosts):
    with contextlib.nullcontext() if hosts is not None else pytest.raises(Fault, match="no list of nodes"):
        assert list(expand(text)) == hosts
    assert tasks_by_node("2(x3),1") == [2, 2, 2, 1]
    assert tasks_by_node("4") == [4]
    assert tasks_by_node("") == tasks_by_node("2(y3)") == []


@given(st.integers(0, 10**9), st.integers(0, 2**32))
def test_consecutive_jobs_get_disjoint_ports_below_the_ephemeral_range(job, step):
    """GLT's training takes three in a row (test_glt_programs.py)."""
    taken = [set(range(port, port + 3)) for port in (port_of(str(job + next), str(step)) for next in (0, 1))]
    assert not taken[0] & taken[1]
    assert ranks.FIRST_PORT <= min(taken[0]) < max(taken[0]) < ranks.FIRST_PORT + ranks.PORTS <= 32768
    assert port_of(str(job), "") == port_of(str(job), "batch")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 0, 1, 0, "n1", 5000), "0 nodes"),
        ((2, 2, 1, 0, "n1", 5000), "--node_rank 2 is not one of 2 nodes"),
        ((2, 1, 1, 1, "n1", 5000), "process 1 is not one of 1 on a node"),
        ((2, 1, 1, 0, "n1", 0), "--port='0' is no port"),
    ],
)
def test_on_node_with_invalid_numbers_is_a_fault(arguments, said):
    assert on_node(2, 1, 4, 3, "n1", 5000) == Place(7, 8, 3, 4, "n1", 5000, "by node")
    assert on_node(1, 0, 1, 0, "n1", 5000).world == 1
    with pytest.raises(Fault, match=said):
        on_node(*arguments)
