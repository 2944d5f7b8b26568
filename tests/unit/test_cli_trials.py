"""Options of `test` and `job` that do not go together, and what `job` prints."""

import re
import shlex

import pytest


@pytest.fixture(autouse=True)
def nothing_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


#: the tutorial, and the job that it submits
#: the tutorial, and the job that it submits
WRITTEN = [("dna.md", "dna.sbatch"), ("dgx2.md", "dgx2_torch.sbatch")]
WRITTEN += [("multi-node.md", f"multi_node_{name}.sbatch") for name in ("singularity", "pyxis")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a:1", "b:1"), "--matrix"),
        (("a:1", "--runner", "slurm"), "--partition is missing"),
        (("a:1", "--matrix"), "--partition is missing"),
        (("a:1", "--partition", "a100"), "--runner slurm"),
        (("a:1", "--runner", "slurm", "--partition", "a100,dgx2"), "--matrix"),
        (("a:1", "--runner", "docker", "--matrix", "--partition", "a100"), "the runner is docker"),
        (("a:1",), "there is no image 'a:1'"),
    ],
)
def test_options_that_do_not_go_together_are_usage(typed, arguments, said):
    code, out, err = typed("test", *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_job_goes_to_stdout_alone(typed):
    code, out, err = typed("job", "registry.example.com/team/pyg:1", "--runtime", "pyxis", "--partition", "a100")
    assert (code, err) == (0, "")
    assert out.startswith("#!/bin/bash\n#SBATCH --job-name=pyg\n")
    assert "registry.example.com#team/pyg:1" in out


def test_pyxis_on_many_nodes_has_a_process_for_each_gpu_unless_told_otherwise(typed):
    request = ("job", "registry.example.com/team/pyg:1", "--runtime", "pyxis", "--nodes", "2", "--gpus", "4")
    assert "--ntasks-per-node=4" in typed(*request)[1]
    assert "--ntasks-per-node=4" not in typed(*request, "--no-per-gpu")[1]


def test_the_address_for_pai_is_one_line(typed):
    code, out, _ = typed("job", "registry.cn-shanghai.aliyuncs.com/team/glt:1", "--runtime", "pai-dsw")
    assert (code, out) == (0, "registry-vpc.cn-shanghai.aliyuncs.com/team/glt:1\n")


def test_an_unknown_runtime_is_answered_with_those_that_exist(typed):
    code, _, err = typed("job", "pyg:1", "--runtime", "kubernetes")
    assert (code, "pyxis, singularity, docker, pai-dlc, pai-dsw" in err) == (2, True)


@pytest.mark.parametrize(("page", "name"), WRITTEN)
def test_a_job_of_the_examples_is_what_its_tutorial_says(typed, page, name, project, tmp_path):
    text = (project / "docs" / "tutorials" / page).read_text(encoding="utf-8")
    assert f"sbatch {name}\n" in text
    (command,) = re.findall(rf"^\./build\.py (job .*) > {name}$", text, re.MULTILINE)
    (tmp_path / shlex.split(command)[1]).touch()
    assert typed(*shlex.split(command))[1] == (project / "examples" / "slurm" / name).read_text(encoding="utf-8")
