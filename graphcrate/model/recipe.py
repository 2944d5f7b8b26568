"""Recipe: what the user writes in `recipes/*.toml`. `compat.variants.recipes` reads and validates the file."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from graphcrate.model.allowance import Allowance
from graphcrate.model.platform import DEFAULT, Platform, platform_named
from graphcrate.model.values import AnyFileName


class Channel(StrEnum):
    """A source of wheels."""

    PYPI = "pypi"  #: the user's default package index
    PYTORCH = "pytorch"  #: PyTorch's index, one per CUDA version
    PYG = "pyg"  #: PyG's links page, one per torch and CUDA version
    ASTRAL = "astral"  #: Astral's index, one per CUDA version; asked for extensions that a candidate's channels lack
    LOCAL = "local"  #: a folder of wheels


class TorchChannel(msgspec.Struct, frozen=True, kw_only=True):
    """Pages with wheels for one CUDA version each, or for one torch: a further channel is a name and a row.

    In `page` `{label}` is `cu118` or `cpu`, `{series}` of torch 2.0.1 is `2.0`.
    """

    owner: str  #: in texts
    root: str  #: address that all its pages begin with
    page: str
    is_index: bool = False  #: a page per project (PEP 503), else one with all files
    variable: str  #: build argument that has its address
    for_torch: bool  #: its wheels are built for one torch: extensions may come from there
    libraries: frozenset[str] = frozenset()  #: normalised names of what it is for
    companions: frozenset[str] = frozenset()  #: further packages that change together with those, and share a layer
    #: local part of its wheels' versions; `{digits}` of torch 2.10 is `210`, `{build}` is `cu.12.8` or `cpu`
    built_for: str = ""
    extensions: frozenset[str] = frozenset()  #: normalised names: asked for where a candidate's channels lack them
    since: tuple[int, int] = (0, 0)  #: the first torch that it has those for

    def local(self, torch: str, torch_cuda: str) -> str:
        """Return the local part of a version that is built for this torch and CUDA."""
        series = torch.split("+")[0].split(".")[:2]
        build = torch_cuda if torch_cuda == "cpu" else f"cu.{torch_cuda}"
        label = build.replace(".", "")
        return self.built_for.format(digits="".join(series), series=".".join(series), label=label, build=build)

    def extends(self, name: str, torch: str) -> bool:
        """Return whether it may have an extension for this torch, which no recipe says."""
        series = tuple(int(part) for part in torch.split("+")[0].split(".")[:2] if part.isdecimal())
        return name in self.extensions and series >= self.since


CHANNELS: Mapping[Channel, TorchChannel] = {
    Channel.PYTORCH: TorchChannel(
        owner="PyTorch",
        root="https://download.pytorch.org/whl",
        page="{label}",
        is_index=True,
        variable="PYTORCH_INDEX",
        for_torch=False,
    ),
    Channel.PYG: TorchChannel(
        owner="PyG",
        root="https://data.pyg.org/whl",
        page="torch-{series}.0+{label}.html",  # for any patch release
        variable="PYG_LINKS",
        for_torch=True,
        libraries=frozenset(
            {"torch-geometric", "pyg-lib", "torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv"}
        ),
        companions=frozenset({"ogb", "torchmetrics", "lightning-utilities", "littleutils", "outdated"}),
        built_for="pt{digits}{label}",
    ),
    # by its documents of 2026-09: nothing here was made with the index itself at hand
    Channel.ASTRAL: TorchChannel(
        owner="Astral",
        root="https://wheels.astral.sh/simple",
        page="{label}",
        is_index=True,
        variable="ASTRAL_INDEX",
        for_torch=True,
        built_for="{build}.torch.{series}",
        extensions=frozenset({"pyg-lib", "torch-scatter"}),
        since=(2, 10),
    ),
}
#: only these say in their names for which torch a wheel was built; a package index does not
BUILT_FOR_TORCH = (*(channel for channel, row in CHANNELS.items() if row.for_torch), Channel.LOCAL)


class BaseSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The operating system under the wheels.

    `debian`: `suite`, one that a base can be made of, and extra Debian `packages`.
    `registry`: `reference`, e.g. `docker.io/library/python:3.11-slim` or with `@sha256:…`.
    """

    provider: Literal["debian", "registry"] = "debian"
    suite: str = ""
    packages: tuple[str, ...] = ()
    reference: str = ""
    #: left out of what is hashed where a recipe does not say it
    platform: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def runs_on(self) -> Platform:
        """Return the platform of images on this base."""
        return platform_named(self.platform) if isinstance(self.platform, str) else DEFAULT


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to satisfy a variant; the first whose files are available wins."""

    name: str
    channels: tuple[Channel, ...]
    torch: str  #: exact version with local label, e.g. `2.0.1+cu118`; a `*` version takes what the folder has
    torch_cuda: str  #: what `torch.version.cuda` will print ("11.7"), or "cpu"
    suffix: str = ""  #: appended to the tag, e.g. `-compat`
    overrides: tuple[str, ...] = ()  #: requirements that replace what torch's metadata pins
    meaning: str = ""  #: what choosing it means for the user, one or two sentences


class RefusedVariant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason why a variant that people ask for is not offered, and what to do instead."""

    why: str
    instead: str


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recipe at one CUDA version (`cuda` is "11.8" or "cpu"); without candidates when it is `unavailable`."""

    cuda: str
    python: str  #: "3.11"
    base: BaseSpec
    candidates: tuple[Candidate, ...] = msgspec.field(name="candidate", default=())
    torch_geometric: str = ""  #: exact version; empty: the stack has none
    requirements: tuple[str, ...] = ()  #: PEP 508, added to the recipe's
    extensions: tuple[str, ...] = ()  #: compiled ones of PyG, PEP 508; each may be absent with a reason
    architectures: tuple[str, ...] = ()  #: TORCH_CUDA_ARCH_LIST for what is compiled: "7.0", "9.0+PTX"
    unavailable: RefusedVariant | None = None
    #: day ("2023-08-31") after which no file of what is not pinned was uploaded, as uv's `exclude-newer`; empty: newest
    exclude_newer: str = ""
    smoke: tuple[str, ...] = ()  #: suites; empty: the recipe's


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recipe file. `requirements` hold for each variant (PEP 508 strings without torch and PyG)."""

    name: str
    description: str
    smoke: tuple[str, ...]
    variants: tuple[Variant, ...] = msgspec.field(name="variant")
    requirements: tuple[str, ...] = ()
    translated: dict[str, str] = {}  #: language of the catalogue ("zh") → its description
    #: package of which newer files are taken all the same → why: known vulnerabilities of those of the time
    exclude_newer_except: dict[str, str] = {}
    program: str = ""  #: of `examples/`: what a job runs that names no command

    def variant(self, cuda: str) -> Variant | None:
        """The variant at this CUDA version, or None."""
        return next((variant for variant in self.variants if variant.cuda == cuda), None)


class FurtherChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A place that a requirements file names. `location`: an address, maybe with a password, or an absolute path."""

    kind: Literal["index", "links", "folder"]
    location: str
    where: str  #: "requirements.txt:2"
    names: tuple[str, ...] = ()  #: normalised, of the packages that the file names: a server gives no others


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """A requirements file's word on something that is the stack's: its plan compares the two."""

    name: str  #: normalised name of a package, or "python" or "cuda"
    where: str
    specifier: str = ""  #: PEP 440: "==2.0.1"
    build: str = ""  #: local part of the version, which names a CUDA: "cu118", "pt20cu118"
    binding: bool = False  #: an image that has another version is refused, not only told of


class Additions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's additions to a recipe's stack, ready to be resolved: nothing in it refers to a working folder."""

    #: PEP 508 requirements; absolute paths of wheels and of projects; `git+https://…@commit`
    packages: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()  #: PEP 508, of packages that need not be there
    apt: tuple[str, ...] = ()  #: Debian's packages
    build_apt: tuple[str, ...] = ()  #: those that sources are compiled with, and that do not get into the image
    build_environment: dict[str, str] = {}  #: variables that sources are compiled with
    environment: dict[str, str] = {}
    files: dict[str, str] = {}  #: absolute path in the image → content
    programs: tuple[str, ...] = ()  #: those of them that may be run
    directories: dict[str, int] = {}  #: folders of the image → permissions
    workdir: str = ""  #: the folder that programs start in; empty: /
    command: tuple[str, ...] = ()  #: what the image starts; empty: a shell
    labels: dict[str, str] = {}
    smoke: tuple[str, ...] = ()  #: shell commands that must succeed inside the image
    smoke_minutes: int = 10  #: the limit of each
    allow: tuple[Allowance, ...] = ()  #: findings of the audit that do not fail the image
    name: AnyFileName = ""  #: of the image; empty: the recipe's
    flavour: str = ""  #: packages that go by one name: `compat.requirements.own_packages.FLAVOURS`
    channels: tuple[FurtherChannel, ...] = ()  #: where packages may be besides; of this machine, never recorded
    expected: tuple[Expected, ...] = ()
    hashes: dict[str, tuple[str, ...]] = {}  #: normalised name → sha256s, one of which its file has to have
    notes: tuple[str, ...] = ()  #: what was passed over of requirements files, and why

    def __bool__(self) -> bool:
        return bool(
            self.packages
            or self.flavour
            or self.apt
            or self.build_apt
            or self.build_environment
            or self.environment
            or self.files
            or self.directories
            or self.workdir
            or self.command
            or self.labels
            or self.smoke
            or self.allow
            or self.name
        )
