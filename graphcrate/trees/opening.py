"""What a person names on the command line, to a tree; and two of them to a comparison."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from graphcrate.catalogue import find_image
from graphcrate.errors import UsageError
from graphcrate.formats.kinds import Kind, kind_of
from graphcrate.host.workers import default_jobs
from graphcrate.host.workplace import Workplace
from graphcrate.model.tree import Allowance, Comparison, Sameness
from graphcrate.oci import reference
from graphcrate.oci.layout import read_layout
from graphcrate.trees import contents, folders, layouts, saved, squashed
from graphcrate.trees.compare import judge
from graphcrate.trees.opened import Opened, Tools

FORMS = (
    "NAME:TAG below dist/, the path of an OCI layout, of a tar (docker save, oci-archive), of a .sif, of a .sqsh "
    "or of a root file system's folder, docker:NAME:TAG, podman:NAME:TAG"
)
#: as skopeo writes them; the path says what it is
_PATH_PREFIXES = ("oci:", "oci-archive:", "docker-archive:")
_REMOTE = ("oras://", "library://", "http://", "https://")


#: Reads the artifact that was found.
Reader = Callable[[Tools], Opened]


def compare(
    first: str, second: str, place: Workplace, allowances: Sequence[Allowance], output: Path = Path("dist")
) -> Comparison:
    """Read both and compare them. Raises UsageError for what does not exist, LayoutError for what cannot be read."""
    readers = [find(argument, output) for argument in (first, second)]  # both, before the long work begins
    with ExitStack() as stack:
        tools = Tools(
            cache=place.cache,
            progress=place.progress,
            environment=place.environment,
            stack=stack,
            jobs=default_jobs(),
        )
        one, other = (read(tools) for read in readers)

        def same(form: Sameness, path: str) -> bool:
            if any(not contents.is_kept(path, opened.tree.entries[path].size) for opened in (one, other)):
                return False
            return contents.same(form, one.read(path), other.read(path))

        return judge(one.tree, other.tree, allowances, same)


def registry_name(argument: str) -> str:
    """The reference of an image on a registry, if that is what a person names, and no file or folder here."""
    is_path = not argument.startswith(reference.SCHEME) and Path(argument.partition("/")[0]).exists()
    return "" if is_path else reference.on_registry(argument)


def find(argument: str, output: Path) -> Reader:
    """How the artifact that a person names is read. Raises UsageError where there is none, LayoutError."""
    remote = registry_name(argument)
    if remote or argument.startswith(_REMOTE):
        address = f"{reference.SCHEME}{remote}" if remote else argument
        raise UsageError(
            f"{argument} is on a registry, which cannot be compared directly yet",
            next_step=f"skopeo copy {address} oci:copy:tag    and compare ./copy",
        )
    for prefix, read in (("docker:", saved.read_docker), ("podman:", saved.read_podman)):
        if argument.startswith(prefix):
            return functools.partial(read, argument.removeprefix(prefix))
    prefix = next((prefix for prefix in _PATH_PREFIXES if argument.startswith(prefix)), "")
    path, tag = Path(argument.removeprefix(prefix)), ""
    if not path.exists() and Path(str(path).rpartition(":")[0], "index.json").is_file():
        stem, _, tag = str(path).rpartition(":")
        path = Path(stem)
    if path.is_dir():
        for layout in (path, path / "oci"):
            if (layout / "oci-layout").is_file() or (layout / "index.json").is_file():
                return functools.partial(layouts.read, argument, read_layout(layout, tag))
        return functools.partial(folders.read, argument, path)
    if path.exists():
        return functools.partial(_by_magic(path), argument, path)
    return _find_named(argument, output)


_FileReader = Callable[[str, Path, Tools], Opened]
_READERS: Mapping[Kind, _FileReader] = {
    "sif": squashed.read_sif,
    "squashfs": squashed.read_squashfs,
    "tar": saved.read_file,
    "gzip": saved.read_file,
    "zstd": saved.read_file,
}


def _by_magic(path: Path) -> _FileReader:
    """By what the file begins with, whatever its name."""
    if (kind := kind_of(path)) is None:
        raise UsageError(f"{path} is no image: neither a tar nor a SIF nor a squashfs", next_step=f"give {FORMS}")
    return _READERS[kind]


def _find_named(argument: str, output: Path) -> Reader:
    try:
        layout, _ = find_image(argument, output)
    except UsageError as error:
        raise UsageError(
            f"there is no image at {argument!r}", cause=f"{error.what}.", next_step=f"give {FORMS}"
        ) from error
    return functools.partial(layouts.read, argument, layout)
