"""The error of this library; programs may have a class of their own raised, which `layertar.errors` explains."""

from layertar.errors import ArchiveError


class WheelError(ArchiveError):
    """A file is no whole wheel, or its parts contradict each other."""
