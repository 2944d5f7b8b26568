"""What is read of the programs and libraries of an image, and what an audit says of them. See `checks.audit`."""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from graphcrate.model.allowance import Check
from graphcrate.model.contract import Settings
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.values import AnyDigest, Size

#: `fail`: something cannot be loaded or cannot run; `warn`: it works, but not for everybody or not as one would think;
#: `note`: nothing breaks, but bytes or time are lost.
Severity = Literal["fail", "warn", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


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

    `fault`: why no loader takes it, damaged or of 32 bits (`foreign`); `opaque`: why nobody can tell what it needs. The
    rest is empty then. `mentions`: libraries named in its data, which is how programs open what they do not link.
    `verbs`: symbols of libibverbs and libmlx5 named in the data of NCCL, which looks them up by name; of others empty.
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
        """Whether the loader takes this library's definition for a symbol that another refers to."""
        versions = self.exports.get(symbol.name)
        if versions is None:
            return False
        # A library without versions serves any; a symbol that asks for none takes any.
        return not symbol.version or not self.versions or symbol.version in versions


class InstalledDistribution(msgspec.Struct, frozen=True, kw_only=True):
    """An installed Python package. `requires`: its Requires-Dist lines; `files`: absolute paths of its RECORD."""

    name: str  #: normalised
    version: str
    folder: str  #: site-packages that it lies in
    requires: tuple[str, ...] = ()
    python: str = ""  #: Requires-Python
    files: frozenset[str] = frozenset()


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """All that an audit knows of an artifact. Paths are absolute.

    `base`: False for bare wheels and folders, where the symbols of Python, glibc and libstdc++ count as there.
    """

    name: str
    form: str
    binaries: Mapping[str, Binary]
    texts: Mapping[str, bytes] = {}  #: METADATA and its like, the loader's configuration
    links: Mapping[str, str] = {}  #: symbolic links to libraries, and folders that are links
    settings: Settings | None = None
    distributions: tuple[InstalledDistribution, ...] = ()
    python: str = ""  #: "3.11"
    base: bool = True
    platform: Platform = DEFAULT  #: that it is to run on
    folders: tuple[str, ...] = ()  #: where the loader looks for libraries, in its order
    preferred: tuple[str, ...] = ()  #: of LD_LIBRARY_PATH
    architectures: tuple[str, ...] = ()  #: that the image says its extensions are compiled for
    toolkit: Mapping[str, int] = {}  #: CUDA toolkits on the disk, folder → bytes
    meant: bool = False  #: it says that it keeps its toolkit on purpose
    unread: tuple[str, ...] = ()  #: layers that cannot be read, and why
    left: tuple[str, ...] = ()  #: layers that nobody asked to look at: what nothing has may be in them


class AuditFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong. `file`: a path in the image; `bytes`: what is lost.

    `missing`: libraries that nothing in the image has; with all of any one of these groups it would be right.
    `packages`: those of its system that bring them. `allowed`: why its recipe allows it, which would fail it else.
    """

    check: Check
    severity: Severity
    package: str
    file: str
    what: str
    breaks: str = ""
    fix: str = ""
    bytes: Size = 0
    missing: tuple[tuple[str, ...], ...] = ()
    packages: tuple[str, ...] = ()
    allowed: str = ""


class GpuVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a GPU runs of an image. `jit`: after the driver compiled PTX. `why`: the first finding's words.

    `lost`: features that do not work there, and nothing else.
    """

    status: Literal["native", "jit", "fails", "unknown"]
    why: str = ""
    lost: tuple[str, ...] = ()


class PackageCode(msgspec.Struct, frozen=True, kw_only=True):
    """What the libraries of a package have code for."""

    package: str
    version: str
    code: GpuCode


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """`audit --json`. `broken`: files that cannot be loaded, optional ones included."""

    subject: str
    form: str
    digest: AnyDigest = ""
    python: str
    binaries: Size
    bytes: Size
    glibc: str  #: oldest that all libraries of Python packages load with
    glibcxx: str
    gpus: tuple[str, ...]  #: models that architectures were compared with
    code: tuple[PackageCode, ...]
    findings: tuple[AuditFinding, ...]
    broken: tuple[str, ...]
    unread: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    system: str = ""  #: whose libraries it has, "debian bookworm"; empty where nothing tells
