"""docs/tutorials/dna.md and dgx2.md, typed as they are written, with a small image for the CPU and nodes without GPUs.

What downloads Cora is not typed here.
"""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engines.typist import Typist, blocks, make_pyg_sif, untyped

DNA, DGX2 = ROOT / "docs" / "tutorials" / "dna.md", ROOT / "docs" / "tutorials" / "dgx2.md"
#: 200 epochs are for GPUs
SHORT = ("examples/dna.py", "examples/dna.py --epochs 6 --every 3")

pytestmark = [pytest.mark.weekly, pytest.mark.engine("slurm", "apptainer build")]


def typist(workplace, pyg_image, slurm):
    """Types in the project's folder, in which no earlier test has left an image for Singularity."""
    for path in (*workplace.folder.glob("dist/pyg/*/pyg.sif"), *workplace.folder.glob("*.sif")):
        path.unlink(missing_ok=True)
    surroundings = {"GRAPHCRATE_CACHE": str(workplace.cache), **workplace.environment, **slurm.environment}
    return Typist(workplace.folder, surroundings, [("<tag>", pyg_image.report["tag"])])


def submitted(user, command, *changes):
    """Type an sbatch, wait for the job, and return what it printed."""
    number = user.type(command, ("sbatch ", "sbatch --parsable --wait "), *changes).strip()
    assert (user.folder / f"{number}.err").exists()
    return (user.folder / f"{number}.out").read_text()


def test_dna_on_an_a100(workplace, pyg_image, slurm):
    user = typist(workplace, pyg_image, slurm)
    (((make,),), (session,)) = blocks(DNA, "Get the image"), blocks(DNA, "In a session")
    assert user.type(make, ("make sif CUDA=11.8", make_pyg_sif())).endswith("/pyg.sif\n")

    enter, *lines = session
    typed = "\n".join([f"{enter} <<'END'", *lines, "END"])  # a terminal without a person at it
    out = user.type(typed, (" --pty", ""), SHORT)
    assert "\nPyTorch works, on the CPU" in out
    assert "\nEpoch: 003, Loss: " in out
    assert out.splitlines()[-1].startswith("on cpu: test accuracy ")

    (job,), (write,) = blocks(DNA, "As a job")
    script = user.folder / "examples" / "slurm" / "dna.sbatch"
    user.type(write)
    assert (user.folder / "dna.sbatch").read_text() == script.read_text()
    script.write_text(script.read_text().replace(*SHORT))
    assert "Epoch: 006" in submitted(user, job)
    script.write_text(script.read_text().replace("--epochs 6", "--epochs 9"))
    again = submitted(user, job)  # as after a time limit
    assert "Epoch: 006" not in again
    assert "Epoch: 009" in again

    ((generate, own),) = blocks(DNA, "With Cora")
    user.type(generate)
    assert "Epoch: 020" in user.type(own)


def test_pytorch_on_a_dgx2(workplace, pyg_image, slurm):
    user = typist(workplace, pyg_image, slurm)
    (make,), (check,) = blocks(DGX2, "Get the image")
    user.type(make, ("make sif STACK=torch CUDA=11.7 GPU=v100", make_pyg_sif()))
    (user.folder / "torch.sif").symlink_to("pyg.sif")  # which stands in for an image of PyTorch alone
    told = user.typed(check, (" --gpu v100", ""))
    assert "apptainer" in told.stdout

    (look,), (prove,) = blocks(DGX2, "One command")
    assert user.type(look, (".cuda()", "")).endswith("\ntorch.Size([10, 10])\n")
    assert "\nPyTorch works" in user.type(prove)

    (job,), (write,) = blocks(DGX2, "As a job")
    user.type(write)
    assert "\nPyTorch works" in submitted(user, job)

    ((test, again),) = blocks(DGX2, "Test it there")
    at = ("--gres gpu:2", "--gres gpu:2 --suite torch")  # not those of the recipe pyg
    assert user.type(test, at).startswith("torch: passed on cpu in ")
    assert user.type(again, at).endswith("; not run again, --rerun runs it\n")


def test_every_block_of_the_pages_is_typed():
    assert untyped(DNA, Path(__file__)) == []
    assert untyped(DGX2, Path(__file__)) == []
