"""Sites that reach a part of the hosts: each build ends with a whole image, and says in a line what it did instead.

The commands run in this process on images of a few bytes, as in test_wiring.py; the pages are those of real_pages.py.
"""

import itertools
import json

import pytest

from graphcrate.compat.facts import addresses
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources import hosts
from graphcrate.resolve.sources.source import SourceKind
from graphcrate.resolve.sources.wheel_mirrors import MIRRORS, WheelMirror
from graphcrate.resolve.stack import pinning, resolver
from tests.made import index_of
from tests.unit import real_pages, small_index
from tests.unit.house.test_wiring import world
from tests.unit.real_pages import FOLDER, PAGE, TORCH, Stand
from tests.unit.small_index import CP311
from tests.unit.wheel_server import Fault, WheelServer, small_wheel

__all__ = ("world",)  # a fixture
BUILD = ("image", "torch", "--cuda", "11.8", "--no-smoke")
RECIPE = """
name = "torch"
description = "a few bytes"
smoke = ["torch"]
requirements = []

[[variant]]
cuda = "11.8"
python = "3.11"
base = { provider = "debian", suite = "bookworm" }

[[variant.candidate]]
name = "pytorch"
channels = ["pytorch", "pypi"]
torch = "2.0.1+cu118"
torch_cuda = "11.8"

[[variant.candidate]]
name = "compatible"
channels = ["pypi"]
torch = "2.0.1"
torch_cuda = "11.7"
suffix = "-compat"
"""
COMPATIBLE = small_wheel("torch", "2.0.1", tag=CP311, requires=["filelock"], files=real_pages.LIBRARY)
PLACE, TORCH_NAME = f"{FOLDER}/{TORCH[0]}", TORCH[0]
#: what a page of PyTorch's may be like: options of the stand's page, or what a firewall makes of it
PAGES = {
    "whole": {},
    "without hashes": {"hashes": False},
    "promises metadata that is not there": {},
    "another hash than the file's": {"stated": lambda content: real_pages.sha256(content[::-1])},
    "403": {},
    "a login page": {},
}
#: what its files' host does, from the first request on or after the lock
FILES = {
    "403": [Fault(status=403)] * 99,
    "404": [Fault(status=404)] * 99,
    "other bytes": [Fault(wrong=True)] * 99,
    "HEAD alone": [Fault(status=403, method="GET")] * 99,
}


@pytest.fixture
def site(world, server, monkeypatch):
    """A project with two candidates, whose package index has the second; its stand."""
    (world.root / "recipes/torch.toml").write_text(RECIPE)
    server.simple("torch", dict([COMPATIBLE]))
    server.simple("filelock", dict([small_wheel("filelock", "3.0")]))
    server.simple("numpy", dict([small_wheel("numpy", "1.26.4", tag=CP311)]))
    world.place.environment.update(index_of(server))
    monkeypatch.setattr(pinning, "compile_requirements", small_index.Uv())
    monkeypatch.setattr(resolver, "lock_base", lambda *_: small_index.lock_base("bookworm"))
    monkeypatch.setattr("patienthttp.retry.FIRST_PAUSE", 0.0)
    monkeypatch.setattr("graphcrate.resolve.sources.search.AGAIN", (0.001, 0.002))
    with WheelServer() as index, WheelServer() as files:
        monkeypatch.setitem(addresses.ROOTS, Channel.PYTORCH, index.url("/whl"))
        stand = Stand(index, files)
        stand.put_files(files)
        yield stand


def image(world, *options):
    """Build; (candidate of the image, what was said)."""
    code, out, said = world.typed(*BUILD, *options, "--json")
    assert code == 0, said
    return json.loads(out)["candidate"], said


def test_site_that_reaches_everything_gets_the_first_candidate(world, site):
    site.new_form()
    assert image(world)[0] == "pytorch"
    assert PLACE in site.files.paths()


@pytest.mark.parametrize(("page", "file"), [*itertools.product(PAGES, FILES)])
def test_no_fault_of_page_and_file_ends_a_build_while_another_candidate_is_whole(world, site, page, file):
    site.new_form(**PAGES[page])
    if page == "403":
        site.block(site.index)
    if page == "a login page":
        site.index.bodies[PAGE] = b"<html><body><form>Name and password</form></body></html>"
    if page.startswith("promises"):
        del site.files.bodies[f"{PLACE}.metadata"]
    site.files.faults[PLACE] = [*FILES[file]]
    candidate, said = image(world)
    assert candidate == "compatible"
    (line,) = [line for line in said.splitlines() if "source pytorch: skipped: pytorch channel: " in line]
    assert "127.0.0.1" in line
    assert TORCH_NAME in line or page in ("403", "a login page")


@pytest.mark.parametrize("page", ["whole", "without hashes", "promises metadata that is not there"])
def test_fault_of_a_page_alone_leaves_the_first_candidate(world, site, page):
    site.new_form(**PAGES[page])
    if page.startswith("promises"):
        del site.files.bodies[f"{PLACE}.metadata"]
    assert image(world)[0] == "pytorch"


#: a locked file that does not come
LATER = {"other bytes": {"wrong": True}, "403": {"status": 403}}


