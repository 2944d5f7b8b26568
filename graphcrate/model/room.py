"""What the cache takes of the disk, by what it costs to lose it."""

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """Folders of the cache that are kept for one reason. The kind without folders is all that no other names."""

    name: str
    folders: tuple[str, ...]
    what: str
    again: str  #: how it comes back when it is wanted


KINDS = (
    Kind("unpacked", ("rootfs",), "images that were run, unpacked", "unpacked again"),
    Kind("downloads", ("files", "partial", "uv"), "wheels, sources, Debian packages", "downloaded again"),
    Kind(
        "layers",
        ("blobs", "layers", "installations", "bytecode", "trees"),
        "layers of images, and what is known of them",
        "made again from the downloads",
    ),
    Kind("bases", ("bases", "foundations"), "Debian bases, pulled bases", "made or pulled again"),
    Kind(
        "compiled", ("compiled", "built", "toolkits"), "wheels from source, and toolkits", "compiled again in minutes"
    ),
    Kind("engines", ("apptainer",), "what Apptainer keeps", "made again"),
    Kind("rest", (), "answers of package indexes, small records", "asked again"),
)


class Use(msgspec.Struct, frozen=True):
    """Of one kind: bytes on the disk, and how many of them lie there under other names outside the cache too.

    `shared` bytes (layers that images in dist/ have as hard links) stay when the kind is freed.
    """

    kind: str
    what: str
    again: str
    bytes: int
    shared: int


class Room(msgspec.Struct, frozen=True):
    """Of one cache: its root, bytes free on its disk, uses in the order of `KINDS`."""

    root: str
    free: int
    uses: tuple[Use, ...]
    freed: int = 0  #: bytes that this command has freed
