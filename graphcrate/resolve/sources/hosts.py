"""Each host that a build may ask by itself: what it gives, what works without it, and whether it is reached from here.

docs/hosts.md has the same rows.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from graphcrate.compat.facts.addresses import channel_address
from graphcrate.host.net.connections import HttpError
from graphcrate.inputs.bases import mirrors
from graphcrate.model.command import command, setting
from graphcrate.model.errors import NetworkError
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.resolve.sources import channels
from graphcrate.resolve.sources.channels import MIRRORS, Source, SourceKind, asks_public_mirrors
from graphcrate.resolve.sources.crates import CRATES_IO, RSPROXY
from graphcrate.resolve.sources.failures import reason, source_name
from graphcrate.resolve.sources.further import PYTORCH_FILES
from graphcrate.resolve.sources.offers import Sources
from graphcrate.resolve.sources.pyg_lib import GITHUB

TORCH, CUDA, SUITE, CRATE = (
    "2.0.1",
    "11.8",
    "bookworm",
    {"crate": "libc", "version": "0.2.139"},
)  #: of what is asked for
_WHEEL = f"https://{PYTORCH_FILES}/whl/cu118/torch-{TORCH}%2Bcu118-cp311-cp311-linux_x86_64.whl"
_THERE = frozenset({200, 404, 405, 410, 501})  #: of a server that answers, if only that it has no such page
_THREADS = 16


class HostRow(NamedTuple):
    """Hosts for one purpose. `title` is what a page calls them, `places` what is asked of them; one of them is enough.

    `needed`: no build without a cache works where none is reached.
    """

    title: str
    gives: str
    without: str
    places: Callable[[Sources], Iterable[Source | str]]
    needed: bool = False


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A host that was asked. `why` it was not reached; empty if it was."""

    host: str
    gives: str
    without: str
    needed: bool
    why: str

    @property
    def reached(self) -> bool:
        return not self.why

    def lines(self) -> list[str]:
        """Return its lines of a list."""
        first = f"{'ok' if self.reached else 'no':5} {self.host:28} {self.gives}"
        return [first] if self.reached else [first, f"      why: {self.why}", f"      without it: {self.without}"]


def _channel(channel: Channel, torch: str = TORCH, cuda: str = CUDA) -> tuple[Source]:
    kind = SourceKind.INDEX if CHANNELS[channel].is_index else SourceKind.LINKS
    return (Source(kind, channel_address(channel, torch, cuda)),)


def _mirrors(sources: Sources) -> Iterable[Source]:
    if not asks_public_mirrors(sources.environment):
        return ()
    known = [channels.public_mirrors(channel, TORCH, CUDA) for channel in (Channel.PYTORCH, Channel.PYPI)]
    return {source_name(source.location): source for listed in reversed(known) for source in listed}.values()


def _debian(sources: Sources) -> Iterable[str]:
    servers = mirrors.archives(sources.environment, suite=SUITE)
    mains = {source_name(one.main): f"{one.main}/dists/{SUITE}/InRelease" for one in servers.mirrors if one.main}
    security = {
        source_name(one.security): f"{one.security}/dists/{SUITE}-security/InRelease"
        for one in servers.mirrors
        if one.security
    }
    return {**security, **mains}.values()


