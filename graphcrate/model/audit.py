"""Facts read from programs and libraries of an image, and an audit's findings on them. See `checks.audit`."""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from graphcrate.model.allowance import Check
from graphcrate.model.contract import Settings
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.values import AnyDigest, Size
from treeaudit.values import Binary, GpuCode

#: `fail`: something cannot be loaded or cannot run; `warn`: it works, but not for everybody or not as one would think;
#: `note`: nothing breaks, but bytes or time are lost.
Severity = Literal["fail", "warn", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


class InstalledDistribution(msgspec.Struct, frozen=True, kw_only=True):
    """An installed Python package. `requires`: its Requires-Dist lines; `files`: absolute paths of its RECORD."""

    name: str  #: normalised
    version: str
    folder: str  #: site-packages that it is in
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
    left: tuple[str, ...] = ()  #: layers that were not to be read: what nothing has may be in them


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
    """A verdict on a GPU and an image. `jit`: after the driver compiled PTX. `why`: the first finding's words.

    `lost`: features that do not work there, and nothing else.
    """

    status: Literal["native", "jit", "fails", "unknown"]
    why: str = ""
    lost: tuple[str, ...] = ()


class PackageCode(msgspec.Struct, frozen=True, kw_only=True):
    """GPU code in the libraries of a package."""

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
