"""The free memory of this machine, by the kernel and by the cgroup of a container or a Slurm job."""

import re
from collections.abc import Iterator
from pathlib import Path

#: version of cgroups → files with the limit and the use, and what of the use is files' contents that the kernel drops
#: where memory is needed (in memory.stat; of version 1 the sum with the groups below, as the use is)
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
_NO_LIMIT = 1 << 60  #: version 1 says so where there is none


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that a program can have: what the kernel calls available, less where a cgroup has a limit."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB", kernel_text(root / "proc/meminfo"), re.MULTILINE)
    free = int(available[1]) * 1024 if available else 0
    for folder, version in _cgroups(root):
        limit_name, use_name, dropped_name = _FILES[version]
        limit = _number(kernel_text(folder / limit_name))
        if limit is None or limit >= _NO_LIMIT:
            continue
        used = _number(kernel_text(folder / use_name)) or 0
        dropped = re.search(rf"^{dropped_name} (\d+)$", kernel_text(folder / "memory.stat"), re.MULTILINE)
        free = min(free, limit - used + (int(dropped[1]) if dropped else 0))
    return max(free, 0)


def _cgroups(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield folder and version of this process's memory cgroup and of all above it, whose limits hold as well."""
    for controllers, path in re.findall(r"^\d+:([^:]*):/(.*)$", kernel_text(root / "proc/self/cgroup"), re.MULTILINE):
        top = root / "sys/fs/cgroup"
        if controllers == "":
            tops, version = (top, top / "unified"), 2
        elif "memory" in controllers.split(","):
            tops, version = (top / controllers, top / "memory"), 1
        else:
            continue
        inner = Path(path)
        for start in dict.fromkeys(tops):
            yield from ((start / part, version) for part in (inner, *inner.parents))


def kernel_text(path: Path) -> str:
    """Return a file of the kernel's as text; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None
