"""From a resolution to an image with its report: the one that is there unchanged, or a new one."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from graphcrate.artifacts import names
from graphcrate.artifacts.reports import read_report
from graphcrate.assembly import extensions, planned, summary, with_engine
from graphcrate.assembly.output import ImageFolders, Journal
from graphcrate.assembly.planned import Forecast, ImageContents
from graphcrate.compat.facts import slim
from graphcrate.compat.plan import planning
from graphcrate.compat.requirements import own_packages
from graphcrate.compat.variants import fallbacks
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.engines.backend import Built
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import check_link, make_folder, write_file
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.answer import folded
from graphcrate.model.command import ETC, command, setting
from graphcrate.model.errors import HostError, LockedError, UsageError
from graphcrate.model.lock import Lock, encode
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import Additions
from graphcrate.model.report import BuildParameters, BuildReport, OwnTests, PackageLine
from graphcrate.model.words import listed, size
from graphcrate.resolve.stack import base
from graphcrate.resolve.stack.locks import Resolution
from sifsquash.values import Compression

if TYPE_CHECKING:
    from graphcrate.checks.audit.run import Seen
    from graphcrate.checks.new_image import Vetted
    from graphcrate.inputs.shared.site_cache import SiteCache

_MOST_RENEWALS = 3  #: of a base in one build


class LookUp(NamedTuple):
    """A build's target, with the bases that stand in for those that are gone; the image if it is there and whole."""

    resolution: Resolution
    plan: Plan
    report: BuildReport | None


