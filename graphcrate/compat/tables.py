"""Reads the tables of facts in `data/`.

They are part of the package, as constant as code: reading them is no I/O of the kind that the pure floor forbids.
"""

import importlib.resources
from typing import TypeVar

import msgspec

_Facts = TypeVar("_Facts")


def read(name: str, kind: type[_Facts]) -> _Facts:
    """The table `data/<name>.toml` as a value of this type. Raises msgspec.ValidationError for one that is none."""
    data = (importlib.resources.files("graphcrate.compat") / "data" / f"{name}.toml").read_bytes()
    return msgspec.toml.decode(data, type=kind)
