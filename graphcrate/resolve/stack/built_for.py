"""Match between what is compiled for a torch and that torch's CUDA, or an image that takes an hour does not load it.

Neither names nor metadata of the package index's wheels tell their CUDA: the libraries in them do. Looked at are wheels
that are compiled and whose names have the word torch (`compat.facts.sonames.is_tied`), up to `LARGEST`: a build needs
them anyway. Not those of PyG's pages, each of which is for one CUDA. All others are left to the audit of the image.
"""

from collections.abc import Iterable, Mapping

from graphcrate.compat.facts import pairs, sonames
from graphcrate.host.parallel import Advance, parallel
from graphcrate.host.progress import Progress
from graphcrate.model.errors import IntegrityError, NetworkError, ResolutionError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import CHANNELS
from graphcrate.resolve.sources import linked
from graphcrate.resolve.sources.fetch import THREADS, fetch_one
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.source import Link
from graphcrate.resolve.sources.storing import is_stored, store

LARGEST = 64 << 20  #: bytes of a wheel that is fetched to look at
_PAGED = {channel for channel, row in CHANNELS.items() if row.for_torch}  #: whose pages are for one torch each


def check(packages: Iterable[LockedPackage], links: Mapping[str, Link], offers: Offers, progress: Progress) -> None:
    """Look at what is compiled for torch among `packages`; `links`: where each is, but for those that are stored.

    Raises ResolutionError for one that is for another CUDA than torch is, NetworkError, IntegrityError.
    """
    tied = [
        package
        for package in packages
        if package.channel not in _PAGED
        and package.file.size <= LARGEST
        and sonames.is_tied(package.name, package.file.name)
    ]
    cache, client = offers.sources.cache, offers.sources.client
    if absent := [package for package in tied if not is_stored(package.file, cache)]:
        total = sum(package.file.size for package in absent)

        def fetch(package: LockedPackage, advance: Advance) -> None:
            try:
                store(package.file, links[package.name].url, client, cache, advance)
            except (IntegrityError, NetworkError):
                fetch_one(package, offers)  # wherever else it is, else it says why not

        with progress.task(
            f"reading the CUDA version of {', '.join(package.name for package in absent)}", total
        ) as task:
            parallel(fetch, absent, threads=THREADS, advance=task.advance, size=lambda package: package.file.size)
    for package in tied:
        needed = linked.of(package.file, cache).needed
        if misfits := sonames.misfits(package.name, needed, offers.torch, offers.torch_cuda):
            clearest = min(misfits, key=lambda misfit: len(misfit.cuda))
            raise _refusal(package, " or ".join(clearest.cuda), f"{clearest.file} needs {clearest.soname}", offers)
        if cuda := pairs.other_cuda(package.name, package.version, offers.torch_cuda):
            raise _refusal(package, cuda, "its import compares the two and fails", offers)


def _refusal(package: LockedPackage, cuda: str, evidence: str, offers: Offers) -> ResolutionError:
    own = "the CPU" if offers.torch_cuda == "cpu" else f"CUDA {offers.torch_cuda}"
    name, fitting = package.name, pairs.fitting(package.name, offers.torch, offers.torch_cuda)
    step = f"ask for another version of {name}, or bring a wheel of it for {own}: --with ./{name}-….whl"
    if fitting and fitting != package.version:
        step = f"ask for {name}=={fitting}, which goes with torch {offers.torch}"
    return ResolutionError(
        f"{name} {package.version} is for CUDA {cuda}, and torch {offers.torch} for {own}:\n{evidence}",
        cause=f"{package.file.name} is compiled for a CUDA that this image does not have, and would not load.",
        next_step=step,
    )