ROWS = (
    HostRow(
        "your package index (pip's and uv's settings)",
        "most packages, toolkits of CUDA 12 and 13, the environment of graphcrate itself",
        "a mirror: PIP_INDEX_URL",
        lambda sources: (Source(SourceKind.INDEX, sources.user.default),),
        needed=True,
    ),
    HostRow(
        source_name(CHANNELS[Channel.PYTORCH].root),
        "pages of PyTorch's channel",
        f"the compatible candidate, from the package index; or {setting(mirror='sjtu')}",
        lambda _: _channel(Channel.PYTORCH),
    ),
    HostRow(
        PYTORCH_FILES,
        "the files that those pages list: torch, torchvision, torchaudio",
        "the same file from a mirror's folder, else the compatible candidate",
        lambda _: (_WHEEL,),
    ),
    HostRow(
        source_name(CHANNELS[Channel.PYG].root),
        "wheels of PyG's extensions",
        "they are compiled from sources of the package index",
        lambda _: _channel(Channel.PYG),
    ),
    HostRow(
        ", ".join(dict.fromkeys(source_name(one.pytorch or one.pypi) for one in MIRRORS.values())),
        f"the same as the four above; asked last, and first as {setting(mirror='…')}",
        "WHEEL_FALLBACK=none asks none of them",
        _mirrors,
    ),
    HostRow(
        source_name(CHANNELS[Channel.ASTRAL].root),
        "pyg_lib and torch_scatter for torch 2.10 and newer, where PyG's pages lack them",
        f"after two seconds they are compiled; a committed lock asks it by {command('lock')} alone",
        lambda _: _channel(Channel.ASTRAL, "2.10.0", "12.8"),
    ),
    HostRow(
        "a mirror of Debian (DEBIAN_MIRROR), its security archive",
        "the base, compilers",
        "other mirrors, the archive, the snapshot service: DEBIAN_FALLBACK, DEBIAN_ARCHIVE, DEBIAN_SNAPSHOT",
        _debian,
        needed=True,
    ),
    HostRow(
        f"{source_name(CRATES_IO)}, {source_name(RSPROXY)}",
        "crates of packages in Rust",
        "CRATES_MIRROR, or a wheel of that package",
        lambda _: (CRATES_IO.format(**CRATE), f"{RSPROXY}/libc/0.2.139/download"),
    ),
    HostRow(
        source_name(GITHUB),
        "sources of pyg_lib; packages that you name by a git address",
        "pyg_lib is left out, and the plan says what that costs; PYG_LIB=/path",
        lambda _: (GITHUB,),
    ),
    HostRow("a registry", "bases of a registry, what you publish", "nothing, unless you name one", lambda _: ()),
)


def tried(sources: Sources, rows: Sequence[HostRow] = ROWS) -> list[Tried]:
    """Ask each host for what a build would ask it for, side by side."""
    asked = [(row, place) for row in rows for place in row.places(sources)]
    with ThreadPoolExecutor(_THREADS) as pool:
        reasons = list(pool.map(lambda each: _why_not(each[1], each[0].needed, sources), asked))
    return [
        Tried(host=_host(place), gives=row.gives, without=row.without, needed=row.needed, why=why)
        for (row, place), why in zip(asked, reasons, strict=True)
    ]


def lacking(hosts: Iterable[Tried]) -> list[str]:
    """List what is needed of which no host was reached."""
    needed = {host.gives: False for host in hosts if host.needed}
    for host in hosts:
        if host.needed and host.reached:
            needed[host.gives] = True
    return [gives for gives, is_there in needed.items() if not is_there]


def blocked(words: Iterable[str]) -> list[str]:
    """Return a plan's line for each host by which a source or candidate is out, as `words` have it."""
    text = "\n".join(words)
    found = []
    for row in ROWS:
        for host in row.title.split(", "):
            if re.search(rf"\({re.escape(host)}\)|{re.escape(host)} does not give", text):
                found.append(
                    f"{host}, which gives {row.gives}, was not reached; without it: {row.without} "
                    f"({command('doctor', network=True)} tries all hosts)"
                )
    return found


def _host(place: Source | str) -> str:
    return source_name(place.location if isinstance(place, Source) else place)


def _why_not(place: Source | str, needed: bool, sources: Sources) -> str:
    try:
        if isinstance(place, Source):
            sources.listings.project(place, "numpy" if needed else "torch", tries=0)
        else:
            sources.client.request("HEAD", place, accept=_THERE, tries=0)
    except NetworkError as error:
        if isinstance(error, HttpError) and error.status in _THERE:
            return ""
        return reason(error)
    return ""
