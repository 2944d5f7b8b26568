"""Each host that a build may ask by itself: what it gives, what works without it, and whether it is reached from here.

docs/hosts.md has the same rows.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from graphcrate.compat.facts import suites
from graphcrate.compat.facts.addresses import PYTORCH_FILES
from graphcrate.host.net import HttpError
from graphcrate.inputs.bases import mirrors
from graphcrate.model.command import command, setting
from graphcrate.model.errors import NetworkError
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.resolve.sources.channels import official
from graphcrate.resolve.sources.crates import CRATES_IO, RSPROXY
from graphcrate.resolve.sources.failures import source_name
from graphcrate.resolve.sources.pyg_lib import GITHUB
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Source, SourceKind
from graphcrate.resolve.sources.wheel_mirrors import MIRRORS, asks_public_mirrors, public_mirrors

TORCH, CUDA, CRATE = "2.0.1", "11.8", {"crate": "libc", "version": "0.2.139"}  #: of what is asked for
SUITE = [*suites.bases()][-1]
_WHEEL = f"https://{PYTORCH_FILES}/whl/cu118/torch-{TORCH}%2Bcu118-cp311-cp311-linux_{DEFAULT.machine}.whl"
_THERE = frozenset({200, 404, 405, 410, 501})  #: of a server that answers, if only that it has no such page
_THREADS = 16


class HostRow(NamedTuple):
    """Hosts for one purpose. `title`: in texts; `addresses`: what is asked of them, one of which is enough.

    `needed`: no build without a cache works where none is reached.
    """

    title: str
    gives: str
    without: str
    addresses: Callable[[Sources], Iterable[Source | str]]
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
    return (official(channel, torch, cuda),)


def _mirrors(sources: Sources) -> Iterable[Source]:
    if not asks_public_mirrors(sources.environment):
        return ()
    known = [public_mirrors(channel, TORCH, CUDA) for channel in (Channel.PYTORCH, Channel.PYPI)]
    return {source_name(source.location): source for listed in reversed(known) for source in listed}.values()


def _debian(sources: Sources) -> Iterable[str]:
    servers = mirrors.archives(sources.environment, suite=SUITE)
    mains = {
        source_name(server.main): f"{server.main}/dists/{SUITE}/InRelease" for server in servers.mirrors if server.main
    }
    security = {
        source_name(server.security): f"{server.security}/dists/{SUITE}-security/InRelease"
        for server in servers.mirrors
        if server.security
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
        ", ".join(dict.fromkeys(source_name(mirror.pytorch or mirror.pypi) for mirror in MIRRORS.values())),
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
        f"pyg_lib is left out, and the plan says what that costs; {setting(pyg_lib='/path')}",
        lambda _: (GITHUB,),
    ),
    HostRow("a registry", "bases of a registry, what you publish", "nothing, unless you name one", lambda _: ()),
)


def tried(sources: Sources, rows: Sequence[HostRow] = ROWS) -> list[Tried]:
    """Ask each host for what a build would ask it for, side by side."""
    asked = [(row, address) for row in rows for address in row.addresses(sources)]
    with ThreadPoolExecutor(_THREADS) as pool:
        reasons = list(pool.map(lambda each: _why_not(each[1], each[0].needed, sources), asked))
    return [
        Tried(host=_host(address), gives=row.gives, without=row.without, needed=row.needed, why=why)
        for (row, address), why in zip(asked, reasons, strict=True)
    ]


def lacking(hosts: Iterable[Tried]) -> list[str]:
    """List what is needed of which no host was reached."""
    needed = {host.gives: False for host in hosts if host.needed}
    for host in hosts:
        if host.needed and host.reached:
            needed[host.gives] = True
    return [gives for gives, is_there in needed.items() if not is_there]


def blocked(words: Iterable[str]) -> str:
    """Return a plan's line on the hosts by which a source or candidate is out, as `words` have it; empty for none."""
    text = "\n".join(words)
    out = [
        f"{host} ({row.gives}; without it: {row.without})"
        for row in ROWS
        for host in row.title.split(", ")
        if re.search(rf"\({re.escape(host)}\)|{re.escape(host)} does not give", text)
    ]
    return f"not reached: {', '.join(out)}; {command('doctor', network=True)} tries all hosts" if out else ""


def _host(address: Source | str) -> str:
    return source_name(address.location if isinstance(address, Source) else address)


def _why_not(address: Source | str, needed: bool, sources: Sources) -> str:
    try:
        if isinstance(address, Source):
            sources.listings.project(address, "numpy" if needed else "torch", tries=0)
        else:
            sources.client.request("HEAD", address, accept=_THERE, tries=0)
    except NetworkError as error:
        if isinstance(error, HttpError) and error.failure.status in _THERE:
            return ""
        return error.brief
    return ""
