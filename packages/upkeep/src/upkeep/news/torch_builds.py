"""The torch builds of a copy's torch.toml and torch_ported.toml, which an update writes."""

import tomllib

from graphcrate.compat.facts.facts import TorchBuild
from graphcrate.model import codec


def builds_in(text: str) -> tuple[TorchBuild, ...]:
    """Return the builds of a text like `torch.toml`. Raises msgspec.ValidationError."""
    return codec.convert(tomllib.loads(text)["build"], tuple[TorchBuild, ...])


def ported_in(text: str) -> dict[str, tuple[TorchBuild, ...]]:
    """Return the builds of a text like `torch_ported.toml`, by platform. Raises msgspec.ValidationError."""
    return codec.convert(tomllib.loads(text), dict[str, tuple[TorchBuild, ...]])
