"""Listings of channels: asked project by project; one that does not answer is named, and ends nothing."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from graphcrate.compat.facts import facts, glt
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.host.net import HttpError
from graphcrate.host.progress import Task
from graphcrate.model.errors import NetworkError
from graphcrate.model.recipe import CHANNELS, Channel, Recipe
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link
from upkeep.releases import ListedRelease, releases_of

TORCH, PYG = "torch", "torch-geometric"
#: that a stack is locked again for; what depends on torch's own version alone comes with a new torch
STACK = ("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv", "ogb")
#: that go with one torch each
COMPANIONS = ("torchvision", "torchaudio")
#: that are looked at, and of which nothing follows by itself
WATCHED = (glt.NAME, "pyg-lib", "nvidia-cuda-runtime")
PROJECTS = (TORCH, PYG, *STACK, *COMPANIONS, *WATCHED)


class Answers(NamedTuple):
    """Releases by project (normalised name), torch's of all channels. `unanswered`: who did not answer, and why."""

    projects: dict[str, tuple[ListedRelease, ...]]
    unanswered: tuple[str, ...]


def ask(recipes: Sequence[Recipe], sources: Sources, task: Task) -> Answers:
    """Ask the package index and PyTorch's pages. Raises NetworkError where no index lists torch."""
    projects, unanswered = {}, []
    for project in PROJECTS:
        releases, errors = _of_index(sources, project)
        if errors and not releases and project == TORCH:
            raise errors[0]
        projects[project] = releases
        unanswered += [f"{project}: {error.brief}" for error in errors if not releases]
        task.advance(1)
    for label in _labels(recipes):
        try:
            projects[TORCH] += _of_pytorch(sources, label)
        except NetworkError as error:
            unanswered.append(f"torch of PyTorch's channel for {cuda_label(label)}: {error.brief}")
    if any(
        Channel.PYG in way.channels for recipe in recipes for variant in recipe.variants for way in variant.candidates
    ):
        unanswered += _of_pyg(sources, projects[TORCH])
    return Answers(projects, tuple(dict.fromkeys(unanswered)))


def _of_index(sources: Sources, project: str) -> tuple[tuple[ListedRelease, ...], list[NetworkError]]:
    """Merge the user's indexes, and list errors of those that did not say; one may lack the project."""
    links, times, errors = list[Link](), dict[str, str](), list[NetworkError]()
    for source in Offers(sources, "", "cpu").of_channel(Channel.PYPI):
        try:
            links += sources.listings.project(source, project)
            times |= sources.listings.times(source, project)
        except NetworkError as error:
            if not (isinstance(error, HttpError) and error.failure.is_absent):
                errors.append(error)
    return releases_of({link.name: link for link in links}.values(), times), errors


def _labels(recipes: Iterable[Recipe]) -> list[str]:
    """CUDA versions that a recipe takes from PyTorch's channel in the first place."""
    ways = [way for recipe in recipes for variant in recipe.variants for way in variant.candidates]
    return list(dict.fromkeys(way.torch_cuda for way in ways if way.channels[0] is Channel.PYTORCH))


def _of_pytorch(sources: Sources, cuda: str) -> tuple[ListedRelease, ...]:
    """torch of PyTorch's channel for one CUDA; of a mirror where one was named. Raises NetworkError."""
    error: NetworkError | None = None
    for source in Offers(sources, "0", cuda).of_channel(Channel.PYTORCH):
        try:
            links = sources.listings.project(source, TORCH)
            return releases_of(links, {}, Channel.PYTORCH, cuda)
        except NetworkError as caught:
            error = error or caught
    assert error is not None  # a channel has its own address
    raise error


def _of_pyg(sources: Sources, torches: Sequence[ListedRelease]) -> list[str]:
    """Tell whether PyG's pages answer at all: which wheels they have for a torch is looked at when that is locked."""
    newest = max(torches, key=lambda release: release.number)
    cuda = next((build.cuda for build in facts.torch_builds() if build.torch == str(newest.number)), "12.8")
    for source in Offers(sources, newest.version, cuda).of_channel(Channel.PYG):
        try:
            sources.listings.project(source, "torch-scatter")
        except NetworkError as error:
            if isinstance(error, HttpError) and error.failure.status in (403, 404, 410):
                return []  # it has no page for this torch yet
            return [f"{CHANNELS[Channel.PYG].owner}'s pages of wheels: {error.brief}"]
        else:
            return []
    return []
