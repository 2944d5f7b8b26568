"""A finding, and how bad it is."""

from typing import Any, Dict, Iterable, NamedTuple, Tuple

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"


class Finding(NamedTuple):
    """`seen` is what there is, `why` what follows from it, `fix` what to type. A `note` asks for nothing."""

    id: str
    status: str
    seen: str
    why: str = ""
    fix: str = ""

    def as_json(self, area: str) -> Dict[str, Any]:
        """The one form that scripts read."""
        return {"area": area, **self._asdict()}


def ok(name: str, seen: str) -> Finding:
    """All is well."""
    return Finding(name, OK, seen)


def note(name: str, seen: str, why: str = "", fix: str = "") -> Finding:
    """Good to know."""
    return Finding(name, NOTE, seen, why, fix)


def warn(name: str, seen: str, why: str, fix: str) -> Finding:
    """Works, but not for everybody or not as one would think."""
    return Finding(name, WARN, seen, why, fix)


def fail(name: str, seen: str, why: str, fix: str) -> Finding:
    """Cannot work."""
    return Finding(name, FAIL, seen, why, fix)


def listed(names: Iterable[object], most: int = 6) -> str:
    """`a, b, c and 4 more`."""
    shown = [str(name) for name in names]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")


def size(count: float) -> str:
    """Bytes for people: `64 MiB`."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.0f} {units[0]}" if count >= 10 or count == int(count) else f"{count:.1f} {units[0]}"


def numbers(version: str) -> Tuple[int, ...]:
    """`535.104.05` → (535, 104, 5); stops at the first part that is no number."""
    found = []
    for part in version.strip().lstrip("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
        if digits != part:
            break
    return tuple(found)
