"""GitHub's workflows: their form, what an attacker could make of them, their shell, and that what they call exists."""

import functools
import json
import re
import runpy
import shlex
import subprocess
from types import SimpleNamespace

import pytest
import typer
from ruamel.yaml import YAML

from graphcrate.cli import main, tables
from graphcrate.compat.variants import catalog
from graphcrate.host.context import Context
from graphcrate.model.command import is_upkeeps
from tests import ROOT
from tests.lint.linters import findings, shellcheck
from upkeep import cli as upkeep

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
SCHEMA = ("--builtin-schema", "vendor.github-workflows")
#: The whole of its rules. Offline, for it would ask GitHub whether tags still mean the commits that we name.
ZIZMOR = ("--offline", "--no-progress", "--no-config", "--quiet", "--persona", "pedantic")
#: Steps' shell is read by shellcheck below, with the variables that each step is given.
ACTIONLINT = ("-no-color", "-oneline", "-shellcheck=", "-pyflakes=", "-config-file", ROOT / ".github/actionlint.yaml")
#: variables that a step need not set: https://docs.github.com/en/actions/reference/workflows-and-actions/variables
GIVEN = re.compile(r"GITHUB_\w+|RUNNER_\w+|HOME|PATH")
MATRIX = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci" / "matrix.py")))


@functools.cache
def variants():
    """Return what `list --json` says of all recipes, made where it is asked for and not while tests are collected."""
    return json.loads(json.dumps(tables.described(Context.here(), catalog.all_recipes(Context.here()))))


class Workflow:
    """One file, and what the checks below look at."""

    def __init__(self, text):
        self.value = YAML(typ="safe", pure=True).load(text)
        self.jobs = self.value["jobs"]

    def steps(self):
        return [(job, step) for job in self.jobs.values() for step in job["steps"]]

    def scripts(self):
        """Each `run` with the variables that it is given."""
        outer = self.value.get("env", {})
        for job, step in self.steps():
            if "run" in step:
                yield step["run"], {*outer, *job.get("env", {}), *step.get("env", {})}


#: what opening a pull request takes
PROPOSING = {("contents", "write"), ("pull-requests", "write")}

each = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def test_they_have_the_form_that_github_asks_for_and_zizmor_finds_nothing():
    assert findings("check-jsonschema", *SCHEMA, *WORKFLOWS) == "ok -- validation done"
    assert "No findings to report" in findings("zizmor", *ZIZMOR, *WORKFLOWS)


def test_actionlint_finds_nothing_in_them_but_an_input_that_checkout_does_not_have(tmp_path):
    """It knows inputs and outputs of actions by their tags, types of expressions and labels of GitHub's runners."""
    for path in WORKFLOWS:
        (tmp_path / path.name).write_text(re.sub(r"@[0-9a-f]{40} # (v\d+)\S+", r"@\1", path.read_text()))
    assert findings("actionlint", *ACTIONLINT, *sorted(tmp_path.iterdir())) == ""
    path = tmp_path / "lint.yml"
    path.write_text(path.read_text().replace("persist-credentials", "persist-secrets"))
    assert 'input "persist-secrets" is not defined in action "actions/checkout@' in findings(
        "actionlint", *ACTIONLINT, path
    )


