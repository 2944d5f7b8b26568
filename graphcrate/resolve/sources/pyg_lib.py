"""pyg_lib from its repository, where no channel has a wheel of it: from git, or from a folder that the user gives.

`PYG_LIB` is such a folder, `git` for GitHub, or the address of a server that has its repositories under the same names.
Without it GitHub is asked where it takes a connection.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

from graphcrate.compat.facts import pyg_lib
from graphcrate.compat.facts.pyg_lib import NAME, Release
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import git, settings
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.inputs.repository import Tree, of_folder, of_git
from graphcrate.model.command import LOCK_AGAIN, setting, without
from graphcrate.model.errors import HostError, IntegrityError, NetworkError, UsageError
from graphcrate.model.lock import LockedFile, LockedPackage
from graphcrate.model.recipe import Channel, Variant
from graphcrate.resolve.sources.channels import names_of
from graphcrate.resolve.sources.offers import Offer, Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link

GITHUB, GIT = "https://github.com", "git"
#: texts of locks, whose bytes are the same everywhere
UNREACHED = "its sources are on GitHub, which is not reached; PYG_LIB=folder gives them"
UNUSED = "pyg_lib is a wheel of its channel: PYG_LIB was not needed (EXTENSIONS=source compiles it)"
PATIENCE = 2.0  #: seconds for GitHub to take a connection, if the user did not ask for it


def find(requirement: Requirement, variant: Variant, torch_cuda: str, offers: Offers) -> Offer | str:
    """The archive of the release that goes with this PyG, in the cache; or why there is none, for a lock.

    Raises UsageError for a folder with other files, and NetworkError where git was asked for and does not answer.
    """
    release = pyg_lib.release_for(variant.torch_geometric) if variant.torch_geometric else None
    if release is None:
        return "which of its sources go with this PyG is not known"
    if not requirement.specifier.contains(release.version):
        return f"with PyG {variant.torch_geometric} goes {release.version}, and the recipe asks for another"
    asked = offers.sources.request.pyg_lib
    if not asked and not reached(offers.sources):
        return f"{UNREACHED} ({release.version})"
    try:
        path = _packed(release, torch_cuda, offers.sources)
    except (NetworkError, IntegrityError, HostError) as error:  # HostError: no git
        if asked:
            raise
        return f"its sources are on GitHub: {error.what.splitlines()[0]}"
    file = _stored(path, offers.sources.cache)
    link = Link(name=file.name, url=path.absolute().as_uri(), sha256=file.sha256, size=file.size)
    return Offer(NAME, release.version, Channel.LOCAL, link, commit=release.commit)


def bring(package: LockedPackage, torch_cuda: str, sources: Sources) -> None:
    """Put the archive of a lock into the cache. Raises NetworkError, IntegrityError, UsageError as `find`."""
    release = pyg_lib.release_at(package.commit)
    if release is None:
        raise IntegrityError(
            f"{package.name} {package.version} is locked at commit {package.commit}, which is not known here",
            cause="The lock is of another version of this program.",
            next_step=f"{LOCK_AGAIN}    (takes the release that is known)",
        )
    file = _stored(_packed(release, torch_cuda, sources), sources.cache)
    if file != package.file:
        raise IntegrityError(
            f"{package.file.name} has sha256 {file.sha256} instead of {package.file.sha256}",
            cause="It was packed of other files, or in another way, than what was locked.",
            next_step=f"{LOCK_AGAIN}    (takes what is there today)",
        )


def can_bring(package: LockedPackage, sources: Sources) -> bool:
    """Return whether the archive of a lock is available, as far as can be seen without fetching it."""
    return bool(package.commit) and (bool(sources.request.pyg_lib) or reached(sources))


def reached(sources: Sources) -> bool:
    """Return whether GitHub takes a connection."""
    return sources.client.reaches(GITHUB, PATIENCE)


def notes(request: SourceOptions, packages: Iterable[LockedPackage]) -> list[str]:
    """Return a lock's notes on sources that were given and not needed."""
    wheels = [package for package in packages if package.name == NAME and not package.compiled]
    unused = bool(request.pyg_lib) and bool(wheels)
    return [UNUSED] * unused


def check(request: SourceOptions, variant: Variant) -> None:
    """Raises UsageError for sources of pyg_lib that would serve nothing."""
    given = request.pyg_lib
    if not given:
        return
    if NAME not in names_of(variant.extensions):
        raise UsageError(
            f"{setting(pyg_lib=given)} is for stacks with pyg_lib, and this one has none",
            next_step=without("pyg-lib"),
        )
    if request.extensions in ("wheels", "none"):
        raise UsageError(
            f"{setting(pyg_lib=given)} gives sources to compile, and {setting(extensions=request.extensions)} compiles "
            "none",
            next_step="leave one of them out",
        )
    if given != GIT and "://" not in given and not Path(given).is_dir():
        raise UsageError(
            f"{given} is not a folder" if Path(given).exists() else f"there is no folder {given}",
            cause="PYG_LIB is a folder with pyg_lib's repository and its submodules, git, or a server's address.",
            next_step=f"{_clone(variant)}    (and {setting(pyg_lib='./pyg-lib')})",
        )


def _clone(variant: Variant) -> str:
    release = pyg_lib.release_for(variant.torch_geometric)
    return pyg_lib.commands(release.parts, release.version) if release else "git clone --recursive …"


def _packed(release: Release, torch_cuda: str, sources: Sources) -> Path:
    tree = Tree(name="pyg_lib", version=release.version, parts=release.of(torch_cuda))
    asked = sources.request.pyg_lib or GIT
    if asked != GIT and "://" not in asked:
        return of_folder(tree, Path(asked), sources.cache, settings.select_for_child(sources.environment))
    environment = settings.select_for_child(sources.environment, git.VARIABLES)
    sources.note(f"pyg_lib {release.version}: its sources are fetched by git")
    return of_git(tree, GITHUB if asked == GIT else asked, sources.cache, environment)


def _stored(path: Path, cache: Cache) -> LockedFile:
    """The archive as a file that a lock names, in the cache."""
    file = LockedFile(name=path.name, size=path.stat().st_size, sha256=sha256_of(path))
    if not cache.has_file(file.sha256, file.name, file.size):
        with cache.folder() as folder:
            copy = Path(shutil.copyfile(path, folder / "file"))
            cache.adopt(copy, cache.file(file.sha256, file.name))
    return file
