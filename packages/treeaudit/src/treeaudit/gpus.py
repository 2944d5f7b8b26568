"""Match GPU code with GPUs (CUDA programming guide), by compute capabilities such as 7.0, 9.0a, 10.0f."""

import functools
import re
from collections.abc import Collection, Iterable

_CAPABILITY = re.compile(r"(\d+)\.(\d+)[af]?")


def numbers(capability: str) -> tuple[int, ...]:
    """Return the numbers of a capability: 9.0a → (9, 0); of anything else none."""
    match = _CAPABILITY.fullmatch(capability)
    return (int(match[1]), int(match[2])) if match else ()


def ordered(capabilities: Iterable[str]) -> tuple[str, ...]:
    """Return capabilities by their numbers: 9.0 before 10.0, 10.0 before 10.0f."""
    return tuple(sorted(capabilities, key=lambda name: (numbers(name), name)))


def has_code(sm: Collection[str], capability: str) -> bool:
    """Return whether machine code for any of these runs on this one (CUDA programming guide).

    X.Y on X.Z with Z ≥ Y, X.Yf alike on its family; X.Ya on X.Y alone.
    """
    return _has_code(tuple(sm), capability)


@functools.lru_cache(maxsize=4096)
def _has_code(sm: tuple[str, ...], capability: str) -> bool:
    major, minor = capability.split(".")
    plain = (code.rstrip("f").split(".") for code in sm if not code.endswith("a"))
    return f"{capability}a" in sm or any(code[0] == major and int(code[1]) <= int(minor) for code in plain)


def compiles_for(ptx: str, capability: str) -> bool:
    """Return whether a driver compiles this PTX for a GPU: 9.0a for 9.0 alone, 10.0f for its family."""
    return has_code((ptx,), capability) if ptx[-1] in "af" else numbers(ptx) <= numbers(capability)
