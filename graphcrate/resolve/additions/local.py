"""The user's own wheels, projects and commits, in the cache as what a lock has."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.compat.requirements import own_packages
from graphcrate.host import git, settings
from graphcrate.host.sandbox.emulation import this_machine
from graphcrate.inputs.commits import shown
from graphcrate.inputs.wheels import project
from graphcrate.inputs.wheels.sdist import build_requires
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources import fetch
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.source import Link
from graphcrate.resolve.sources.storing import store_unhashed
from graphcrate.resolve.sources.target import project_and_version, target_of
from graphcrate.resolve.stack.locks import ResolveContext
from graphcrate.resolve.stack.resolver import lock_back_end


def store_local(package: str, offers: Offers, context: ResolveContext) -> LockedPackage:
    """A wheel file, a project's folder or a commit, in the cache: as a wheel, or as an sdist to be compiled.

    Raises IntegrityError for a damaged wheel, ResolutionError for one of another Python or system.
    """
    sources = offers.sources
    environment = settings.select_for_child(context.ctx.environment, git.VARIABLES)
    note, walled = context.ctx.progress.note, context.request.walled

    def wheels(folder: Path) -> Sequence[Path]:
        locked = lock_back_end(build_requires(folder), package, offers, this_machine())
        for wheel in locked:
            fetch.fetch_one(wheel, offers)
        return [sources.cache.file(wheel.file.sha256, wheel.file.name) for wheel in locked]

    def back_end() -> project.BackEnd:
        channels = [source for channel in (Channel.LOCAL, Channel.PYPI) for source in offers.of_channel(channel)]
        asked = [(source.kind, source.location, source.names) for source in channels]
        return project.BackEnd(wheels, msgspec.json.encode([asked, sources.user.merged]))

    if package.startswith("/") and package.endswith(".whl"):
        path = Path(package)
    elif package.startswith("/"):
        path = project.of_folder(Path(package), back_end(), sources.cache, environment, note, walled=walled)
    else:
        path = project.of_commit(package, back_end(), sources.cache, environment, note, walled=walled)
    target, known = target_of(context.variant.base, context.variant.python), project_and_version(path.name)
    is_sdist = path.suffix != ".whl"
    if known is None or not (is_sdist or target.rank(path.name)):
        raise ResolutionError(
            f"{path} is not for this image, which has Python {target.python} and glibc {target.glibc}",
            cause="Its name says for which Python and system a wheel was built.",
            next_step=f"bring a wheel for cp{target.python.replace('.', '')}, or its project's folder",
        )
    _check_name(package, str(known[0]))
    if not is_sdist:  # uv would end as where no index answers
        with open_wheel(path):
            pass
    file = store_unhashed(Link(name=path.name, url=path.absolute().as_uri()), sources.cache)
    return LockedPackage(name=str(known[0]), version=str(known[1]), channel=Channel.LOCAL, file=file, compiled=is_sdist)


def _check_name(package: str, name: str) -> None:
    """Raises ResolutionError where a git address says another name than its project has."""
    if package.startswith("/") or not (egg := own_packages.git_address(package).egg) or canonicalize_name(egg) == name:
        return
    address = own_packages.git_address(package)
    raise ResolutionError(
        f"{shown(address.url)} has {name}, and its address says egg={egg}",
        cause="A branch or tag may have moved, or the address is of another project.",
        next_step=f"write #egg={name}, or leave it out, once you know that it is what you want",
    )
