"""Loads a wheel in the image's base, with all symbols bound at once: a program for the image's Python, 3.9 and newer.

A module's need of packages that are not here (torch_sparse needs scipy) is no fault of the wheel.
"""

import ctypes
import importlib
import os
import sys
from pathlib import Path


def main(site: str) -> int:
    """0 when everything loads; else the reasons are on stdout."""
    sys.path.insert(0, site)
    importlib.import_module("torch")  # its libraries have to be there first, as in the image
    complaints = load(sorted(Path(site).rglob("*.so")))
    for name in [] if complaints else modules(site):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == name:
                complaints.append(f"import {name}: {error}")
        except Exception as error:
            complaints.append(f"import {name}: {type(error).__name__}: {error}")
    for complaint in complaints:
        print(complaint, flush=True)
    return 1 if complaints else 0


def load(paths: list[Path]) -> list[str]:
    """Load libraries; why those fail that do.

    A package may load its own libraries by name, each after those that it is linked to: the loader then finds these,
    as they are there. So what fails is tried again as long as others load; a module of Python is not, as it is alone.
    """
    failed: dict[Path, str] = {}
    for path in paths:
        try:
            ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            failed[path] = str(error)
    again = [path for path in failed if path.name.startswith("lib")]
    if again and len(again) < len(paths):
        later = load(again)
        alone = [why for path, why in failed.items() if path not in again]
        return [*alone, *later]
    return list(failed.values())


def modules(site: str) -> list[str]:
    """Names of the packages and modules at the top of a folder."""
    entries = list(Path(site).iterdir())
    names = {entry.stem for entry in entries if entry.suffix == ".py" or (entry / "__init__.py").is_file()}
    return sorted(names - {"test", "tests", "setup"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