def test_actions_are_named_by_commit():
    """With the version for people behind it; the same action by the same commit everywhere."""
    uses = [use for path in WORKFLOWS for use in re.findall(r"uses: (.*)", path.read_text())]
    assert [use for use in uses if not re.fullmatch(r"actions/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use)] == []
    everywhere = {re.sub(r"^([\w-]+/[\w-]+)[\w/-]*@", r"\1@", use) for use in uses}
    assert len({use.partition("@")[0] for use in everywhere}) == len(everywhere)


@each
def test_jobs_are_bounded_and_may_little(path):
    workflow = Workflow(path.read_text())
    assert workflow.value["permissions"] == {}
    assert "concurrency" in workflow.value
    for job in workflow.jobs.values():
        extra = set(job["permissions"].items()) - {("contents", "read")}
        if extra & PROPOSING:  # a branch and its pull request, of files that another job made
            assert extra <= PROPOSING
            assert set(workflow.value["on"]) <= {"schedule", "workflow_dispatch"}
            uses = {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step}
            assert uses <= {"actions/checkout", "actions/download-artifact"}
            ran = [step["run"] for step in job["steps"] if "run" in step]
            assert all(re.fullmatch(r"\.ci/propose \S+", script.strip()) for script in ran)
        elif extra:  # only where nobody else's code runs
            assert set(workflow.value["on"]) <= {"push", "workflow_dispatch", "schedule"}
            assert {name for name, _ in extra} <= {"packages", "pages", "id-token", "attestations"}
        assert job["timeout-minutes"] <= 180
        if "self-hosted" in job["runs-on"]:
            triggers = set(workflow.value["on"])
            assert triggers <= {"workflow_dispatch", "pull_request"}
            assert "pull_request" not in triggers or "head.repo.full_name == github.repository" in job["if"]


@each
def test_the_shell_of_steps_is_clean_and_what_it_names_exists(path):
    """Values of GitHub's come in by `env`: none stands in the script, where it would be run."""
    workflow = Workflow(path.read_text())
    assert unknown_names(workflow) == set()
    for script, given in workflow.scripts():
        assert unknown_calls(script) == []
        assert "${{" not in script
        assert shellcheck(script) == ""
        assert {name for name in variables(script) if not GIVEN.fullmatch(name)} <= given, script


def test_publish_says_names_and_digests_for_githubs_attestation(tmp_path):
    programs = {"make": "echo torch:1", "build.py": 'echo "$4/torch:1@sha256:$(echo "$4" | cksum | cut -d " " -f 1)"'}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    given = {"PATH": f"{tmp_path}:/usr/bin:/bin", "STACK": "torch", "CUDA": "cpu", "GITHUB_OUTPUT": "said"}
    subprocess.run(["sh", ROOT / ".ci/publish", "ghcr.io/Team"], cwd=tmp_path, env=given, check=True)
    said = dict(line.split("=") for line in (tmp_path / "said").read_text().splitlines())
    assert (said["image"], said["sif"]) == ("ghcr.io/team/torch", "ghcr.io/team/sif/torch")
    assert len({said["image-digest"], said["sif-digest"]}) == 2
    steps = Workflow((ROOT / ".github/workflows/publish.yml").read_text()).jobs["image"]["steps"]
    taken = re.findall(r"steps\.publish\.outputs\.([\w-]+)", json.dumps(steps))
    assert sorted(taken) == sorted(said)


def test_security_fixes_are_proposed_weekly_as_the_stated_deadline_needs():
    (stated,) = re.findall(r"within (\d+) days of a fix", (ROOT / "docs/vulnerabilities.md").read_text())
    workflow = Workflow((ROOT / ".github/workflows/update.yml").read_text())
    (schedule,) = workflow.value["on"]["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* 2", schedule["cron"]), "each Tuesday"
    assert any("SECURITY=yes" in script for script, _ in workflow.scripts())
    assert int(stated) >= 7 + 7, "a week to the next, a week to merge it"


def variables(script):
    """Names of the variables that a script reads and does not set."""
    own = {*re.findall(r"(?:^|[\s;])(\w+)=", script), *re.findall(r"\bfor (\w+) in ", script)}
    return set(re.findall(r"\$\{?(\w*[A-Za-z]\w*)", script)) - own


def unknown_names(workflow):
    """Names in expressions of inputs, steps, jobs' outputs and the matrix that do not exist."""
    inputs = {f"inputs.{name}" for name in (workflow.value["on"].get("workflow_dispatch") or {}).get("inputs", {})}
    found = set()
    for job in workflow.jobs.values():
        matrix = job.get("strategy", {}).get("matrix", {})
        known = inputs | {
            f"matrix.{name}" for name in (matrix if isinstance(matrix, dict) else MATRIX.jobs(variants())[0])
        }
        known |= {f"steps.{step['id']}" for step in job["steps"] if "id" in step}
        if "needs" in job:  # one job at most
            outputs = workflow.jobs[job["needs"]].get("outputs", {})
            known |= {f"needs.{job['needs']}.outputs.{name}" for name in outputs}
        conditions = [job.get("if", ""), *(step.get("if", "") for step in job["steps"])]
        texts = " ".join([*re.findall(r"\$\{\{(.*?)\}\}", json.dumps(job)), *conditions])
        named = re.findall(r"\b(?:inputs|steps|(?<!needs\.)matrix)\.\w+|needs\.\w+\.outputs\.\w+", texts)
        found |= set(named) - known
    return found


# --- what they call ---------------------------------------------------------------------------------------------------


def unknown_calls(script):
    """Words behind `make` and `./build.py` that neither knows, and programs of ours that are not there."""
    targets = set(re.findall(r"^([a-z-]+): ", MAKEFILE, re.MULTILINE))
    settings = set(re.findall(r"\b([A-Z]+)=", re.search(r"^# Settings: (.*)", MAKEFILE, re.MULTILINE)[1]))
    own, upkeeps = (typer.main.get_command(app).commands for app in (main.app, upkeep.app))
    found = []
    for words in calls(script):
        if words[0] == "make":
            found += [word for word in words[1:] if "=" not in word and word not in targets]
            found += [word for word in words[1:] if "=" in word and word.partition("=")[0] not in settings]
        elif words[0] == "./build.py":
            commands = upkeeps if is_upkeeps(words[1:]) else own
            parameters = commands[words[1]].params if words[1] in commands else []
            options = {option for one in parameters for option in (*one.opts, *one.secondary_opts)}
            found += [words[1]] if words[1] not in commands else []
            found += [word for word in words if word.startswith("--") and word.partition("=")[0] not in options]
        elif words[0].startswith(".ci/") and not (ROOT / words[0]).is_file():
            found.append(words[0])
    return found


def calls(script):
    """The simple commands of a script that begin with a program of ours, as words."""
    pieces = re.split(r"\n|;|&&|\|+|\$\(|\)|\{ |sudo env \S+ ", script.replace("\\\n", " "))
    words = [shlex.split(piece.strip().split(" < ")[0].split(" > ")[0]) for piece in pieces if "'" not in piece]
    return [line for line in words if line and (line[0] in ("make", "./build.py") or line[0].startswith(".ci/"))]


# --- the matrix -------------------------------------------------------------------------------------------------------


def test_every_variant_has_a_job_and_each_committed_lock_is_the_key_of_one():
    jobs = MATRIX.jobs(variants())
    known = [(recipe.name, one) for recipe in catalog.all_recipes(Context.here()) for one in recipe.variants]
    available = {(name, one.cuda) for name, one in known if one.unavailable is None}
    assert {(job["recipe"], job["cuda"]) for job in jobs} == available
    assert all(job["channel"] != "local" for job in jobs)
    keys = [job["lock"] for job in jobs]
    assert len(set(keys)) == len(keys)
    assert {path.relative_to(ROOT).as_posix() for path in ROOT.glob("images/*/*/*.lock.json")} <= set(keys)


def test_no_two_jobs_set_the_same_tag():
    """They run at once: whichever ended last would have it. The short tag is the preferred candidate's."""
    jobs = MATRIX.jobs(variants())
    names = [(job["recipe"], job["tag"]) for job in jobs]
    assert len(set(names)) == len(names)
    first = {}
    for job in jobs:
        first.setdefault((job["recipe"], job["cuda"]), job["tag"])
    assert all(tag == MATRIX.label(cuda) for (_, cuda), tag in first.items())


def test_the_matrix_can_be_narrowed(capsys):
    assert MATRIX.main(variants(), "pyg", "11.8") == 0
    printed = json.loads(capsys.readouterr().out)["include"]
    assert [(job["recipe"], job["cuda"]) for job in printed] == [("pyg", "11.8")] * len(printed) != []
    assert MATRIX.main(variants(), "", "") == 0
    assert json.loads(capsys.readouterr().out)["include"] == MATRIX.jobs(variants())
    assert MATRIX.main(variants(), "pgy", "11.8") == 2
    assert "pgy" in capsys.readouterr().err


def test_nothing_is_published_where_nobody_asked():
    """A job whose condition names a status function runs although the jobs that it needs were skipped."""
    jobs = Workflow((ROOT / ".github" / "workflows" / "publish.yml").read_text()).jobs
    assert "vars.PUBLISH" in jobs["matrix"]["if"]
    for name, job in jobs.items():
        assert name == "matrix" or job["needs"] in jobs, name
        condition = str(job.get("if"))
        if re.search(r"cancelled|always|failure", condition):
            assert f"needs.{job['needs']}.result != 'skipped'" in condition


@pytest.mark.parametrize("name", ["images", "publish"])
def test_the_lock_of_each_image_is_kept(name):
    """Most of PyTorch's own candidates are resolved in the job: `verify --rebuild` needs what it found."""
    steps = Workflow((ROOT / f".github/workflows/{name}.yml").read_text()).jobs["image"]["steps"]
    (kept,) = (step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", ""))
    assert {"dist/*/*/lock.json", "dist/*/*/report.json"} <= set(kept.split())


def test_the_cache_is_saved_as_it_is_restored():
    """GitHub's key for a cache includes its paths."""
    steps = [step for _, step in Workflow((ROOT / ".github/workflows/images.yml").read_text()).steps()]
    paths = [step["with"]["path"] for step in steps if "actions/cache/" in step.get("uses", "")]
    assert len(paths) == 2
    assert paths[0] == paths[1]
