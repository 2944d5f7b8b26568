"""What a person names on the command line, to a tree; and two of them to a comparison."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from graphcrate.artifacts.locate import Form, Located, locate
from graphcrate.artifacts.tree import archives, contents, filesystems, layouts
from graphcrate.artifacts.tree.compare import judge
from graphcrate.artifacts.tree.reader import Opened, Tools
from graphcrate.host.context import Context
from graphcrate.host.workers import default_jobs
from graphcrate.model.errors import UsageError
from graphcrate.model.tree import Allowance, Comparison, Sameness
from graphcrate.oci import reference

#: Reads the artifact that was found.
Reader = Callable[[Tools], Opened]


def compare(
    first: str, second: str, ctx: Context, allowances: Sequence[Allowance], output: Path = Path("dist")
) -> Comparison:
    """Read both and compare them. Raises UsageError for what does not exist, LayoutError for what cannot be read."""
    readers = [reader(locate(ref, output)) for ref in (first, second)]  # both, before the long work begins
    with ExitStack() as stack:
        tools = Tools(
            cache=ctx.cache,
            progress=ctx.progress,
            environment=ctx.environment,
            stack=stack,
            jobs=default_jobs(),
        )
        one, other = (read(tools) for read in readers)

        def same(form: Sameness, path: str) -> bool:
            if any(not contents.is_kept(path, opened.tree.entries[path].size) for opened in (one, other)):
                return False
            return contents.same(form, one.read(path), other.read(path))

        return judge(one.tree, other.tree, allowances, same)


def reader(image: Located) -> Reader:
    """Choose how an image is read. Raises UsageError for one on a registry, LayoutError."""
    if image.form == "registry":
        address = image.name if "://" in image.name else f"{reference.SCHEME}{image.name}"
        raise UsageError(
            f"{image.ref} is on a registry, which cannot be compared directly yet",
            next_step=f"skopeo copy {address} oci:copy:tag    and compare ./copy",
        )
    if image.form == "layout":
        if not image.has_layout:
            raise UsageError(
                f"{image.ref} has no OCI layout", cause="An engine built it.", next_step=f"give docker:{image.name}"
            )
        return functools.partial(layouts.read, image.ref, image.layout())
    if image.form in _STORES:
        return functools.partial(_STORES[image.form], image.name)
    return functools.partial(_FILES[image.form], image.ref, image.path)


_STORES: Mapping[Form, Callable[[str, Tools], Opened]] = {
    "docker": archives.read_docker,
    "podman": archives.read_podman,
}
_FILES: Mapping[Form, Callable[[str, Path, Tools], Opened]] = {
    "sif": filesystems.read_sif,
    "squashfs": filesystems.read_squashfs,
    "archive": archives.read_file,
    "rootfs": filesystems.read_folder,
}
