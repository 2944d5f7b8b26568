"""A program's view of an image and a host, and its verdicts on the two. See `checks.contracts`."""

import datetime
from collections.abc import Mapping
from typing import Literal

import msgspec

from graphcrate.model.platform import DEFAULT
from graphcrate.model.runtime import RuntimeName
from graphcrate.model.tree import Form, Kind

#: `warn`: works, but not for everybody or not as one would think; `unknown`: something about image or host is not known
Status = Literal["pass", "warn", "fail", "unknown"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings with which containers of the image start. Empty is absent."""

    platform: str = DEFAULT.name  #: empty: the artifact does not say
    environment: tuple[str, ...] = ()  #: NAME=value, in order
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_folder: str = ""
    volumes: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        """The environment as a mapping; the last of equal names counts."""
        return {name: value for name, _, value in (entry.partition("=") for entry in self.environment)}


class FileFact(msgspec.Struct, frozen=True, kw_only=True):
    """A path of the image. `real`, mode, size and text are those of what links lead to."""

    kind: Kind  #: of the path itself
    link: str = ""
    real: Kind | None = "file"  #: None: a link that leads nowhere
    mode: int = 0o644
    size: int = 0
    text: str | None = None  #: content of a small file that was read, "" for one that is no text; None: not read


class LayerFact(msgspec.Struct, frozen=True, kw_only=True):
    """A layer as the manifest has it. `media_type` is empty where there is no manifest (`docker save`)."""

    media_type: str
    size: int


class Below(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a folder that a runtime hides, without the dot files of new homes."""

    files: int
    example: str


class CLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """The image's C library. `version` "2.36"; `kernel`: the oldest that it runs on ("3.2.0"); empty: unknown."""

    name: Literal["glibc", "musl"]
    version: str = ""
    kernel: str = ""


class Verbs(msgspec.Struct, frozen=True, kw_only=True):
    """NCCL's libibverbs in an image, as far as its bytes tell.

    Symbols are name@version, or the name alone where any version serves.
    """

    nccl: tuple[str, ...] = ()  #: files that NCCL is in, linked or by itself
    needed: int = 0  #: symbols of libibverbs that it cannot do without
    library: str = ""  #: libibverbs.so.1 that the loader gives it; empty: none
    fault: str = ""  #: why that cannot be loaded
    absent: tuple[str, ...] = ()  #: symbols among those needed that it does not define
    lost: Mapping[str, tuple[str, ...]] = {}  #: what NCCL does without → symbols that are not there
    providers: Mapping[str, str] = {}  #: that are configured ("mlx5") → why it cannot be loaded, or empty


class ImageView(msgspec.Struct, frozen=True, kw_only=True):
    """All that contracts know of an image."""

    name: str
    form: Form
    settings: Settings | None  #: None: the artifact has no configuration (a folder)
    manifest_type: str = ""  #: media type; empty: there is no manifest
    layers: tuple[LayerFact, ...] = ()  #: lowest first; none: a SIF, a squashfs, a folder
    without_platform: int = 0  #: entries of the index that do not say what they run on
    compression: str = ""  #: of a squashfs
    files: Mapping[str, FileFact] = {}  #: paths that contracts ask about; what is not here is not in the image
    broken: str = ""  #: why the layers cannot be put together; the tree is empty then
    unread: tuple[str, ...] = ()  #: layers that were not read, and why: then a missing file may be there all the same
    programs: Mapping[str, str] = {}  #: name → path, as PATH finds it
    verbs: Verbs = Verbs()
    hidden: Mapping[str, Below] = {}  #: by folder
    packages: tuple[str, ...] = ()  #: folders with installed Python packages
    distributions: Mapping[str, str] = {}  #: name as in PEP 503 → version
    torch: str = ""  #: version, with its local part
    cuda: str = ""  #: "11.8", or "cpu" for a torch without; empty: unknown, or no torch
    c_library: CLibrary | None = None  #: None: there is none, or not in a known place
    unpacked: int = 0  #: bytes of all files; 0: unknown
    devices: tuple[str, ...] = ()  #: paths with what they are, "/dev/sda (b 8:0)", but for what every /dev has


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The host that the image shall run on. What is empty or None is not known."""

    gpus: tuple[str, ...] = ()  #: models, as `compat.facts.facts` knows them
    driver: str = ""  #: NVIDIA's
    kernel: str = ""
    glibc: str = ""
    shm: int | None = None  #: bytes of /dev/shm in a container
    versions: Mapping[str, str] = {}  #: runtime → version; of pyxis that of enroot
    fabric: str = ""  #: network between its nodes, as `compat.facts.fabrics` names it
    plugin: str = ""  #: its folder with NCCL's plugin for that network, which jobs bind in
    today: datetime.date | None = None  #: which day it is there


class CheckVerdict(msgspec.Struct, frozen=True):
    """A check's verdict: what it saw, and what to do about it."""

    status: Status
    seen: str
    fix: str = ""


class ContractFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A verdict with what it is about. Reports hold these; `why` and `fix` are empty for what passed."""

    check: str
    title: str
    runtimes: tuple[RuntimeName, ...]
    status: Status
    seen: str
    why: str = ""
    fix: str = ""


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """`check --json`: what was asked of which image, and every finding."""

    image: str
    form: str
    runtimes: tuple[RuntimeName, ...]
    host: Host
    findings: tuple[ContractFinding, ...]
    unread: tuple[str, ...] = ()
