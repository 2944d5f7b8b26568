"""How many compilers run at once: as many as there are cores, and no more than the memory holds."""

from collections.abc import Mapping
from pathlib import Path

#: Most that compiling one file with torch's headers takes: 2.6 GB was measured for nvcc's cicc, 1.5 for cc1plus.
MEMORY_PER_JOB = 3_000_000_000
#: limit and use of a container's memory, of either version of cgroups
_LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def affordable(cores: int, memory: int) -> int:
    """Files to compile at once with this many bytes of memory to spare; at least one."""
    return max(1, min(cores, memory // MEMORY_PER_JOB))


def free_memory(meminfo: str, limits: Mapping[str, str]) -> int:
    """Bytes that can be had: what the kernel calls available, or less where a container has a limit.

    `meminfo` is /proc/meminfo; `limits` has files of /sys/fs/cgroup by name, as far as they exist.
    """
    available = next((line for line in meminfo.splitlines() if line.startswith("MemAvailable:")), "")
    free = int(available.split()[1]) * 1024 if available else MEMORY_PER_JOB
    for limit, used in _LIMITS:
        if limits.get(limit, "max").strip().isdigit():
            free = min(free, int(limits[limit]) - int(limits.get(used, "0") or 0))
    return max(free, 0)


def read_free_memory() -> int:
    """`free_memory` of this machine."""
    folder = Path("/sys/fs/cgroup")
    files = {name: folder / name for pair in _LIMITS for name in pair}
    limits = {name: path.read_text() for name, path in files.items() if path.is_file()}
    return free_memory(Path("/proc/meminfo").read_text(), limits)
