"""Which files' contents are compared in another form than their bytes, and how. Pure.

Installers word these files each in their own way; what they say must be the same.
"""

import csv
import re

from graphcrate.model.tree import Sameness

#: A larger file is compared by its bytes alone, so that nobody's image fills our memory.
LARGEST = 1 << 24
_LAUNCHER_LIMIT = 1 << 12
_PYC_HEADER = 16  #: magic number, flags (PEP 552), and hash, or time and size, of the source
#: A file that the installer itself adds: rows about it say nothing about the package.
_INSTALLERS_OWN = re.compile(
    r".*\.pyc|.*\.dist-info/(INSTALLER|REQUESTED|direct_url\.json|uv_cache\.json|uv_build\.json)"
)
_PIP_BY_VERSION = re.compile(r"(?:.*/)?bin/pip3\.\d+")
#: What launchers of `installer`, uv and pip's distlib do with their own name, which matters on Windows alone.
_OWN_NAME = (
    r"""    sys\.argv\[0\] = re\.sub\(r"\(-script\\\.pyw\|\\\.exe\)\?\$", "", sys\.argv\[0\]\)\n"""
    r"""|    if sys\.argv\[0\]\.endswith\("-script\.pyw"\):\n        sys\.argv\[0\] = sys\.argv\[0\]\[:-11\]\n"""
    r"""    elif sys\.argv\[0\]\.endswith\("\.exe"\):\n        sys\.argv\[0\] = sys\.argv\[0\]\[:-4\]\n"""
    r"""|    sys\.argv\[0\] = sys\.argv\[0\]\.removesuffix\("\.exe"\)\n"""
)
_LAUNCHER = re.compile(
    r"#!(?P<python>\S+)\n"
    r"(?:# -\*- coding: utf-8 -\*-\n)?"
    r"(?:import re\n)?import sys\n"
    r"from (?P<module>[\w.]+) import (?P<name>\w+)\n\n*"
    r"""if __name__ == "__main__":\n"""
    rf"(?:{_OWN_NAME})"
    r"    sys\.exit\((?P<call>[\w.]+)\(\)\)\n?"
)


def is_kept(path: str, size: int) -> bool:
    """Whether a reader of archives has to keep this file's content, because it may be compared in another form."""
    name = path.rpartition("/")[2]
    if name.endswith(".pyc") or (name == "RECORD" and path.endswith(".dist-info/RECORD")):
        return size <= LARGEST
    return "/bin/" in path and size <= _LAUNCHER_LIMIT


def same(form: Sameness, first: bytes, second: bytes) -> bool:
    """Whether two contents are the same in this form. False where either is not of that form."""
    if form == "bytecode":
        return len(first) > _PYC_HEADER < len(second) and first[:_PYC_HEADER] == second[:_PYC_HEADER]
    if form == "record":
        return None is not _record(first) == _record(second)
    if form == "launcher":
        return None is not _launcher(first) == _launcher(second)
    return True


def _record(content: bytes) -> "frozenset[tuple[str, ...]] | None":
    """RECORD's rows without those about what the installer adds; of launchers the path alone."""
    try:
        rows = list(csv.reader(content.decode().splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    kept: set[tuple[str, ...]] = set()
    for row in rows:
        if len(row) != 3:
            return None
        path = row[0]
        if _INSTALLERS_OWN.fullmatch(path) or _PIP_BY_VERSION.fullmatch(path):
            continue
        kept.add((path,) if re.fullmatch(r"(\.\./)+bin/[^/]+", path) else tuple(row))
    return frozenset(kept)


def _launcher(content: bytes) -> tuple[str, ...] | None:
    """(interpreter, module, name, what is called) of a script that an installer made for an entry point."""
    found = _LAUNCHER.fullmatch(content.decode("utf-8", "replace").replace("'", '"'))
    return found.group("python", "module", "name", "call") if found else None
