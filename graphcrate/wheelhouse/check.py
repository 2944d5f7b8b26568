"""Whether a freshly compiled wheel can work in its image: judged by its bytes, before anything is imported."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import itanium_demangler
import msgspec
from packaging.version import InvalidVersion, Version

from graphcrate.errors import IntegrityError
from graphcrate.formats import elf, fatbin
from graphcrate.formats.elf import Elf
from graphcrate.formats.fatbin import Code
from graphcrate.model.plan import CompileStep
from graphcrate.wheelhouse.loader import Library, Process, library
from graphcrate.wheels.archive import Member
from graphcrate.wheels.wheel import Wheel, open_wheel

_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_FOR_PYTHON = re.compile(r"\.cpython-(\d)(\d+)")
_SHOWN = 4  #: names in one finding
#: of libstdc++: std::string of either ABI, which whoever uses strings refers to
_NEW_STRING, _OLD_STRING = re.compile(r"NSt7__cxx1112basic_string"), re.compile(r"_ZNK?Ss")
_TORCH = re.compile(r"lib(c10|torch)[a-z_]*\.so")
_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")


class _Binary(msgspec.Struct, frozen=True, kw_only=True):
    """A library in the wheel. `name`: the member's."""

    name: str
    elf: Elf
    library: Library
    codes: tuple[Code, ...]

    @property
    def file(self) -> str:
        return PurePosixPath(self.name).name


def check_wheel(wheel: Path, *, step: CompileStep, site: Path, rootfs: Path) -> tuple[str, ...]:
    """What keeps the wheel from working, as sentences; nothing for a good one.

    `site`: the folder that is /opt/venv while it is compiled, with torch and what torch needs; `rootfs`: the runtime
    base. Raises IntegrityError where the wheel is no wheel, or torch or the base themselves cannot be read.
    """
    site_packages = site / "lib" / f"python{step.python}" / "site-packages"
    findings: list[str] = []
    binaries: list[_Binary] = []
    with open_wheel(wheel) as opened:
        for member in opened.members:
            if _LIBRARY.search(member.name):
                try:
                    binaries.append(_read(opened, member, site_packages))
                except IntegrityError as error:
                    findings.append(f"{error.what}.")
    if not binaries and not findings:
        findings.append(f"{wheel.name} has no extension module: nothing was compiled.")
    process = Process(site_packages, rootfs, step.python)
    bundled = {binary.elf.soname or binary.file: binary.library for binary in binaries}
    for binary in binaries:
        findings += _form(binary, step.python)
        findings += _libraries(binary, process, bundled)
        findings += _string_abi(binary, process)
        findings += _symbols(binary, process, bundled)
    return (*findings, *_architectures(binaries, step.compilation.architectures))


def demangled(symbol: str) -> str:
    """A C++ name as a person reads it, or the symbol itself."""
    try:
        return str(itanium_demangler.parse(symbol) or symbol)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError):  # names of a kind that it does not know
        return symbol


def _read(wheel: Wheel, member: Member, site_packages: Path) -> _Binary:
    # Deflate streams cannot be read at random: unpacked to a nameless file, checked on the way.
    with tempfile.TemporaryFile() as stream:
        for chunk in wheel.archive.chunks(member, wheel.records.get(member.name, "")):
            stream.write(chunk)
        found = elf.read_stream(stream, member.name)
        codes = fatbin.read(stream, found.fat_binaries, member.name) if found.fat_binaries else ()
    place = site_packages / PurePosixPath(member.name).parent
    return _Binary(name=member.name, elf=found, library=library(found, place), codes=codes)


def _form(binary: _Binary, python: str) -> Iterator[str]:
    if (binary.elf.machine, binary.elf.type) != ("EM_X86_64", "ET_DYN"):
        yield f"{binary.name} is no x86-64 library: {binary.elf.machine}, {binary.elf.type}."
    named = _FOR_PYTHON.search(binary.file)
    if named and f"{named[1]}.{named[2]}" != python:
        yield f"{binary.name} is for Python {named[1]}.{named[2]}; the image has {python}."


