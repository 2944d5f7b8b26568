"""The user's own wheels, projects and commits, in the cache as what a lock has."""

from collections.abc import Sequence
from pathlib import Path

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.host import settings
from graphcrate.inputs.wheels import project
from graphcrate.inputs.wheels.sdist import build_requires
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import Channel
from graphcrate.resolve import fetch
from graphcrate.resolve.channels import Link
from graphcrate.resolve.locks import ResolveContext
from graphcrate.resolve.offers import Offers
from graphcrate.resolve.resolver import lock_back_end
from graphcrate.resolve.target import project_and_version, target_of


def store_local(package: str, offers: Offers, context: ResolveContext) -> LockedPackage:
    """A wheel file, a project's folder or a commit, in the cache: as a wheel, or as an sdist to be compiled.

    Raises IntegrityError for a damaged wheel, ResolutionError for one of another Python or system.
    """
    sources = offers.sources
    environment = settings.select_for_child(context.ctx.environment, project.GIT_VARIABLES)
    note = context.ctx.progress.note

    def back_end(folder: Path) -> Sequence[Path]:
        wheels = lock_back_end(build_requires(folder), package, offers)
        for wheel in wheels:
            fetch.fetch_one(wheel, offers)
        return [sources.cache.file(wheel.file.sha256, wheel.file.name) for wheel in wheels]

    if package.startswith("/") and package.endswith(".whl"):
        path = Path(package)
    elif package.startswith("/"):
        path = project.of_folder(Path(package), back_end, sources.cache, environment, note)
    else:
        path = project.of_commit(package, back_end, sources.cache, environment, note)
    target, known = target_of(context.variant.base, context.variant.python), project_and_version(path.name)
    is_sdist = path.suffix != ".whl"
    if known is None or not (is_sdist or target.rank(path.name)):
        raise ResolutionError(
            f"{path} is not for this image, which has Python {target.python} and glibc {target.glibc}",
            cause="Its name says for which Python and system a wheel was built.",
            next_step=f"bring a wheel for cp{target.python.replace('.', '')}, or its project's folder",
        )
    if not is_sdist:  # uv would end as where no index answers
        with open_wheel(path):
            pass
    file = fetch.store_unhashed(Link(name=path.name, url=path.absolute().as_uri()), sources.client, sources.cache)
    return LockedPackage(name=str(known[0]), version=str(known[1]), channel=Channel.LOCAL, file=file, compiled=is_sdist)
