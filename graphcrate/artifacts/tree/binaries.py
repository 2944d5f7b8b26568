"""An audit's view of images, wheels and folders: programs and libraries, packages' metadata, links."""

import itertools
import mmap
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.artifacts.tree.reader import OpenedTree, Selection, Tools, whole_file
from graphcrate.artifacts.wheel import open_wheel
from graphcrate.compat.facts import start_up, verbs
from graphcrate.compat.facts.facts import numbers
from graphcrate.host.parallel import Advance, parallel
from graphcrate.model import codec
from graphcrate.model.audit import Contents, InstalledDistribution
from graphcrate.model.contract import Settings
from graphcrate.model.plan import VENV
from graphcrate.model.platform import DEFAULT, SUPPORTED, Platform, supported
from treeaudit.elf import Extent
from treeaudit.judge import MAGIC, judge
from treeaudit.loader import system_folders
from treeaudit.values import Binary

#: of what is kept of a file; change it with `model.audit.Binary` and with what `keeps` asks for
_VERSION = 9
_LARGEST_TEXT = 1 << 26
_SMALLEST_BINARY = 64  #: bytes: an ELF header
_SITE = re.compile(r"(?P<site>(?:/.*)?/(?:site|dist)-packages)/(?P<rest>.*)")
_PYTHON = re.compile(r"/python(\d+\.\d+)/(?:site|dist)-packages(?:/|$)")
_METADATA = re.compile(r"[^/]+\.(dist-info/METADATA|egg-info/PKG-INFO|egg-info)")
_RECORD = re.compile(r"[^/]+\.dist-info/(RECORD|sboms/[^/]+\.json)")
#: what Debian's packages are, whose sources they come from and their licences
_SYSTEM = re.compile(r"/var/lib/dpkg/status|/usr/share/doc/[^/]+/copyright")
RELEASES = ("/etc/os-release", "/usr/lib/os-release")  #: which system it is (os-release(5)): the first counts
_INTERPRETER = re.compile(r"/.*/bin/python(3\.\d+)")
_MODULE = re.compile(r"\.cpython-(\d)(\d+)[a-z]*-[^/]*\.so$")
_LOADER_FOLDERS = re.compile(r"/etc/ld\.so\.conf(\.d/[^/]+\.conf)?")
#: which providers libibverbs opens, for cards (rdma-core, libibverbs/dynamic_driver.c)
VERBS_DRIVER = re.compile(r"/.*/libibverbs\.d/[^/]+\.driver")
#: what NCCL is in, and rdma-core with what it needs besides the C library
_NETWORK = re.compile(
    r".*/lib(nccl|torch_cuda(_[a-z]+)?|ibverbs|rdmacm|nl(-route)?-3|mlx[45]|efa|hns|mana|.*-rdmav\d+)\.so[.\d]*"
)
_SYSTEM_LIBRARY = re.compile(r"(/usr)?/lib(64)?/([a-z\d_]+-linux-gnu/)?[^/]+\.so[.\d]*")
_LARGEST_OF_SYSTEM = 1 << 23
_TOOLKIT = re.compile(r"(/usr/local/cuda(?:-[\d.]+)?|.*/pkgs/cuda-toolkit[^/]*)/.+")
_CACHED = re.compile(r".*/pkgs/[^/]+-[^/]+-[^/]+/")  #: name-version-build in conda's cache, where no Python looks
_LABELS = "graphcrate."  #: an image of ours keeps a toolkit on purpose alone (FLAVOUR=devel)
_ARCHITECTURES = f"{_LABELS}architectures"
_ENDING, _STEM, _LONGEST = re.compile(rb"(\.so(?:\.\d+)*)\0"), re.compile(rb"[A-Za-z0-9_+.\-]+\Z"), 80
_VERB = re.compile(rb"(?<![A-Za-z0-9_])(?:ibv|mlx5dv)_[a-z0-9_]{1,60}(?=\0)")
_MOST_VERBS = 1000  #: names; libibverbs and libmlx5 have fewer together
#: what no loader takes, by name: most of an image's files
_TEXTS = (
    *(".py", ".pyc", ".pyi", ".h", ".hpp", ".cuh", ".c", ".cc", ".cpp", ".cu", ".txt", ".md", ".rst", ".json", ".js"),
    *(".html", ".css", ".cmake", ".pc", ".gz", ".xz", ".zst", ".zip", ".whl", ".mo", ".po", ".a", ".o", ".bc", ".ptx"),
    *(".png", ".svg", ".pem", ".crt", ".list", ".md5sums", ".triggers", ".npy", ".npz", ".csv", ".yaml", ".toml"),
)


