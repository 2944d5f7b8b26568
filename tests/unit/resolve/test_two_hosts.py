"""Pages of a channel on one server and the files that they list on another, as PyTorch's are since spring 2026."""

import hashlib

import msgspec
import pytest

from graphcrate.host.net import HttpError
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.resolve.sources import metadata
from graphcrate.resolve.sources.target import WheelTarget
from graphcrate.resolve.stack.resolver import find_torch
from tests.made import refused
from tests.unit import small_index
from tests.unit.resolve_world import NOWHERE
from tests.unit.small_index import COMPATIBLE, CP311, PYTORCH
from tests.unit.wheel_server import Fault, WheelServer, small_wheel

TORCH, CONTENT = small_wheel("torch", "2.0.1+cu118", tag=CP311, requires=["filelock"])
SCATTER, SOURCES = small_wheel("torch_scatter", "2.1.2+pt20cu118", tag=CP311), "torch_scatter-2.1.2.tar.gz"
PLACE = f"/whl/cu118/{TORCH}"
#: what a server of files may do: status of each answer, or what its listener does
FAULTS = ("refused", 403, 404, 451, 500, "nobody says how large")


@pytest.fixture
def files():
    """The second server."""
    with WheelServer() as running:
        yield running


@pytest.fixture
def pages(world, files):
    """Let the channel's page of torch lead to the second server."""

    def put(*, hashes=True, on_files=True, metadata=""):
        world.server.pytorch("cu118", {TORCH: CONTENT}, hashes=hashes, metadata=metadata)
        del world.server.bodies[PLACE]  # the page's own server has no files
        world.server.pages["/whl/cu118/torch/"].base = files.url("/whl/cu118/")
        if on_files:
            files.put(PLACE, CONTENT)

    return put


def break_files(world, files, fault):
    """Make the second server fail in this way from now on."""
    if fault == "refused":
        world.server.pages["/whl/cu118/torch/"].base = f"{NOWHERE}/cu118/"
    elif fault == "nobody says how large":
        files.faults[PLACE] = [Fault(status=405)] * 99
    else:
        files.faults[PLACE] = [Fault(status=fault)] * 99


def test_file_of_another_server_is_locked_from_there(world, files, pages):
    pages()
    locked = world.choose(PYTORCH, COMPATIBLE).lock
    assert locked.package("torch").file.sha256 == hashlib.sha256(CONTENT).hexdigest()
    world.fetch(locked)
    assert PLACE in files.paths()


