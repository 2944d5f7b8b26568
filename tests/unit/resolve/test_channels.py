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
from graphcrate.resolve.sources import channels, offers
from graphcrate.resolve.sources.channels import MIRRORS, SourceKind, UserIndexes, sources, user_indexes, wheel_folders
from graphcrate.resolve.sources.offers import Offers, Sources
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
    monkeypatch.setattr(offers, "emitted_indexes", lambda *_: "--index-url https://index.example/simple\n")


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
        patch.setattr(channels, "SYSTEM_FILES", (system,))
        assert last_resort(Channel.PYPI) == []
    monkeypatch.setattr(offers, "emitted_indexes", refuse)
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
    monkeypatch.setattr(channels, "SYSTEM_FILES", ())


MORE = {"UV_INDEX": "corp=https://a/s https://b/s", "PIP_EXTRA_INDEX_URL": "https://b/s https://c/s"}
EMITTED = "--index-url https://d/s\n--extra-index-url https://more/s\n\nsix==1\n"


@pytest.mark.parametrize(
    ("environment", "emitted", "found"),
    [
        ({}, "# nothing\n", UserIndexes("")),
        ({}, EMITTED, UserIndexes("https://d/s", ("https://more/s",))),
        ({"UV_DEFAULT_INDEX": "corp=https://a/s", "UV_INDEX_URL": "https://b/s"}, EMITTED, UserIndexes("https://a/s")),
        ({"UV_INDEX_URL": "https://b/s", "PIP_INDEX_URL": "https://c/s"}, "", UserIndexes("https://b/s")),
        ({"PIP_INDEX_URL": "https://me:pw@c/s"}, "", UserIndexes("https://me:pw@c/s")),
        # an address with an equals sign is no name before an address
        (
            {"UV_INDEX_URL": "https://c/s?key=1", "UV_INDEX": "n=https://d/s?a=b"},
            "",
            UserIndexes("https://c/s?key=1", ("https://d/s?a=b",)),
        ),
        # asked once, however often it is named
        (
            {"UV_INDEX_URL": "https://c/s", "UV_INDEX": "https://c/s x=https://d/s https://d/s"},
            "",
            UserIndexes("https://c/s", ("https://d/s",)),
        ),
        (MORE, "", UserIndexes("", ("https://a/s", "https://b/s", "https://c/s"), merged=True)),
    ],
)
def test_user_indexes_follow_variables_then_uv(environment, emitted, found):
    assert user_indexes(environment, emitted) == found


def test_user_indexes_follow_pip_files_in_order(tmp_path, monkeypatch):
    system, broken, chosen, user = (tmp_path / name for name in ("etc.conf", "broken.conf", "chosen.conf", ".config"))
    system.write_text("[global]\nindex-url = https://system/s\nextra-index-url =\n  https://one/s\n  https://two/s\n")
    broken.write_text("index-url without a section")
    chosen.write_text("[install]\nindex-url = https://chosen/s\n")
    (user / "pip").mkdir(parents=True)
    (user / "pip" / "pip.conf").write_text("[install]\nindex-url = https://user/%40s\n")
    monkeypatch.setattr(channels, "SYSTEM_FILES", (system, broken))
    home = {"HOME": str(tmp_path)}
    assert user_indexes({}).default == "https://system/s"
    assert user_indexes(home) == UserIndexes("https://user/%40s", ("https://one/s", "https://two/s"), merged=True)
    assert user_indexes(home | {"PIP_CONFIG_FILE": str(chosen)}).default == "https://chosen/s"
    assert user_indexes({"PIP_CONFIG_FILE": "/dev/null"}).default == ""


def test_file_that_was_taken_back_is_no_release_to_choose(server, public, monkeypatch):
    old, new = small_wheel("demo", "1.0"), small_wheel("demo", "2.0")
    server.simple("demo", dict([old, new]), yanked=(new[0],))
    place = Sources(SourceOptions(), None, {"UV_DEFAULT_INDEX": server.url("/simple")})
    assert [offer.version for offer in Offers(place, "2.0.1", "11.8").releases("demo")] == ["1.0"]


def test_find_links_give_existing_folders_and_no_pages(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    links = f"{first},https://links.example/page.html", f"{second.as_uri()} {first} /no/such/folder"
    found = wheel_folders(dict(zip(("UV_FIND_LINKS", "PIP_FIND_LINKS"), links, strict=True)))
    assert found == (str(first), str(second))


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