def break_after_the_lock(world, site, fault):
    """Have the first candidate locked; then its file is still said to be there, and does not come."""
    site.new_form()
    assert world.typed(*BUILD, "--plan")[0] == 0
    site.files.faults[PLACE] = [Fault(method="GET", **LATER[fault])] * 99


@pytest.mark.parametrize("fault", LATER)
def test_locked_file_that_does_not_come_is_left_for_the_next_candidate_and_it_is_said(world, site, fault):
    break_after_the_lock(world, site, fault)
    candidate, said = image(world)
    assert candidate == "compatible"
    (line,) = [line for line in said.splitlines() if "looking for another file, or another candidate" in line]
    assert f"{TORCH_NAME}" in line
    assert f"lists {TORCH_NAME}, which no source gave" in said


@pytest.mark.parametrize(("fault", "expected"), [("other bytes", 6), ("403", 5)])
def test_locked_file_that_does_not_come_ends_a_build_that_takes_no_other_candidate(world, site, fault, expected):
    break_after_the_lock(world, site, fault)
    code, _, said = world.typed(*BUILD, "--channel", "pytorch")
    assert (code, f"{TORCH_NAME}" in said) == (expected, True)
    assert "next:" in said


def test_wheel_that_its_address_gives_in_vain_is_named_where_no_other_candidate_is_taken(world, site):
    site.new_form()
    site.files.faults[PLACE] = [*FILES["other bytes"]]
    code, _, said = world.typed(*BUILD, "--channel", "pytorch")
    assert (code, f"127.0.0.1:{site.files.port} gives other bytes as {TORCH_NAME}" in said) == (6, True)


def test_file_that_one_link_lists_in_vain_comes_from_the_mirror_after_the_lock(world, site, monkeypatch):
    site.new_form()
    assert world.typed(*BUILD, "--plan")[0] == 0  # its lock is kept
    site.block(site.files, PLACE)
    with WheelServer() as mirror:
        mirror.put(PLACE, TORCH[1])
        monkeypatch.setitem(MIRRORS, "sjtu", WheelMirror(pytorch=mirror.url("/whl/{tag}")))
        assert image(world, "--mirror", "sjtu")[0] == "pytorch"


#: how each mirror lists its files: kind of its page, and folder
MIRRORED = {
    "sjtu": (SourceKind.INDEX, "/pytorch-wheels/{tag}"),
    "aliyun": (SourceKind.LINKS, "/pytorch-wheels/{tag}/"),
    "nju": (SourceKind.INDEX, "/pytorch/whl/{tag}"),
}


@pytest.mark.parametrize("leads_away", [False, True])
@pytest.mark.parametrize("name", MIRRORED)
def test_site_that_reaches_only_a_mirror_gets_the_first_candidate(world, site, monkeypatch, name, leads_away):
    """Its page lists the files beside it, or sends its readers to PyTorch's own hosts, which are blocked."""
    kind, location = MIRRORED[name]
    folder = location.format(tag="cu118").rstrip("/")
    with WheelServer() as mirror:
        site.put_files(mirror, folder, metadata=False)
        page = f"{folder}/" if kind is SourceKind.LINKS else f"{folder}/torch/"
        base = site.files.url(f"{FOLDER}/") if leads_away else mirror.url(f"{folder}/")
        mirror.bodies[page] = real_pages.pytorch_page([*real_pages.OTHERS, TORCH], base)
        row = WheelMirror(pytorch=mirror.url(location), pytorch_kind=kind)
        monkeypatch.setitem(MIRRORS, name, row)
        site.new_form()
        for blocked in (site.index, site.files):
            site.block(blocked)
        assert image(world, "--mirror", name)[0] == "pytorch"
        assert f"{folder}/{TORCH_NAME}" in mirror.paths()


def test_site_that_reaches_pages_and_not_files_gets_the_candidate_of_the_package_index(world, site):
    site.new_form()
    site.block(site.files)
    candidate, said = image(world)
    assert candidate == "compatible"
    assert f"127.0.0.1 lists {TORCH_NAME}, which 127.0.0.1:{site.files.port} does not give (HTTP 403" in said


def test_site_that_reaches_the_package_index_alone_gets_its_candidate(world, site):
    site.new_form()
    for blocked in (site.index, site.files):
        site.block(blocked)
    candidate, said = image(world)
    assert candidate == "compatible"
    assert "source pytorch: skipped: pytorch channel: HTTP 403 (127.0.0.1)" in said


def test_plan_has_the_row_of_the_host_by_which_a_candidate_is_out(world, site, monkeypatch):
    """With the row of 127.0.0.1 in place of the real host's."""
    row = hosts.ROWS[1]._replace(title="127.0.0.1")
    monkeypatch.setattr(hosts, "ROWS", (row,))
    site.new_form()
    site.block(site.index)
    _, said = image(world)
    (line,) = [line for line in said.splitlines() if line.startswith("  note      not reached: ")]
    assert line.removeprefix("  note      not reached: ").startswith(f"127.0.0.1 ({row.gives}; without it: ")
    assert "source pytorch" not in said, "the note has its host"