@pytest.mark.parametrize("hashes", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_listed_torch_that_no_server_gives_leads_to_the_next_candidate(world, files, pages, fault, hashes):
    pages(hashes=hashes)
    break_files(world, files, fault)
    resolution = world.choose(PYTORCH, COMPATIBLE)
    assert resolution.candidate is COMPATIBLE
    assert f"127.0.0.1 lists {TORCH}, which 127.0.0.1:" in resolution.outcomes[0].constraint
    assert "does not give" in resolution.outcomes[0].constraint


@pytest.mark.parametrize("fault", FAULTS)
def test_listed_torch_comes_from_the_mirror_s_folder_where_its_page_leads_to_a_blocked_server(
    world, files, pages, mirrors, fault
):
    pages()
    break_files(world, files, fault)
    mirrors[0].put(PLACE, CONTENT)  # the file and no page of its own
    locked = world.choose(PYTORCH, COMPATIBLE, mirror="one").lock
    assert locked.candidate == "pytorch"
    world.fetch(locked, mirror="one")
    assert PLACE in mirrors[0].paths()


def test_file_at_a_mirror_with_other_bytes_is_refused_and_another_channel_named(world, files, pages, mirrors):
    pages()
    locked = world.choose(PYTORCH, COMPATIBLE).lock
    world.cache.file(locked.package("torch").file.sha256, TORCH).unlink(missing_ok=True)
    files.put(PLACE, CONTENT[::-1])
    mirrors[0].put(PLACE, CONTENT[::-1])
    with refused(IntegrityError, f"{TORCH}: no source of the pytorch channel", "CHANNEL=pypi"):
        world.fetch(locked, mirror="one")


def test_page_without_hashes_takes_no_file_that_it_does_not_link_to(world, files, pages, mirrors):
    pages(hashes=False)
    break_files(world, files, 403)
    mirrors[0].put(PLACE, b"anything")
    assert world.choose(PYTORCH, COMPATIBLE, mirror="one").lock.candidate == "compatible"
    assert PLACE not in mirrors[0].paths()


def test_locked_torch_whose_server_is_blocked_gives_way_to_the_complete_candidate(world, files, pages):
    world.fetch(world.choose(COMPATIBLE).lock)
    pages()
    committed = world.choose(PYTORCH, COMPATIBLE).lock
    assert committed.candidate == "pytorch"
    break_files(world, files, "refused")
    for _ in range(2):  # the second time without asking
        assert world.choose(PYTORCH, COMPATIBLE, committed=committed).lock.candidate == "compatible"


def test_silent_package_index_gives_way_to_the_complete_candidate(world, pages, program, monkeypatch):
    complete = world.choose(COMPATIBLE).lock
    world.fetch(complete)
    pages()

    def fail(*_, **__):
        raise NetworkError("uv cannot read the package index")

    monkeypatch.setattr("graphcrate.resolve.stack.pinning.compile_requirements", fail)
    resolution = world.choose(PYTORCH, COMPATIBLE)
    assert resolution.lock == complete
    assert resolution.outcomes[0].constraint == "pytorch channel: uv cannot read the package index"


def test_only_candidate_with_a_silent_package_index_is_a_network_error(world, pages, monkeypatch):
    pages()

    def fail(*_, **__):
        raise NetworkError("uv cannot read the package index")

    monkeypatch.setattr("graphcrate.resolve.stack.pinning.compile_requirements", fail)
    with refused(NetworkError, "uv cannot read the package index"):
        world.choose(PYTORCH, COMPATIBLE)


@pytest.mark.parametrize("status", [403, 404])
def test_extension_that_is_listed_and_not_given_is_compiled(world, status):
    small_index.pytorch_channel(world.server)
    world.server.pyg("2.0.0+cu118", dict([SCATTER]))
    world.server.faults[f"/whl/torch-2.0.0+cu118/{SCATTER[0]}"] = [Fault(status=status)] * 99
    scatter = world.choose(PYTORCH, COMPATIBLE).lock.package("torch-scatter")
    assert (scatter.file.name, scatter.compiled, scatter.unreachable) == (SOURCES, True, ())


def test_page_that_states_no_hash_is_said_while_its_file_is_fetched_and_in_the_lock(world):
    small_index.pytorch_channel(world.server)
    world.server.pyg("2.0.0+cu118", dict([SCATTER]))
    locked = world.choose(PYTORCH, COMPATIBLE).lock
    assert locked.package("torch-scatter").file.sha256 == hashlib.sha256(SCATTER[1]).hexdigest()
    assert f"the sha256 of {SCATTER[0]} was taken from the file itself: no page states it" in locked.notes
    assert world.notes.done >= len(SCATTER[1])


@pytest.mark.parametrize("stated", ["true", "sha256=" + "0" * 64])
@pytest.mark.parametrize("status", [200, 403, 404, 410, 500])
def test_metadata_that_is_absent_or_another_is_read_from_the_wheel(world, files, pages, stated, status):
    pages(metadata=stated)
    files.put(f"{PLACE}.metadata", b"Metadata-Version: 2.1\nName: torch\nVersion: 1\nRequires-Dist: other\n")
    files.faults[f"{PLACE}.metadata"] = [Fault(status=status)] * 99 if status != 200 else []
    sources = world.context(small_index.recipe(PYTORCH)).sources
    torch = find_torch(PYTORCH, WheelTarget("3.11", "2.36"), sources)
    is_taken = status == 200 and stated == "true"  # nothing says that it is another
    assert metadata.MetadataReader(sources).of(torch).requires == (("other",) if is_taken else ("filelock",))


def test_metadata_of_a_server_that_is_not_reached_is_an_error(world, files, pages):
    pages(metadata="true")
    sources = world.context(small_index.recipe(PYTORCH)).sources
    torch = find_torch(PYTORCH, WheelTarget("3.11", "2.36"), sources)
    gone = msgspec.structs.replace(torch.link, url=f"{NOWHERE}/{TORCH}")
    with pytest.raises(HttpError):
        metadata.MetadataReader(sources).of(msgspec.structs.replace(torch, link=gone))
