"""Channels, mirrors and this user's own indexes: for each channel the sources to try, in order.

A mirror comes before the official address, since mirrors go stale and every file's hash is checked. Addresses are those
of the manuals; the package index is what uv's and pip's own variables and files name. For a locked file that none of
them gives, the public mirrors come last.
"""

import configparser
import contextlib
import itertools
import shlex
import urllib.parse
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from graphcrate.compat.facts.addresses import INDEX_COPIES, channel_address, channel_page, cuda_label
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.model.command import ETC, command, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import CHANNELS, Channel

#: pip's configuration files of the whole machine; later ones win
SYSTEM_FILES = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))
FALLBACK, NONE = "WHEEL_FALLBACK", "none"  #: the variable by which no public mirror is asked, and its value


KNOCK = 2.0  #: seconds for a public mirror, which the user did not name, to take a connection


class SourceKind(StrEnum):
    """The form in which a source lists its files."""

    INDEX = "index"  #: one page per project
    LINKS = "links"  #: one page with all files
    FOLDER = "folder"  #: a folder on this machine


class Source(msgspec.Struct, frozen=True):
    """A server or folder that has files. `location` is an address (maybe with credentials) or an absolute path."""

    kind: SourceKind
    location: str
    names: tuple[str, ...] | None = None  #: normalised, of the packages that are taken from it; None: any
    where: str = ""  #: which line of a file names it: "requirements.txt:2"

    def gives(self, project: str) -> bool:
        """Return whether it may be asked for a project (normalised name)."""
        return self.names is None or project in self.names

    @property
    def title(self) -> str:
        """Return its name in a message and in a lock; it holds no credentials and no path of this machine."""
        if self.kind is SourceKind.FOLDER:
            return "the folder of wheels"
        return urllib.parse.urlsplit(self.location).hostname or urllib.parse.urlsplit(self.location).path

    def page(self, project: str) -> str:
        """Address of the page that lists this project."""
        return f"{self.location.rstrip('/')}/{project}/" if self.kind is SourceKind.INDEX else self.location


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A file on offer. `sha256` is empty and `size` None where the source is silent."""

    name: str
    url: str  #: http, https or file
    sha256: str = ""
    size: int | None = None
    yanked: bool = False  #: taken back (PEP 592)
    yanked_for: str = ""  #: the reason, where the page has one
    python: str = ""  #: Requires-Python
    is_hash_stated: bool = True  #: False: `sha256` is what the file itself has, of which no page states it
    has_metadata: bool = False  #: beside the file (PEP 658)
    metadata_sha256: str = ""  #: of that, where the page states it


def local_path(url: str) -> Path:
    """The path that a `file:` address names (RFC 8089)."""
    return Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))


class WheelMirror(msgspec.Struct, frozen=True, kw_only=True):
    """A mirror's addresses; `{tag}` is `cu118` or `cpu`. Empty: it does not carry that channel.

    `crates`: of Rust, as "dl" is in the configuration of one of cargo's registries.
    """

    pytorch: str = ""
    pytorch_kind: SourceKind = SourceKind.INDEX
    pyg: str = ""  #: `{page}` is `torch-2.0.0+cu118.html`
    pypi: str = ""
    crates: str = ""


MIRRORS = {
    "sjtu": WheelMirror(
        pytorch="https://mirror.sjtu.edu.cn/pytorch-wheels/{tag}",
        pypi=INDEX_COPIES["sjtu"],
        crates="https://mirror.sjtu.edu.cn/crates.io/crates/{crate}/{crate}-{version}.crate",
    ),
    "aliyun": WheelMirror(
        pytorch="https://mirrors.aliyun.com/pytorch-wheels/{tag}/",
        pytorch_kind=SourceKind.LINKS,
        pypi=INDEX_COPIES["aliyun"],
    ),
    "nju": WheelMirror(pytorch="https://mirror.nju.edu.cn/pytorch/whl/{tag}", pypi=INDEX_COPIES["nju"]),
    "tuna": WheelMirror(pypi=INDEX_COPIES["tuna"]),
}
PYTORCH_MIRRORS = tuple(name for name, mirror in MIRRORS.items() if mirror.pytorch)


def names_of(extensions: Iterable[str]) -> tuple[str, ...]:
    """Normalised names of a recipe's extensions, which may have pins."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    return tuple(dict.fromkeys(str(canonicalize_name(Requirement(text).name)) for text in extensions))


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
    if request.mirror not in MIRRORS:
        word = request.mirror.lower()
        meant = next((name for name, mirror in MIRRORS.items() if word in mirror.pypi or word.startswith(name)), "sjtu")
        raise UsageError(
            f"there is no mirror {request.mirror!r}; known are {', '.join(MIRRORS)}",
            next_step=f"{command('image', '…', mirror=meant)}    (or {setting(mirror='https://…')} of your site)",
        )
    return MIRRORS[request.mirror]


