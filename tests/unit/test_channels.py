"""Which sources are tried for each channel, in which order."""

import pytest

from graphcrate.compat.request import SourceOptions
from graphcrate.model.recipe import Channel
from graphcrate.resolve import channels
from graphcrate.resolve.channels import MIRRORS, Kind, UserIndexes, sources, user_indexes, wheel_folders

USER = UserIndexes("https://index.example/simple", ("https://extra.example/simple",), ("/opt/found",))


def places(channel, mirror=None, torch="2.0.1+cu118", torch_cuda="11.8", wheels=None):
    request = SourceOptions(mirror=mirror, wheels=wheels)
    return [source.location for source in sources(channel, torch, torch_cuda, request, USER)]


OFFICIAL = "https://download.pytorch.org/whl/cu118"
PYG = "https://data.pyg.org/whl/torch-2.0.0+cu118.html"


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
        (Channel.PYG, "https://site.example/w", ["https://site.example/w/torch-2.0.0+cu118.html", PYG]),
    ],
)
def test_mirrors_come_before_the_official_place_and_the_user_s_indexes(channel, mirror, expected):
    assert places(channel, mirror) == expected


@pytest.mark.parametrize(
    ("torch", "torch_cuda", "page"),
    [
        ("2.0.1+cu118", "11.8", "torch-2.0.0+cu118.html"),
        ("2.0.1", "11.7", "torch-2.0.0+cu117.html"),
        ("2.10.0", "12.8", "torch-2.10.0+cu128.html"),
        ("2.13.0", "cpu", "torch-2.13.0+cpu.html"),
    ],
)
def test_pyg_has_one_page_per_torch_minor_and_cuda(torch, torch_cuda, page):
    assert places(Channel.PYG, torch=torch, torch_cuda=torch_cuda) == [f"https://data.pyg.org/whl/{page}"]


def test_local_folders_in_order_and_aliyuns_page_of_links(tmp_path):
    assert sources(Channel.PYTORCH, "2.0.1", "11.8", SourceOptions(mirror="aliyun"), USER)[0].kind is Kind.LINKS
    assert places(Channel.LOCAL, wheels=tmp_path) == [str(tmp_path), "/opt/found"]
    assert places(Channel.LOCAL) == ["/opt/found"]


@pytest.fixture(autouse=True)
def no_system_files(monkeypatch):
    monkeypatch.setattr(channels, "SYSTEM_FILES", ())


def test_what_uv_emits_counts_where_nothing_is_set():
    emitted = "--index-url https://default.example/simple\n--extra-index-url https://more.example/simple\n\nsix==1\n"
    assert user_indexes({}, emitted) == UserIndexes("https://default.example/simple", ("https://more.example/simple",))
    assert user_indexes({"UV_DEFAULT_INDEX": "https://a/s"}, emitted).extra == ()
    assert user_indexes({}, "# nothing\n").default == ""


@pytest.mark.parametrize(
    ("environment", "default"),
    [
        ({"UV_DEFAULT_INDEX": "corp=https://a/s", "UV_INDEX_URL": "https://b/s"}, "https://a/s"),
        ({"UV_INDEX_URL": "https://b/s", "PIP_INDEX_URL": "https://c/s"}, "https://b/s"),
        ({"PIP_INDEX_URL": "https://me:pw@c/s"}, "https://me:pw@c/s"),
    ],
)
def test_variables_in_order(environment, default):
    assert user_indexes(environment).default == default


def test_further_indexes_of_uv_and_pip():
    environment = {
        "UV_DEFAULT_INDEX": "https://d/s",
        "UV_INDEX": "corp=https://a/s https://b/s",
        "PIP_EXTRA_INDEX_URL": "https://b/s https://c/s",
    }
    found = UserIndexes("https://d/s", ("https://a/s", "https://b/s", "https://c/s"), merged=True)
    assert user_indexes(environment) == found


def test_pip_files_in_order(tmp_path, monkeypatch):
    system, broken, chosen = (tmp_path / name for name in ("etc.conf", "broken.conf", "chosen.conf"))
    system.write_text("[global]\nindex-url = https://system/s\nextra-index-url =\n  https://one/s\n  https://two/s\n")
    broken.write_text("index-url without a section")
    chosen.write_text("[install]\nindex-url = https://chosen/s\n")
    monkeypatch.setattr(channels, "SYSTEM_FILES", (system, broken))
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text("[install]\nindex-url = https://user/%40s\n")
    home = {"HOME": str(tmp_path)}
    assert user_indexes({}).default == "https://system/s"
    assert user_indexes(home).default == "https://user/%40s"
    assert user_indexes(home).extra == ("https://one/s", "https://two/s")
    assert user_indexes(home | {"PIP_CONFIG_FILE": str(chosen)}).default == "https://chosen/s"
    assert user_indexes({"PIP_CONFIG_FILE": "/dev/null"}).default == ""


def test_folders_among_find_links(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    environment = {
        "UV_FIND_LINKS": f"{first},https://links.example/page.html",
        "PIP_FIND_LINKS": f"{second.as_uri()} {first} /no/such/folder",
    }
    assert wheel_folders(environment) == (str(first), str(second))
