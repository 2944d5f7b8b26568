"""Facts in a wheel's bytes about where it runs: CUDA, GPU architectures, C++ ABI, glibc, what it requires.

Reads any seekable stream, so that a wheel on a server need not be fetched whole. A deflated library cannot be read at
random: it is unpacked to a nameless file, piece by piece. Large ones may be left out; for torch's architectures there
is the list that torch itself tells (`torch.cuda.get_arch_list()`), a line of text in a library of a few megabytes.
"""

import email.message
import email.parser
import errno
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from typing import BinaryIO

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.artifacts.formats.translated import integrity_errors
from graphcrate.compat.facts import facts, gpu_code
from graphcrate.compat.facts.packages import of_feature
from graphcrate.model.errors import IntegrityError
from treeaudit import elf, fatbin
from treeaudit.elf import Elf
from treeaudit.values import GpuCode

CHUNK = 1 << 20
_LARGEST = 8 << 30  #: bytes of a library; the largest seen has 2
_TEXT = 1 << 22
#: what zipfile raises on mangled archives
_FAULTS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, struct.error, ValueError, LookupError, OverflowError)
_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_CUDA = re.compile(r"^cuda\s*(?::[^=]*)?=\s*(?:'([\d.]*)'|None)", re.MULTILINE)
#: torch/_dynamo/eval_frame.py raises for this Python and newer ones; Windows is asked for in the same function
_COMPILE = re.compile(r"^def check_if_dynamo_supported\b.*?sys\.version_info >= \(3, (\d+)\)", re.MULTILINE | re.DOTALL)
_ARCHITECTURE = rb"(?:sm|compute)_\d+[af]?"
_LIST = re.compile(rb"(" + _ARCHITECTURE + rb"(?: " + _ARCHITECTURE + rb")+)\0")
_TORCH = re.compile(r"lib(c10|torch)[a-z_]*\.so")


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Empty: the wheel has nothing of the kind. `sass`, `ptx`, `some`: code of the libraries that decide, as audited.

    `features`: all machine code of libraries of one feature. `told`: torch's own list, "sm_70", "compute_90" for PTX.
    """

    file: str
    name: str
    version: str
    size: int
    python: str  #: Requires-Python
    requires: tuple[str, ...]
    cuda: str  #: "12.1", or "cpu" for a torch without; empty: it does not say
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    some: tuple[str, ...]
    features: dict[str, tuple[str, ...]]
    told: tuple[str, ...]
    cxx11_abi: bool | None
    glibc: str
    glibcxx: str
    unread: tuple[str, ...]  #: libraries that were left out
    compile_python: str  #: the newest Python for torch.compile: "3.11"


class _Seen(msgspec.Struct, frozen=True):
    """Of one library."""

    elf: Elf
    code: GpuCode
    told: tuple[str, ...]


def measure(stream: BinaryIO, name: str, *, most: int | None = None) -> Measurement:
    """Measure the wheel in a seekable stream; `name`: its file name.

    `most`: packed bytes of the largest library that is unpacked; None: all are. Raises IntegrityError.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            return _measure(archive, name, most)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a position before the file's start
            raise
        raise _damaged(name, error) from error
    except _FAULTS as error:
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> IntegrityError:
    return IntegrityError(f"{name} is no whole wheel: {error}", cause="The wheel was damaged or cut short.")


def _measure(archive: zipfile.ZipFile, name: str, most: int | None) -> Measurement:
    infos = archive.infolist()
    metadata = _metadata(archive, infos, name)
    libraries = [info for info in infos if _LIBRARY.search(info.filename)]
    unread = [info.filename for info in libraries if most is not None and info.compress_size > most]
    seen = {info.filename: _read(archive, info, name) for info in libraries if info.filename not in unread}
    project = str(metadata["Name"] or "")
    codes = {path: one.code for path, one in seen.items()}
    code = gpu_code.together(canonicalize_name(project), codes)
    return Measurement(
        file=name,
        name=project,
        version=str(metadata["Version"] or ""),
        size=_size(archive),
        python=str(metadata["Requires-Python"] or ""),
        requires=tuple(str(line) for line in metadata.get_all("Requires-Dist", [])),
        cuda=_cuda(archive, infos, name),
        sass=code.sass,
        ptx=code.ptx,
        some=code.some,
        features={
            only.stem: facts.ordered({*one.sass, *one.some})
            for path, one in codes.items()
            if one.sass and (only := of_feature(path))
        },
        told=next((one.told for one in seen.values() if one.told), ()),
        cxx11_abi=_string_abi(seen),
        glibc=_floor("GLIBC", seen.values()),
        glibcxx=_floor("GLIBCXX", seen.values()),
        unread=tuple(unread),
        compile_python=_compile_python(archive, infos, name),
    )


