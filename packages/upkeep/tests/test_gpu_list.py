"""NVIDIA's list of compute capabilities, as a saved page of its form, beside the table of GPUs."""

import shutil
import tomllib

import pytest

from graphcrate.model.errors import IntegrityError, UsageError
from tests import ROOT
from tests.made import refused
from upkeep import gpu_list

PAGE = """<table><tr><th>Compute Capability</th><th>Data Center</th><th>GeForce</th><th>Jetson</th></tr>
<tr><td>12.1</td><td><p>NVIDIA GB10 (DGX Spark)</p></td><td></td></tr>
<tr><td> 9.0 </td><td>NVIDIA H200<br/>NVIDIA H100</td><td>-</td></tr>
<tr><td>8.6</td><td>NVIDIA A40</td><td>GeForce RTX 3090 Ti<br>GeForce RTX 3090</td></tr>%s</table>"""
NEW = "<tr><td>8.9</td><td></td><td>GeForce RTX 4242 Ti<br>NVIDIA RTX 4243 Ada Generation</td></tr>"


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / gpu_list.TABLE).parent.mkdir(parents=True)
    shutil.copy(ROOT / gpu_list.TABLE, tmp_path / gpu_list.TABLE)
    return tmp_path


def update(checkout, more, *, check=False):
    page = checkout / "cuda-gpus.html"
    page.write_text(PAGE % more)
    return gpu_list.update(page, checkout, check=check)


def test_models_of_a_page_are_read_with_the_capability_of_their_row():
    assert list(gpu_list.models_of(PAGE % "")) == [
        ("NVIDIA GB10 (DGX Spark)", "12.1"),
        ("NVIDIA H200", "9.0"),
        ("NVIDIA H100", "9.0"),
        ("NVIDIA A40", "8.6"),
        ("GeForce RTX 3090 Ti", "8.6"),
        ("GeForce RTX 3090", "8.6"),
    ]


def test_known_models_change_nothing_and_new_ones_get_a_row_with_their_source(checkout):
    before = (checkout / gpu_list.TABLE).read_text()
    assert update(checkout, "") == ["6 models, all known"]
    lines = ["RTX_4242_TI: 8.9", "RTX_4243_ADA: 8.9"]
    assert update(checkout, NEW, check=True) == lines
    assert (checkout / gpu_list.TABLE).read_text() == before
    assert update(checkout, NEW) == lines
    after = (checkout / gpu_list.TABLE).read_text()
    assert tomllib.loads(after)["more"] == tomllib.loads(before)["more"] | {
        "RTX_4242_TI": "8.9",
        "RTX_4243_ADA": "8.9",
    }
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert all("# documented: NVIDIA, cuda-gpus.html, 2" in line for line in added)
    assert len(added) == 2


def test_another_capability_than_the_tables_is_refused_and_nothing_is_written(checkout):
    before = (checkout / gpu_list.TABLE).read_text()
    with refused(IntegrityError, "NVIDIA L4: 9.0 there, 8.9 here"):
        update(checkout, f"{NEW}<tr><td>9.0</td><td>NVIDIA L4</td></tr>")
    assert (checkout / gpu_list.TABLE).read_text() == before


@pytest.mark.parametrize("content", [None, "", "<table><tr><td>x</td></tr></table>", "<td>8.0</td>A100"])
def test_page_without_a_list_is_refused(checkout, content):
    page = checkout / "cuda-gpus.html"
    if content is not None:
        page.write_text(content)
    with refused(UsageError, "cuda-gpus.html"):
        gpu_list.update(page, checkout, check=True)
