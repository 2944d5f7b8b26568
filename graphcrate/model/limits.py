"""Limits of what an archive may hold: one set of numbers for all that is inflated, and what counts against it.

No archive may fill memory or a disk from a few bytes, or keep us busy for hours. The numbers stand well above
what honest archives have; that was measured over 203 wheels, 346 packages, 118 layers and 5 sdists of all stacks on
2026-11-25: a ratio of 9 of a wheel (235 of one of its members, a table of zeros), 11 of a package, 22 of a small layer
and 7 of one above 1 MB, 6 of an sdist; 12,602 files and 1.9 GB in a wheel of torch, 1.9 GB in a layer.
"""

from graphcrate.model.errors import IntegrityError
from layertar import limits
from layertar.limits import LAYER as LAYER
from layertar.limits import Limits as Limits

_MB, _GB = 1 << 20, 1 << 30

#: `wheelread` and `layertar` have those of wheels and layers. Debian's largest, of NVIDIA's libraries, have 4 GB.
PACKAGE = Limits("package", members=1_000_000, names=256 * _MB, size=64 * _GB, ratio=200, free=_GB)
#: Sources of programs; the largest sdists of the index have 1 GB. Their text packs 10 to 1.
SOURCES = Limits("source archive", members=500_000, names=128 * _MB, size=16 * _GB, ratio=200, free=256 * _MB)
#: Lists of packages, which are read whole: Debian's of all packages has 60 MB, and packs 5 to 1.
LIST = Limits("list of packages", members=1, names=0, size=512 * _MB, ratio=200, free=64 * _MB)
#: Debian's index of all files of a suite, which is read in pieces: 170 MB, and packs 14 to 1.
INDEX = Limits("index of files", members=1, names=0, size=2 * _GB, ratio=200, free=256 * _MB)
CRATE_FILE = 256 * _MB  #: bytes of a crate of unknown size; crates.io takes none above 10 MB without being asked
RELEASE = 16 * _MB  #: bytes of a Release file; Debian's have 200 kB
METADATA = (
    64 * _MB
)  #: bytes of RECORD, METADATA, PKG-INFO and their like, which are read whole; torch's RECORD has 1 MB
DOCUMENTS = 64 * _MB  #: bytes of all documents (manifests, configurations) in an image's archive; each has some kB


class Gauge(limits.Gauge):
    """A gauge of one archive that raises an error of ours."""

    def __init__(
        self, limits: Limits, name: str, error: type[IntegrityError] = IntegrityError, packed: int | None = None
    ) -> None:
        super().__init__(limits, name, error, packed)
