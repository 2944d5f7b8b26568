"""Read an image in a tar as a tree: an archive, or what an engine saves of its store.

Nothing of it is written to the disk but small files that may be compared in another form.
"""

from collections.abc import Iterator

from graphcrate.artifacts import saved
from graphcrate.artifacts.locate import Located
from graphcrate.artifacts.tree.layers import LayerTree, open_layers, read_layer
from graphcrate.artifacts.tree.reader import OpenedTree, Tools


def read_saved(image: Located, tools: Tools) -> OpenedTree:
    """Read an archive's image, or one in an engine's store. Raises as `saved.opened` and `saved.read`."""

    def take(pieces: Iterator[bytes], size: int) -> LayerTree:
        return read_layer(saved.inner_tar(pieces, size), tools.selection)

    with saved.opened(image, tools.ctx) as tar:
        whole = saved.read(tar, take, tools.ctx, tools.platform)
    manifest, index = (whole.listed.manifest, whole.listed.index) if whole.listed else (None, ())
    return open_layers(tar.name, image.form, whole.layers, whole.config, manifest, index)