Keep = Callable[[str, int], bool]


def nothing(path: str, size: int) -> bool:
    """Keep none."""
    return False


def selection(folder: Path, below: str = "", kept_whole: Keep = nothing, chosen: Keep | None = None) -> Selection:
    """Select what a reader keeps. `folder`: for temporary files; `below`: where in an image the artifact would be.

    `kept_whole`: whose content, by path and size, others ask for too; `chosen`: which files are read, else `keeps`.
    """
    chosen = chosen or keeps

    def distil(path: str, size: int, content: Iterable[bytes] | Path) -> bytes:
        """Keep of a program or library what the loader goes by, of METADATA and its like the text, else nothing."""
        if _is_text(f"{below}{path}") or kept_whole(path, size):
            return whole_file(path, size, content)
        binary = read_binary(content, path, folder, with_code=chosen is keeps)
        return msgspec.msgpack.encode(binary) if binary else b""

    return Selection(
        keep=lambda path, size: chosen(f"{below}{path}", size) or kept_whole(path, size),
        distil=distil,
        name="" if below or chosen is not keeps else f"binaries-{_VERSION}",
        hashes=False,
    )


def keeps(path: str, size: int) -> bool:
    """Return whether a file may be a program or library, or one of the texts that count, going by its name."""
    if _CACHED.match(path):
        return False
    if _is_text(path):
        return size <= _LARGEST_TEXT
    return size >= _SMALLEST_BINARY and not path.endswith(_TEXTS)


def is_of_network(path: str, size: int) -> bool:
    """Return whether a file tells what NCCL gets for the network: NCCL, libibverbs, what these need of the system."""
    if not keeps(path, size):
        return False
    if _LOADER_FOLDERS.fullmatch(path) or VERBS_DRIVER.fullmatch(path) or _NETWORK.fullmatch(path):
        return True
    return size <= _LARGEST_OF_SYSTEM and _SYSTEM_LIBRARY.fullmatch(path) is not None


def of_opened(
    name: str,
    opened: OpenedTree,
    tools: Tools,
    *,
    below: str = "",
    kept_whole: Keep = nothing,
    chosen: Keep | None = None,
    settings: Settings | None = None,
) -> Contents:
    """Of an artifact that was opened with what `selection` says of `below`, `kept_whole` and `chosen`."""
    chosen = chosen or keeps
    links: dict[str, str] = {}
    toolkit: dict[str, int] = {}
    kept: dict[str, int] = {}
    for inside, entry in opened.entries.items():
        path = f"{below}{inside}"
        if entry.kind == "symlink":
            links[path] = entry.link
        elif entry.kind == "file":
            if match := _TOOLKIT.fullmatch(path):
                toolkit[match[1]] = toolkit.get(match[1], 0) + entry.size
            if chosen(path, entry.size):
                kept[path] = entry.size

    def content(path: str, advance: Advance) -> bytes:
        data = opened.read(path.removeprefix(below))
        advance(kept[path])
        return data

    with tools.ctx.progress.task("looking at programs and libraries", sum(kept.values()), brief=True) as task:
        data = dict(zip(kept, parallel(content, tuple(kept), advance=task.advance), strict=True))
    raw = {path for path, size in kept.items() if kept_whole(path.removeprefix(below), size)}
    texts, programs = _sorted(data, raw)
    read = Contents(name=name, form=opened.form, binaries=programs, texts=texts, links=links)
    unread, left = opened.unread, opened.left
    read = msgspec.structs.replace(read, platform=supported(settings.platform)) if settings else read
    return _described(msgspec.structs.replace(read, toolkit=toolkit, settings=settings, unread=unread, left=left))


