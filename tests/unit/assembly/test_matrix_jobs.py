"""`matrix --print`: the images as jobs of GitHub and of Kubernetes."""

import dataclasses
import json

import msgspec
import pytest
import yaml
from kubernetes_validate import validate

from graphcrate.assembly import matrix, matrix_jobs
from graphcrate.assembly.matrix import MatrixRequest
from graphcrate.host.context import Context
from tests import ROOT
from tests.unit.house.test_wiring import world  # noqa: F401 (a fixture)


@pytest.fixture
def committed(tmp_path):
    """The committed rows of pyg, and the context that they are of."""
    ctx = Context(root=ROOT, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache")})
    yield matrix.rows(ctx, MatrixRequest(recipe="pyg")), ctx
    ctx.cache.close()


def test_what_several_images_compile_is_compiled_by_one_of_the_first_stage(committed):
    rows, ctx = committed
    stages = matrix_jobs.stages(rows, ctx)
    first, then = stages.first.include, stages.then.include
    assert len({job.name for job in (*first, *then)}) == len(rows)
    keys = [key for job in first for key in job.compiles]
    assert len(keys) == len({*keys}) > 0, "nothing is compiled twice there"
    assert all(job.needs and {*job.compiles} for job in then)
    names = [job.name for job in (*first, *then)]
    assert all({*job.needs} <= {*names} - {job.name} for job in then)


def test_rows_that_compile_the_same_wait_for_the_one_that_compiles_most(committed):
    rows, ctx = committed
    (row,) = [row for row in rows if (row.variant.cuda, row.candidate.name) == ("11.8", "compatible")]
    lock = row.lock
    fewer = tuple(package for package in lock.packages if package.name != "torch-cluster")
    less = dataclasses.replace(
        row,
        candidate=msgspec.structs.replace(row.candidate, name="a"),
        lock=msgspec.structs.replace(lock, packages=fewer),
    )
    stages = matrix_jobs.stages([less, row], ctx)
    (first,), (then,) = stages.first.include, stages.then.include
    assert (first.candidate, then.candidate, then.needs) == ("compatible", "a", (first.name,))


def test_jobs_for_github_are_two_matrices_as_a_workflow_takes_them(world):  # noqa: F811
    code, out, err = world.typed("matrix", "--print", "jobs.json")
    assert (code, out) == (0, "jobs.json\n"), err
    made = json.loads((world.root / "jobs.json").read_text())
    (job,) = made["first"]["include"]
    assert {name: job[name] for name in ("recipe", "cuda", "candidate", "needs")} == {
        "recipe": "torch",
        "cuda": "cpu",
        "candidate": "pypi",
        "needs": [],
    }
    assert made["then"] == {"include": []}
    assert not (world.root / "dist").exists()


def test_job_for_kubernetes_has_pods_that_take_images_from_a_queue(world, tmp_path):  # noqa: F811
    (tmp_path / "cosign.pub").write_text("")
    words = ("--cuda", "cpu", "--cache", "registry.example/team/cache", "--cache-trust", "cosign.pub")
    code, _, err = world.typed("matrix", "torch", *words, "--print", "jobs.yaml")
    assert code == 0, err
    job = yaml.safe_load((world.root / "jobs.yaml").read_text())
    validate(job, "1.37", strict=True)
    assert job["kind"] == "Job"
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 1, 1)
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    assert container["command"] == [
        *(f"{world.root}/build.py", "matrix", "torch", *words),
        *("--queue", f"{world.root}/dist/matrix-queue"),
    ]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--print", "jobs.txt"), "does not end in .json or .yaml"),
        (("--print", "jobs.json", "--queue", "q"), "--print builds nothing"),
        (("--print", "jobs.json", "--on", "slurm"), "--print builds nothing"),
    ],
)
def test_jobs_in_no_known_form_or_done_here_too_are_a_usage_error(world, words, message):  # noqa: F811
    code, out, err = world.typed("matrix", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert not (world.root / "jobs.json").exists()
