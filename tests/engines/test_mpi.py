"""MPI in a small real image: the ranks of two nodes meet by PMIx and by PMI2 of a real Slurm, and by mpirun inside.

The nodes are two daemons on one machine, so each has one rank: Open MPI's shared memory would be that of both.
docs/tutorials/network.md is typed as it is written, for the CPU.
"""

import os

import pytest

from tests.conftest import ROOT, program
from tests.engines.typist import MAKE, blocks, in_new_clone, in_project, settings
from tests.engines.workplace import small_stack
from tests.pyxis import make_site

PAGE = ROOT / "docs" / "tutorials" / "network.md"
HERE = ("make sif STACK=torch CUDA=11.8", f"{MAKE} sif {settings(small_stack())}")

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("slurm", "pmix", "apptainer build")]


@pytest.fixture(scope="module")
def user(workplace, built_image, slurm):
    """Types in the project's folder, where images of other tests are."""
    return in_project(workplace, built_image, slurm.environment)


def made(user, make, *changes):
    """Make an image as the page does; what was said of it."""
    for path in (*user.folder.glob("dist/torch/*/torch.sif"), user.folder / "torch.sif"):
        path.unlink(missing_ok=True)
    return user.typed(make, *changes, HERE).stderr


def test_network_is_checked_looked_at_and_measured_on_two_nodes_and_their_job_is_written(
    workplace, built_image, slurm, small_sif, small_sqsh, scratch
):
    site = make_site(scratch / "site", program("srun"), program("apptainer"), hook=False)
    few = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo"}
    there = in_new_clone(workplace, built_image, scratch, {**slurm.environment, **few, "PATH": site.path})
    os.link(small_sif, scratch / "pyg.sif")
    os.link(small_sqsh, scratch / "pyg.sqsh")
    (scratch / "mine.toml").write_text('[fabric]\nkind = "infiniband"\nrails = 1\nrate = 100\ninterface = "ib0"\n')
    ((check, doctor, job),) = blocks(PAGE, "Before the job")
    assert there.type(check) == "runtimes  1 pass\n", "it has libibverbs and these cards' provider"
    assert there.type(doctor, (" --nv", ""), code=None).count("\nmachine\n") == 2, "each node's"
    there.type(job)
    text = (scratch / "train.sbatch").read_text()
    assert [
        word for word in ("--nodes=2", "MELLANOX_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME=ib0") if word not in text
    ] == []
    ((measure,),) = blocks(PAGE, "Measure")
    assert "nccl" in there.type(measure, (" --gres gpu:8", ""))


def test_ranks_on_two_nodes_meet_by_pmix_of_debians_openmpi(user, dist_alone):
    ((make, start, alone),) = blocks(PAGE, "MPI")
    said = made(user, make)
    assert "note      mpi4py loads an MPI and brings none: Debian's openmpi-bin comes with it" in said
    assert "note      Open MPI 4.1.4 with PMIx 4.2.2: srun --mpi=pmix" in said
    assert sorted(user.type(start).splitlines()) == ["0 of 2", "1 of 2"]
    refused = user.typed(start, ("--mpi=pmix", "--mpi=pmi2"), code=None)
    assert refused.returncode != 0, "each process would compute the same thing"
    assert "SLURM" in refused.stderr
    root = ("mpirun", "mpirun --allow-run-as-root")
    assert sorted(user.type(alone, root).splitlines()) == ["0 of 2", "1 of 2"]


def test_ranks_on_two_nodes_meet_by_pmi2_of_the_wheel_of_mpich(user, dist_alone):
    ((make, start, alone),) = blocks(PAGE, "MPI")
    assert "note      MPICH " in made(user, make, ("WITH=mpi4py", "WITH='mpi4py mpich'"))
    assert sorted(user.type(start, ("--mpi=pmix", "--mpi=pmi2")).splitlines()) == ["0 of 2", "1 of 2"]
    assert "PMIx" in user.typed(start, code=None).stderr
    assert sorted(user.type(alone).splitlines()) == ["0 of 2", "1 of 2"]