def of_wheels(name: str, wheels: Sequence[Path], site: str, tools: Tools) -> Contents:
    """Of wheels, as installed in this folder, for the platform that their names have where all have the same one.

    Raises IntegrityError for a damaged one.
    """
    data: dict[str, bytes] = {}
    for path in wheels:
        with (
            tools.ctx.progress.task(f"reading {path.name}", path.stat().st_size) as task,
            open_wheel(path) as wheel,
        ):
            for member in wheel.members:
                installed = _installed(member.name, site)
                if keeps(installed, member.size):
                    pieces = wheel.archive.chunks(member, wheel.records.get(member.name, ""))
                    data[installed] = tools.selection.distil(installed, member.size, pieces)
                    for _ in pieces:  # so that its hash is checked
                        pass
                task.advance(member.packed)
    texts, programs = _sorted(data)
    platform = _platform_of([path.name for path in wheels])
    return _described(Contents(name=name, form="wheels", binaries=programs, texts=texts, platform=platform))


def _platform_of(wheels: Sequence[str]) -> Platform:
    """The platform that the names of wheels have; the default where none or several have one."""
    named = {
        platform.machine: platform
        for platform in SUPPORTED
        for name in wheels
        if name.removesuffix(".whl").endswith(f"_{platform.machine}")
    }
    return next(iter(named.values())) if len(named) == 1 else DEFAULT


def over(upper: Contents, lower: Contents) -> Contents:
    """Packages laid over an image."""
    both = msgspec.structs.replace(
        lower,
        name=upper.name,
        form=upper.form,
        binaries={**lower.binaries, **upper.binaries},
        texts={**lower.texts, **upper.texts},
        links={**lower.links, **upper.links},
        unread=(*lower.unread, *upper.unread),
        left=(*lower.left, *upper.left),
    )
    return _described(both)


def _sorted(data: Mapping[str, bytes], raw: Container[str] = ()) -> tuple[dict[str, bytes], dict[str, Binary]]:
    """Texts and binaries among what was kept; `raw` is what was kept whole."""
    texts = {path: kept for path, kept in data.items() if _is_text(path)}
    programs = {
        path: read_binary([kept], path) if path in raw else codec.unpack(kept, Binary)
        for path, kept in data.items()
        if kept and path not in texts
    }
    return texts, {path: binary for path, binary in programs.items() if binary is not None}


def _described(contents: Contents) -> Contents:
    """Add what texts and settings say of what was found."""
    variables, labels = (contents.settings.variables, contents.settings.labels) if contents.settings else ({}, {})
    readable = {path: data.decode("utf-8", "replace") for path, data in contents.texts.items()}
    return msgspec.structs.replace(
        contents,
        distributions=tuple(_distributions(readable)),
        python=_python_of(contents),
        folders=tuple(dict.fromkeys((*_configured(readable), *system_folders(contents.platform.triplet)))),
        preferred=tuple(filter(None, variables.get("LD_LIBRARY_PATH", "").split(":"))),
        architectures=tuple(filter(None, re.split(r"[,;]", labels.get(_ARCHITECTURES, "")))),
        meant=any(label.startswith(_LABELS) for label in labels),
    )


def read_binary(
    content: Iterable[bytes] | Path, name: str, folder: Path | None = None, *, with_code: bool = True
) -> Binary | None:
    """Read a file; None where no loader would take it: no ELF, an object file, a core.

    `folder`: where what comes in pieces is copied to for the while. A file that is damaged or of 32 bits has a `fault`,
    one whose GPU code is not understood a `code_fault`. Without `with_code` neither this nor mentions are read, which
    are all over a file.
    """
    if isinstance(content, Path):
        with content.open("rb") as file:
            return _judged(file, name, with_code) if file.read(len(MAGIC)) == MAGIC else None
    pieces = iter(content)
    first = next(pieces, b"")
    if not first.startswith(MAGIC):
        return None
    with tempfile.TemporaryFile(dir=folder) as temporary:
        temporary.write(first)
        temporary.writelines(pieces)
        temporary.flush()
        return _judged(cast("BinaryIO", temporary), name, with_code)


def _judged(file: BinaryIO, name: str, with_code: bool) -> Binary | None:
    binary, parts = judge(file, name, with_code=with_code)
    if binary is None or parts is None:
        return binary
    binary = msgspec.structs.replace(binary, verbs=asked_of_verbs(file, parts.data))
    return msgspec.structs.replace(binary, mentions=mentions(file, parts.fat_binaries)) if with_code else binary


