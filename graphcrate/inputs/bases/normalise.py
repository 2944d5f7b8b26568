"""From the tar that mmdebstrap writes to the entries of a base layer: smaller, and the same wherever it was made.

What differs between machines, users and runs of mmdebstrap is left out or written again: order, times, devices,
backups, caches, logs, identities, the mirror. What an image does not need goes too: manuals, translations.
"""

import re
import tarfile
from collections.abc import Iterator
from typing import IO

from graphcrate.model.errors import BuildError
from graphcrate.oci.tar import Kind, header, padding

CHUNK = 1 << 20
#: dpkg's own rules in the image say the same as LEFT_OUT, so that packages installed later stay as small
DPKG_RULES = """\
# Images carry no manuals and no translations; licences stay.
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*/*
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-include /usr/share/locale/locale.alias
path-exclude /usr/share/lintian/*
path-exclude /usr/share/linda/*
path-exclude /usr/share/groff/*
"""
LEFT_OUT = re.compile(
    r"""
      usr/share/doc/[^/]+/(?!copyright$).*
    | usr/share/man/[^/]+/.*
    | usr/share/(?:info|lintian|linda|groff)/.*
    | usr/share/locale/(?!locale\.alias$).*
    | (?:dev|proc|sys|tmp|var/tmp)/.*
    | run/(?!lock$).*
    | var/log/.*[^/]
    | var/cache/(?:apt|ldconfig|man)/.*
    | var/cache/debconf/.*-old
    | var/lib/apt/lists/.*
    | var/lib/dpkg/.*-old
    | var/lib/dpkg/(?:lock.*|triggers/Lock)
    | var/lib/dbus/machine-id
    | etc/(?:machine-id|hostname|hosts|resolv\.conf|\.pwd\.lock)
    | etc/(?:passwd|group|shadow|gshadow|subuid|subgid)-
    | etc/apt/(?:sources\.list|sources\.list\.d/.*|apt\.conf\.d/99mmdebstrap)
    | etc/dpkg/dpkg\.cfg\.d/99mmdebstrap
    """,
    re.VERBOSE | re.DOTALL,
)
EXAMPLES = "usr/share/doc/apt/examples/"
CUT_PYC_HEADER = 16


def entries(stream: IO[bytes], suite: str, mtime: int) -> Iterator[bytes]:
    """The layer's tar blocks without the end of archive, in pieces. `stream` is the whole tar, seekable.

    Every entry gets the time `mtime`. Raises BuildError for a tar that a base cannot be.
    """
    with tarfile.open(fileobj=stream, mode="r:", encoding="utf-8") as archive:
        members = {_path(member.name): member for member in archive}
        written = _added(archive, members, suite)
        kept = {path: member for path, member in members.items() if path and not LEFT_OUT.fullmatch(path)}
        first: dict[str, str] = {}  #: of a file with several names, by the name that has its content: the one written
        for path in sorted(kept.keys() | written.keys()):
            if path in written:
                content = written[path]
                yield header(path, Kind.FILE, mode=0o644, mtime=mtime, size=len(content))
                yield content + padding(len(content))
                continue
            member = kept[path]
            if member.isreg() or member.islnk():
                origin = _path(member.linkname) if member.islnk() else path
                if (target := first.setdefault(origin, path)) != path:
                    yield _header(path, member, Kind.HARD_LINK, mtime, link=target)
                else:
                    yield from _file(archive, path, members[origin], mtime)
            else:
                yield _other(path, member, mtime)


def _file(archive: tarfile.TarFile, path: str, member: tarfile.TarInfo, mtime: int) -> Iterator[bytes]:
    yield _header(path, member, Kind.FILE, mtime, size=member.size)
    source = archive.extractfile(member)
    if source is None:
        raise BuildError(f"mmdebstrap's tar has no content for {path}")
    with source:
        head = source.read(CUT_PYC_HEADER)
        yield timeless(head) if path.endswith(".pyc") else head
        while chunk := source.read(CHUNK):
            yield chunk
    yield padding(member.size)


def _other(path: str, member: tarfile.TarInfo, mtime: int) -> bytes:
    if member.isdir():
        return _header(path, member, Kind.FOLDER, mtime)
    if member.issym():
        return _header(path, member, Kind.SYMBOLIC_LINK, mtime, link=member.linkname)
    raise BuildError(f"mmdebstrap's tar has an entry that a base layer cannot have: {path} (type {member.type!r})")


def _header(path: str, member: tarfile.TarInfo, kind: Kind, mtime: int, *, size: int = 0, link: str = "") -> bytes:
    mode = 0o777 if kind is Kind.SYMBOLIC_LINK else member.mode & 0o7777
    return header(path, kind, mode=mode, mtime=mtime, size=size, link=link, uid=member.uid, gid=member.gid)


def _path(name: str) -> str:
    return name.removeprefix("./").strip("/") if name != "." else ""


def timeless(head: bytes) -> bytes:
    """The header of a .pyc file that is valid whatever the time of its source (PEP 552, unchecked hash).

    Debian's bytecode holds its source's time, which is another one in the image: Python would compile all of it again
    at each start. The hash is not looked at, so it may be zero.
    """
    if len(head) < CUT_PYC_HEADER or head[4:8] != bytes(4):
        return head
    return head[:4] + b"\1\0\0\0" + bytes(8)


def _added(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], suite: str) -> dict[str, bytes]:
    """Files that are written here: dpkg's rules, and where apt finds packages."""
    added = {"etc/dpkg/dpkg.cfg.d/graphcrate": DPKG_RULES.encode()}
    for name, place in (
        ("debian.sources", "etc/apt/sources.list.d/debian.sources"),
        ("sources.list", "etc/apt/sources.list"),
    ):
        member = members.get(EXAMPLES + name)
        source = archive.extractfile(member) if member is not None and member.isreg() else None
        if source is not None:
            added[place] = sources(source.read().decode(), suite).encode()
            break
    return added


def sources(example: str, suite: str) -> str:
    """Debian's own example of apt sources, without comments, and with the component `main` alone.

    apt ships it as documentation, written for the suite that it belongs to. Bullseye's lacks the updates, and names
    the security archive by its host alone, which not every proxy takes. Raises BuildError when it is for another suite.
    """
    lines = [line for line in example.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or suite not in "".join(lines):
        raise BuildError(f"apt's example of sources is not for {suite}")
    text = "\n".join(re.sub(r"\bmain( +(contrib|non-free\S*))+", "main", line) for line in lines) + "\n"
    text = re.sub(rf"(://[^/\s]+)/? ({suite}-security) ", r"\1/debian-security \2 ", text)
    if "-updates" not in text:
        text = re.sub(rf"^(deb .*) {suite} (.*)\n", rf"\g<0>\1 {suite}-updates \2\n", text, flags=re.MULTILINE)
    return text.replace("\nTypes:", "\n\nTypes:")
