"""Machines as people describe them: files, and what the command line says besides."""

import msgspec
import pytest

from graphcrate.compat.variants import targets
from graphcrate.compat.variants.targets import MachineRequest, Target
from graphcrate.model import toml
from graphcrate.model.errors import RecipeError, UsageError
from tests import ROOT
from tests.made import refused

OLD = {"driver": "450.80.02"}
NODE = Target(gpus=("Tesla V100-SXM3-32GB",), drivers=("450.80.02",), kernel="3.10", runtimes={"apptainer": "3.5"})


def test_committed_targets_have_description_gpus_runtime_and_source():
    found = {path.stem: targets.load(path) for path in (ROOT / "targets").glob("*.toml")}
    assert found.keys() >= {"dgx2", "a100", "h100", "pai-gn6v", "laptop"}
    for name, target in found.items():
        assert target.known.startswith(("documented", "assumed", "GPUs and Singularity documented")), name
        lines = (ROOT / "targets" / f"{name}.toml").read_text().splitlines()
        for number, line in enumerate(lines):
            if line.startswith("[fabric]"):  # in its line, or in those above it
                assert "# documented: " in line or "# assumed: " in line or "documented: " in lines[number - 2], name
        assert (bool(target.description), target.gpus is None, len(target.runtimes)) == (True, False, 1), name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('gpus = ["V100"]\ncolour = "blue"\n', "t.toml:2: colour: Object contains unknown field `colour`"),
        ('\ngpus = ["V1000"]\n', "t.toml:2: gpus: unknown GPU 'V1000'; the nearest are V100"),
        ('gpus = ["V100"]\ndrivers = ["new"]\n', "t.toml:2: drivers: 'new' is not a version"),
        ('drivers = ["470", "470"]\n', "t.toml:1: drivers: a driver stands twice"),
        ('gpus = []\ndrivers = ["470"]\n', "t.toml:2: drivers: a machine without a GPU has no driver"),
        ('glibc = "old"\n', "t.toml:1: glibc: 'old' is not a version"),
        ('[runtimes]\napptainer = "x"\n', "t.toml:2: runtimes.apptainer: 'x' is not a version"),
        ("\n[runtimes]\napptainer = 3.5\n", "t.toml:2: runtimes[...]: Expected `str`, got `float`"),
        ('[runtimes]\nsingularity = "3.5"\n', "it is called apptainer here"),
        (
            '[fabric]\nkind = "token ring"\n',
            "t.toml:2: fabric.kind: there is no fabric 'token ring'; there are infiniband",
        ),
        ('[fabric]\nkind = "roce"\nrails = -1\n', "fabric: a number of rails and a rate in Gbit/s are 1 or more"),
        ('[runtimes]\nkubernetes = ""\n', "there are docker, apptainer, pyxis, pai"),
    ],
)
def test_invalid_target_file_is_refused_with_file_line_and_field(text, told):
    with refused(RecipeError, told) as caught:
        toml.parse(text, "t.toml", Target, targets.contradictions, "")
    assert caught.value.what.startswith("t.toml:")


@pytest.mark.parametrize(
    ("said", "known", "found"),
    [
        ({"gpu": "v100", **OLD, "runtimes": ("singularity",)}, NODE, msgspec.structs.replace(NODE, gpus=("V100",))),
        ({"gpu": "sm_70"}, Target(gpus=("Tesla V100-SXM3-32GB",)), Target(gpus=("sm_70",))),
        ({"glibc": "2.17"}, Target(gpus=("Tesla V100-SXM3-32GB",)), Target(gpus=("V100",), glibc="2.17")),
        ({"gpu": "a100,v100", "kernel": "5"}, Target(), Target(gpus=("A100", "V100"), kernel="5")),
        ({"runtimes": ("enroot",), "runtime_version": "4.1"}, Target(), Target(runtimes={"pyxis": "4.1"})),
        ({"driver": "535.54.03"}, Target(drivers=("470", "535.54.03")), Target(drivers=("535.54.03",))),
    ],
)
def test_command_line_options_complete_a_target(said, known, found):
    assert targets.merge_target(MachineRequest(target="node", **said), known) == found


@pytest.mark.parametrize(
    ("shown", "driver"), [("12.4", "550.54.14"), ("12.7", "560.28.03"), ("11.8", "520.61.05"), ("535.104", "535.104")]
)
def test_cuda_version_of_nvidia_smi_stands_for_the_oldest_driver_that_shows_it(shown, driver):
    assert targets.merge_target(MachineRequest(driver=shown), Target()).drivers == (driver,)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"driver": "535.54.03"}, "target node has driver 450.80.02, and --driver says 535.54.03"),
        ({"gpu": "sm_80"}, "target node has GPU Tesla V100-SXM3-32GB, and --gpu says sm_80"),
        ({"kernel": "5.14"}, "target node has kernel 3.10, and --kernel says 5.14"),
        ({"runtimes": ("docker",)}, "target node has apptainer, and --runtime says docker"),
        ({"runtimes": ("apptainer",), "runtime_version": "1.2"}, "apptainer 3.5, and --runtime-version says 1.2"),
        ({"runtime_version": "1.2"}, "a version of which runtime?"),
        ({"driver": "newest"}, "--driver 'newest' is not a version"),
        ({"driver": "99999"}, "there is no NVIDIA driver 99999: their versions begin with three digits"),
        ({"driver": "45"}, "there is no NVIDIA driver 45"),
        ({"glibc": "2"}, "there is no glibc 2: its versions are 2.17, 2.36 and the like"),
        ({"driver": "14.2"}, "there is no NVIDIA driver 14.2"),
        ({"gpu": "v10"}, "unknown GPU 'v10'"),
        ({"runtimes": ("kubernetes",)}, "there is no runtime 'kubernetes'"),
    ],
)
def test_options_that_contradict_a_target_are_refused(said, told):
    with refused(UsageError, told):
        targets.merge_target(MachineRequest(target="node", **said), NODE)
    with refused(UsageError, "no GPU, and --driver says"):
        targets.merge_target(MachineRequest(target="laptop", driver="535.54.03"), Target(gpus=()))
