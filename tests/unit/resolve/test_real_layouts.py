"""Pages of real channels in each form that they have, read and locked from (`test_blocked_sites.py`: blocked ones)."""

import dataclasses

import pytest

from graphcrate.host.net import Client
from graphcrate.resolve.sources.index import Listings
from graphcrate.resolve.sources.source import Source, SourceKind
from graphcrate.resolve.sources.wheel_mirrors import MIRRORS, WheelMirror
from tests.unit import real_pages, small_index
from tests.unit.real_pages import FOLDER, LIBRARIES, OTHERS, PAGE, PYG_FOLDER, PYG_PAGE, SCATTER, TORCH, Stand
from tests.unit.small_index import PYTORCH
from tests.unit.wheel_server import WheelServer

WHEELS = [*OTHERS, TORCH]


@dataclasses.dataclass(frozen=True)
class Row:
    """A layout: `put` writes its page on a stand and returns where the file of the channel is said to be."""

    name: str
    put: object
    kind: SourceKind = SourceKind.INDEX
    location: str = FOLDER
    wheel: tuple = TORCH
    listed: int = 3
    hashes: bool = True
    metadata: bool = True


ROWS = []


def row(name, **options):
    def added(put):
        ROWS.append(Row(name, put, **options))
        return put

    return added


def old_page(stand, path=PAGE, server=None, **options):
    (server or stand.index).bodies[path] = real_pages.pytorch_page(WHEELS, f"{FOLDER}/", **options)
    return stand.index.url(f"{FOLDER}/")


@row("PyTorch, root-relative")
def root_relative(stand):
    return old_page(stand)


@row("PyTorch, absolute on another host, with times of upload")
def absolute(stand):
    stand.new_form()
    return stand.files.url(f"{FOLDER}/")


@row("PyTorch, no hash of wheels and one of their metadata", hashes=False)
def without_hashes(stand):
    return old_page(stand, hashes=False)


@row("PyTorch, nothing said of metadata", metadata=False)
def without_metadata(stand):
    return old_page(stand, metadata=False)


@row("a copy byte for byte, one folder deeper", location=f"/pytorch{FOLDER}")
def copied(stand):
    return old_page(stand, f"/pytorch{PAGE}")


@row("a mirror whose page leads to PyTorch's", location="/pytorch-wheels/cu118")
def redirected(stand):
    stand.index.redirects["/pytorch-wheels/cu118/torch/"] = stand.files.url(PAGE)
    old_page(stand, server=stand.files)
    return stand.files.url(f"{FOLDER}/")


def flat(quoted):
    def put(stand):
        stand.index.bodies["/pytorch-wheels/cu118/"] = real_pages.flat_page([*WHEELS, *LIBRARIES], quoted)
        return stand.index.url("/pytorch-wheels/cu118/")

    return put


FLAT = {"kind": SourceKind.LINKS, "location": "/pytorch-wheels/cu118/", "hashes": False, "metadata": False}
row("a flat listing, + as it is", **FLAT)(flat(quoted=False))
row("a flat listing, + as %2B", **FLAT)(flat(quoted=True))


@row("JSON and HTML by what is asked for (PEP 691)", location="/simple/cu128", metadata=False)
def negotiated(stand):
    stand.index.simple("torch", dict(WHEELS), prefix="/simple/cu128")
    return stand.index.url("/files/")


PYG = {"kind": SourceKind.LINKS, "wheel": SCATTER, "listed": 2, "hashes": False, "metadata": False}


@row("PyG, relative", location=PYG_PAGE, **PYG)
def relative(stand):
    stand.pyg()
    return stand.index.url(f"{PYG_FOLDER}/")


@row("PyG, absolute", location=PYG_PAGE, **PYG)
def absolute_of_pyg(stand):
    base = stand.index.url("/whl/torch-2.0.0%2Bcu118/")
    stand.index.bodies[PYG_PAGE] = real_pages.pyg_page(LIBRARIES, base)
    return stand.index.url(f"{PYG_FOLDER}/")


@row("PyG, the alias of a patch release", location="/whl/torch-2.0.1+cu118.html", **PYG)
def alias(stand):
    stand.index.bodies["/whl/torch-2.0.1+cu118.html"] = real_pages.pyg_page(LIBRARIES, "torch-2.0.0%2Bcu118/")
    return stand.index.url(f"{PYG_FOLDER}/")


@row("PyG, behind a redirect to another host", location=PYG_PAGE, **PYG)
def moved(stand):
    stand.index.redirects[PYG_PAGE] = stand.files.url(PYG_PAGE)
    stand.files.bodies[PYG_PAGE] = real_pages.pyg_page(LIBRARIES, "torch-2.0.0%2Bcu118/")
    return stand.files.url(f"{PYG_FOLDER}/")


@pytest.fixture
def stand(channels):
    """PyTorch's index and its second host."""
    with WheelServer() as files:
        yield Stand(channels, files)


@pytest.mark.parametrize("layout", ROWS, ids=lambda layout: layout.name)
def test_layout_gives_each_file_of_a_project_with_its_address_and_what_it_says_of_it(stand, layout):
    folder = layout.put(stand)
    name, content = layout.wheel
    project = name.partition("-")[0].replace("_", "-")
    source = Source(layout.kind, stand.index.url(layout.location))
    links = Listings(Client({})).project(source, project)
    assert len(links) == layout.listed
    (link,) = [link for link in links if link.name == name]
    assert link.url.replace("%2B", "+").replace("%2b", "+") == f"{folder.replace('%2B', '+')}{name}"
    assert link.sha256 == (real_pages.sha256(content) if layout.hashes else "")
    beside = real_pages.sha256(real_pages.metadata_of(name)) if layout.metadata else ""
    assert (link.has_metadata, link.metadata_sha256) == (layout.metadata, beside)


@pytest.mark.parametrize("layout", [one for one in ROWS if one.wheel is TORCH], ids=lambda layout: layout.name)
def test_torch_is_locked_and_fetched_from_each_layout_of_its_channel(world, stand, layout, monkeypatch):
    layout.put(stand)
    for server in (stand.index, stand.files):
        stand.put_files(server)
    stand.put_files(stand.index, "/pytorch-wheels/cu118", metadata=False)
    mirror = WheelMirror(pytorch=stand.index.url(layout.location), pytorch_kind=layout.kind)
    monkeypatch.setitem(MIRRORS, "one", mirror)
    locked = world.choose(PYTORCH, mirror="one", recipe=small_index.recipe(PYTORCH, extensions=())).lock
    assert locked.package("torch").file.sha256 == real_pages.sha256(TORCH[1])
    world.fetch(locked, mirror="one")
