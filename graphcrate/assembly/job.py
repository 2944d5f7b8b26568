"""One build: what was asked for and chosen, turned into what each stage takes. No stage gets more than its own."""

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from graphcrate.assembly.locking import AddedPackages
from graphcrate.assembly.making import Maker
from graphcrate.assembly.output import ImageFolders, Journal
from graphcrate.assembly.planned import Forecast, ImageContents
from graphcrate.assembly.proving import Prover
from graphcrate.compat.variants.choice import VariantChoice
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.engines.backend import Engine

if TYPE_CHECKING:
    from graphcrate.inputs.shared.site_cache import SiteCache


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """One build: what was typed, what it amounts to, and which engine builds it."""

    typed: BuildRequest
    choice: VariantChoice
    engine: Engine
    journal: Journal = field(default_factory=Journal)
    shared: "SiteCache | None" = None  #: the site's, for what is compiled

    def by(self, engine: Engine) -> "BuildJob":
        """Return the job for another engine."""
        return dataclasses.replace(self, engine=engine)

    def of_stack(self) -> "BuildJob":
        """Return the job for the image of the stack itself, without what is added."""
        return dataclasses.replace(self, typed=self.typed.of_stack)

    @functools.cached_property
    def _request(self) -> BuildRequest:
        """The request with the CUDA version and the GPUs that were chosen."""
        machine = msgspec.structs.replace(self.typed.machine, gpu=self.choice.gpu)
        return msgspec.structs.replace(self.typed, cuda=self.choice.variant.cuda, machine=machine)

    @property
    def added(self) -> AddedPackages:
        """Return the packages that are locked on top of the stack."""
        request = self._request
        return AddedPackages(
            additions=request.additions,
            recipe=request.recipe,
            sources=request.own_sources,
            next_steps=NextSteps(request),
        )

    @property
    def contents(self) -> ImageContents:
        """Return the contents of its image besides its lock."""
        request, choice = self._request, self.choice
        return ImageContents(
            recipe=choice.recipe,
            variant=choice.variant,
            gpu=choice.gpu,
            additions=request.additions,
            devel=request.sources.devel,
            slim=request.slim,
        )

    @property
    def images(self) -> ImageFolders:
        """The folders of its images."""
        return ImageFolders(self.engine, self.typed.output, self.typed.recipe)

    @property
    def forecast(self) -> Forecast:
        """Forecast its image before it is built."""
        request = self._request
        return Forecast(
            contents=self.contents,
            machine=request.machine,
            sources=request.own_sources,
            images=self.images,
            is_tested=request.suites.run,
            is_packed=request.packs is not None,
            next_steps=NextSteps(request),
            shared=self.shared,
        )

    @property
    def maker(self) -> Maker:
        """Return the maker of its image."""
        request = self._request
        return Maker(
            contents=self.contents,
            sources=request.own_sources,
            images=self.images,
            forecast=self.forecast,
            journal=self.journal,
            asked=request.parameters(candidate=""),
            packs=request.packs,
            shared=self.shared,
        )

    @property
    def prover(self) -> Prover:
        """Return the prover, which tests and judges its image."""
        request, choice = self._request, self.choice
        return Prover(
            suites=choice.variant.smoke or choice.recipe.smoke,
            options=request.suites,
            images=self.images,
            journal=self.journal,
            next_steps=NextSteps(request),
        )
