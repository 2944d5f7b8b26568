"""Channels and mirrors: for each channel the sources to try, in order.

A mirror comes first and the official place after it, since mirrors go stale for months and every file is checked
against its hash anyway. The addresses of PyTorch's and PyG's channels and of the mirrors are those of their manuals.
"""

import urllib.parse
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from graphcrate.compat.addresses import cuda_tag, pyg_links, pyg_page, pytorch_index
from graphcrate.compat.request import Extensions, SourceOptions
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Channel
from graphcrate.resolve.user_index import UserIndexes


class Kind(StrEnum):
    """How a source lists its files."""

    INDEX = "index"  #: one page per project
    LINKS = "links"  #: one page with all files
    FOLDER = "folder"  #: a folder on this machine


class Source(msgspec.Struct, frozen=True):
    """A place that serves files. `location` is an address (maybe with credentials) or an absolute path."""

    kind: Kind
    location: str

    @property
    def title(self) -> str:
        """What to call it in a message and in a lock; holds no credentials and no path of this machine."""
        if self.kind is Kind.FOLDER:
            return "the folder of wheels"
        return urllib.parse.urlsplit(self.location).hostname or urllib.parse.urlsplit(self.location).path

    def page(self, project: str) -> str:
        """Address of the page that lists this project."""
        return f"{self.location.rstrip('/')}/{project}/" if self.kind is Kind.INDEX else self.location


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A file on offer. `sha256` is empty and `size` None where the source is silent."""

    name: str
    url: str  #: http, https or file
    sha256: str = ""
    size: int | None = None
    yanked: bool = False


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """A mirror's addresses; `{tag}` is `cu118` or `cpu`. Empty: it does not carry that channel."""

    pytorch: str = ""
    pytorch_kind: Kind = Kind.INDEX
    pyg: str = ""  #: `{page}` is `torch-2.0.0+cu118.html`
    pypi: str = ""


MIRRORS = {
    "sjtu": Mirror(
        pytorch="https://mirror.sjtu.edu.cn/pytorch-wheels/{tag}", pypi="https://mirror.sjtu.edu.cn/pypi/web/simple"
    ),
    "aliyun": Mirror(
        pytorch="https://mirrors.aliyun.com/pytorch-wheels/{tag}/",
        pytorch_kind=Kind.LINKS,
        pypi="https://mirrors.aliyun.com/pypi/simple",
    ),
    "nju": Mirror(
        pytorch="https://mirror.nju.edu.cn/pytorch/whl/{tag}", pypi="https://mirror.nju.edu.cn/pypi/web/simple"
    ),
    "tuna": Mirror(pypi="https://pypi.tuna.tsinghua.edu.cn/simple"),
}
PYTORCH_MIRRORS = tuple(name for name, mirror in MIRRORS.items() if mirror.pytorch)


def names_of(extensions: Iterable[str]) -> tuple[str, ...]:
    """Normalised names of a recipe's extensions, which may have pins."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    return tuple(dict.fromkeys(str(canonicalize_name(Requirement(text).name)) for text in extensions))


def extensions_of(request: SourceOptions) -> Extensions:
    """The mode asked for. Raises UsageError for an unknown one."""
    try:
        return Extensions(request.extensions)
    except ValueError as error:
        raise UsageError(
            f"there is no way {request.extensions!r} to come by extensions; there are {', '.join(Extensions)}",
            next_step="make image CUDA=11.8 EXTENSIONS=auto    (wheels, and what has none is compiled)",
        ) from error


def mirror_of(request: SourceOptions) -> Mirror:
    """The mirror asked for, an empty one if none.

    An address is a site's own mirror: `URL/cu118` as PyTorch's channel, `URL/torch-2.0.0+cu118.html` as PyG's page.
    Raises UsageError for an unknown name.
    """
    if not request.mirror:
        return Mirror()
    if "://" in request.mirror:
        base = request.mirror.rstrip("/")
        return Mirror(pytorch=base + "/{tag}", pyg=base + "/{page}")
    if request.mirror not in MIRRORS:
        raise UsageError(
            f"there is no mirror {request.mirror!r}; known are {', '.join(MIRRORS)}",
            next_step="make image CUDA=11.8 MIRROR=sjtu    (or MIRROR=https://… of a mirror of your site)",
        )
    return MIRRORS[request.mirror]


def sources(
    channel: Channel, *, torch: str, torch_cuda: str, request: SourceOptions, user: UserIndexes
) -> tuple[Source, ...]:
    """Where to look for the files of a channel, in order. `torch` is the exact version, `*` only for `local`."""
    mirror = mirror_of(request)
    match channel:
        case Channel.PYTORCH:
            tag = cuda_tag(torch, torch_cuda)
            found = [Source(Kind.INDEX, pytorch_index(torch, torch_cuda))]
            if mirror.pytorch:
                found.insert(0, Source(mirror.pytorch_kind, mirror.pytorch.format(tag=tag)))
        case Channel.PYG:
            page = pyg_page(torch, torch_cuda)
            found = [Source(Kind.LINKS, pyg_links(torch, torch_cuda))]
            if mirror.pyg:
                found.insert(0, Source(Kind.LINKS, mirror.pyg.format(page=page)))
        case Channel.PYPI:
            found = [Source(Kind.INDEX, address) for address in (mirror.pypi, *user.extra, user.default) if address]
        case Channel.LOCAL:
            found = [Source(Kind.FOLDER, folder) for folder in local_folders(request, user.folders)]
    return tuple(dict.fromkeys(found))


def local_folders(request: SourceOptions, folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folder named on the command line, then those of uv's and pip's `find-links`."""
    named = (str(request.wheels.absolute()),) if request.wheels else ()
    return tuple(dict.fromkeys((*named, *folders)))
