"""Disk space of the images here: layers of their own, and layers shared with other images."""

from collections import Counter
from pathlib import Path

import msgspec

from graphcrate.artifacts.names import whole_images


class ImageCost(msgspec.Struct, frozen=True, kw_only=True):
    """Packed bytes of an image: of layers that no other image here has, and of those that others have too."""

    name: str
    alone: int
    shared: int


def costs(output: Path) -> list[ImageCost]:
    """The cost of each whole image in a folder of images; what costs most alone comes first."""
    images = {
        f"{report.name}:{report.tag}": {layer.digest: layer.size for layer in report.layers}
        for folder in sorted(output.glob("*"))
        for report in whole_images(folder)
    }
    having = Counter(digest for layers in images.values() for digest in layers)
    made = [
        ImageCost(
            name=name,
            alone=sum(size for digest, size in layers.items() if having[digest] == 1),
            shared=sum(size for digest, size in layers.items() if having[digest] > 1),
        )
        for name, layers in images.items()
    ]
    return sorted(made, key=lambda cost: (-cost.alone, cost.name))