class UserIndexes(msgspec.Struct, frozen=True):
    """Index addresses (maybe with credentials), folders of wheels; `merged`: the best version of all, as in pip."""

    default: str
    extra: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    merged: bool = False
    further: tuple[Source, ...] = ()  #: that a requirements file names: asked first for what it adds


def sources(
    channel: Channel, torch: str, torch_cuda: str, request: SourceOptions, user: UserIndexes
) -> tuple[Source, ...]:
    """The sources of a channel's files, in order. `torch` is the exact version, `*` only for `local`."""
    match channel:
        case Channel.PYPI:
            listed = [Source(SourceKind.INDEX, address) for address in (*user.extra, user.default)]
            listed += user.further
        case Channel.LOCAL:
            listed = [Source(SourceKind.FOLDER, folder) for folder in local_folders(request, user.folders)]
        case _:
            kind = SourceKind.INDEX if CHANNELS[channel].is_index else SourceKind.LINKS
            listed = [Source(kind, channel_address(channel, torch, torch_cuda))]
    return _distinct([mirrored(mirror_of(request), channel, torch, torch_cuda), *listed])


def public_mirrors(channel: Channel, torch: str, torch_cuda: str) -> tuple[Source, ...]:
    """List the known mirrors of a channel, in order. `torch` as in `sources`."""
    return _distinct(mirrored(mirror, channel, torch, torch_cuda) for mirror in MIRRORS.values())


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


def address_of(channel: Channel, source: Source, name: str) -> str:
    """Return the address of a file on a source of PyTorch's channel, listed by its page or not; else "".

    PyTorch's index and its mirrors keep the files of a CUDA version in one folder, as `whl/cu118/<name>`.
    """
    if channel is not Channel.PYTORCH or source.kind is SourceKind.FOLDER:
        return ""
    return f"{source.location.rstrip('/')}/{urllib.parse.quote(name)}"


def _distinct(sources: Iterable[Source]) -> tuple[Source, ...]:
    return tuple(dict.fromkeys(source for source in sources if source.location))


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


def local_folders(request: SourceOptions, folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folder named on the command line, then those of uv's and pip's `find-links`."""
    named = (str(request.wheels.absolute()),) if request.wheels else ()
    return tuple(dict.fromkeys((*named, *folders)))


def user_indexes(environment: Mapping[str, str], emitted: str = "") -> UserIndexes:
    """Return the user's own settings, else what uv would use: `emitted` by `uv pip compile --emit-index-url`."""
    pip = _pip_settings(environment)
    default = environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL") or pip.get("index-url", "")
    extra = [*environment.get("UV_INDEX", "").split(), *environment.get("UV_EXTRA_INDEX_URL", "").split()]
    if not default:
        words = shlex.split(emitted)
        options = list(itertools.pairwise(words))
        default = next((address for option, address in options if option == "--index-url"), "")
        extra = extra or [address for option, address in options if option == "--extra-index-url"]
    of_pip = [url for url in pip.get("extra-index-url", "").split() if url not in extra]
    # uv allows names before addresses: `internal=https://…`
    addresses = dict.fromkeys(_without_name(url) for url in [*extra, *of_pip])
    return UserIndexes(
        _without_name(default),
        tuple(address for address in addresses if address != default),
        wheel_folders(environment),
        merged=bool(of_pip) or environment.get("UV_INDEX_STRATEGY", "").startswith("unsafe"),
    )


def wheel_folders(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Folders among what uv's and pip's `find-links` name; starts no program."""
    locations = environment.get("UV_FIND_LINKS", "").replace(",", " ").split()
    locations += _pip_settings(environment).get("find-links", "").split()
    folders = [Path(path) for location in locations if "://" not in (path := location.removeprefix("file://"))]
    return tuple(dict.fromkeys(str(folder) for folder in folders if folder.is_dir()))


def _pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """pip's settings: files in the order of pip's documentation, then `PIP_*` variables."""
    chosen = environment.get("PIP_CONFIG_FILE", "")
    files = list(SYSTEM_FILES)
    if home := environment.get("HOME"):
        files += [Path(home, ".pip", "pip.conf")]
        files += [Path(environment.get("XDG_CONFIG_HOME") or f"{home}/.config", "pip", "pip.conf")]
    files += [Path(chosen)] if chosen else []
    parser = configparser.RawConfigParser()
    for path in [] if chosen == "/dev/null" else files:
        with contextlib.suppress(configparser.Error, UnicodeDecodeError):
            parser.read(path, encoding="utf-8")
    settings: dict[str, str] = {}
    for section in ("global", "install", "download"):
        settings |= parser[section] if parser.has_section(section) else {}
    for name in ("index-url", "extra-index-url", "find-links"):
        if value := environment.get("PIP_" + name.upper().replace("-", "_")):
            settings[name] = value
    return settings


def _without_name(address: str) -> str:
    name, equals, rest = address.partition("=")
    return rest if equals and "/" not in name else address
