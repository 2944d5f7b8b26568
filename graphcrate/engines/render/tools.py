"""The one program that rendered texts install beside the image's packages: uv, at the version of requirements.txt."""

import functools
import importlib.resources

import msgspec


class Pinned(msgspec.Struct, frozen=True):
    """A wheel: its version, and the sha256 of its file for x86-64."""

    version: str
    sha256: str


@functools.cache
def _read() -> Pinned:
    # Part of the package, as constant as code.
    return msgspec.toml.decode(
        (importlib.resources.files("graphcrate.engines.render") / "uv.toml").read_bytes(), type=Pinned
    )


UV = _read()
