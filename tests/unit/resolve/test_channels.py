"""Sources that are tried for each channel, in order."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources import request_sources, user_indexes
from graphcrate.resolve.sources.channels import sources
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import SourceKind
from graphcrate.resolve.sources.user_indexes import UserIndexes
from graphcrate.resolve.sources.wheel_mirrors import MIRRORS
from tests.made import refused
from tests.unit.wheel_server import small_wheel

USER = UserIndexes("https://index.example/simple", ("https://extra.example/simple",), ("/opt/found",))


def places(channel, mirror=None, torch="2.0.1+cu118 11.8", wheels=None):
    request = SourceOptions(mirror=mirror, wheels=wheels)
    return [source.location for source in sources(channel, *torch.split(), request, USER)]


OFFICIAL = "https://download.pytorch.org/whl/cu118"
PYG, PAGE = "https://data.pyg.org/whl/torch-", "2.0.0+cu118.html"


@pytest.mark.parametrize(
    ("channel", "mirror", "expected"),
    [
        (Channel.PYPI, None, ["https://extra.example/simple", "https://index.example/simple"]),
        (Channel.PYPI, "tuna", [MIRRORS["tuna"].pypi, "https://extra.example/simple", "https://index.example/simple"]),
        (Channel.PYTORCH, None, [OFFICIAL]),
        (Channel.PYTORCH, "sjtu", ["https://mirror.sjtu.edu.cn/pytorch-wheels/cu118", OFFICIAL]),
        (Channel.PYTORCH, "aliyun", ["https://mirrors.aliyun.com/pytorch-wheels/cu118/", OFFICIAL]),
        (Channel.PYTORCH, "tuna", [OFFICIAL]),
        (Channel.PYTORCH, "https://site.example/torch/", ["https://site.example/torch/cu118", OFFICIAL]),
        (Channel.PYG, "https://site.example/w", [f"https://site.example/w/torch-{PAGE}", f"{PYG}{PAGE}"]),
    ],
)
def test_sources_of_a_channel_have_mirrors_first(channel, mirror, expected):
    assert places(channel, mirror) == expected


def last_resort(channel, environment=None, mirror=None):
    place = Sources(SourceOptions(mirror=mirror), None, environment or {})
    return [source.location for source in Offers(place, "2.0.1", "11.8").last_resort(channel)]


@pytest.fixture
def public(monkeypatch):
    """uv takes an index by itself."""
    monkeypatch.setattr(request_sources, "emitted_indexes", lambda *_: "--index-url https://index.example/simple\n")


PYTORCH = [MIRRORS[name].pytorch.format(tag="cu118") for name in ("sjtu", "aliyun", "nju")]
PYPI = [mirror.pypi for mirror in MIRRORS.values()]


def test_public_mirrors_are_the_last_resort_except_the_chosen_one(public):
    assert last_resort(Channel.PYTORCH) == PYTORCH
    assert last_resort(Channel.PYPI) == PYPI
    assert last_resort(Channel.PYTORCH, mirror="aliyun") == [PYTORCH[0], PYTORCH[2]]
    assert [last_resort(channel) for channel in (Channel.LOCAL, Channel.PYG)] == [[], []]


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({"PIP_INDEX_URL": "https://index.example/simple/"}, PYPI),  # the default one, by name
        ({"PIP_INDEX_URL": "https://own.example/simple"}, []),
        ({"UV_DEFAULT_INDEX": "https://me:pw@index.example/simple"}, []),
        ({"UV_EXTRA_INDEX_URL": "https://own.example/simple"}, []),
        ({"WHEEL_FALLBACK": "none"}, []),
        ({"WHEEL_FALLBACK": ""}, PYPI),
    ],
)
def test_own_index_excludes_public_mirrors(public, environment, asked):
    assert last_resort(Channel.PYPI, environment) == asked
    torch = [] if environment.get("WHEEL_FALLBACK") else PYTORCH
    assert last_resort(Channel.PYTORCH, environment) == torch, "its names are no secret"


def test_index_in_pip_conf_or_unknown_uv_index_excludes_public_mirrors(monkeypatch, tmp_path, public):
    system = tmp_path / "pip.conf"
    system.write_text("[global]\nindex-url = https://own.example/simple\n")
    with monkeypatch.context() as patch:
        patch.setattr(user_indexes, "SYSTEM_FILES", (system,))
        assert last_resort(Channel.PYPI) == []
    monkeypatch.setattr(request_sources, "emitted_indexes", refuse)
    assert last_resort(Channel.PYPI, {"PIP_INDEX_URL": "https://index.example/simple"}) == []


def refuse(*_):
    raise MachineError("uv is not installed", next_step="make")


def test_wheel_fallback_other_than_none_is_refused():
    with refused(UsageError, "WHEEL_FALLBACK is 'sjtu'", "MIRROR=sjtu"):
        last_resort(Channel.PYTORCH, {"WHEEL_FALLBACK": "sjtu"})


def test_pyg_page_follows_the_torch_series_and_aliyun_has_link_pages(tmp_path):
    pages = {"2.0.1 11.7": "2.0.0+cu117", "2.10.0 12.8": "2.10.0+cu128", "2.13.0 cpu": "2.13.0+cpu"}
    assert [places(Channel.PYG, torch=torch) for torch in pages] == [[f"{PYG}{page}.html"] for page in pages.values()]
    assert sources(Channel.PYTORCH, "2.0.1", "11.8", SourceOptions(mirror="aliyun"), USER)[0].kind is SourceKind.LINKS
    assert places(Channel.LOCAL, wheels=tmp_path) == [str(tmp_path), "/opt/found"]
    assert places(Channel.LOCAL) == ["/opt/found"]


@pytest.fixture(autouse=True)
def no_system_files(monkeypatch):
    monkeypatch.setattr(user_indexes, "SYSTEM_FILES", ())


def test_file_that_was_taken_back_is_no_release_to_choose(server, public, monkeypatch):
    old, new = small_wheel("demo", "1.0"), small_wheel("demo", "2.0")
    server.simple("demo", dict([old, new]), yanked=(new[0],))
    place = Sources(SourceOptions(), None, {"UV_DEFAULT_INDEX": server.url("/simple")})
    assert [offer.version for offer in Offers(place, "2.0.1", "11.8").releases("demo")] == ["1.0"]


def test_sources_share_one_client_and_listing_among_threads(monkeypatch):
    """Two clients would each have their own connections, and two sets of pages read each page twice."""

    class Slow:
        def __init__(self, *_, **__):
            made.append(self)
            time.sleep(0.05)

    made, count = [], 8
    for name in ("client", "listings"):  # as Python has them from 3.12 on
        monkeypatch.setattr(vars(Sources)[name], "lock", contextlib.nullcontext(), raising=False)
    monkeypatch.setattr("graphcrate.host.net.Client", Slow)
    sources, ready = Sources(SourceOptions(), None, {}), threading.Barrier(count)

    def listings(_):
        ready.wait()
        return sources.listings

    with ThreadPoolExecutor(count) as pool:
        found = set(map(id, pool.map(listings, range(count))))
    assert (len(found), len(made)) == (1, 1)