def mentions(file: BinaryIO, code: Extent | None) -> tuple[str, ...]:
    """Names of libraries in a file but for these bytes of GPU code, sorted: who opens what he does not link names it.

    `code` None: in all of the file, which is not empty.
    """
    names: set[bytes] = set()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for start, end in ((0, code.offset), (code.offset + code.size, len(data))) if code else ((0, len(data)),):
            for ending in _ENDING.finditer(data, start, end):
                at = ending.start()
                stem = _STEM.search(data, max(at - _LONGEST, start), at)
                # What has no byte before it may be the end of a longer name.
                if stem and stem.start() > start and not _STEM.match(data, stem.start() - 1, stem.start()):
                    names.add(stem[0] + ending[1])
    return tuple(sorted(name.decode() for name in names))


def asked_of_verbs(file: BinaryIO, extents: Iterable[Extent]) -> tuple[str, ...]:
    """Symbols that NCCL, where it is in this data of a file, looks up by name in libibverbs and libmlx5, sorted.

    It alone asks for them in a version; gloo, which is in torch's libraries too, takes any.
    """
    names: set[bytes] = set()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for extent in extents:
            end = extent.offset + extent.size
            if data.find(b"\0%b\0" % verbs.needed().version.encode(), extent.offset, end) >= 0:
                matches = itertools.islice(_VERB.finditer(data, extent.offset, end), _MOST_VERBS)
                names.update(match[0] for match in matches)
    return tuple(sorted(name.decode() for name in names))


def interpreter_of(contents: Contents) -> str:
    """ "3.11": of the newest Python that an image has as a program; empty for none."""
    versions = {match[1] for path in contents.binaries if (match := _INTERPRETER.fullmatch(path))}
    return max(versions, key=numbers, default="")


def _python_of(contents: Contents) -> str:
    """ "3.11": of the folder with most packages, else of what extension modules are named after; or empty."""
    seen = Counter(match[1] for path in contents.texts if (match := _PYTHON.search(path)))
    if not seen:
        seen = Counter(f"{match[1]}.{match[2]}" for path in contents.binaries if (match := _MODULE.search(path)))
    return max(seen, key=lambda version: seen[version], default="")


def _is_text(path: str) -> bool:
    if match := _SITE.fullmatch(path):
        kinds = (_METADATA, _RECORD)
        return start_up.concerns(path) or any(kind.fullmatch(match["rest"]) for kind in kinds)
    named = (_LOADER_FOLDERS, _SYSTEM, VERBS_DRIVER)
    return start_up.concerns(path) or path in RELEASES or any(pattern.fullmatch(path) for pattern in named)


def _installed(name: str, site: str) -> str:
    """Return the path at which an installer puts a member of a wheel (PEP 427, the .data folder)."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data"):
        return f"{site}/{name}"
    scheme, _, rest = rest.partition("/")
    if scheme in ("purelib", "platlib"):
        return f"{site}/{rest}"
    return f"{VENV}/bin/{rest}" if scheme == "scripts" else f"{VENV}/{rest}"


def _distributions(texts: Mapping[str, str]) -> Iterator[InstalledDistribution]:
    for path, text in sorted(texts.items()):
        match = _SITE.fullmatch(path)
        if match is None or not _METADATA.fullmatch(match["rest"]):
            continue
        message = HeaderParser().parsestr(text)
        if name := str(message["Name"] or ""):
            record = texts.get(f"{path.rpartition('/')[0]}/RECORD", "")
            yield InstalledDistribution(
                name=canonicalize_name(name),
                version=str(message["Version"] or ""),
                folder=match["site"],
                requires=tuple(str(line) for line in message.get_all("Requires-Dist", [])),
                python=str(message["Requires-Python"] or ""),
                files=frozenset(_recorded(match["site"], record)),
            )


def _recorded(site: str, record: str) -> Iterator[str]:
    """Paths of libraries and programs in a RECORD. A name with a comma is quoted, and none of ours."""
    for line in record.splitlines():
        name = line.partition(",")[0]
        if not name.endswith(_TEXTS) and not name.startswith(("/", "..")):
            yield f"{site}/{name}"


def _configured(texts: Mapping[str, str]) -> Iterator[str]:
    """Folders of /etc/ld.so.conf.d, in the order of its files' names."""
    for path in sorted(filter(_LOADER_FOLDERS.fullmatch, texts)):
        for line in texts[path].splitlines():
            folder = line.partition("#")[0].strip()
            if folder.startswith("/"):
                yield folder
