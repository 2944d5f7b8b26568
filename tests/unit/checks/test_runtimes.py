"""Runtimes are rows: what goes by them, and that nothing else has to know which there are."""

import ast
import dataclasses
import importlib
import pkgutil
from typing import get_args

import msgspec
import pytest

from graphcrate.artifacts.locate import Located
from graphcrate.checks import contracts
from graphcrate.checks.contracts.check import Check
from graphcrate.checks.contracts.run import CHECKS
from graphcrate.compat.facts import facts
from graphcrate.engines.trials import artifact
from graphcrate.model.command import command
from graphcrate.model.runtime import (
    JOBS,
    RUNNER_FORMS,
    RUNNERS,
    RUNTIMES,
    JobForm,
    OwnImage,
    RunnerForm,
    RuntimeName,
    runtime_name,
)
from graphcrate.model.tree import Form
from graphcrate.pages import report
from graphcrate.render import job_image, jobs
from graphcrate.render.job import Job, Mount, read_runtime
from tests import ROOT, modules_of_house, nodes_of, tree_of_file
from tests.commands import objections

#: where a runtime's name may stand: its row, its checks, and engines, each of which is one of them
HOMES = ("graphcrate/model/runtime.py", "graphcrate/checks/contracts/", "graphcrate/engines/", "graphcrate/render/")


def test_runtime_names_and_aliases_are_unique_rows():
    assert get_args(RuntimeName) == tuple(RUNTIMES)
    words = [word for name, row in RUNTIMES.items() for word in (name, *row.also_called)]
    assert len(set(words)) == len(words)
    assert (runtime_name("enroot"), runtime_name("podman"), runtime_name("shifter")) == ("pyxis", "docker", None)
    assert {"auto", "embedded", "docker", "podman", "apptainer", "slurm"} <= set(RUNNERS)


def test_all_checks_of_the_contract_modules_are_registered():
    names = [module.name for module in pkgutil.iter_modules(contracts.__path__)]
    modules = [importlib.import_module(f"{contracts.__name__}.{name}") for name in names]
    found = {check.id for module in modules for check in vars(module).values() if type(check) is Check}
    assert found == {check.id for check in CHECKS}


def test_job_forms_have_a_template_or_function():
    templates = ROOT / "graphcrate" / "render" / "templates"
    assert [name for name in JOBS if not (templates / f"job-{name}").is_file() and not name.startswith("pai-")] == []
    assert not [form for form in JOBS.values() if not form.files and not form.pulls], "opens nothing"


def test_runners_have_rows_and_each_form_one_runner():
    assert all(artifact._opener(name) for name in RUNNERS if name != "auto")
    forms = [form for row in RUNNER_FORMS.values() for form in row.forms]
    assert sorted((*forms, "folder")) == sorted(get_args(Form))


def test_version_limits_have_a_runtime_and_a_formatted_text():
    for limit in facts.limits().values():
        assert bool(limit.runtime) == bool(limit.before)
        limit.before.format(since="1", version="0")


def test_job_form_of_charliecloud_needs_a_row_and_a_template_only(monkeypatch, tmp_path):
    """Charliecloud's ch-run would be; here the template is that of Singularity."""
    row = JobForm(is_slurm=True, options=JOBS["singularity"].options, files=(".sqfs",), bind="-b", gpus="--gpus={gpus}")
    for module in (jobs, job_image):
        monkeypatch.setattr(module, "JOBS", {**JOBS, "charliecloud": row})
    monkeypatch.setattr(job_image, "_ENDINGS", (".sqfs",))
    monkeypatch.setattr(jobs, "render_template", lambda name, values: f"{name}{values['binds']}{values['gpus']}")
    assert read_runtime("charliecloud") == "charliecloud"
    assert job_image.find_image("/lustre/pyg.sqfs", "charliecloud", tmp_path) == "/lustre/pyg.sqfs"
    job = Job(runtime="charliecloud", name="a", image="/a.sqfs", command="ls", mounts=(Mount("/a", "/b"),))
    assert jobs.text(job) == "job-charliecloud -b /a:/b --gpus=1"


def test_page_of_an_image_has_a_tab_for_each_runtime_row(monkeypatch):
    line = "ch-run image.sqsh -- python train.py"
    row = msgspec.structs.replace(RUNTIMES["docker"], title="Charliecloud", own=OwnImage("sqsh", line, "image.sqsh"))
    monkeypatch.setattr(report, "RUNTIMES", {**RUNTIMES, "charliecloud": row})
    tabs = {tab.id: tab for tab in report.run_tabs("pyg:1", "pyg:1", has_gpus=True)}
    assert list(tabs) == ["apptainer", "pyxis", "docker", "pai", "charliecloud", "here"]
    assert tabs["charliecloud"].text == f"./build.py convert pyg:1 --to sqsh --output image.sqsh\n{line}"
    assert [tabs[name].title for name in ("docker", "charliecloud", "here")] == ["Docker", "Charliecloud", "no engine"]
    assert " pyg:1 python train.py" in tabs["docker"].text
    assert tabs["pai"].text.startswith("./build.py publish pyg:1 --to acr:")
    for own in (row.own for row in RUNTIMES.values() if row.own.file):
        assert objections(command("convert", "pyg:1", to=own.to, output=own.file)) == []


@pytest.mark.parametrize("runtime", ["pyxis", "pai"])
def test_runtime_names_occur_in_their_own_packages_only(runtime):
    naming = [
        str(path.relative_to(ROOT))
        for path in modules_of_house()
        if runtime in path.read_text(encoding="utf-8")
        for node in nodes_of(tree_of_file(path), ast.Constant)
        if node.value == runtime
    ]
    assert [path for path in dict.fromkeys(naming) if not path.startswith(HOMES)] == []


def test_runner_of_charliecloud_needs_its_row_and_an_engine_only(monkeypatch, tmp_path):
    """Opening a file that `convert` makes is no function of `engines.trials`."""
    row = RunnerForm("NAME:TAG, a layout, or a .sqsh", (), file="sqsh")
    monkeypatch.setattr(artifact, "RUNNER_FORMS", {**RUNNER_FORMS, "charliecloud": row})
    image = tmp_path / "image.sqsh"
    image.write_bytes(b"1")
    source = Located(ref=str(image), form="squashfs", name=image.name, path=image)
    opened = artifact._opener("charliecloud")(source, None, False)
    assert (opened.engine, opened.kind, opened.reference, opened.bytes) == ("charliecloud", "sqsh", str(image), 1)
    assert artifact._opener("charliecloud")(dataclasses.replace(source, form="sif"), None, False) is None
