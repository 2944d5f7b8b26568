"""Small squashfs files as mksquashfs 4.5.1 writes them (`-b 4096`), so that unit tests need not start it.

In each: an empty file, one in blocks, one with holes and a tail, a small one under two names, a symbolic link, a name
that is no UTF-8, two devices, a fifo, a socket, and owners beside root.
"""

import base64
import zlib

from tests import ROOT

COMPRESSIONS = ("gzip", "lzo", "lz4", "xz", "zstd")


def sample(compression: str) -> bytes:
    """The file, padded as mksquashfs does; it is deflated and in base 85 among the data of sifsquash's tests."""
    packed = ROOT / "packages/sifsquash/tests/data/mksquashfs" / f"{compression}.b85"
    data = zlib.decompress(base64.b85decode("".join(packed.read_text("ascii").split())))
    return data + bytes(-len(data) % 4096)
