"""Facts of one program or library, as the loader and the GPU's driver go by them."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]


class NeededSymbol(msgspec.Struct, frozen=True, array_like=True):
    """A symbol that a library refers to. `version` as in name@version, or empty."""

    name: str
    version: str = ""


class VersionWanted(msgspec.Struct, frozen=True, array_like=True):
    """`library` must define `version` ("GLIBC_2.14"), or the loader refuses."""

    library: str
    version: str


class GpuCode(msgspec.Struct, frozen=True, kw_only=True):
    """Compute capabilities, lowest first: `sass`, `ptx`: in half or more of its parts (source files); `some`: fewer."""

    sass: tuple[str, ...] = ()
    some: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()


class Binary(msgspec.Struct, frozen=True, kw_only=True):
    """A program or library as the loader sees it. `exports`: symbol → its versions ("" for none).

    `fault`: why no loader takes it, damaged or of 32 bits (`foreign`); `opaque`: why its needs cannot be told. The
    rest is empty then. `mentions`: libraries named in its data, which is how programs open what they do not link.
    `verbs`: symbols of libibverbs and libmlx5 named in the data of NCCL, which looks them up by name. These two are for
    callers to add.
    """

    size: Size
    machine: str = ""  #: as in elf.h: EM_X86_64
    soname: str = ""
    interpreter: str = ""  #: of a program: the loader that it names
    needed: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()  #: DT_RUNPATH, else DT_RPATH
    inherited: bool = False  #: the latter, which holds for what is loaded on its behalf too
    exports: Mapping[str, tuple[str, ...]] = {}
    wanted: tuple[NeededSymbol, ...] = ()  #: that must be there; weak ones may be absent
    versions_wanted: tuple[VersionWanted, ...] = ()
    versions: frozenset[str] = frozenset()  #: that it defines
    old_strings: bool = False  #: refers to std::string in its form before C++11
    new_strings: bool = False
    code: GpuCode = GpuCode()
    mentions: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    fault: str = ""
    foreign: bool = False
    opaque: str = ""
    code_fault: str = ""

    def has(self, symbol: NeededSymbol) -> bool:
        """Return whether the loader takes this library's definition for a symbol that another refers to."""
        versions = self.exports.get(symbol.name)
        if versions is None:
            return False
        # A library without versions serves any; a symbol that asks for none takes any.
        return not symbol.version or not self.versions or symbol.version in versions
