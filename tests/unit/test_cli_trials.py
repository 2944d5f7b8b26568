"""Options of `test` and `job` that do not go together, and what `job` prints."""

import re
import shlex

import pytest

#: the tutorial, and the job that it submits
WRITTEN = [
    ("dna.md", "dna.sbatch"),
    ("dgx2.md", "dgx2_torch.sbatch"),
    ("multi-node.md", "multi_node_singularity.sbatch"),
    ("multi-node.md", "multi_node_pyxis.sbatch"),
]


@pytest.fixture
def call(tmp_path, monkeypatch, typed):
    monkeypatch.chdir(tmp_path)
    return typed


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
def test_options_that_do_not_go_together_are_usage(call, arguments, said):
    code, out, err = call("test", *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_job_goes_to_stdout_alone(call):
    code, out, err = call("job", "registry.example.com/team/pyg:1", "--runtime", "pyxis", "--partition", "a100")
    assert (code, err) == (0, "")
    assert out.startswith("#!/bin/bash\n#SBATCH --job-name=pyg\n")
    assert "registry.example.com#team/pyg:1" in out


def test_pyxis_on_many_nodes_has_a_process_for_each_gpu_unless_told_otherwise(call):
    request = ("job", "registry.example.com/team/pyg:1", "--runtime", "pyxis", "--nodes", "2", "--gpus", "4")
    assert "--ntasks-per-node=4" in call(*request)[1]
    assert "--ntasks-per-node=4" not in call(*request, "--no-per-gpu")[1]


def test_the_address_for_pai_is_one_line(call):
    code, out, _ = call("job", "registry.cn-shanghai.aliyuncs.com/team/glt:1", "--runtime", "pai-dsw")
    assert (code, out) == (0, "registry-vpc.cn-shanghai.aliyuncs.com/team/glt:1\n")


def test_an_unknown_runtime_is_answered_with_those_that_exist(call):
    code, _, err = call("job", "pyg:1", "--runtime", "kubernetes")
    assert code == 2
    assert "pyxis, singularity, docker, pai-dlc, pai-dsw" in err


@pytest.mark.parametrize(("page", "name"), WRITTEN)
def test_a_job_of_the_examples_is_what_its_tutorial_says(call, page, name, project, tmp_path):
    text = (project / "docs" / "tutorials" / page).read_text(encoding="utf-8")
    assert f"sbatch {name}\n" in text
    (command,) = re.findall(rf"^\./build\.py (job .*) > {name}$", text, re.MULTILINE)
    (tmp_path / shlex.split(command)[1]).touch()
    assert call(*shlex.split(command))[1] == (project / "examples" / "slurm" / name).read_text(encoding="utf-8")
