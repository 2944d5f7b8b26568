"""A real image as a SIF, run as it is on a cluster: by a plain user, from a home full of other packages."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.engine("mmdebstrap", "apptainer build", "useradd", "squashfuse", "setpriv"),
]

PROGRAM = """\
import os, sys
import numpy, torch
layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
for _ in range(60):
    optimizer.zero_grad()
    loss = (layer(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
assert loss < 0.1, loss
assert torch.__file__.startswith("/opt/venv/"), torch.__file__
assert numpy.__file__.startswith("/opt/venv/"), numpy.__file__
print("trained in", os.getcwd(), "as", os.getuid(), "with", sys.argv[1:])
"""


@pytest.fixture
def user(plain_user):
    """(uid, gid) of a plain user whose home has a torch of its own that does not work."""
    home = Path(pwd.getpwuid(plain_user[0]).pw_dir)
    for name in ("torch", "numpy"):
        package = home / ".local" / "lib" / "python3.11" / "site-packages" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise SystemExit('this is the one in ~/.local')\n")
    subprocess.run(["chown", "-R", f"{plain_user[0]}:{plain_user[1]}", home], check=True)
    yield plain_user
    shutil.rmtree(home)


def run(user, image, folder, *arguments, **variables):
    """`singularity run` as this user, in this folder."""
    become = [program("setpriv"), f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups"]
    home = pwd.getpwuid(user[0]).pw_dir
    environment = {"PATH": os.environ["PATH"], "HOME": home, "USER": "graphcrate-test", **variables}
    done = subprocess.run(
        [*become, program("singularity"), "--silent", "run", *arguments[:-1], image, "python", arguments[-1], "7"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--cleanenv",),
        ("--no-home",),
        ("--nv",),
        ("--contain", "--bind", "{folder}", "--pwd", "{folder}"),
        ("--containall", "--bind", "{folder}:/work", "--pwd", "/work"),
    ],
)
def test_a_plain_user_runs_a_program_of_the_working_folder(small_sif, user, scratch, options):
    (scratch / "dna.py").write_text(PROGRAM)
    os.chown(scratch, *user)
    options = [option.format(folder=scratch) for option in options]
    where = "/work" if "/work" in options else scratch
    assert run(user, small_sif, scratch, *options, "dna.py") == f"trained in {where} as {user[0]} with ['7']"


def test_a_working_folder_that_cannot_be_written_will_do(small_sif, user, scratch):
    (scratch / "dna.py").write_text(PROGRAM)
    scratch.chmod(0o555)
    assert run(user, small_sif, scratch, "dna.py").startswith(f"trained in {scratch} as {user[0]}")
    assert os.listdir(scratch) == ["dna.py"]  # noqa: PTH208


def test_variables_of_the_host_that_pick_packages_do_no_harm(small_sif, user, scratch):
    (scratch / "dna.py").write_text(PROGRAM)
    assert run(user, small_sif, scratch, "dna.py", PYTHONUSERBASE="/nowhere", CONDA_PREFIX="/conda").startswith(
        "trained"
    )


def test_it_tests_itself(small_sif, built_image):
    done = subprocess.run(
        [program("apptainer"), "--silent", "test", small_sif], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == built_image.report["torch"]
