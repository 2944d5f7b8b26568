"""Disk space of the images here: layers of their own, and layers shared with other images."""

from collections import Counter
from pathlib import Path

import msgspec

from graphcrate.artifacts.names import whole_images


class ImageCost(msgspec.Struct, frozen=True, kw_only=True):
    """Packed bytes of an image: of layers that no other image here has, and of those that others have too.

    `made`: in Unix seconds.
    """

    name: str
    alone: int
    shared: int
    digest: str = ""
    made: float = 0
    place: str = ""  #: the folder of images that has it


def costs(*places: Path) -> list[ImageCost]:
    """The cost of each whole image in folders of images; what costs most alone comes first."""
    images = [
        (place, report)
        for place in places
        for folder in sorted(place.glob("*"))
        if not folder.is_symlink()
        for report in whole_images(folder)
    ]
    having = Counter(layer for _, report in images for layer in {layer.digest for layer in report.layers})
    made = []
    for place, report in images:
        layers = {layer.digest: layer.size for layer in report.layers}
        made.append(
            ImageCost(
                name=f"{report.name}:{report.tag}",
                alone=sum(size for digest, size in layers.items() if having[digest] == 1),
                shared=sum(size for digest, size in layers.items() if having[digest] > 1),
                digest=report.digest,
                made=(place / report.name / report.tag / "report.json").stat().st_mtime,
                place=str(place),
            )
        )
    return sorted(made, key=lambda cost: (-cost.alone, cost.name))
