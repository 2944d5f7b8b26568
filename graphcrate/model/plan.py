"""Plan: the ordered, typed steps from a lock to an image. Builders and renderers read it, nothing else."""

import hashlib

import msgspec

from graphcrate.model.lock import DebianBase, LockedPackage, RegistryBase

VENV = "/opt/venv"
#: Modification time of everything in a layer: 1980-01-01, the earliest that zip knows. Not the lock's `created`,
#: so that images share layers; not 0, which GNU tar calls implausible.
LAYER_MTIME = 315_532_800


class BaseStep(msgspec.Struct, frozen=True, kw_only=True, tag="base"):
    """Start from this operating system."""

    base: DebianBase | RegistryBase


class PlannedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, a symbolic link (`link` set) or a folder (`folder`) with root as owner. `path` is absolute."""

    path: str
    content: str = ""
    mode: int = 0o644
    link: str = ""
    folder: bool = False


class FilesStep(msgspec.Struct, frozen=True, kw_only=True, tag="files"):
    """Write these files as one layer."""

    title: str
    files: tuple[PlannedFile, ...]


class WheelsStep(msgspec.Struct, frozen=True, kw_only=True, tag="wheels"):
    """Install these packages into the virtual environment as one layer."""

    title: str
    python: str  #: "3.11"
    packages: tuple[LockedPackage, ...]


class ConfigStep(msgspec.Struct, frozen=True, kw_only=True, tag="config"):
    """Set the image's configuration. Order of `environment` and `labels` is kept."""

    environment: dict[str, str]
    labels: dict[str, str]
    command: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    working_folder: str = "/"


Step = BaseStep | FilesStep | WheelsStep | ConfigStep


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """An image `name:tag`; `steps` begin with a BaseStep and end with the ConfigStep. `created` in Unix seconds."""

    name: str
    tag: str
    created: int
    steps: tuple[Step, ...]

    @property
    def base(self) -> DebianBase | RegistryBase:
        return next(step.base for step in self.steps if isinstance(step, BaseStep))

    @property
    def config(self) -> ConfigStep:
        return next(step for step in self.steps if isinstance(step, ConfigStep))


def content_id(value: msgspec.Struct) -> str:
    """Content id of a step or plan: sha256 hex over its canonical encoding."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
