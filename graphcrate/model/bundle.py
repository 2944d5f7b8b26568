"""A bundle: an image, what was found of it, and everything to build it again, in one file."""

import msgspec

BUNDLE_FORMAT = 1


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file in a bundle. `path` relative, with slashes; `size` in bytes, `sha256` in hex."""

    path: str
    size: int
    sha256: str


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """bundle.json: the image, and every other member in the order in which they follow."""

    format: int = BUNDLE_FORMAT
    name: str
    tag: str
    digest: str  #: of the image's manifest
    recipe: str
    cuda: str
    candidate: str
    request_sha256: str  #: of the lock
    aliases: tuple[str, ...] = ()  #: further tags
    notes: tuple[str, ...] = ()  #: what another build needs and no bundle can hold
    members: tuple[Member, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(member.size for member in self.members)


class Bundled(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that was written. `files`: those to build from; `unchanged`: it was there already."""

    path: str
    size: int
    sha256: str
    name: str
    tag: str
    digest: str
    members: int
    files: int
    notes: tuple[str, ...] = ()
    unchanged: bool = False


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that was taken in. `files`: those that the cache has got; `unchanged`: it was all there already."""

    name: str
    tag: str
    digest: str
    folder: str
    files: int
    notes: tuple[str, ...] = ()
    unchanged: bool = False
