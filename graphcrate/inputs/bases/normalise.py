"""From the tree of a Debian system to the entries of a base layer: smaller, and the same wherever it was made.

What differs between machines, users and runs of dpkg goes or is written again; manuals and translations go too.
"""

import itertools
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from graphcrate.compat.facts import identities, suites
from graphcrate.host.disk import trees
from graphcrate.host.sandbox import rooted
from graphcrate.inputs.bases.deb import FileOwner
from graphcrate.model.command import LOCK_AGAIN
from graphcrate.model.errors import BuildError
from graphcrate.model.limits import PACKAGE
from graphcrate.model.plan import LAYER_MTIME
from graphcrate.model.words import printable
from ocilayout.tar import EntryType, header, padding

_OTHER = f"{LOCK_AGAIN}    (takes the suite's packages of today), or tell who wrote graphcrate"
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


def private_keys(root: Path) -> list[str]:
    """Private keys that no package brings, so that one made them here, and that the list of identities does not know.

    As text (PEM), in which programs exchange them: what only one program reads is not looked for.
    """
    lists = (str(path.relative_to(root)) for path in (root / "var/lib/dpkg/info").glob("*.list"))
    brought = {line for path in lists for line in (rooted.read_bytes(root, path) or b"").splitlines()}
    listed = identities.pattern()
    keys = []
    for folder in ("etc", "opt", "root", "srv", "usr/local", "var"):
        top = root / folder
        is_own = rooted.host_path(root, folder, follow=True) == top  # no link of a package's script, which may lead out
        for path in trees.files(top) if is_own else ():
            name, status = str(path.relative_to(root)), path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_KEY or os.fsencode(f"/{name}") in brought:
                continue
            if not name.startswith("var/lib/dpkg/") and not listed.fullmatch(name):
                keys += [name] if _PRIVATE_KEY.search(path.read_bytes()) else []
    return sorted(keys)


def entries(root: Path, owners: Mapping[str, FileOwner], suite: str, left_out: Collection[str] = ()) -> Iterator[bytes]:
    """The layer's tar blocks without the end of archive, in pieces: of the tree at `root`. `owners`: not root's paths.

    `left_out`: paths that are not to be in it, beside those that no base has. Raises BuildError for what a base cannot
    have.
    """
    written = _added(root, suite)
    walked = (Path(parent, name) for parent, *names in trees.walk(root) for name in itertools.chain(*names))
    paths = (str(path.relative_to(root)) for path in walked)
    listed = identities.pattern()
    kept = [path for path in paths if not (LEFT_OUT.fullmatch(path) or listed.fullmatch(path) or path in left_out)]
    total = 0  #: bytes of files; holes count, as a layer has none
    first: dict[tuple[int, int], str] = {}  #: of files with several names: the one that has the content
    for path in sorted({*kept, *written}):
        if path in written:
            content = written[path]
            yield header(path, EntryType.FILE, mode=0o644, mtime=LAYER_MTIME, size=len(content))
            yield content + padding(len(content))
            continue
        host_path = root / path
        status = host_path.lstat()
        if stat.S_ISREG(status.st_mode):
            total += status.st_size
        if total > PACKAGE.size or _SURROGATE.search(path):
            large = f"more than {PACKAGE.size >> 30} GiB of files, with"
            what = large if total > PACKAGE.size else "a name that is not UTF-8:"
            raise BuildError(f"the Debian system has {what} /{printable(path)}", next_step=_OTHER)
        uid, gid = owners.get(path, (0, 0))
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            yield header(path, EntryType.FOLDER, mode=mode, mtime=LAYER_MTIME, uid=uid, gid=gid)
        elif stat.S_ISLNK(status.st_mode):
            link = str(host_path.readlink())
            yield header(path, EntryType.SYMBOLIC_LINK, mode=0o777, mtime=LAYER_MTIME, link=link, uid=uid, gid=gid)
        elif not stat.S_ISREG(status.st_mode):
            raise BuildError(f"the Debian system has an entry that a base layer cannot have: /{path}", next_step=_OTHER)
        elif (target := first.setdefault((status.st_dev, status.st_ino), path)) != path:
            yield header(path, EntryType.HARD_LINK, mode=mode, mtime=LAYER_MTIME, link=target, uid=uid, gid=gid)
        else:
            yield header(path, EntryType.FILE, mode=mode, mtime=LAYER_MTIME, size=status.st_size, uid=uid, gid=gid)
            yield from _content(host_path)
            yield padding(status.st_size)


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


def _added(root: Path, suite: str) -> dict[str, bytes]:
    """Files that are written here: dpkg's rules, and where apt finds packages."""
    added = {"etc/dpkg/dpkg.cfg.d/graphcrate": DPKG_RULES.encode()}
    own = f"{suites.distribution_of(suite).name}.sources"
    for name, target in ((own, f"etc/apt/sources.list.d/{own}"), ("sources.list", "etc/apt/sources.list")):
        if (example := rooted.read_bytes(root, EXAMPLES + name)) is not None:
            added[target] = sources(example.decode(), suite).encode()
            break
    return added


def sources(example: str, suite: str) -> str:
    """The distribution's own example of apt sources, with the components of our bases alone.

    Raises BuildError when it is for another suite. Bullseye's lacks the updates, and names the security archive by its
    host alone, which not every proxy takes.
    """
    lines = [line for line in example.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or suite not in "".join(lines):
        raise BuildError(f"apt's example of sources is not for {suite}", next_step=_OTHER)
    its = suites.distribution_of(suite)
    components = " ".join(its.components)
    text = "\n".join(re.sub(r"\bmain( +[a-z-]+)*", components, line) for line in lines) + "\n"
    text = re.sub(rf"(://[^/\s]+)/? ({suite}-security) ", rf"\1/{its.security} \2 ", text)
    if "-updates" not in text:
        text = re.sub(rf"^(deb .*) {suite} (.*)\n", rf"\g<0>\1 {suite}-updates \2\n", text, flags=re.MULTILINE)
    return text.replace("\nTypes:", "\n\nTypes:")
