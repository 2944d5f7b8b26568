"""examples/doctor.py is the modules of graphcrate/doctor, fresh, for Python 3.6, and knows what graphcrate knows."""

import ast
import os
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate import errors
from graphcrate.compat import drivers, facts
from graphcrate.doctor import __main__ as command
from graphcrate.doctor import cuda
from graphcrate.doctor import facts as doctors_facts
from tools import doctor_facts, doctor_file, doctor_page

MODULES = sorted(doctor_file.PACKAGE.glob("*.py"))
SINGLE = doctor_file.TARGET.read_text(encoding="utf-8")


def test_its_facts_are_fresh():
    assert doctor_facts.MODULE.read_text(encoding="utf-8") == doctor_facts.text(), "python -m tools.doctor_facts"


def test_it_is_fresh():
    assert doctor_file.text() == SINGLE, "python -m tools.doctor_file"
    assert os.access(doctor_file.TARGET, os.X_OK)


@pytest.mark.parametrize("path", [*MODULES, doctor_file.TARGET], ids=lambda path: path.name)
def test_python_3_6_reads_it(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))
    for node in ast.walk(tree):  # what the parser lets through
        assert not isinstance(node, ast.NamedExpr | ast.Match)
        assert not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert not node.args.posonlyargs
        if isinstance(node, ast.keyword):
            assert node.arg not in ("capture_output", "text", "missing_ok", "dirs_exist_ok")
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("removeprefix", "removesuffix", "is_relative_to", "fromisoformat", "readlink")


@pytest.mark.parametrize("path", [*MODULES, doctor_file.TARGET], ids=lambda path: path.name)
def test_it_needs_the_standard_library_alone(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            sister = path != doctor_file.TARGET and name.startswith("graphcrate.doctor")
            assert sister or name.split(".")[0] in sys.stdlib_module_names


def test_the_file_does_what_the_modules_do(capsys):
    scope = {"__name__": "doctor"}
    exec(compile(SINGLE, "doctor.py", "exec"), scope)
    code = scope["main"](["--explain", "CUDA out of memory"])
    alone = capsys.readouterr().out
    assert (code, alone) == (command.main(["--explain", "CUDA out of memory"]), capsys.readouterr().out)


def test_names_that_two_modules_have_are_refused():
    trees = {"one": ast.parse("def look(): pass"), "other": ast.parse("look = 1")}
    with pytest.raises(ValueError, match="look is in one and in other"):
        doctor_file.refuse_doubles(trees)
    with pytest.raises(ValueError, match="imports json under another name"):
        doctor_file.refuse_doubles({"one": ast.parse("import json as j")})


def test_it_ends_with_the_codes_of_graphcrate():
    assert errors.HostError.exit_code == command.LACKING
    assert errors.UsageError.exit_code == command.UNKNOWN


# What it says of drivers is what graphcrate.compat says


@pytest.mark.parametrize("version", [*doctors_facts.TOOLKIT_DRIVERS, "11.9", "12.7", "14.0", "8.0"])
def test_it_asks_for_the_same_driver(version):
    assert cuda.oldest_driver(version) == drivers.oldest_driver(version)


@given(st.tuples(st.integers(340, 620), st.integers(0, 120), st.integers(0, 12)))
def test_it_knows_the_same_of_each_driver(parts):
    driver = ".".join(f"{part:02}" for part in parts)
    assert cuda.newest_cuda(driver) == drivers.newest_cuda(driver)


@given(
    st.lists(st.sampled_from(["5.0", "6.1", "7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0"]), max_size=4),
    st.sampled_from(["6.0", "7.0", "7.2", "8.0", "8.9", "9.0", "10.3", "12.1"]),
)
def test_it_judges_machine_code_alike(built, capability):
    assert cuda.has_code(built, capability) == facts.has_code(built, capability)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("Tesla V100-SXM3-32GB", "7.0"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA A10", "8.6"),
        ("NVIDIA H100 PCIe", "9.0"),
        ("NVIDIA GeForce RTX 4090", "8.9"),
        ("NVIDIA L40S", "8.9"),
        ("Tesla T4", "7.5"),
        ("NVIDIA TITAN V", "7.0"),
        ("NVIDIA GH200 480GB", "9.0"),
        ("NVIDIA RTX PRO 6000 Blackwell", "12.0"),
        ("Matrox G200", ""),
    ],
)
def test_a_gpu_is_known_by_its_name(name, capability):
    assert cuda.capability_of(name) == capability


def test_its_page_is_fresh():
    page = doctor_page.PAGE.read_text(encoding="utf-8")
    assert doctor_page.rendered(page) == page, "python -m tools.doctor_page"


def test_the_readmes_example_is_what_it_prints(capsys):
    readme = (doctor_file.ROOT / "README.md").read_text(encoding="utf-8")
    question, answer = re.search(
        r'^\$ \./build\.py doctor --explain "(.*)"\n((?:.+\n)+?)```', readme, re.MULTILINE
    ).groups()
    assert command.main(["--explain", question]) == 0
    assert capsys.readouterr().out == answer
