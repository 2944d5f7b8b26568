"""A wheel's zip archive as `wheelread` reads it, with our limits and our error."""

from pathlib import Path

from graphcrate.model.errors import IntegrityError
from wheelread import archive
from wheelread.archive import DIRECTORY, WHEEL


class BrokenWheelError(
    IntegrityError,
    usual="remove it from the cache and fetch it again; if it is published so, report it to its authors",
):
    """A wheel whose parts contradict each other."""


class WheelArchive(archive.WheelArchive):
    """An open zip file. Raises IntegrityError naming file and member."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, error=BrokenWheelError, limits=WHEEL, directory=DIRECTORY)
