"""Releases of a project, out of the links that a channel lists. Pure."""

from collections.abc import Iterable, Mapping

import msgspec
from packaging.version import Version

from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources.source import Link
from graphcrate.resolve.sources.target import WheelTarget, project_and_version


class ListedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A final release that was not taken back. `cuda`: what its channel is for; empty: its channel does not say."""

    version: str
    files: tuple[str, ...]  #: names of wheels and sdists
    channel: Channel = Channel.PYPI
    cuda: str = ""
    uploaded: str = ""  #: day ("2026-11-04") of its first file; empty: the channel does not say
    addresses: tuple[str, ...] = ()  #: of the files, in their order

    @property
    def number(self) -> Version:
        """To be compared, without its local part."""
        return Version(Version(self.version).public)

    def fits(self, target: WheelTarget) -> bool:
        """Return whether an image of this Python and glibc can install a wheel of it, or only sources are there."""
        wheels = [name for name in self.files if name.endswith(".whl")]
        return not wheels or any(target.rank(name) is not None for name in wheels)


def releases_of(
    links: Iterable[Link], times: Mapping[str, str], channel: Channel = Channel.PYPI, cuda: str = ""
) -> tuple[ListedRelease, ...]:
    """List a project's releases, oldest first. `times`: name of a file → when it was uploaded (RFC 3339).

    Pre-releases and what was taken back are left out; so are versions with a local part on an index that has no CUDA.
    """
    by_version: dict[Version, list[Link]] = {}
    for link in links:
        known = project_and_version(link.name)
        if known is None or link.yanked or known[1].is_prerelease or (known[1].local and not cuda):
            continue
        by_version.setdefault(known[1], []).append(link)
    return tuple(
        ListedRelease(
            version=str(version),
            files=tuple(link.name for link in by_version[version]),
            channel=channel,
            cuda=cuda,
            uploaded=min((times[link.name][:10] for link in by_version[version] if times.get(link.name)), default=""),
            addresses=tuple(link.url for link in by_version[version]),
        )
        for version in sorted(by_version)
    )
