"""Debian's archives, and the addresses at which they may have a package, in the order in which they are asked.

A package is its hash, so any server may give it. Lists of packages come from what the user named, else from this
machine's own sources (sources.list(5)), else from `FURTHER`; no lock needs the name of a mirror.
"""

import contextlib
import datetime
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from debroot.distributions import DEBIAN, Distribution

APT = Path("/etc/apt")
_POOL = "pool/"  #: where files are below the root of a main archive
_PATH = re.compile(r"pool(?:/[A-Za-z0-9][A-Za-z0-9+.~_-]*)+\.(?:deb|orig\.tar\.(?:gz|bz2|xz))")
NONE = "none"  #: of a variable that names servers: ask none


class DebianMirror(NamedTuple):
    """URLs of Debian's main archive and of its security archive; empty where it does not carry that one."""

    main: str
    security: str = ""


class Archives(NamedTuple):
    """All servers of Debian's packages. `listing`: the mirrors whose lists count; `others` may have files too."""

    listing: tuple[DebianMirror, ...]
    others: tuple[DebianMirror, ...] = ()
    retired: DebianMirror = DebianMirror("")  #: of suites that have left the mirrors
    snapshot: str = ""  #: the service that keeps every file that ever was in an archive
    distribution: Distribution = DEBIAN

    @property
    def mirrors(self) -> tuple[DebianMirror, ...]:
        return (*self.listing, *self.others)


#: Public mirrors, for a machine that is not a Debian and names none, and for files that its own mirror lacks:
#: of the Linux kernel's site, RWTH Aachen, Tsinghua University, Alibaba Cloud.
FURTHER = tuple(
    DebianMirror(f"{root}/debian", f"{root}/debian-security")
    for root in (
        "https://mirrors.kernel.org",
        "https://ftp.halifax.rwth-aachen.de",
        "https://mirrors.tuna.tsinghua.edu.cn",
        "https://mirrors.aliyun.com",
    )
)
RETIRED = "https://archive.debian.org"
SNAPSHOT = "https://snapshot.debian.org"
_ROOTS = [mirror.main.removesuffix("/debian") for mirror in FURTHER]
_RETIRED, _SNAPSHOTS = {"debian": RETIRED}, {"debian": SNAPSHOT}  #: by distribution; none of one that is not here


def variable(distribution: Distribution, name: str) -> str:
    """The environment's variable of a distribution: "DEBIAN_MIRROR"."""
    return f"{distribution.name.upper()}_{name}"


def archives(
    environment: Mapping[str, str], distribution: Distribution, suites: Collection[str], folder: Path = APT
) -> Archives:
    """The servers that this environment, and this machine's sources in `folder`, name for a distribution.

    `suites`: those of it, by which sources of others are told apart. Of Debian, `DEBIAN_MIRROR` and
    `DEBIAN_SECURITY_MIRROR` may hold several addresses; `DEBIAN_FALLBACK`, `DEBIAN_ARCHIVE` and `DEBIAN_SNAPSHOT`
    replace the public servers, by `none` those are not asked.
    """
    main, security = distribution.main, distribution.security

    def value(name: str) -> str:
        return environment.get(variable(distribution, name), "").strip().rstrip("/")

    further = tuple(DebianMirror(f"{root}/{main}", f"{root}/{security}") for root in _ROOTS)
    if fallback := value("FALLBACK"):
        further = _pairs(_addresses(fallback), [], distribution)
    machine = tuple(filter(None, [of_machine(folder, distribution, suites)]))
    named = of_variables(environment, distribution)
    retired = value("ARCHIVE") or _RETIRED.get(distribution.name, NONE)
    snapshot = value("SNAPSHOT") or _SNAPSHOTS.get(distribution.name, NONE)
    return Archives(
        listing=named or (*machine, *further),
        others=(*machine, *further) if named else (),
        retired=DebianMirror("")
        if retired == NONE
        else DebianMirror(f"{retired}/{distribution.main}", f"{retired}/{distribution.security}"),
        snapshot="" if snapshot == NONE else snapshot,
        distribution=distribution,
    )


def of_variables(environment: Mapping[str, str], distribution: Distribution) -> tuple[DebianMirror, ...]:
    """The mirrors that variables name."""
    mains = _addresses(environment.get(variable(distribution, "MIRROR"), ""))
    securities = _addresses(environment.get(variable(distribution, "SECURITY_MIRROR"), ""))
    return _pairs(mains, securities, distribution) if mains else ()


