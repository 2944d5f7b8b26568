"""docs/tutorials/dna.md and dgx2.md, typed as they are written, with a small image for the CPU and nodes without GPUs.

What downloads Cora is not typed here.
"""

import pytest

from tests.conftest import ROOT
from tests.engines.typist import blocks, in_project, make_pyg_sif

DNA, DGX2 = ROOT / "docs" / "tutorials" / "dna.md", ROOT / "docs" / "tutorials" / "dgx2.md"
#: 200 epochs are for GPUs
SHORT = ("examples/dna.py", "examples/dna.py --epochs 6 --every 3")
#: a person's own program: which process it is, of how many
PLACE = """import os, sys
rank, world = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE"))
sys.stdout.write(f"{rank} {world} {sys.argv[1:]}\\n")
"""

pytestmark = [pytest.mark.weekly, pytest.mark.engine("slurm", "apptainer build")]


def test_dna_page_commands_run_in_a_session_and_a_job_on_a100(workplace, pyg_image, slurm, scratch):
    user = in_project(workplace, pyg_image, slurm.environment, removed=("dist/pyg/*/pyg.sif", "*.sif"))
    (((make, write),), (session,)) = blocks(DNA, "Get the image"), blocks(DNA, "In a session")
    assert user.type(make, ("make sif CUDA=11.8 TARGET=a100 MIRROR=sjtu", make_pyg_sif())).endswith("/pyg.sif\n")

    enter, *lines = session
    typed = "\n".join([f"{enter} <<'END'", *lines, "END"])  # a terminal without a person at it
    out = user.type(typed, (" --pty", ""), SHORT)
    assert "\nPyTorch works, on the CPU" in out
    assert "\nEpoch: 003, Loss: " in out
    assert out.splitlines()[-1].startswith("on cpu: test accuracy ")

    ((job,),) = blocks(DNA, "As a job")
    script = user.folder / "dna.sbatch"
    user.type(write)
    assert script.read_text() == (user.folder / "examples" / "slurm" / "dna.sbatch").read_text()
    script.write_text(script.read_text().replace(*SHORT))
    assert "Epoch: 006" in user.submit(job)[0]
    script.write_text(script.read_text().replace("--epochs 6", "--epochs 9"))
    again, _ = user.submit(job)  # as after a time limit
    assert "Epoch: 006" not in again
    assert "Epoch: 009" in again

    (copy, run), (as_job,) = blocks(DNA, "Your own program and data")
    data = ("/data/graphs", str(scratch))
    user.type(copy)
    assert "Epoch: 006" in user.type(run, data, ("--root", "--epochs 6 --root"))
    user.type(as_job, data, ("--root", "--epochs 6 --root"))
    assert "Epoch: 006" in user.submit("sbatch train.sbatch")[0]

    ((generate, own),) = blocks(DNA, "With Cora, without a network on the nodes")
    user.type(generate)
    assert "Epoch: 020" in user.type(own)


def test_dgx2_page_commands_check_and_run_the_image(workplace, pyg_image, slurm, scratch):
    user = in_project(workplace, pyg_image, slurm.environment, removed=("dist/pyg/*/pyg.sif", "*.sif"))
    ((make, check, write),) = blocks(DGX2, "Get the image")
    user.type(make, ("make sif STACK=torch TARGET=dgx2 MIRROR=sjtu", make_pyg_sif()))
    (user.folder / "torch.sif").symlink_to("pyg.sif")  # which stands in for an image of PyTorch alone
    # and has no code for a GPU
    assert "runtimes" in user.type(check, ("--target dgx2", "--runtime singularity --kernel 3.10"))
    user.type(write)

    (look,), (prove,) = blocks(DGX2, "One command")
    assert user.type(look, (".cuda()", "")).endswith("\ntorch.Size([10, 10])\n")
    assert "\nPyTorch works" in user.type(prove)

    ((job,),) = blocks(DGX2, "As a job")
    assert "\nPyTorch works" in user.submit(job)[0]

    ((one, each),) = blocks(DGX2, "Your own program and data")
    (user.folder / "train.py").write_text(PLACE)
    user.type(one, ("/lustre/data", str(scratch)))
    assert user.submit("sbatch train.sbatch")[0] == "None None ['--data', '/data']\n"
    user.type(each)
    assert sorted(user.submit("sbatch ddp.sbatch")[0].splitlines()) == ["0 2 []", "1 2 []"]

    ((test, again),) = blocks(DGX2, "Test it there")
    at = ("--gres gpu:2", "--gres gpu:2 --suite torch")  # not those of the recipe pyg
    assert user.type(test, at).startswith("torch: passed on cpu in ")
    assert user.type(again, at).endswith("; not run again, --rerun runs it\n")
