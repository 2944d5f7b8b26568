"""Where a wheel's files go: the algorithm of the `installer` library, recording instead of writing.

PEP 427 and the recording-installed-projects specification: `.data` folders, scripts with their first line rewritten,
launchers for entry points, RECORD and INSTALLER.
"""

import base64
import csv
import hashlib
import io
import posixpath
import warnings
from collections.abc import Iterable, Iterator
from configparser import Error as EntryPointError
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec
from installer import install
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import Hash, RecordEntry
from installer.scripts import Script
from installer.sources import WheelSource
from installer.utils import Scheme, fix_shebang

from graphcrate.artifacts.wheel import Wheel
from graphcrate.artifacts.wheel_archive import Member

if TYPE_CHECKING:
    import os

    from installer.scripts import ScriptSection
    from installer.sources import WheelContentElement

INSTALLER = b"graphcrate\n"
_SCRIPT_LIMIT = 1 << 24  #: bytes; a text whose first line is to be rewritten


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The image's Python environment. `mtime` in Unix seconds is that of every file."""

    python: str  #: "3.11"
    glibc: str  #: "2.36"
    mtime: int
    venv: str = "/opt/venv"

    @property
    def executable(self) -> str:
        """What scripts start with."""
        return f"{self.venv}/bin/python"

    @property
    def packages(self) -> str:
        """site-packages; `purelib` and `platlib` are one folder in a virtual environment."""
        return f"{self.venv}/lib/python{self.python}/site-packages"

    def folder(self, scheme: str, distribution: str) -> str:
        """Where files of an installation scheme go."""
        if scheme == "scripts":
            return f"{self.venv}/bin"
        if scheme == "headers":  # as pip has it
            return f"{self.venv}/include/site/python{self.python}/{distribution}"
        return self.venv if scheme == "data" else self.packages


class Placed(msgspec.Struct, frozen=True, array_like=True):
    """A file of the image: a member of the wheel as it is, or content made here. `path` is absolute."""

    path: str
    mode: int
    member: Member | None = None
    content: bytes = b""
    identity: str = ""  #: hash of the content as RECORD writes it, "sha256=…"

    @property
    def size(self) -> int:
        return len(self.content) if self.member is None else self.member.size


class Installation(msgspec.Struct, frozen=True, array_like=True):
    """Every file of an installed wheel but RECORD, and RECORD's rows (path relative to site-packages).

    It is made once per wheel and kept in the cache: content is read by it without looking at the archive again.
    """

    files: tuple[Placed, ...]  #: sorted by path
    record_path: str
    rows: tuple[tuple[str, str, str], ...]

    def record(self, bytecode: Iterable[str], packages: str) -> bytes:
        """RECORD with rows for these `.pyc` files (absolute paths) added. They have no hash, as pip has it."""
        added = ((posixpath.relpath(path, packages), "", "") for path in bytecode)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(sorted({*self.rows, *added}))
        return text.getvalue().encode()


def place(wheel: Wheel, site: Site) -> Installation:
    """Decide where each file of the wheel goes. Raises IntegrityError for a wheel that cannot be installed."""
    destination = _Destination(wheel, site)
    # A zip member that must not be read here stands in for its content.
    try:
        with warnings.catch_warnings():
            # It skips `__pycache__` with a warning; the image's bytecode is made by its own Python.
            warnings.simplefilter("ignore", RuntimeWarning)
            install(_Source(wheel), destination, {"INSTALLER": INSTALLER})
    except (InstallerError, ValueError, KeyError, AssertionError, EntryPointError) as error:
        wheel.archive.fail("", f"cannot be installed: {error or 'its entry points are malformed'}")
    files = tuple(sorted(destination.files.values(), key=lambda placed: placed.path))
    return Installation(files, destination.record_path, tuple(destination.rows))


