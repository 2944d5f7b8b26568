"""Vulnerabilities that newer versions of Debian's packages fix, by the changelogs in their .debs."""

import io
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from debroot.deb import entry_path
from debroot.versions import version_key
from graphcrate.host.context import Context
from graphcrate.host.disk.inflating import pieces
from graphcrate.inputs.bases import deb as reading
from graphcrate.inputs.bases.debs import fetch_debs
from graphcrate.model.errors import IntegrityError, NetworkError, ResolutionError
from graphcrate.model.limits import METADATA, PACKAGE, Gauge, Limits
from graphcrate.model.lock import DebianPackage
from layertar.errors import TarError
from layertar.stream import TarStream, content_of, members

_LARGEST = 4_000_000  #: bytes of a .deb that is fetched for its changelog alone
_TRIED = 2  #: packages of one source: the document folder of some is a link to another's
_MOST = 100  #: ids of one source
_CHANGELOG = Limits("changelog", members=1, names=0, size=METADATA, ratio=200, free=1 << 20)
_HEAD = re.compile(r"^[a-z0-9][a-z0-9.+-]* \(([^()\s]+)\)", re.MULTILINE)
_CVE = re.compile(r"CVE-\d{4}-\d{4,9}")
_REBUILD = re.compile(r"\+b\d+$")  #: of a package that was built again without another source


class DebianFix(NamedTuple):
    """A package with a fix. `have`: the version that is installed or locked."""

    have: str
    newest: DebianPackage
    source: str


def cves(fixes: Sequence[DebianFix], suite: str, ctx: Context) -> Mapping[str, tuple[str, ...]]:
    """By source package: what the changelogs of its fixes name; nothing where there is no such changelog."""
    by_source: dict[str, list[DebianFix]] = {}
    for fix in fixes:
        if fix.newest.file.size <= _LARGEST:
            by_source.setdefault(fix.source, []).append(fix)
    known: dict[str, tuple[str, ...]] = {}
    for attempt in range(_TRIED):
        left = {source: fixes for source, fixes in by_source.items() if not known.get(source) and fixes[attempt:]}
        smallest = [sorted(of_source, key=_size)[attempt] for of_source in left.values()]
        for fix, text in zip(smallest, _changelogs(smallest, suite, ctx), strict=False):
            known[fix.source] = named(text, fix.newest.version, fix.have)
    return known


def _size(fix: DebianFix) -> int:
    return fix.newest.file.size


def _changelogs(fixes: Sequence[DebianFix], suite: str, ctx: Context) -> list[str]:
    """A changelog for each, empty where it is damaged; none at all where they cannot be fetched."""
    try:
        paths = fetch_debs([fix.newest for fix in fixes], suite, ctx, what="changelogs") if fixes else []
    except (NetworkError, IntegrityError, ResolutionError) as error:
        ctx.progress.note(f"what these packages fix is not known: {error.what}")
        return []
    texts = []
    for fix, path in zip(fixes, paths, strict=True):
        try:
            texts.append(changelog(path, fix.newest.name))
        except IntegrityError as error:
            ctx.progress.note(error.what)
            texts.append("")
    return texts


def changelog(deb: Path, package: str) -> str:
    """The changelog in a .deb; empty where it has none of its own. Raises IntegrityError."""
    names = [f"usr/share/doc/{package}/{name}" for name in ("changelog.Debian.gz", "changelog.gz")]
    with tempfile.NamedTemporaryFile(dir=deb.parent, prefix=".changelog-") as plain:
        begin = reading.inflate_member(deb, Path(plain.name))
        plain.seek(begin)
        stream = TarStream(plain, Gauge(PACKAGE, deb.name, IntegrityError, deb.stat().st_size))
        try:
            for member, _ in members(stream):
                if entry_path(member.name) in names and member.isreg() and member.size <= _LARGEST:
                    packed = io.BytesIO(b"".join(content_of(member, stream)))
                    gauge = Gauge(_CHANGELOG, deb.name, packed=member.size)
                    return b"".join(pieces(deb.name, ".gz", packed, gauge)).decode("utf-8", "replace")
        except TarError as error:
            raise IntegrityError(f"{deb.name} has files that cannot be read: {error.what}") from error
    return ""


def named(text: str, newest: str, have: str) -> tuple[str, ...]:
    """The ids in a changelog's entries above the version that is there.

    None where it does not begin with the newest: then its versions are another's, and do not compare with these.
    """
    heads = list(_HEAD.finditer(text))
    if not heads or heads[0][1] != _REBUILD.sub("", newest):
        return ()
    below = version_key(_REBUILD.sub("", have))
    end = next((head.start() for head in heads if version_key(head[1]) <= below), len(text))
    return tuple(dict.fromkeys(_CVE.findall(text[:end])))[:_MOST]
