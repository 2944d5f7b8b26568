"""The stacks that people come for, on CUDA builds of torch: an extension compiled from source, every suite inside.

For one GPU model, and pyg with one extension alone, since CUDA compiles for minutes. All of it takes a quarter of an
hour on two cores. The recipes' own are built by the workflow `images`. Without a GPU the suites run on the CPU.
"""

import contextlib
import dataclasses
import os
import shutil

import pytest

from tests.engines import glt_pages
from tests.engines.workplace import Workplace, call, copy_project, wheel_folder

pytestmark = [
    pytest.mark.weekly,
    pytest.mark.network,
    pytest.mark.engine("user namespaces"),
]

COMPILED = {"pyg": {"torch-spline-conv"}, "glt": {"torch-scatter", "torch-sparse"}}
#: what the recipe of pyg lists → what is compiled here
FEWER = {
    '"pyg_lib", "torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv"': '"torch_spline_conv"',
    '"pyg_lib", "torch_scatter", "torch_sparse"': '"torch_scatter"',
}
REQUESTS = {
    "pyg": ("pyg", "--cuda", "11.8", "--channel", "pypi", "--extensions", "source", "--gpu", "v100"),
    "glt": ("glt", "--cuda", "11.6", "--channel", "pypi", "--extensions", "source", "--gpu", "v100"),
}


@dataclasses.dataclass(frozen=True)
class Stack:
    """An image that was built and proven, and where."""

    name: str
    report: dict
    place: Workplace

    @property
    def layout(self):
        return self.place.layout(self.report)


@contextlib.contextmanager
def own_place(folder):
    """A copy of the project with a cache of its own, so that what is compiled is compiled here; gone at the end.

    An image, what it is made of and what it is unpacked to are 15 GB.
    """
    copy = copy_project(folder / "project")
    path = copy / "recipes" / "pyg.toml"
    text = path.read_text()
    for listed, wanted in FEWER.items():
        assert f"[{listed}]" in text
        text = text.replace(f"[{listed}]", f"[{wanted}]")
    path.write_text(text)
    try:
        yield Workplace(copy, folder / "cache")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", params=REQUESTS)
def stack(request, ground):
    with own_place(ground / f"stack-{request.param}") as place:
        finished = place.run("image", *REQUESTS[request.param], "--json", timeout=3600)
        yield Stack(request.param, finished.json, place)


def test_extensions_are_compiled_and_every_suite_passes(stack):
    report = stack.report
    packages = {package["name"] for package in report["packages"]}
    assert COMPILED[stack.name] <= packages
    suites = {"pyg": ("dna", "ops", "ddp"), "glt": ("dna", "ops", "ddp", "glt", "glt-distributed")}[stack.name]
    assert {suite["suite"]: suite["status"] for suite in report["suites"]} == dict.fromkeys(suites, "passed")
    assert report["tag"].endswith("-compat-sm70")
    assert report["audit"]["fail"] == 0, report["audit"]
    stack.place.run("run", stack.layout, "--", "sh", "-c", "! ls -d /usr/bin/*g++* /usr/bin/cc /usr/local/cuda").ok()
    assert "ninja" not in packages
    (torch,) = (suite["metrics"]["versions"] for suite in report["suites"] if suite["suite"] == "ops")
    assert torch["torch_cuda"] == report["torch_cuda"] == "11.7"


def test_the_second_image_takes_its_extensions_from_the_cache(stack):
    again = stack.place.run("image", *REQUESTS[stack.name], "--output", "again", "--no-smoke", "--json").ok()
    assert again.json["digest"] == stack.report["digest"]
    assert "compiling" not in again.err
    last = again.err.splitlines()[-1]
    assert last.startswith(f"  insist on torch {again.json['fallback']['torch']}")
    assert f"--channel {again.json['fallback']['channel']} --extensions source --output again" in last


