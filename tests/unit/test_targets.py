"""Targets: files that people write, and what the command line says besides."""

import pytest

from graphcrate.compat import targets
from graphcrate.compat.targets import Said
from graphcrate.model.errors import RecipeError, UsageError
from graphcrate.model.target import Target
from tests import ROOT

PATHS = sorted((ROOT / "targets").glob("*.toml"))
NODE = Target(gpus=("V100",), drivers=("450.80.02",), kernel="3.10", runtimes={"apptainer": "3.5"})


def test_every_target_says_what_it_is_and_how_that_is_known():
    for path in PATHS:
        target = targets.load(path)
        assert target.description, path
        assert target.known.startswith(("documented", "assumed", "GPUs and Singularity documented")), path
        assert target.gpus is not None, path
        assert len(target.runtimes) == 1, path
    assert {path.stem for path in PATHS} >= {"dgx2", "a100", "h100", "pai-gn6v", "laptop"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('gpus = ["V100"\n', "t.toml:2: "),
        ('gpus = ["V100"]\ncolour = "blue"\n', "t.toml:2: colour: Object contains unknown field `colour`"),
        ('\ngpus = ["V1000"]\n', "t.toml:2: gpus: unknown GPU 'V1000'; the nearest are V100"),
        ("gpus = []\nkernel = 3.10\n", "t.toml:2: kernel: Expected `str`, got `float`: versions are written in quotes"),
        ('gpus = ["V100"]\ndrivers = ["new"]\n', "t.toml:2: drivers: 'new' is no version"),
        ('drivers = ["470", "470"]\n', "t.toml:1: drivers: a driver stands twice"),
        ('gpus = []\ndrivers = ["470"]\n', "t.toml:2: drivers: a machine without a GPU has no driver"),
        ('glibc = "old"\n', "t.toml:1: glibc: 'old' is no version"),
        ('[runtimes]\napptainer = "x"\n', "t.toml:2: runtimes.apptainer: 'x' is no version"),
        ('[runtimes]\nsingularity = "3.5"\n', "it is called apptainer here"),
        ('[runtimes]\nkubernetes = ""\n', "there are docker, apptainer, pyxis, pai"),
    ],
)
def test_a_bad_target_is_refused_with_file_line_and_field(text, told):
    with pytest.raises(RecipeError) as caught:
        targets.parse(text, "t.toml")
    assert told in caught.value.what
    assert caught.value.what.startswith("t.toml:")


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(RecipeError, match="the target cannot be read"):
        targets.load(tmp_path / "none.toml")


def test_what_was_said_completes_a_target():
    said = Said(target="node", gpu="v100", driver="450.80.02", glibc="2.17", runtimes=("singularity",))
    found = targets.joined(said, NODE)
    assert (found.gpus, found.drivers, found.kernel, found.glibc) == (("V100",), ("450.80.02",), "3.10", "2.17")
    assert found.runtimes == {"apptainer": "3.5"}


def test_a_machine_may_be_said_as_a_whole():
    said = Said(gpu="a100,v100", driver="535.54.03", kernel="5.14", runtimes=("enroot",), runtime_version="4.1.2")
    found = targets.joined(said, Target())
    assert (found.gpus, found.drivers, found.runtimes) == (("A100", "V100"), ("535.54.03",), {"pyxis": "4.1.2"})


def test_a_driver_may_be_chosen_among_those_of_the_target():
    several = Target(gpus=("V100",), drivers=("470", "535.54.03"))
    assert targets.joined(Said(target="pai", driver="535.54.03"), several).drivers == ("535.54.03",)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"driver": "535.54.03"}, "target node has driver 450.80.02, and --driver says 535.54.03"),
        ({"gpu": "a100"}, "target node has GPU V100, and --gpu says a100"),
        ({"kernel": "5.14"}, "target node has kernel 3.10, and --kernel says 5.14"),
        ({"runtimes": ("docker",)}, "target node has apptainer, and --runtime says docker"),
        ({"runtimes": ("apptainer",), "runtime_version": "1.2"}, "apptainer 3.5, and --runtime-version says 1.2"),
        ({"runtime_version": "1.2"}, "a version of which runtime?"),
        ({"driver": "newest"}, "--driver 'newest' is no version"),
        ({"gpu": "v10"}, "unknown GPU 'v10'"),
        ({"runtimes": ("kubernetes",)}, "there is no runtime 'kubernetes'"),
    ],
)
def test_contradictions_are_refused(said, told):
    with pytest.raises(UsageError) as caught:
        targets.joined(Said(target="node", **said), NODE)
    assert told in caught.value.what


def test_a_machine_without_a_gpu_has_no_driver():
    with pytest.raises(UsageError, match="no GPU, and --driver says"):
        targets.joined(Said(target="laptop", driver="535.54.03"), Target(gpus=()))


def test_an_unknown_target_names_the_nearest():
    error = targets.unknown("dgx-2", ["a100", "dgx2", "laptop"])
    assert "the nearest is dgx2" in error.what
    assert "a100, dgx2, laptop" in error.next_step


def test_gpus_as_nvidia_smi_shows_them_are_the_models_of_targets():
    dgx2 = Target(gpus=("Tesla V100-SXM3-32GB",))
    assert targets.joined(Said(target="dgx2"), dgx2).gpus == ("V100",)
    for gpu in ("v100", "Tesla V100-SXM3-32GB", "sm_70"):
        assert targets.joined(Said(target="dgx2", gpu=gpu), dgx2).gpus
    with pytest.raises(UsageError, match="has GPU"):
        targets.joined(Said(target="dgx2", gpu="sm_80"), dgx2)
