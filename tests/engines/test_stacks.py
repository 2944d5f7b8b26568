"""The stacks that people come for, on CUDA builds of torch: an extension compiled from source, every suite inside.

For one GPU model, and pyg with one extension alone, since CUDA compiles for minutes: half an hour on two cores, so
they run where STACKS is set (`STACKS=build make test`). The recipes' own are built by the workflow `images`. Without a
GPU the suites run on the CPU.
"""

import json
import os

import pytest

from tests.engines.workplace import Workplace, copy_project

pytestmark = [
    pytest.mark.build,
    pytest.mark.network,
    pytest.mark.engine("mmdebstrap"),
    pytest.mark.skipif(not os.environ.get("STACKS"), reason="takes half an hour: STACKS=build make test"),
]

#: torch_sparse imports torch_scatter, which its metadata does not say
COMPILED = {"pyg": {"torch-scatter"}, "glt": {"torch-scatter", "torch-sparse"}}
EXTENSIONS = '"pyg_lib", "torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv"'
REQUESTS = {
    "pyg": ("pyg", "--cuda", "11.8", "--channel", "pypi", "--extensions", "source", "--gpu", "v100"),
    "glt": ("glt", "--cuda", "11.7", "--extensions", "source", "--gpu", "v100"),
}


@pytest.fixture(scope="module")
def place(ground):
    """A copy of the project with a cache of its own, so that what is compiled is compiled here."""
    copy = copy_project(ground / "stacks")
    path = copy / "recipes" / "pyg.toml"
    text = path.read_text()
    assert EXTENSIONS in text
    path.write_text(text.replace(EXTENSIONS, '"torch_scatter"'))
    return Workplace(copy, ground / "stacks-cache")


@pytest.fixture(scope="module", params=REQUESTS)
def stack(request, place):
    """(recipe, report) of an image that was built and proven."""
    finished = place.run("image", *REQUESTS[request.param], "--json", timeout=3600)
    assert finished.code == 0, finished.err
    return request.param, json.loads(finished.out)


def test_extensions_are_compiled_and_every_suite_passes(stack):
    name, report = stack
    packages = {package["name"] for package in report["packages"]}
    assert COMPILED[name] <= packages
    assert {suite["suite"]: suite["status"] for suite in report["suites"]} == dict.fromkeys(
        {"pyg": ("dna", "ops"), "glt": ("dna", "ops", "glt")}[name], "passed"
    )
    assert report["tag"].endswith("-sm70")


def test_no_compiler_and_no_toolkit_is_in_the_image(stack, place):
    _, report = stack
    reference = place.layout(report)
    looked = place.run("run", reference, "--", "sh", "-c", "! ls -d /usr/bin/*g++* /usr/bin/cc /usr/local/cuda 2>&1")
    assert looked.code == 0, looked.out
    names = {package["name"] for package in report["packages"]}
    assert "ninja" not in names


def test_the_second_image_takes_its_extensions_from_the_cache(stack, place):
    name, report = stack
    again = place.run("image", *REQUESTS[name], "--output", "again", "--no-smoke", "--json")
    assert again.code == 0, again.err
    assert again.json["digest"] == report["digest"]
    assert "compiling" not in again.err


def test_the_published_tag_names_the_same_image(stack, place):
    name, report = stack
    links = [path for path in (place.folder / "dist" / name).iterdir() if path.is_symlink()]
    assert [path.resolve().name for path in links] == [report["tag"]]
    shown = place.run("inspect", f"{name}:{links[0].name}", "--json").json
    assert shown["digest"] == report["digest"]


def test_a_devel_image_compiles_what_a_user_brings(stack, place):
    name, _ = stack
    if name != "pyg":
        pytest.skip("one stack is enough")
    made = place.run("image", *REQUESTS[name], "--flavour", "devel", "--no-smoke", "--json")
    assert made.code == 0, made.err
    assert made.json["tag"].endswith("-sm70-devel")
    line = "echo '__global__ void nothing() {}' > /tmp/a.cu && cd /tmp && nvcc -arch=sm_70 -c a.cu && $CXX --version"
    shown = place.run("run", place.layout(made.json), "--", "sh", "-c", line)
    assert shown.code == 0, shown.out + shown.err
    assert shown.out.startswith("g++-11")
