"""A small layout with all that layers can do to each other, on a base whose shell runs."""

import tarfile

from graphcrate.model.plan import ConfigStep
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import write_layout
from ocilayout import spec
from tests.engines import tiny
from tests.unit import tars
from tests.unit.tars import entry, file, folder, hardlink, symlink

CREATED = 1_700_000_000
#: a zero, and bytes that are no text, in an attribute: cap_net_raw=ep, as ping has it
CAPABILITY = b"\x01\x00\x00\x02\x00\x20\x00\x00" + bytes(12)
SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "opt/sparse"}
LONG = "long" * 40
ENVIRONMENT = {
    "PATH": "/opt/bin:/usr/bin:/bin",
    "TRICKY": 'it\'s "quoted" $HOME `date` \\ {} }',
    "EMPTY": "",
    "PYTHONNOUSERSITE": "1",
}

PLAIN = {**ENVIRONMENT, "TRICKY": "two words"}
ACROSS = ("opt/third",)
SPARSE_FILES = ("opt/sparse",)

LAYERS = (
    [
        folder("./", mode=0o751, mtime=4),
        folder("opt", mtime=5),
        file("opt/removed", b"removed" * 1000, mtime=6),
        file("opt/first", b"shared" * 30_000, mode=0o640, uid=7, gid=8, mtime=7),
        hardlink("opt/second", "opt/first"),
        folder("opt/replaced/deep", mtime=8),
        file("opt/replaced/deep/file", b"replaced" * 1000, mtime=8),
        folder("opt/opaque", mode=0o700, mtime=9),
        file("opt/opaque/below", b"below" * 1000, mtime=9),
        folder("opt/bin", mtime=9),
        file("opt/bin/hello", b'#!/bin/sh\necho "hello $*"\n', mode=0o755, mtime=9),
        file("opt/bin/su", b"#!", mode=0o4755, mtime=10),
        file("opt/bin/ping", b"ping", pax_headers={"SCHILY.xattr.security.capability": CAPABILITY.decode("latin-1")}),
        file(
            "opt/sparse",
            b"1\n3000000\n4\n".ljust(512, b"\0") + b"tail",
            pax_headers={**SPARSE, "GNU.sparse.realsize": "3000004"},
        ),
        entry("opt/pipe", tarfile.FIFOTYPE, mode=0o600, mtime=11),
    ],
    [
        file("opt/.wh.removed", b""),
        file("opt/replaced", b"now a file", mtime=12),
        folder("opt/opaque", mode=0o711, mtime=13),
        file("opt/opaque/.wh..wh..opq", b""),
        file("opt/opaque/new", b"new", mtime=13),
        hardlink("opt/third", "opt/second"),
        symlink(f"opt/Főtanúsítvány-{LONG}", f"/opt/Főtanúsítvány/{LONG}", mtime=14),
        file("opt/n\udcffo-text", b"name", mtime=14),
        file(f"opt/{LONG}/{LONG}", b"long", gid=1 << 22, mtime=15),
    ],
    [
        file("opt/first", b"another", mtime=16),
        symlink("opt/link", "first", mtime=17),
        hardlink("opt/hardlink-to-link", "opt/link"),
        folder("home", mode=0o755, mtime=18),
    ],
)


def layout(place, cache, media_type=spec.LAYER_GZIP, *, plain=False, saved=False):
    """The layout at `place`; the base's layer is in the cache, and so are the others.

    `plain`: without what engines cannot take or do not agree on, which is
    hard links from one layer to another: Docker and podman cannot unpack them;
    folders without an entry: Apptainer 1.4 makes them writable for their group;
    quotes and backticks in variables: Apptainer 1.4 writes a script of them that it cannot read.
    `saved`: without sparse files either, of which `docker save` and `podman save` end with an error of their tar.
    """
    base = tiny.base(cache)
    left_out = (*(ACROSS if plain else ()), *(SPARSE_FILES if saved else ()))
    chosen = [[x for x in layer if x[0].name not in left_out] for layer in LAYERS]
    if plain:
        chosen[1].insert(0, folder(f"opt/{LONG}", mtime=15))
    blobs = cache.root / "blobs" / "sha256"
    records = [*base.layers, *(tars.record(blobs, f"layer {n}", x, media_type) for n, x in enumerate(chosen))]
    config = ConfigStep(
        environment=PLAIN if plain else ENVIRONMENT,
        labels={
            "org.opencontainers.image.title": "tricky",
            "some.label": "it's a label",
            "org.opencontainers.image.description": "files of all kinds",
        },
        command=("/bin/sh", "-c", "echo the command"),
        working_folder="/",
    )
    return write_layout(place, make_image(records, config, CREATED), cache.blob, "1.0")
