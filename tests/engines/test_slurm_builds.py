"""docs/slurm.md, typed as it is written, with the small image: commands that nodes of a real Slurm carry out."""

import contextlib
import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engines.small_matrix import matrix_of
from tests.engines.typist import MAKE, Typist, blocks, in_project, settings
from tests.engines.workplace import copy_project, finish, small_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.engine("slurm")]

PAGE = ROOT / "docs" / "slurm.md"


def test_page_commands_are_done_on_nodes_and_leave_image_and_sif_here(workplace, built_image, slurm, dist_alone):
    ((image, sif),) = blocks(PAGE, "Building on a cluster's nodes")
    changes = [("PARTITION=cpu", "PARTITION=a100")]
    changes += [(f"make {goal} CUDA=11.8", f"{MAKE} {goal} {settings(small_stack())}") for goal in ("image", "sif")]
    user = in_project(workplace, built_image, slurm.environment, changes, removed=["*.sif", "dist/torch/*/*.sif"])
    folder = workplace.folder / "dist" / "slurm"
    there = set(folder.iterdir()) if folder.is_dir() else set()  # of other tests
    done = user.typed(image)
    assert done.stdout == built_image.finished.out
    assert ": queued" in done.stderr
    made = Path(user.type(sif).strip())
    assert (workplace.folder / made).stat().st_size > 1e6
    assert (workplace.folder / "torch.sif").resolve() == (workplace.folder / made).resolve()
    assert [path.suffix for path in set(folder.iterdir()) - there] == [".out"] * 3


def test_error_on_a_node_ends_the_command_as_it_would_here(workplace, slurm):
    here = workplace.having(**slurm.environment)
    asked = ("image", "torch", "--cuda", "99")
    ended, local = here.run(*asked, "--on", "slurm"), here.run(*asked)
    assert (ended.code, ended.out) == (local.code, "") == (2, "")
    assert re.sub(r"(make image .*?CUDA=\S+)", r"\1 ON=slurm", local.err) in ended.err


def test_next_step_on_a_node_is_what_was_typed_on_the_login_node_with_one_setting_changed(workplace, slurm):
    here = workplace.having(**slurm.environment)
    ended = here.run("image", "torch", "--cuda", "cpu", "--channel", "x", "--on", "slurm", "--partition", "a100")
    assert ended.code == 2
    assert re.search(r"next:  make image STACK=torch CUDA=cpu CHANNEL=\w+ ON=slurm PARTITION=a100    \(or", ended.err)


def test_ctrl_c_cancels_the_job(workplace, slurm, dist_alone):
    process = workplace.having(**slurm.environment).start(
        "image", *small_stack(), "--on", "slurm", "--partition", "closed"
    )
    until(slurm.jobs)
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process).code == 130
    until(lambda: not slurm.jobs())
    assert not list((workplace.folder / "dist" / "slurm").glob("order-*"))


def test_four_rows_are_proved_on_two_nodes_though_one_goes_down_with_its_second_row(workplace, built_image, slurm, own):
    folder, names = copy_project(own / "matrix"), ("one", "two", "three", "four")
    matrix_of(folder, json.loads((built_image.layout.parent / "lock.json").read_text()), names)
    ((images,),) = blocks(PAGE, "All images")
    changes = [("make images", f"{MAKE} images"), ("PARTITION=cpu JOBS=8", "PARTITION=dgx2 JOBS=2 CPUS=40")]
    user = Typist(folder, {"GRAPHCRATE_CACHE": str(workplace.cache), **slurm.environment}, changes)
    queue = folder / "dist" / "slurm" / "matrix"
    with ThreadPoolExecutor(1) as pool:
        typed = pool.submit(user.typed, images)
        try:
            taken, ended = (queue / "leases").glob, (queue / "ends").glob
            until(lambda: (len([*taken("row-*")]), len([*ended("*.json")])) == (4, 2) or typed.done(), 900)
            slurm.ask("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
            done = typed.result()
        finally:
            with contextlib.suppress(AssertionError):  # it may have come back by itself
                slurm.ask("scontrol", "update", "NodeName=n2", "State=RESUME")
    assert "NODE_FAIL on n2" in done.stderr
    assert [line.split()[3] for line in done.stdout.splitlines()[1:]] == ["proved"] * len(names)
    assert len([*folder.glob("images/*/*/pypi.proof.json")]) == len(names)
    assert "proved before" in user.type(images)