def _pairs(mains: list[str], securities: list[str], distribution: Distribution) -> tuple[DebianMirror, ...]:
    """Mirrors of these addresses; a security archive that is not named is `…/debian-security` of `…/debian`."""
    end = f"/{distribution.main}"
    securities = securities or [
        f"{main.removesuffix(end)}/{distribution.security}" if main.endswith(end) else "" for main in mains
    ]
    return tuple(itertools.starmap(DebianMirror, itertools.zip_longest(mains, securities, fillvalue="")))


def _addresses(text: str) -> list[str]:
    return [address.rstrip("/") for address in text.split() if address != NONE]


def of_machine(folder: Path, distribution: Distribution, suites: Collection[str]) -> DebianMirror | None:
    """The archives that this machine's own sources name; None where it is of another distribution."""
    names = (*suites, *distribution.aliases)
    main = security = ""
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]
    for path in files:
        for address, suite in own_sources(path.read_text(errors="replace")) if path.is_file() else ():
            url, (name, _, kind) = address.rstrip("/"), suite.partition("/")[0].partition("-")
            # Archives of others use these names too ("docker.com/linux/debian bookworm"), never with such a pool.
            if name in names and distribution.main in url.rpartition("//")[2] and "/linux/" not in url:
                main = main or ("" if kind else url)
                security = security or (url if kind == "security" else "")
    return DebianMirror(main, security) if main else None


def own_sources(text: str) -> Iterator[tuple[str, str]]:
    """(URL, suite) of each source in a file of sources.list(5), in the one-line or the deb822 form."""
    yield from re.findall(r"^deb\s+(?:\[[^]]*\]\s*)?(https?://\S+)\s+(\S+)\s", text, re.MULTILINE)
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(\w[\w-]*): *(.*)$", stanza, re.MULTILINE))
        for url in fields.get("URIs", "").split() if "deb" in fields.get("Types", "").split() else ():
            if url.startswith(("http://", "https://")):
                yield from ((url, suite) for suite in fields.get("Suites", "").split())


def is_path(path: str) -> bool:
    """Return whether this is the path of a package below an archive's root, which leads nowhere else."""
    return _PATH.fullmatch(path) is not None


def is_time(time: str) -> bool:
    """Return whether this is a time as the snapshot service writes it, of a year in which there were snapshots."""
    with contextlib.suppress(ValueError):
        moment = datetime.datetime.strptime(time, SNAPSHOT_TIME)
        return 2005 <= moment.year < 2200 and moment.strftime(SNAPSHOT_TIME) == time
    return False


def addresses(path: str, listed: str, servers: Archives) -> Iterator[str]:
    """Every address that a file of an archive may have: on the mirrors, the archive of retired suites, the snapshots.

    `path`: as in a lock, and `is_path`, or empty. `listed`: when a list named it ("20261125T021215Z"), or empty. A file
    that the security archive lists may be in the main one alone, and the other way round: what a point release took
    over, and bullseye's last updates. So each server is asked for both.
    """
    if not path:
        return
    distribution = servers.distribution
    main_folder, security_folder = distribution.main, distribution.security
    roots = [(mirror.main, mirror.security) for mirror in (*servers.mirrors, servers.retired)]
    if servers.snapshot:
        times = [listed, _day_after(listed)] if listed else []
        service = f"{servers.snapshot}/archive"
        roots += [(f"{service}/{main_folder}/{time}", f"{service}/{security_folder}/{time}") for time in times]
    own_is_security = path.startswith(distribution.security_pool)
    in_main, in_security = _twins(path, distribution.security_pool)
    urls: list[str] = []
    for main, security in roots:
        pair = [f"{main}/{in_main}" if main else "", f"{security}/{in_security}" if security else ""]
        urls += reversed(pair) if own_is_security else pair
    yield from dict.fromkeys(filter(None, urls))


def _twins(path: str, security_pool: str) -> tuple[str, str]:
    """A file's path in the main archive, and in the security archive."""
    if path.startswith(security_pool):
        return _POOL + path.removeprefix(security_pool), path
    return path, security_pool + path.removeprefix(_POOL)


def _day_after(time: str) -> str:
    """A file may reach the snapshots later than the lists that name it, which the service takes a few times a day."""
    moment = datetime.datetime.strptime(time, SNAPSHOT_TIME).replace(tzinfo=datetime.UTC)
    return (moment + datetime.timedelta(days=1)).strftime(SNAPSHOT_TIME)


SNAPSHOT_TIME = "%Y%m%dT%H%M%SZ"  #: how the snapshot service writes times
