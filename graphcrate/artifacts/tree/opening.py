"""What a person names on the command line, to a tree; and two of them to a comparison."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from graphcrate.artifacts.locate import Located, locate
from graphcrate.artifacts.tree import archives, filesystems, layers
from graphcrate.artifacts.tree.compare import Allowance, Comparison, distil, is_kept, judge
from graphcrate.artifacts.tree.reader import Opened, Tools, Wanted
from graphcrate.host.context import Context
from graphcrate.model.errors import UsageError
from graphcrate.oci import reference


def compare(
    first: str, second: str, ctx: Context, allowances: Sequence[Allowance], output: Path = Path("dist")
) -> Comparison:
    """Read both and compare them. Raises UsageError for what does not exist, LayoutError for what cannot be read."""
    readers = [reader(locate(ref, output)) for ref in (first, second)]  # both, before the long work begins
    with ExitStack() as stack:
        tools = Tools(ctx, stack, Wanted(keep=is_kept, distil=distil))
        one, other = (read(tools) for read in readers)
        for opened in (one, other):
            if opened.broken:
                raise opened.broken
        return judge(one, other, allowances)


def reader(image: Located) -> Callable[[Tools], Opened]:
    """Choose how an image is read. Raises UsageError for one on a registry, LayoutError."""
    match image.form:
        case "registry":
            address = image.name if "://" in image.name else f"{reference.SCHEME}{image.name}"
            raise UsageError(
                f"{image.ref} is on a registry, which cannot be compared directly yet",
                next_step=f"skopeo copy {address} oci:copy:tag    and compare ./copy",
            )
        case "layout":
            if image.has_layout:
                return partial(layers.read_layout, image.ref, image.layout())
            raise UsageError(
                f"{image.ref} has no OCI layout", cause="An engine built it.", next_step=f"give docker:{image.name}"
            )
        case "docker":
            return partial(archives.read_docker, image.name)
        case "podman":
            return partial(archives.read_podman, image.name)
        case "archive":
            return partial(archives.read_file, image.ref, image.path)
        case "rootfs":
            return partial(filesystems.read_folder, image.ref, image.path)
        case "sif" | "squashfs":
            return partial(filesystems.read_squashed, image.form, image.ref, image.path)
