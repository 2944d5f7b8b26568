"""Which sources are tried for each channel, in which order."""

import pytest

from graphcrate.compat.addresses import cuda_tag, pyg_page
from graphcrate.compat.request import SourceOptions
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Channel
from graphcrate.resolve.channels import MIRRORS, PYTORCH_MIRRORS, Kind, Source, sources
from graphcrate.resolve.user_index import UserIndexes

USER = UserIndexes("https://index.example/simple", ("https://extra.example/simple",), ("/opt/found",))


def places(channel, mirror=None, torch="2.0.1+cu118", torch_cuda="11.8", wheels=None):
    request = SourceOptions(mirror=mirror, wheels=wheels)
    return [
        source.location for source in sources(channel, torch=torch, torch_cuda=torch_cuda, request=request, user=USER)
    ]


OFFICIAL = "https://download.pytorch.org/whl/cu118"
PYG = "https://data.pyg.org/whl/torch-2.0.0+cu118.html"


@pytest.mark.parametrize(
    ("channel", "mirror", "expected"),
    [
        (Channel.PYPI, None, ["https://extra.example/simple", "https://index.example/simple"]),
        (Channel.PYPI, "tuna", [MIRRORS["tuna"].pypi, "https://extra.example/simple", "https://index.example/simple"]),
        (Channel.PYTORCH, None, [OFFICIAL]),
        (Channel.PYTORCH, "sjtu", ["https://mirror.sjtu.edu.cn/pytorch-wheels/cu118", OFFICIAL]),
        (Channel.PYTORCH, "nju", ["https://mirror.nju.edu.cn/pytorch/whl/cu118", OFFICIAL]),
        (Channel.PYTORCH, "tuna", [OFFICIAL]),
        (Channel.PYTORCH, "https://site.example/torch/", ["https://site.example/torch/cu118", OFFICIAL]),
        (Channel.PYG, "https://site.example/w", ["https://site.example/w/torch-2.0.0+cu118.html", PYG]),
    ],
)
def test_mirrors_come_before_the_official_place_and_the_user_s_indexes(channel, mirror, expected):
    assert places(channel, mirror) == expected


def test_aliyun_is_a_page_of_links():
    request = SourceOptions(mirror="aliyun")
    first = sources(Channel.PYTORCH, torch="2.0.1+cu118", torch_cuda="11.8", request=request, user=USER)[0]
    assert first == Source(Kind.LINKS, "https://mirrors.aliyun.com/pytorch-wheels/cu118/")


@pytest.mark.parametrize(
    ("torch", "torch_cuda", "page"),
    [
        ("2.0.1+cu118", "11.8", "torch-2.0.0+cu118.html"),
        ("2.0.1", "11.7", "torch-2.0.0+cu117.html"),
        ("1.13.1+cu116", "11.6", "torch-1.13.0+cu116.html"),
        ("2.10.0", "12.8", "torch-2.10.0+cu128.html"),
        ("2.13.0+cpu", "cpu", "torch-2.13.0+cpu.html"),
        ("2.13.0", "cpu", "torch-2.13.0+cpu.html"),
    ],
)
def test_pyg_has_one_page_per_torch_minor_and_cuda(torch, torch_cuda, page):
    assert pyg_page(torch, torch_cuda) == page
    assert places(Channel.PYG, torch=torch, torch_cuda=torch_cuda) == [f"https://data.pyg.org/whl/{page}"]


def test_local_folders_in_order(tmp_path):
    assert places(Channel.LOCAL, wheels=tmp_path) == [str(tmp_path), "/opt/found"]
    assert places(Channel.LOCAL) == ["/opt/found"]


def test_cuda_tags():
    assert cuda_tag("2.0.1+cu118", "11.8") == "cu118"
    assert cuda_tag("2.0.1", "11.7") == "cu117"
    assert cuda_tag("2.13.0", "cpu") == "cpu"


def test_unknown_mirrors_are_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="sjtu, aliyun, nju, tuna"):
        places(Channel.PYTORCH, "sjut")


def test_the_mirrors_of_pytorch():
    assert PYTORCH_MIRRORS == ("sjtu", "aliyun", "nju")
