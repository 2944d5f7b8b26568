"""Measures what a shared cache would hold of the kinds that it leaves out: `python -m bench.cache_kinds`.

Reads the committed locks and no network: how many need such a file, and how many bytes that is. A compile reads the
toolkit; wheels of pure sources and downloads are read where a layer is not there (docs/decisions/shared-cache.md).
"""

import argparse
import sys
from collections.abc import Callable, Iterable

from bench.page import ROOT, today
from graphcrate.model.lock import DebianToolkit, Lock, WheelToolkit, decode_lock
from graphcrate.model.words import size


def _toolkit(lock: Lock) -> int:
    match lock.compilation.toolkit if lock.compilation else None:
        case DebianToolkit(packages=packages, wheels=wheels):
            return sum(package.file.size for package in packages) + sum(wheel.file.size for wheel in wheels)
        case WheelToolkit(wheels=wheels):
            return sum(wheel.file.size for wheel in wheels)
    return 0


def _pure(lock: Lock) -> int:
    return sum(package.file.size for package in lock.packages if package.is_sdist and not package.compiled)


def _downloads(lock: Lock) -> int:
    return sum(file.size for file in lock.files().values())


KINDS: dict[str, Callable[[Lock], int]] = {
    "CUDA toolkits, packed": _toolkit,
    "wheels of pure sources": _pure,
    "downloads": _downloads,
}


def row(kind: str, sizes: Iterable[int]) -> str:
    """Return the table's row of a kind; `sizes`: of each lock, 0 where it needs none."""
    every = list(sizes)
    needed = [each for each in every if each]
    return f"| {kind} | {len(needed)} of {len(every)} | {size(min(needed))} to {size(max(needed))} |\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    locks = [decode_lock(path.read_bytes()) for path in sorted((ROOT / "images").glob("**/*.lock.json"))]
    rows = "".join(row(kind, map(of_lock, locks)) for kind, of_lock in KINDS.items())
    sys.stdout.write(f"{today()}, committed locks.\n\n| kind | locks | bytes of a lock |\n|---|---|---|\n{rows}")


if __name__ == "__main__":
    main()
