"""Modules of which Python takes another package's file, files in others' folders, and what runs by itself."""

import contextlib
import csv
import re
from collections.abc import Iterator

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.checks.audit.packages import BASE, Packages, short
from graphcrate.compat.facts import start_up
from graphcrate.model.audit import AuditFinding, Contents
from graphcrate.model.report import Beside, StartUp
from wheelread.import_names import ImportNames, Intrusion, Shadow

_RECORD = re.compile(r"(?P<site>/.*/(?:site|dist)-packages)/(?P<name>[^/]+)-[^/-]+\.dist-info/RECORD")


def findings(contents: Contents, packages: Packages) -> Iterator[AuditFinding]:
    """Give what is imported in place of another, and what starts by itself."""
    for shadow in _shadows(contents):
        what = f"is imported as {shadow.module}, in place of {shadow.other_path} of {shadow.other}"
        fix = f"an image without one of {shadow.owner} and {shadow.other}"
        yield AuditFinding("names", "warn", shadow.owner, shadow.path, what, f"{shadow.other} is another", fix)
    for other in beside(contents):
        what = f"is in the folder of {other.other}, which may load it"
        yield AuditFinding("names", "note", other.package, other.path, what)
    for start in starts(contents, packages):
        what = f"is run by {start.by}: before a program, whatever the program is"
        yield AuditFinding("start", "note", start.package or BASE.name, short(start.path), what)


def starts(contents: Contents, packages: Packages) -> tuple[StartUp, ...]:
    """Give what runs by itself, but for what is known to do no harm."""
    files = {path: data for path, data in contents.texts.items() if start_up.concerns(path)}
    labels = contents.settings.labels if contents.settings else {}
    variables = contents.settings.variables if contents.settings else {}
    owned = (
        msgspec.structs.replace(start, package=packages.owner(start.path).name if packages.is_owned(start.path) else "")
        for start in start_up.found(files, labels)
    )
    return (*owned, *start_up.of_environment(variables))


def beside(contents: Contents) -> tuple[Beside, ...]:
    """Give what packages have in each other's folders: the first file of each two packages."""
    first: dict[tuple[str, str], Intrusion] = {}
    for names in _names(contents):
        for intrusion in names.intrusions():
            first.setdefault((intrusion.owner, intrusion.other), intrusion)
    return tuple(Beside(package=each.owner, path=each.path, other=each.other) for each in first.values())


def _shadows(contents: Contents) -> Iterator[Shadow]:
    return (shadow for names in _names(contents) for shadow in names.shadows())


def _names(contents: Contents) -> list[ImportNames]:
    """Return the files of each folder of packages, by what the RECORDs there say."""
    by_folder: dict[str, ImportNames] = {}
    for path, data in sorted(contents.texts.items()):
        if match := _RECORD.fullmatch(path):
            names = by_folder.setdefault(match["site"], ImportNames())
            owner = str(canonicalize_name(match["name"]))
            for recorded in _recorded(data):
                names.add(owner, recorded)
    return [*by_folder.values()]


def _recorded(record: bytes) -> Iterator[str]:
    """Paths of a RECORD below its folder, but for bytecode; nothing of one that cannot be read."""
    with contextlib.suppress(csv.Error):
        for row in csv.reader(f"{line}\n" for line in record.decode("utf-8", "replace").split("\n")):
            if row and not row[0].startswith(("/", "../")) and "/__pycache__/" not in f"/{row[0]}":
                yield row[0]