def _size(archive: zipfile.ZipFile) -> int:
    assert archive.fp is not None
    return archive.fp.seek(0, 2)


def _text(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> str:
    if info.file_size > _TEXT:
        raise IntegrityError(f"{name}: {info.filename} has {info.file_size} bytes, which is absurd for a text")
    return archive.read(info).decode("utf-8", "replace")


def _metadata(archive: zipfile.ZipFile, infos: Iterable[zipfile.ZipInfo], name: str) -> email.message.Message:
    for info in infos:
        if re.fullmatch(r"[^/]+\.dist-info/METADATA", info.filename):
            return email.parser.HeaderParser().parsestr(_text(archive, info, name))
    raise IntegrityError(f"{name} has no METADATA", cause="It is no wheel, or was damaged.")


def _cuda(archive: zipfile.ZipFile, infos: Iterable[zipfile.ZipInfo], name: str) -> str:
    """Read torch/version.py."""
    for info in infos:
        if info.filename == "torch/version.py" and (found := _CUDA.search(_text(archive, info, name))):
            return found[1] or "cpu"
    return ""


def _compile_python(archive: zipfile.ZipFile, infos: Iterable[zipfile.ZipInfo], name: str) -> str:
    """The newest Python for which torch.compile does not raise; empty for a torch without it."""
    for info in infos:
        if info.filename == "torch/_dynamo/eval_frame.py" and (found := _COMPILE.search(_text(archive, info, name))):
            return f"3.{int(found[1]) - 1}"
    return ""


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, wheel: str) -> _Seen:
    name = f"{wheel}: {info.filename}"
    if info.file_size > _LARGEST:
        raise IntegrityError(f"{name} has {info.file_size} bytes, which is absurd")
    told: tuple[str, ...] = ()
    with tempfile.TemporaryFile() as file, archive.open(info) as member:
        before = b""
        while chunk := member.read(CHUNK):
            file.write(chunk)
            if info.filename.endswith("libtorch_python.so") and (found := _LIST.search(before + chunk)):
                told = tuple(found[1].decode().split())
            before = chunk[-1024:]
        with integrity_errors():
            found_elf = elf.read_stream(file, name)
            extent = found_elf.fat_binaries
            return _Seen(found_elf, fatbin.usual(fatbin.read(file, extent, name) if extent else []), told)


def _string_abi(seen: dict[str, _Seen]) -> bool | None:
    """Tell whether std::string has the new form. libc10.so tells it of torch; of others what they refer to does."""
    core = next((one for path, one in seen.items() if path.endswith("/libc10.so")), None)
    if core is not None:
        return elf.string_forms(name for name in core.elf.binary.exports if name.startswith("_ZN3c10"))[1]
    users = [one.elf.binary for one in seen.values() if any(map(_TORCH.match, one.elf.binary.needed))]
    old, new = any(one.old_strings for one in users), any(one.new_strings for one in users)
    return new if new != old else None


def _floor(prefix: str, seen: Iterable[_Seen]) -> str:
    """The newest version of these symbols that any library cannot do without."""
    found = {
        version
        for one in seen
        for need in one.elf.binary.versions_wanted
        if (version := need.version.removeprefix(f"{prefix}_")) != need.version
    }
    numbers = [tuple(map(int, version.split("."))) for version in found if re.fullmatch(r"\d+(\.\d+)*", version)]
    return ".".join(map(str, max(numbers))) if numbers else ""
