"""Measures wheels on a server, by range requests, and keeps the results in graphcrate/compat/data.

    python -m tools.measure_wheel torch 2.3.1               of the user's package index: one wheel, a JSON line
    python -m tools.measure_wheel torch --from 1.13.0 --update      all releases since; rewrites torch.toml
    python -m tools.measure_wheel torch 2.15.0 --update --platform linux/arm64      rewrites torch_ported.toml
    python -m tools.measure_wheel graphlearn-torch --from 0 --every     every wheel for Linux
    python -m tools.measure_wheel some.whl https://server/other.whl

Of torch, `--libraries small` leaves out libraries of more than 32 MB: tens of megabytes instead of a gigabyte, and the
architectures are those that torch's own list has. A wheel that torch.toml has from the same bytes is not read again.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from graphcrate.compat.facts import facts
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.model.errors import GraphcrateError, UsageError
from graphcrate.model.platform import DEFAULT, SUPPORTED, Platform, platform_named
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link
from graphcrate.resolve.sources.target import project_and_version
from tools.ranged_file import RangedFile
from tools.torch_facts import EACH, PORTED, TORCH, build_of, ported_written, written
from tools.wheel_contents import Measurement, measure

if TYPE_CHECKING:
    from graphcrate.compat.facts.facts import TorchBuild

SMALL = 32 << 20  #: packed bytes
#: The Python whose wheel stands for a release: what an image of ours would take, else the nearest.
PYTHONS = ("cp311", "cp310", "cp39", "cp312", "py3")


def listed(sources: Sources, project: str) -> Iterator[Link]:
    """All files of a project on the user's index."""
    for place in Offers(sources, "", "cpu").of_channel(Channel.PYPI):
        try:
            yield from sources.listings.project(place, project)
        except GraphcrateError:
            continue


def offered(sources: Sources, project: str, platform: Platform) -> Iterator[Link]:
    """All wheels for Linux on a platform of the user's index."""
    for link in listed(sources, project):
        if not link.yanked and re.search(rf"(linux\w*_{platform.machine}|none-any)\.whl$", link.name):
            yield link


def chosen(links: Iterable[Link], versions: list[str], since: str, *, every: bool) -> list[Link]:
    """One wheel of each release asked for, oldest first; or `every` one."""
    by_version: dict[Version, list[Link]] = {}
    for link in links:
        found = project_and_version(link.name)
        if found is None or found[1].is_prerelease or found[1].local:
            continue
        if found[1] in map(Version, versions) or (since and found[1] >= Version(since)):
            by_version.setdefault(found[1], []).append(link)
    if every:
        return [link for version in sorted(by_version) for link in by_version[version]]
    return [min(by_version[version], key=preference) for version in sorted(by_version)]


def preference(link: Link) -> tuple[int, int]:
    """Less is better: a usual Python, then the higher build number, which is what pip takes."""
    _, _, build, tags = parse_wheel_filename(link.name)
    place = min((PYTHONS.index(tag.interpreter) for tag in tags if tag.interpreter in PYTHONS), default=99)
    return place, -(build[0] if build else -1)


def measured(what: Link | Path, sources: Sources, most: int | None) -> tuple[Measurement, int]:
    """Measure a wheel, and count the bytes that came over the network for it."""
    if isinstance(what, Path):
        with what.open("rb") as stream:
            return measure(stream, what.name, most=most), 0
    if what.url.startswith("file:"):
        return measured(Path(what.url.removeprefix("file://")), sources, most)
    file = RangedFile(sources.client, what.url)
    return measure(cast("BinaryIO", file), what.name, most=most), file.fetched


def wanted(arguments: argparse.Namespace, sources: Sources, platform: Platform) -> list[Link | Path]:
    """The wheels that a person asked for. Raises UsageError where there is none."""
    first = arguments.what[0]
    if any(text.endswith(".whl") for text in arguments.what):
        return [
            Link(name=text.rpartition("/")[2], url=text) if "://" in text else Path(text) for text in arguments.what
        ]
    project = canonicalize_name(first)
    found = chosen(offered(sources, project, platform), arguments.what[1:], arguments.since, every=arguments.every)
    if not found:
        raise UsageError(
            f"the package index has no such wheel of {project} for Linux on {platform.title}",
            next_step=f"python -m tools.measure_wheel {project} VERSION…    or --from VERSION",
        )
    return list(found)


def main() -> None:
    """Measure, one wheel after another; what was found so far is kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", nargs="+", help="a project and versions, or wheels")
    parser.add_argument("--from", dest="since", default="", help="every release from this one on")
    parser.add_argument("--every", action="store_true", help="every wheel of a release, not one")
    parser.add_argument("--libraries", choices=("small", "all"), default="all", help="which are unpacked")
    parser.add_argument("--update", action="store_true", help="write what is found of torch into its table")
    parser.add_argument("--platform", choices=[row.name for row in SUPPORTED], default=DEFAULT.name, help="of wheels")
    arguments = parser.parse_args()
    ctx, platform = Context.here(), platform_named(arguments.platform)
    sources = Sources(SourceOptions(), ctx.cache, ctx.environment)
    known = {build.source: build for build in facts.builds_for(platform) if build.by == EACH}
    fresh: list[TorchBuild] = []
    for what in wanted(arguments, sources, platform):
        if arguments.update and what.name in known:
            continue
        found, fetched = measured(what, sources, SMALL if arguments.libraries == "small" else None)
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        sys.stdout.flush()
        sys.stderr.write(f"{what.name}: {fetched / 1e6:.1f} MB fetched of {found.size / 1e6:.1f}\n")
        if arguments.update and canonicalize_name(found.name) == "torch":
            fresh.append(build_of(found))
            write_table(platform, fresh)


def write_table(platform: Platform, fresh: list["TorchBuild"]) -> None:
    """Write what was measured of torch for a platform beside what is known."""
    if platform == DEFAULT:
        TORCH.write_text(written(facts.torch_builds(), fresh), encoding="utf-8")
    else:
        PORTED.write_text(ported_written(facts.ported_builds(), platform.name, fresh), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except GraphcrateError as error:
        sys.stderr.write(f"measure_wheel: {error}\n")
        sys.exit(error.exit_code)
