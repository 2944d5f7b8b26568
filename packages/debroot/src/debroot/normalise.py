"""From the tree of a Debian system to the entries of its archive: smaller, and the same wherever it was made.

What differs between machines, users and runs of dpkg goes or is written again; manuals and translations go too.
"""

import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from debroot import rooted, trees
from debroot.deb import FileOwner
from debroot.distributions import Distribution
from debroot.errors import TreeError
from debroot.words import printable

LARGEST = 64 << 30  #: bytes of all files; holes count, as a tar has none
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
    | etc/(?:hostname|hosts|resolv\.conf|\.pwd\.lock)
    | etc/(?:passwd|group|shadow|gshadow|subuid|subgid)-
    | etc/apt/(?:sources\.list|sources\.list\.d/.*)
    """,
    re.VERBOSE | re.DOTALL,
)
EXAMPLES = "usr/share/doc/apt/examples/"
CUT_PYC_HEADER = 16
_PRIVATE_KEY = re.compile(rb"^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----", re.MULTILINE)
_LARGEST_KEY = 1 << 16
_SURROGATE = re.compile("[\ud800-\udfff]")  #: stands for a byte of a name that is no UTF-8


def private_keys(root: Path, is_known: Callable[[str], bool] = lambda _: False) -> list[str]:
    """Private keys that no package brings, so that one made them here; `is_known`: paths that are not looked at.

    As text (PEM), in which programs exchange them: what only one program reads is not looked for.
    """
    lists = (str(path.relative_to(root)) for path in (root / "var/lib/dpkg/info").glob("*.list"))
    brought = {line for path in lists for line in (rooted.read_bytes(root, path) or b"").splitlines()}
    keys = []
    for folder in ("etc", "opt", "root", "srv", "usr/local", "var"):
        top = root / folder
        is_own = rooted.host_path(root, folder, follow=True) == top  # no link of a package's script, which may lead out
        for path in trees.entries(top) if is_own else ():
            name, status = str(path.relative_to(root)), path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_KEY or os.fsencode(f"/{name}") in brought:
                continue
            if not name.startswith("var/lib/dpkg/") and not is_known(name):
                keys += [name] if _PRIVATE_KEY.search(path.read_bytes()) else []
    return sorted(keys)


class Entry(NamedTuple):
    """An entry of the archive. `kind`: a type of `tarfile`; `content`: a file's, else the one that is on the disk."""

    path: str
    kind: bytes
    mode: int
    uid: int = 0
    gid: int = 0
    size: int = 0
    link: str = ""
    content: bytes = b""
    source: Path | None = None

    def pieces(self) -> Iterator[bytes]:
        """A file's content."""
        return iter((self.content,)) if self.source is None else _content(self.source)


def entries(
    root: Path,
    owners: Mapping[str, FileOwner],
    written: Mapping[str, bytes],
    is_left_out: Callable[[str], bool] = lambda _: False,
) -> Iterator[Entry]:
    """Yield the entries of the tree at `root`, sorted. `owners`: of paths that are not root's.

    `written`: files that are added, or are others there. `is_left_out`: paths that are not to be in it, beside those
    of `LEFT_OUT`. Raises TreeError for what no archive can have, TooDeepError.
    """
    paths = (str(path.relative_to(root)) for path in trees.entries(root))
    kept = [path for path in paths if not (LEFT_OUT.fullmatch(path) or is_left_out(path))]
    total = 0
    first: dict[tuple[int, int], str] = {}  #: of files with several names: the one that has the content
    for path in sorted({*kept, *written}):
        if path in written:
            yield Entry(path, tarfile.REGTYPE, 0o644, size=len(written[path]), content=written[path])
            continue
        host_path = root / path
        status = host_path.lstat()
        if stat.S_ISREG(status.st_mode):
            total += status.st_size
        if total > LARGEST:
            raise TreeError(f"the Debian system has more than {LARGEST >> 30} GiB of files, with /{printable(path)}")
        if _SURROGATE.search(path):
            raise TreeError(f"the Debian system has a name that is not UTF-8: /{printable(path)}")
        uid, gid = owners.get(path, (0, 0))
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            yield Entry(path, tarfile.DIRTYPE, mode, uid, gid)
        elif stat.S_ISLNK(status.st_mode):
            yield Entry(path, tarfile.SYMTYPE, 0o777, uid, gid, link=str(host_path.readlink()))
        elif not stat.S_ISREG(status.st_mode):
            raise TreeError(f"the Debian system has an entry that a base layer cannot have: /{path}")
        elif (target := first.setdefault((status.st_dev, status.st_ino), path)) != path:
            yield Entry(path, tarfile.LNKTYPE, mode, uid, gid, link=target)
        else:
            yield Entry(path, tarfile.REGTYPE, mode, uid, gid, status.st_size, source=host_path)


def write_tar(entries: Iterator[Entry], target: BinaryIO, epoch: int) -> None:
    """Write entries as a tar, with one time for all."""
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            member = tarfile.TarInfo(entry.path)
            member.type, member.mode, member.linkname, member.size = entry.kind, entry.mode, entry.link, entry.size
            member.uid, member.gid, member.mtime = entry.uid, entry.gid, epoch
            tar.addfile(member, _Pieces(entry.pieces()) if entry.kind == tarfile.REGTYPE else None)  # type: ignore[arg-type]


class _Pieces:
    """A file of pieces, as `tarfile` reads one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (piece := next(self._pieces, b"")):
            self._rest += piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def _content(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        head = file.read(CUT_PYC_HEADER)
        yield timeless(head) if path.suffix == ".pyc" else head
        while chunk := file.read(CHUNK):
            yield chunk


def timeless(head: bytes) -> bytes:
    """Make the header of a .pyc file valid for any time of its source (PEP 552: unchecked hash, may be zero).

    Debian's holds its source's time, which is another one in the image: Python would compile at each start.
    """
    if len(head) < CUT_PYC_HEADER or head[4:8] != bytes(4):
        return head
    return head[:4] + b"\1\0\0\0" + bytes(8)


def written_files(root: Path, suite: str, distribution: Distribution, rules: str = "debroot") -> dict[str, bytes]:
    """Files that are written here: dpkg's rules, and where apt finds packages. Raises TreeError.

    `rules`: the name of dpkg's file.
    """
    added = {f"etc/dpkg/dpkg.cfg.d/{rules}": DPKG_RULES.encode()}
    own = f"{distribution.name}.sources"
    for name, target in ((own, f"etc/apt/sources.list.d/{own}"), ("sources.list", "etc/apt/sources.list")):
        if (example := rooted.read_bytes(root, EXAMPLES + name)) is not None:
            added[target] = sources(example.decode(), suite, distribution).encode()
            break
    return added


def sources(example: str, suite: str, distribution: Distribution) -> str:
    """The distribution's own example of apt sources, with its components alone.

    Raises TreeError when it is for another suite. Bullseye's lacks the updates, and names the security archive by its
    host alone, which not every proxy takes.
    """
    lines = [line for line in example.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or suite not in "".join(lines):
        raise TreeError(f"apt's example of sources is not for {suite}")
    components = " ".join(distribution.components)
    text = "\n".join(re.sub(r"\bmain( +[a-z-]+)*", components, line) for line in lines) + "\n"
    text = re.sub(rf"(://[^/\s]+)/? ({suite}-security) ", rf"\1/{distribution.security} \2 ", text)
    if "-updates" not in text:
        text = re.sub(rf"^(deb .*) {suite} (.*)\n", rf"\g<0>\1 {suite}-updates \2\n", text, flags=re.MULTILINE)
    return text.replace("\nTypes:", "\n\nTypes:")