class _Stand(io.BytesIO):
    """Stands for a member's content, which is read only where it is needed."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member = member


class _Source(WheelSource):
    def __init__(self, wheel: Wheel) -> None:
        stem = wheel.dist_info.removesuffix(".dist-info")
        distribution, _, version = stem.partition("-")
        super().__init__(distribution, version)
        self._wheel = wheel
        self._by_name = {member.name: member for member in wheel.members}

    @property
    def dist_info_filenames(self) -> list[str]:
        start = f"{self.dist_info_dir}/"
        return [name.removeprefix(start) for name in self._by_name if name.startswith(start)]

    def read_dist_info(self, filename: str) -> str:
        return self._wheel.read(self._by_name[f"{self.dist_info_dir}/{filename}"]).decode()

    def get_contents(self) -> "Iterator[WheelContentElement]":
        for member in self._wheel.members:
            row = (member.name, self._wheel.records.get(member.name, ""), str(member.size))
            yield row, cast("BinaryIO", _Stand(member)), member.executable


class _Destination(WheelDestination):
    def __init__(self, wheel: Wheel, site: Site) -> None:
        self._wheel, self._site = wheel, site
        self._distribution = wheel.dist_info.removesuffix(".dist-info").partition("-")[0]
        self.files: dict[str, Placed] = {}
        self.rows: list[tuple[str, str, str]] = []
        self.record_path = ""

    def write_script(self, name: str, module: str, attr: str, section: "ScriptSection") -> RecordEntry:
        name, content = Script(name, module, attr, section).generate(self._site.executable, "posix")
        return self._made("scripts", name, content, 0o755)

    def write_file(
        self, scheme: Scheme, path: "str | os.PathLike[str]", stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        path = str(path)
        # Scripts are executable whatever the zip says: it may come from a system without such a bit (PEP 427).
        mode = 0o755 if is_executable or scheme == "scripts" else 0o644
        if not isinstance(stream, _Stand):
            return self._made(scheme, path, stream.read(), mode)
        member = stream.member
        is_text = scheme == "scripts" and member.size <= _SCRIPT_LIMIT
        if is_text and self._wheel.read(member).startswith(b"#!python"):
            with fix_shebang(io.BytesIO(self._wheel.read(member)), self._site.executable) as fixed:
                return self._made(scheme, path, fixed.read(), mode)
        identity = self._wheel.records.get(member.name, "")
        self._add(Placed(self._absolute(scheme, path), mode, member, identity=identity))
        return RecordEntry(path, Hash.parse(identity) if identity else None, member.size if identity else None)

    def finalize_installation(
        self, scheme: Scheme, record_file_path: str, records: Iterable[tuple[Scheme, RecordEntry]]
    ) -> None:
        self.record_path = self._absolute(scheme, record_file_path)
        prefixes: dict[str, str] = {}
        for record_scheme, entry in records:
            if record_scheme not in prefixes:
                folder = self._site.folder(record_scheme, self._distribution)
                relative = posixpath.relpath(folder, self._site.packages)
                prefixes[record_scheme] = "" if relative == "." else f"{relative}/"
            self.rows.append(entry.to_row(prefixes[record_scheme] or None))

    def _made(self, scheme: str, path: str, content: bytes, mode: int) -> RecordEntry:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        self._add(Placed(self._absolute(scheme, path), mode, None, content, f"sha256={digest}"))
        return RecordEntry(path, Hash("sha256", digest), len(content))

    def _add(self, placed: Placed) -> None:
        other = self.files.get(placed.path)
        if other is not None and other.identity != placed.identity:
            self._wheel.archive.fail("", f"two of its files go to {placed.path}")
        self.files[placed.path] = placed

    def _absolute(self, scheme: str, path: str) -> str:
        folder = self._site.folder(scheme, self._distribution)
        if posixpath.normpath(path) != path or path.startswith(("/", "../")) or path in (".", "..") or "\0" in path:
            self._wheel.archive.fail("", f"would write {path!r} outside of {folder}")
        return f"{folder}/{path}"