class MadeImage(NamedTuple):
    """An image, and whether this build has made it. `seen`: what was seen of it, where it was checked now."""

    plan: Plan
    report: BuildReport
    is_new: bool
    seen: "Seen | None" = None


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Makes images of what was resolved. `asked`: what was asked for, for the provenance of what is built."""

    contents: ImageContents
    sources: SourceOptions
    images: ImageFolders
    forecast: Forecast
    journal: Journal
    asked: BuildParameters
    packs: Compression | None = None  #: layers of wheels are packed for a squashfs, too
    shared: "SiteCache | None" = None  #: where what is compiled may be

    def look_up(self, resolved: Resolution, ctx: Context, known: LookUp | None = None) -> LookUp:
        """Plan the image of a resolution and see whether it is there.

        `known`: from before, which holds for its bases.
        """
        resolution = resolved if self.sources.locked else base.with_living_base(ctx, resolved)
        if known is not None and known.resolution == resolution:
            return known
        plan = planned.make_plan(self.contents, resolution, ctx)
        report = self._reusable(plan, resolution, ctx) or self._of_site(plan, resolution, ctx)
        return LookUp(resolution, plan, report)

    def make(self, resolved: Resolution, ctx: Context, known: LookUp | None = None) -> MadeImage:
        """Take the image that is there, where nothing changed, else build it.

        A base with packages that no mirror has is built with those of today, which is said; each turn takes newer ones.
        """
        renewals, sources = 0, self.sources
        while True:
            resolution, plan, report = self.look_up(resolved, ctx, known)
            if report is not None:
                return MadeImage(plan, report, is_new=False)
            try:
                vetted = self._build(plan, resolution, ctx)
                return MadeImage(plan, vetted.report, is_new=True, seen=vetted.seen)
            except BaseDriftError as drift:
                if sources.locked:
                    raise LockedError(drift.what, cause=drift.cause) from drift
                is_compiler = sources.devel or isinstance(drift, extensions.CompilerDriftError)
                renewals += 1
                if renewals > _MOST_RENEWALS:  # mirrors of different ages could take turns for ever
                    raise
                variant = own_packages.with_apt(self.contents.variant, self.contents.additions)
                if not base.renew_base(ctx, variant, resolved.lock, resolution.lock, compiler=is_compiler):
                    raise
                ctx.progress.warn(
                    f"{drift.what}; taking the packages of today instead ({setting(locked=True)} refuses that)"
                )

    def say_plan(self, plan: Plan, resolution: Resolution, ctx: Context) -> None:
        """Say what is built and from what; of a plan that was said already what is new in it."""
        title = f"{plan.name}:{plan.tag}"
        new = self.journal.new(title, self.forecast.lines(title, resolution, ctx, plan))
        for line in folded(new, ctx.progress.width):
            ctx.progress.note(line)

    def _reusable(self, plan: Plan, resolution: Resolution, ctx: Context) -> BuildReport | None:
        """Return the report of an image that was built from the same plan and is whole."""
        engine, folder = self.images.engine, self.images.folder(plan)
        report = read_report(folder / "report.json", ctx.progress.warn)
        if report is None or report.build_key != engine.key(plan) or not engine.exists(report, folder, ctx.environment):
            return None
        short = planning.short_name(plan, resolution.candidate)
        if report.short != short:  # of an older version
            report = msgspec.structs.replace(report, short=short)
            write_file(folder / "report.json", encode(report))
        # What is out is out for the reasons of today; tests are no part of a plan.
        tests = _own_tests(resolution.lock, self.contents.additions)
        report = msgspec.structs.replace(report, outcomes=resolution.outcomes, own=tests)
        unseen = report.audit is None or (report.starts is None and bool(plan.added))
        return _check(report, folder, self.contents.gpu, ctx).report if unseen else report

    @property
    def _site(self) -> "SiteCache | None":
        """The shared cache that layers may come from; None without one, and of what is proved."""
        is_ours = self.images.engine is with_engine.EMBEDDED and not self.sources.parts_only
        return self.shared if is_ours and self.shared is not None and self.shared.trusted else None

    def _of_site(self, plan: Plan, resolution: Resolution, ctx: Context) -> BuildReport | None:
        """Return the report of an image that a shared cache had, and that is here now."""
        if self._site is None:
            return None
        from graphcrate.assembly import site_images  # reads layouts: not for an image that is there unchanged

        self._check_output(plan)
        report = site_images.take(self._site, self.images.engine.key(plan), plan, self.images, ctx)
        return report and self._reusable(plan, resolution, ctx)

    def of_site_lines(self, plan: Plan) -> list[str]:
        """Return a plan's line on the image, where a shared cache has it."""
        if self._site is None:
            return []
        from graphcrate.assembly import site_images

        first = site_images.find(self._site, self.images.engine.key(plan), plan)
        if first is None:
            return []
        place, known = first
        return [f"  site      {place.name} has this image, {size(known.size)}: it is taken whole"]

    def _build(self, plan: Plan, resolution: Resolution, ctx: Context) -> "Vetted":
        """Build the image, check it, and write lock and report beside it."""
        folder, lock, engine = self.images.folder(plan), resolution.lock, self.images.engine
        self._check_output(plan)
        taken = None
        if self._site is not None:
            from graphcrate.assembly import site_parts

            taken = site_parts.take(self._site, plan, ctx)
        self.say_plan(plan, resolution, ctx)
        self.forecast.require_room(plan, lock, ctx)
        try:
            beside = self.forecast.next_steps.beside
            built = with_engine.build(
                engine,
                plan,
                lock,
                self.sources,
                folder,
                ctx,
                beside,
                is_tested=self.forecast.is_tested,
                packs=self.packs,
                shared=self.shared,
            )
        except BaseException:
            with contextlib.suppress(OSError):  # empty: the first image of this name
                names.leave(folder.parent)
            raise
        if self._site is not None and taken is not None:
            site_parts.compare(self._site, taken, plan, ctx)
        report = self._report(plan, resolution, built, ctx)
        write_file(folder / "lock.json", encode(lock))
        ctx.progress.note(summary.step(3, "check the image"))
        return _check(report, folder, self.contents.gpu, ctx)

    def _check_output(self, plan: Plan) -> None:
        self.images.refuse_anothers(plan.name)
        check_output(self.images.output / plan.name, self.images.aliases(plan))
        self.images.own(plan.name)

    def _report(self, plan: Plan, resolution: Resolution, built: Built, ctx: Context) -> BuildReport:
        """Report what was built. What stands in place of another file is a warning."""
        lock, artifact, layers = resolution.lock, built.artifact, built.layers
        packages = tuple(
            PackageLine(name=package.name, version=package.version, channel=package.channel.value, index=package.index)
            for package in lock.packages
        )
        saved = slim.saved(layers)
        replacing = [
            f"files of the recipe stand in place of {listed(each.replaces)}" for each in layers if each.replaces
        ]
        for note in replacing:
            ctx.progress.warn(note)
        if saved:
            ctx.progress.note(saved)
        return BuildReport(
            name=plan.name,
            tag=plan.tag,
            digest=artifact.digest,
            artifact=artifact,
            layout=artifact.layout,
            bytes=artifact.bytes,
            candidate=resolution.candidate.name,
            torch=plan.stack.torch,
            torch_cuda=lock.torch_cuda,
            cuda=lock.cuda,
            python=lock.python,
            packages=packages,
            smoke=None,
            seconds=self.journal.seconds(),
            outcomes=resolution.outcomes,
            missing=tuple(missing.told for missing in lock.missing),
            notes=(*lock.notes, *artifact.notes, *replacing, *([saved] if saved else [])),
            layers=layers,
            lock_sha256=lock.sha256,
            drift=lock.drifted,
            unfixed=lock.unfixed,
            fallback=fallbacks.fallback(self.contents.variant, resolution.candidate),
            build_key=self.images.engine.key(plan),
            short=planning.short_name(plan, resolution.candidate),
            own=_own_tests(lock, self.contents.additions),
            asked=msgspec.structs.replace(self.asked, candidate=resolution.candidate.name),
            shared=tuple(self.shared.parts) if self.shared else (),
        )


def check_output(folder: Path, aliases: list[Path]) -> None:
    """Check before gigabytes are on their way that image and tags can be written: no engine would help (UsageError)."""
    next_step = f"{command('image', ETC, output='FOLDER')}    (one that you can write to)"
    try:
        make_folder(folder)
        next_step = ""
        for path in aliases:
            check_link(path)
    except HostError as error:
        raise UsageError(error.what, cause=error.cause, next_step=next_step or error.next_step) from error


def _check(report: BuildReport, folder: Path, gpus: str, ctx: Context) -> "Vetted":
    """Add what contracts and audit find to the report, and write it."""
    from graphcrate.checks import new_image, reading  # read images: not for one that is there unchanged
    from graphcrate.resolve import libraries

    image = reading.read_image(report.artifact.location, ctx)
    vetted = new_image.vet(report, image, folder, ctx, gpus, libraries.advised)
    write_file(folder / "report.json", encode(vetted.report))
    return vetted


def _own_tests(lock: Lock, additions: Additions) -> OwnTests:
    return OwnTests(imports=lock.additions.asked, commands=additions.smoke, minutes=additions.smoke_minutes)
