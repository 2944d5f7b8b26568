"""Place a wheel's files (PEP 427) as the `installer` library does, and read its RECORD; nothing is written."""

import base64
import configparser
import csv
import hashlib
import io
import posixpath
from collections.abc import Iterable, Mapping

import msgspec
from installer.scripts import Script
from installer.utils import SCHEME_NAMES, parse_entrypoints

from graphcrate.compat.facts import start_up
from graphcrate.model.plan import VENV, site_packages
from graphcrate.model.report import StartUp
from wheelread.archive import Member
from wheelread.wheel import Wheel

INSTALLATION_FORMAT = 2  #: of what is kept of a wheel: raise it with `Installation`, and with what is looked for
INSTALLER = b"graphcrate\n"
_PYTHON = f"#!{VENV}/bin/python\n".encode()  #: what scripts start with
_SCRIPT_LIMIT = 1 << 24  #: bytes; a text whose first line is to be rewritten


def _folder(scheme: str, distribution: str, python: str) -> str:
    """Return the folder of an installation scheme's files."""
    if scheme == "scripts":
        return f"{VENV}/bin"
    if scheme == "headers":  # as pip has it
        return f"{VENV}/include/site/python{python}/{distribution}"
    return VENV if scheme == "data" else site_packages(python)


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
    """Every file of an installed wheel but RECORD, and RECORD's rows (paths from site-packages); kept in the cache."""

    files: tuple[Placed, ...]  #: sorted by path
    record_path: str
    rows: tuple[tuple[str, str, str], ...]
    starts: tuple[StartUp, ...] = ()  #: what of it runs by itself

    def record(self, bytecode: Iterable[str], python: str, changed: Mapping[str, str]) -> bytes:
        """RECORD with rows for these `.pyc` files (absolute paths) added. They have no hash, as pip has it.

        `changed`: path → hash of files that are other than the wheel's.
        """
        packages = site_packages(python)
        added = ((posixpath.relpath(path, packages), "", "") for path in bytecode)
        other = {posixpath.relpath(path, packages): identity for path, identity in changed.items()}
        rows = ((path, other.get(path, identity), size) for path, identity, size in self.rows)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(sorted({*rows, *added}))
        return text.getvalue().encode()


def place(wheel: Wheel, python: str) -> Installation:
    """Decide where each file of the wheel goes. Raises IntegrityError for a wheel that cannot be installed."""
    placing = _Placing(wheel, python)
    placing.launchers()
    root = "purelib" if wheel.root_is_purelib else "platlib"
    record = f"{wheel.dist_info}/RECORD"
    data = wheel.dist_info.removesuffix(".dist-info") + ".data"
    for member in wheel.members:
        # The image's bytecode is made by its own Python.
        if member.name == record or "__pycache__" in member.name.split("/")[:-1]:
            continue
        if not member.name.startswith(f"{data}/"):
            placing.member(root, member.name, member)
            continue
        _, scheme, *below = member.name.split("/", 2)
        if scheme not in SCHEME_NAMES or not below:
            wheel.archive.fail(member.name, "is in no folder of .data that is known")
        placing.member(scheme, below[0], member)
    placing.made(root, f"{wheel.dist_info}/INSTALLER", INSTALLER, 0o644)
    placing.rows.append((record, "", ""))
    files = tuple(sorted(placing.files.values(), key=lambda placed: placed.path))
    return Installation(files, f"{site_packages(python)}/{record}", tuple(placing.rows), _starts(wheel, files))


def _starts(wheel: Wheel, files: Iterable[Placed]) -> tuple[StartUp, ...]:
    """Find what of a wheel runs by itself, in the bytes of the files that may do so."""
    concerned = (placed for placed in files if start_up.concerns(placed.path))
    contents = {
        placed.path: placed.content
        if placed.member is None
        else wheel.read(placed.member)
        if placed.size <= start_up.LARGEST
        else b""
        for placed in concerned
    }
    return tuple(msgspec.structs.replace(start, package=wheel.name) for start in start_up.found(contents))


class _Placing:
    """The files of a wheel by path, as they are placed, and their rows of RECORD."""

    def __init__(self, wheel: Wheel, python: str) -> None:
        self._wheel, self._python = wheel, python
        self._distribution = wheel.dist_info.removesuffix(".dist-info").partition("-")[0]
        self.files: dict[str, Placed] = {}
        self.rows: list[tuple[str, str, str]] = []

    def launchers(self) -> None:
        """Make the programs of entry points."""
        name = f"{self._wheel.dist_info}/entry_points.txt"
        member = next((member for member in self._wheel.members if member.name == name), None)
        if member is None:
            return
        try:
            scripts = [Script(*entry) for entry in parse_entrypoints(self._wheel.read(member).decode())]
        except (ValueError, AssertionError, configparser.Error) as error:
            self._wheel.archive.fail("", f"cannot be installed: {error or 'its entry points are malformed'}")
        for script in scripts:
            self.made("scripts", *script.generate(f"{VENV}/bin/python", "posix"), 0o755)

    def member(self, scheme: str, path: str, member: Member) -> None:
        """Place a member of the wheel as it is, but for a script's first line."""
        # Scripts are executable in any case: it may come from a system without such a bit (PEP 427).
        mode = 0o755 if member.executable or scheme == "scripts" else 0o644
        if scheme == "scripts" and member.size <= _SCRIPT_LIMIT:
            content = self._wheel.read(member)
            if content.startswith(b"#!python"):
                self.made(scheme, path, _PYTHON + content.partition(b"\n")[2], mode)
                return
        self._add(scheme, path, mode, member, b"", self._wheel.records.get(member.name, ""))

    def made(self, scheme: str, path: str, content: bytes, mode: int) -> None:
        """Place content that is made here."""
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        self._add(scheme, path, mode, None, content, f"sha256={digest}")

    def _add(self, scheme: str, path: str, mode: int, member: Member | None, content: bytes, identity: str) -> None:
        folder, packages = _folder(scheme, self._distribution, self._python), site_packages(self._python)
        if posixpath.normpath(path) != path or path.startswith(("/", "../")) or path in (".", "..") or "\0" in path:
            self._wheel.archive.fail("", f"would write {path!r} outside of {folder}")
        placed = Placed(f"{folder}/{path}", mode, member, content, identity)
        if self.files.get(placed.path, placed).identity != identity:
            self._wheel.archive.fail("", f"two of its files go to {placed.path}")
        self.files[placed.path] = placed
        start = "" if folder == packages else posixpath.relpath(folder, packages) + "/"
        self.rows.append((start + path, identity, str(placed.size) if identity else ""))
