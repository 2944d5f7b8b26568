"""docs/slurm.md, typed as it is written, with the small image: commands that nodes of a real Slurm carry out."""

import os
import signal
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engines.typist import MAKE, blocks, in_project, settings
from tests.engines.workplace import finish, small_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.engine("slurm")]

PAGE = ROOT / "docs" / "slurm.md"


def test_page_commands_are_done_on_nodes_and_leave_image_and_sif_here(workplace, built_image, slurm):
    ((image, sif),) = blocks(PAGE, "Building on a cluster's nodes")
    changes = [("PARTITION=cpu", "PARTITION=a100")]
    changes += [(f"make {goal} CUDA=11.8", f"{MAKE} {goal} {settings(small_stack())}") for goal in ("image", "sif")]
    user = in_project(workplace, built_image, slurm.environment, changes, removed=["*.sif", "dist/torch/*/*.sif"])
    done = user.typed(image)
    assert done.stdout == built_image.finished.out
    assert "running on n" in done.stderr
    made = Path(user.type(sif).strip())
    assert (workplace.folder / made).stat().st_size > 1e6
    assert (workplace.folder / "torch.sif").resolve() == (workplace.folder / made).resolve()
    assert [path.suffix for path in (workplace.folder / "dist" / "slurm").iterdir()] == [".out"] * 3


def test_error_on_a_node_ends_the_command_as_it_would_here(workplace, slurm):
    here = workplace.having(**slurm.environment)
    asked = ("image", "torch", "--cuda", "99")
    ended, local = here.run(*asked, "--on", "slurm"), here.run(*asked)
    assert (ended.code, ended.out) == (local.code, "") == (2, "")
    assert local.err in ended.err


def test_ctrl_c_cancels_the_job(workplace, slurm):
    process = workplace.having(**slurm.environment).start(
        "image", *small_stack(), "--on", "slurm", "--partition", "closed"
    )
    until(slurm.jobs)
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process).code == 130
    until(lambda: not slurm.jobs())
    assert not list((workplace.folder / "dist" / "slurm").glob("order-*"))