def _libraries(binary: _Binary, process: Process, bundled: Mapping[str, Library]) -> Iterator[str]:
    """Libraries that are not there, or older than what it was linked with."""
    for name in binary.elf.needed:
        if process.find(name, binary.library, bundled) is None:
            where = "only a machine with NVIDIA's driver has" if name in _DRIVER else "neither torch nor the base has"
            yield f"{binary.name} needs {name}, which {where}."
    for name in dict.fromkeys(need.library for need in binary.elf.needs):
        found = process.find(name, binary.library, bundled)
        if found is None or not found.versions:  # said above; or a library without versions, which serves any
            continue
        wanted = {need.version for need in binary.elf.needs if need.library == name and not need.weak}
        if absent := sorted(wanted - found.versions, key=_by_number):
            prefix = absent[-1].rpartition("_")[0]
            last = max((has for has in found.versions if has.rpartition("_")[0] == prefix), key=_by_number, default="")
            yield (
                f"{binary.name} needs {_listed(absent)} of {name}; the image's "
                + (f"goes up to {last}." if last else "has no such version.")
            )


def _symbols(binary: _Binary, process: Process, bundled: Mapping[str, Library]) -> Iterator[str]:
    """What the loader would not find with RTLD_NOW."""
    scope = (*process.for_everybody, *process.closure([binary.library], bundled))
    missing = [
        symbol.name for symbol in binary.elf.undefined if not symbol.weak and not any(one.has(symbol) for one in scope)
    ]
    if missing:
        count = "a symbol that no library" if len(missing) == 1 else f"{len(missing)} symbols that no library"
        yield f"{binary.name} refers to {count} it is loaded with defines: {_listed(list(map(demangled, missing)))}."


def _string_abi(binary: _Binary, process: Process) -> Iterator[str]:
    """std::string comes in two forms; who hands strings to torch must use torch's (_GLIBCXX_USE_CXX11_ABI)."""
    c10 = process.find("libc10.so", binary.library, {}) if any(map(_TORCH.match, binary.elf.needed)) else None
    if c10 is None:
        return
    torch_new = any(name.startswith("_ZN3c10") and _NEW_STRING.search(name) for name in c10.exports)
    names = [symbol.name for symbol in (*binary.elf.undefined, *binary.elf.defined)]
    new, old = any(map(_NEW_STRING.search, names)), any(map(_OLD_STRING.match, names))
    if new != old and new != torch_new:
        yield (
            f"{binary.name} was compiled with _GLIBCXX_USE_CXX11_ABI={int(new)} and torch with "
            f"{int(torch_new)}: they do not understand each other's strings."
        )


def asked_code(architectures: Sequence[str]) -> Code:
    """What nvcc makes of TORCH_CUDA_ARCH_LIST: machine code for each entry, and PTX of it where "+PTX" says so."""
    ptx = frozenset(entry.removesuffix("+PTX") for entry in architectures if entry.endswith("+PTX"))
    return Code(sass=frozenset(entry.removesuffix("+PTX") for entry in architectures), ptx=ptx)


def _architectures(binaries: Sequence[_Binary], architectures: Sequence[str]) -> Iterator[str]:
    """A library must have what was asked for, no less (it could not run) and no more (it grows for nothing).

    Its fat binaries, one per source file, must each have all machine code; what nvcc's linker adds never has PTX.
    """
    asked, any_code = asked_code(architectures), False
    for binary in binaries:
        codes = [code for code in binary.codes if code != Code()]
        any_code = any_code or bool(codes)
        whole, partial = fatbin.union(codes), [code for code in codes if code.sass != asked.sass]
        if codes and whole != asked:
            yield f"{binary.name} has GPU code for {_told(whole)}; asked for was {_told(asked)}."
        elif partial:
            yield (
                f"{binary.name} has GPU code for {_told(partial[0])} only in {len(partial)} of its {len(codes)} parts; "
                f"asked for was {_told(asked)}."
            )
    to_torch = [binary for binary in binaries if any(map(_TORCH.match, binary.elf.needed))]
    if architectures and to_torch and not any_code:
        yield f"no library has GPU code; asked for was {_told(asked)}. It was compiled for the CPU alone."


def _told(code: Code) -> str:
    parts = [*sorted(code.sass, key=_by_number), *(f"{name} (PTX)" for name in sorted(code.ptx, key=_by_number))]
    return _joined(parts) if parts else "no GPU"


def _by_number(name: str) -> tuple[str, Version]:
    prefix, _, number = name.rpartition("_")
    try:
        return prefix, Version(number)
    except InvalidVersion:  # GLIBC_PRIVATE, 9.0f
        return name, Version("0")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return _joined([*names[:_SHOWN], f"{more} more"] if more > 0 else names)


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)
