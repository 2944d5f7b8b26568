"""How many compilers run at once: as many as there are cores, and no more than the memory holds."""

import re

from graphcrate.doctor.machine import NO_LIMIT, cgroup_folders
from graphcrate.doctor.place import Place

#: Most that compiling one file with torch's headers takes: 2.6 GB was measured for nvcc's cicc, 1.5 for cc1plus.
MEMORY_PER_JOB = 3_000_000_000
#: version of cgroups → files with the limit and the use, and what of the use is files' contents that the kernel drops
#: where memory is wanted (in memory.stat; of version 1 the sum with the groups below, as the use is)
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def affordable(cores: int, memory: int) -> int:
    """Files to compile at once with this many bytes of memory to spare; at least one."""
    return max(1, min(cores, memory // MEMORY_PER_JOB))


def free_memory(place: Place) -> int:
    """Bytes that can be had: what the kernel calls available, or less where a cgroup (container, Slurm) has a limit."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB", place.read("/proc/meminfo") or "", re.MULTILINE)
    free = int(available.group(1)) * 1024 if available else MEMORY_PER_JOB
    for folder, version in cgroup_folders(place, "memory"):
        limit_name, use_name, dropped_name = _FILES[version]
        limit = _number(place.read(f"{folder}/{limit_name}"))
        if limit is None or limit >= NO_LIMIT:
            continue
        used = _number(place.read(f"{folder}/{use_name}")) or 0
        dropped = re.search(rf"^{dropped_name} (\d+)$", place.read(f"{folder}/memory.stat") or "", re.MULTILINE)
        free = min(free, limit - used + (int(dropped.group(1)) if dropped else 0))
    return max(free, 0)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None
