"""Reads the licences of all packages in the committed locks, for the label that an image has of them.

    python -m tools.locked_licences          renews graphcrate/compat/data/package_licences.toml
    python -m tools.locked_licences --new    adds versions that it lacks, and drops those of no lock; reads no others

Files come from the cache, else from the user's package index. A version has all that any of its files says, and what
its wheels bring along of others. One whose licence has no id of SPDX's is left out.
"""

import argparse
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from packaging.utils import canonicalize_name

from graphcrate.checks import licences as packages
from graphcrate.compat.facts import licences
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.model.errors import GraphcrateError, ResolutionError
from graphcrate.model.lock import LockedFile, decode_lock
from graphcrate.resolve.sources.request_sources import Sources
from tools.generate import ROOT
from tools.locked_code import link_of, opened

TABLE = ROOT / "graphcrate" / "compat" / "data" / "package_licences.toml"
HEAD = """\
# Licences of the packages in the committed locks, by version, with those of the libraries that their wheels bring
# along. Written by `python -m tools.locked_licences`. measured: METADATA, wheels' own bills and licence files.
"""
_LICENCE = re.compile(r"[^/]+\.dist-info/(licenses/)?LICEN[CS]E[^/]*")


def locked() -> dict[tuple[str, str, str], LockedFile]:
    """Project, version and file name → file of each package of a committed lock."""
    found = {}
    for path in sorted((ROOT / "images").glob("*/*/*.lock.json")):
        for package in decode_lock(path.read_bytes()).packages:
            found[package.name, package.version, package.file.name] = package.file
    return dict(sorted(found.items()))


def texts_of(stream: BinaryIO, name: str) -> Mapping[str, bytes]:
    """Map the files that say something of licences, as they would be in an image; of an sdist its PKG-INFO."""
    if not name.endswith(".whl"):
        with tarfile.open(fileobj=stream) as archive:
            member = min((one for one in archive if one.name.endswith("/PKG-INFO")), key=lambda one: len(one.name))
            content = archive.extractfile(member)
            return {"/site-packages/sdist-1.dist-info/METADATA": content.read() if content else b""}
    with zipfile.ZipFile(stream) as archive:
        return {
            f"/site-packages/{name}": archive.read(name)
            for name in archive.namelist()
            if ".dist-info/" in name and not name.endswith("/")
        }


def said(project: str, texts: Mapping[str, bytes]) -> Iterator[str]:
    """SPDX expressions of a package and of what it brings along; words where there is none."""
    facts = packages.of_image(texts, "3")[project]
    whole = [data.decode("utf-8", "replace") for path, data in texts.items() if _LICENCE.search(path)]
    families = {licences.bsd(text) for text in whole} - {""}
    for one in facts.licences or ("",):
        known = licences.spdx(one) or (min(families) if "BSD" in one and len(families) == 1 else "")
        yield known or one
    for part in facts.bundled:
        yield from part.licences


def stream_of(project: str, file: LockedFile, sources: Sources, ctx: Context) -> BinaryIO:
    """A locked file, of the cache or the index. Raises ResolutionError where neither has it."""
    path = ctx.cache.file(file.sha256, file.name)
    return path.open("rb") if path.exists() else opened(sources, link_of(sources, project, file))


def written(package: str, expressions: set[str]) -> str:
    """One expression of these; empty for none."""
    unknown = sorted(one for one in expressions if not licences.spdx(one))
    if unknown:
        sys.stderr.write(f"{package}: no id for {', '.join(filter(None, unknown)) or 'nothing said'}\n")
    return licences.all_of(sorted({part for one in expressions - set(unknown) for part in licences.parts_of(one)}))


def main() -> None:
    """Read every locked file; with `--new` those that the table does not know, and pass over what no index has."""
    parser = argparse.ArgumentParser(prog="locked_licences", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--new", action="store_true", help="read only what the table does not have")
    ctx, only_new = Context.here(), parser.parse_args().new
    sources = Sources(SourceOptions(), ctx.cache, ctx.environment)
    known_before = tomllib.loads(TABLE.read_text(encoding="utf-8")) if only_new else {}
    found: dict[str, dict[str, set[str]]] = {}
    kept: dict[str, dict[str, str]] = {}
    for (project, version, name), file in locked().items():
        if before := known_before.get(canonicalize_name(project), {}).get(version):
            kept.setdefault(canonicalize_name(project), {})[version] = before
            continue
        try:
            content = stream_of(project, file, sources, ctx)
        except ResolutionError:
            if not only_new:
                raise
            sys.stderr.write(f"{project} {version}: the package index does not have {name}\n")
            continue
        with content as stream:
            known = set(said(project, texts_of(stream, name)))
        found.setdefault(canonicalize_name(project), {}).setdefault(version, set()).update(known)
    lines = []
    for project in sorted({*found, *kept}):
        read = found.get(project, {})
        made = kept.get(project, {}) | {version: written(f"{project} {version}", read[version]) for version in read}
        if named := {version: text for version, text in sorted(made.items()) if text}:
            lines += [f"\n[{project}]\n", *(f'"{version}" = "{text}"\n' for version, text in named.items())]
    TABLE.write_text(HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except GraphcrateError as error:
        sys.stderr.write(f"locked_licences: {error}\n")
        sys.exit(error.exit_code)
