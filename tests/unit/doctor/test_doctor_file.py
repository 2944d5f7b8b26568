"""The doctor: modules and one file for Python 3.6, which know what graphcrate knows."""

import ast
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor import __main__ as command
from doctor import cuda
from doctor import facts as doctors_facts
from graphcrate.compat.facts import driver_table, facts, gpu_table
from graphcrate.compat.plan import programs
from graphcrate.host.context import Context
from graphcrate.model import errors
from tests import ROOT, imports

MODULES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "doctor").glob("*.py")}
SINGLE = programs.doctor(ROOT / "doctor")
#: of a host: build.py calls them with the Python that is there
ON_HOSTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("graphcrate/cli/diagnosis.py", "build.py")}
ON_HOSTS["graphcrate/cli/diagnosis_facts.py"] = (ROOT / "graphcrate/cli/diagnosis_facts.py").read_text(encoding="utf-8")
SOURCES = {**MODULES, **ON_HOSTS, "the one file": SINGLE}


def test_doctor_file_is_among_the_programs_of_images():
    assert programs.examples(Context(root=ROOT, environment={}))["examples/doctor.py"] == SINGLE
    assert SINGLE.startswith("#!")


#: what Python 3.6 has no such argument or method for
NEWER = {
    *("capture_output", "text", "missing_ok", "dirs_exist_ok"),
    *("removeprefix", "removesuffix", "is_relative_to", "fromisoformat", "readlink"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_doctor_parses_with_python_3_6_and_imports_stdlib_only(name):
    sisters = {"doctor"} if name in MODULES else {"doctor", "graphcrate", "upkeep"} if name in ON_HOSTS else set()
    tree = ast.parse(SOURCES[name], feature_version=(3, 6))
    assert {one.partition(".")[0] for one in imports(tree)} <= sisters | sys.stdlib_module_names - {"__future__"}
    for node in ast.walk(tree):  # what the parser lets through
        assert not isinstance(node, ast.NamedExpr | ast.Match)
        assert not (isinstance(node, ast.arguments) and node.posonlyargs)
        assert not {getattr(node, "arg", "") if isinstance(node, ast.keyword) else getattr(node, "attr", "")} & NEWER


def test_doctor_file_prints_what_its_modules_print(capsys):
    scope = {"__name__": "doctor"}
    exec(compile(SINGLE, "doctor.py", "exec"), scope)
    code = scope["main"](["--explain", "CUDA out of memory"])
    alone = capsys.readouterr().out
    assert (code, alone) == (command.main(["--explain", "CUDA out of memory"]), capsys.readouterr().out)


def test_doctor_modules_have_unique_top_level_names():
    """In one file a second one would take the first one's place."""
    owners = {}
    for module, source in MODULES.items():
        tree = ast.parse(source)
        assert [node.name for node in ast.walk(tree) if isinstance(node, ast.alias) and node.asname] == []
        for node in tree.body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            names = [part.id for target in targets if target for part in ast.walk(target) if isinstance(part, ast.Name)]
            names += [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            for name in names:
                assert owners.setdefault(name, module) == module, f"{name} is in {owners[name]} and in {module}"


def test_doctor_exit_codes_equal_those_of_graphcrate():
    assert errors.HostError.exit_code == command.LACKING
    assert errors.UsageError.exit_code == command.UNKNOWN


# What it says of drivers is what graphcrate.compat says


@pytest.mark.parametrize("version", [*doctors_facts.TOOLKIT_DRIVERS, "11.9", "12.7", "14.0", "8.0"])
def test_doctor_oldest_driver_equals_that_of_graphcrate(version):
    assert cuda.oldest_driver(version) == driver_table.oldest_driver(version)


@given(st.tuples(st.integers(340, 620), st.integers(0, 120), st.integers(0, 12)))
def test_doctor_newest_cuda_equals_that_of_graphcrate(parts):
    driver = ".".join(f"{part:02}" for part in parts)
    assert cuda.newest_cuda(driver) == driver_table.newest_cuda(driver)


@given(
    st.lists(st.sampled_from(["5.0", "6.1", "7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0"]), max_size=4),
    st.sampled_from(["6.0", "7.0", "7.2", "8.0", "8.9", "9.0", "10.3", "12.1"]),
)
def test_doctor_has_code_equals_that_of_graphcrate(built, capability):
    assert cuda.has_code(built, capability) == facts.has_code(built, capability)


def test_doctor_knows_capabilities_by_gpu_name():
    assert cuda.capability_of("Matrox G200") == ""
    for model in (
        *("Tesla V100-SXM3-32GB", "NVIDIA TITAN V", "Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA A10", "NVIDIA L40S"),
        *("NVIDIA GeForce RTX 4090", "NVIDIA H100 PCIe", "NVIDIA RTX PRO 6000 Blackwell"),
    ):
        assert cuda.capability_of(model) == gpu_table.compute_capability(model)


def test_checks_page_shows_the_output_of_doctor_explain(capsys):
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    question, answer = re.search(
        r'^\$ \./build\.py doctor --explain "(.*)"\n((?:.+\n)+?)```', page, re.MULTILINE
    ).groups()
    assert command.main(["--explain", question]) == 0
    assert capsys.readouterr().out == answer