def test_the_published_tag_names_the_same_image(stack):
    links = [path for path in (stack.place.folder / "dist" / stack.name).iterdir() if path.is_symlink()]
    assert [path.resolve().name for path in links] == [stack.report["tag"]]
    if stack.name == "glt":
        assert links[0].name.endswith("-debian11-py3.9-torch1.13-cuda11.6-compat-sm70"), "as PAI's guide names it"
    shown = stack.place.run("inspect", f"{stack.name}:{links[0].name}", "--json").json
    assert shown["digest"] == stack.report["digest"]


def test_a_devel_image_compiles_what_a_user_brings(stack):
    if stack.name != "pyg":
        pytest.skip("one stack is enough")
    place = stack.place
    made = place.run("image", *REQUESTS[stack.name], "--flavour", "devel", "--no-smoke", "--json").ok()
    assert made.json["tag"].endswith("-sm70-devel")
    line = "echo '__global__ void nothing() {}' > /tmp/a.cu && cd /tmp && nvcc -arch=sm_70 -c a.cu && $CXX --version"
    shown = place.run("run", place.layout(made.json), "--", "sh", "-c", line).ok()
    assert shown.out.startswith("g++-11")


@pytest.mark.engine("docker daemon")
@pytest.mark.skipif(not wheel_folder(), reason="no wheel of torch for the CPU here")
def test_extension_compiled_in_docker_equals_ours(ground, docker):
    request = ("pyg", "--cuda", "cpu", "--wheels", wheel_folder(), "--extensions", "source", "--no-smoke", "--json")
    with own_place(ground / "stack-cpu") as place:
        ours = place.run("image", *request)
        assert "torch-scatter" in {package["name"] for package in ours.json["packages"]}
        there = place.having(DOCKER_HOST=docker)
        theirs = there.run("image", *request, "--engine", "docker")
        told = there.run("diff", place.layout(ours.json), f"docker:{theirs.json['artifact']['reference']}", "--json")
    assert told.json["unexpected"] == []


@pytest.mark.engine("apptainer build", "two hosts", "slurm")
def test_the_page_on_glt_is_typed_on_two_hosts_and_under_slurm(stack, hosts, apptainer, slurm, scratch):
    if stack.name != "glt":
        pytest.skip("only images with GLT")
    place, tag = stack.place, stack.report["tag"]
    place.run("convert", f"glt:{tag}", "--to", "sif", "--compression", "zstd").ok()
    glt_pages.type_cutting(scratch, place.folder / "dist" / "glt" / tag / "glt.sif", apptainer)
    glt_pages.download_products(scratch, apptainer)
    glt_pages.type_on_one_machine(scratch, apptainer)
    glt_pages.type_training(hosts, scratch, apptainer)
    glt_pages.type_dlc_jobs(hosts, scratch, apptainer)
    glt_pages.type_launching(hosts, scratch, apptainer)
    glt_pages.type_notebook(scratch, apptainer)
    both_here = {"MASTER_ADDR": "127.0.0.1"}  # the cluster's n1 is a name of loopback, as its n2 is
    glt_pages.type_under_slurm(scratch, {**apptainer, **slurm.environment, **both_here})


@pytest.mark.engine("apptainer build", "two hosts", "slurm", "pyxis")
def test_a_plain_user_trains_on_two_nodes_by_ssh_and_by_srun_with_pyxis(stack, pyxis_site, plain_user, scratch):
    """As docs/tutorials/glt.md has it: cut, start over ssh with tmux, then with the real pyxis."""
    if stack.name != "glt":
        pytest.skip("only images with GLT")
    place, tag = stack.place, stack.report["tag"]
    place.run("convert", f"glt:{tag}", "--to", "sif", "--compression", "zstd", "--force").ok()
    place.run("convert", f"glt:{tag}", "--to", "sqsh", "--output", scratch / "glt.sqsh").ok()
    glt_pages.type_cutting(scratch, place.folder / "dist" / "glt" / tag / "glt.sif", dict(os.environ))
    call("chown", "-R", plain_user.pw_name, scratch)
    glt_pages.type_launching(pyxis_site.hosts, scratch, dict(os.environ), plain_user.pw_name)
    glt_pages.type_under_pyxis(pyxis_site, scratch)
    assert pyxis_site.containers() == []
