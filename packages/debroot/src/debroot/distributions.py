"""Distributions of .debs: the facts that their suites share, and the needs of a suite's systems."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A system made of .debs. `name`: ID in os-release(5)."""

    name: str
    title: str  #: in texts: "Debian"
    keys: tuple[str, ...]  #: files in `release.KEYS`, of who signs its lists
    main: str  #: folder of its archive on mirrors: "debian"
    security: str  #: folder of the archive with its fixes: "debian-security"
    security_pool: str  #: below which that archive has its files: "pool/updates/"
    components: tuple[str, ...]  #: sections that packages are taken from
    contents: str  #: its index of files: "main/Contents-{architecture}"
    aliases: tuple[str, ...] = ()  #: further names of suites in sources.list(5)


class Layout(NamedTuple):
    """The work of a maker of a suite's systems besides running dpkg."""

    links_usr: bool = False  #: no package brings /bin → usr/bin and its like
    compiles_again: bool = False  #: bytecode that its scripts make is another one each time


DEBIAN = Distribution(
    name="debian",
    title="Debian",
    keys=("debian-archive-keys.asc",),
    main="debian",
    security="debian-security",
    security_pool="pool/updates/",
    components=("main",),
    contents="main/Contents-{architecture}",
    aliases=("sid", "stable", "oldstable", "testing", "unstable"),
)
#: suites of Debian that a root filesystem was made of, the oldest first
SUITES = {
    "bullseye": Layout(links_usr=True, compiles_again=True),
    "bookworm": Layout(links_usr=True),
    "trixie": Layout(),
}
