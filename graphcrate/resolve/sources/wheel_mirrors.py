"""Mirrors of PyTorch's, PyG's and the package index's files: the known ones, and that of this request.

A mirror that was asked for comes before the official address; the others come last, for a locked file that no source
gives. A mirror may go stale, and every file's hash is checked.
"""

import urllib.parse
from collections.abc import Mapping

import msgspec

from graphcrate.compat.facts.addresses import INDEX_COPIES, channel_page, cuda_label
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.model.command import ETC, command, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources.source import Source, SourceKind, distinct

FALLBACK, NONE = "WHEEL_FALLBACK", "none"  #: the variable by which no public mirror is asked, and its value
KNOCK = 2.0  #: seconds for a public mirror, which the user did not name, to take a connection


class WheelMirror(msgspec.Struct, frozen=True, kw_only=True):
    """A mirror's addresses; `{tag}` is `cu118` or `cpu`. Empty: it does not carry that channel.

    `crates`: of Rust, as "dl" is in the configuration of one of cargo's registries.
    """

    pytorch: str = ""
    pytorch_kind: SourceKind = SourceKind.INDEX
    pyg: str = ""  #: `{page}` is `torch-2.0.0+cu118.html`
    pypi: str = ""
    crates: str = ""
    called: tuple[str, ...] = ()  #: as its users call it


MIRRORS = {
    "sjtu": WheelMirror(
        pytorch="https://mirror.sjtu.edu.cn/pytorch-wheels/{tag}",
        pypi=INDEX_COPIES["sjtu"],
        crates="https://mirror.sjtu.edu.cn/crates.io/crates/{crate}/{crate}-{version}.crate",
        called=("上交", "上海交大", "思源"),
    ),
    "aliyun": WheelMirror(
        pytorch="https://mirrors.aliyun.com/pytorch-wheels/{tag}/",
        pytorch_kind=SourceKind.LINKS,
        pypi=INDEX_COPIES["aliyun"],
        called=("阿里", "阿里云"),
    ),
    "nju": WheelMirror(
        pytorch="https://mirror.nju.edu.cn/pytorch/whl/{tag}", pypi=INDEX_COPIES["nju"], called=("南大", "南京大学")
    ),
    "tuna": WheelMirror(pypi=INDEX_COPIES["tuna"], called=("清华", "清华大学")),
}
PYTORCH_MIRRORS = tuple(name for name, mirror in MIRRORS.items() if mirror.pytorch)


def mirror_of(request: SourceOptions) -> WheelMirror:
    """The mirror asked for, by name or as an address (`URL/cu118`, `URL/torch-2.0.0+cu118.html`); else an empty one.

    Raises UsageError for an unknown name.
    """
    if not request.mirror:
        return WheelMirror()
    if "://" in request.mirror:
        base = request.mirror.rstrip("/")
        if not urllib.parse.urlsplit(base).netloc and not base.startswith("file://"):
            raise UsageError(
                f"the mirror {request.mirror!r} names no host",
                next_step=command("image", ETC, mirror="https://mirror.example.com/pytorch"),
            )
        return WheelMirror(pytorch=base + "/{tag}", pyg=base + "/{page}")
    if known := next((mirror for mirror in MIRRORS.values() if request.mirror in mirror.called), None):
        return known
    if request.mirror not in MIRRORS:
        word = request.mirror.lower()
        meant = next((name for name, mirror in MIRRORS.items() if word in mirror.pypi or word.startswith(name)), "sjtu")
        raise UsageError(
            f"there is no mirror {request.mirror!r}; known are {', '.join(MIRRORS)}",
            next_step=f"{command('image', '…', mirror=meant)}    (or {setting(mirror='https://…')} of your site)",
        )
    return MIRRORS[request.mirror]


def public_mirrors(channel: Channel, torch: str, torch_cuda: str) -> tuple[Source, ...]:
    """List the known mirrors of a channel, in order. `torch` as in `sources`."""
    return distinct(mirrored(mirror, channel, torch, torch_cuda) for mirror in MIRRORS.values())


def mirrored(mirror: WheelMirror, channel: Channel, torch: str, torch_cuda: str) -> Source:
    """Return a mirror's copy of a channel; without a location where it has none."""
    match channel:
        case Channel.PYTORCH:
            return Source(mirror.pytorch_kind, mirror.pytorch.format(tag=cuda_label(torch_cuda)))
        case Channel.PYG:
            return Source(SourceKind.LINKS, mirror.pyg.format(page=channel_page(channel, torch, torch_cuda)))
        case Channel.PYPI:
            return Source(SourceKind.INDEX, mirror.pypi)
    return Source(SourceKind.FOLDER, "")


def asks_public_mirrors(environment: Mapping[str, str]) -> bool:
    """Return whether public mirrors may be asked for what no source gives.

    Raises UsageError for another word than `none`.
    """
    value = environment.get(FALLBACK, "")
    if value not in ("", NONE):
        raise UsageError(
            f"{FALLBACK} is {value!r}, and can only be {NONE!r}",
            cause=f"{FALLBACK}={NONE} keeps public mirrors from being asked for locked files that no other source has.",
            next_step=f"unset {FALLBACK}; a mirror to be asked first is {setting(mirror='sjtu')}, or its address",
        )
    return value != NONE
