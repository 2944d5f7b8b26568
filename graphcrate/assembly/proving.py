"""From an image to a proven one: what its audit refuses, its suites, and its page."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from graphcrate.assembly import summary
from graphcrate.assembly.making import MadeImage
from graphcrate.assembly.output import ImageFolders, Journal
from graphcrate.checks import broken
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import SuiteOptions
from graphcrate.engines import run_suites
from graphcrate.host import trace
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.host.sandbox.emulation import is_native
from graphcrate.model.lock import Lock, encode
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import Additions
from graphcrate.model.report import BuildReport
from graphcrate.model.trial import TrialOrder
from graphcrate.model.words import listed
from graphcrate.oci.layout import read_layout
from graphcrate.pages import timeline

if TYPE_CHECKING:
    from graphcrate.checks.audit.run import Seen


@dataclass(frozen=True, kw_only=True)
class Prover:
    """Tests and judges images. `suites`: those of the recipe."""

    suites: tuple[str, ...]
    options: SuiteOptions
    images: ImageFolders
    journal: Journal
    next_steps: NextSteps

    def prove(self, made: MadeImage, below: BuildReport | None, ctx: Context) -> BuildReport:
        """Test and judge an image. `below`: the tested image of the stack that it is on top of.

        Raises AuditError for one that cannot work and SmokeError for one that fails, after its report says so.
        """
        report, folder = made.report, self.images.folder(made.report)
        is_broken = report.audit is not None and report.audit.fail > 0
        if self.options.keep_going or not is_broken:  # what cannot work is not tested for minutes
            for line in broken.failures(report, folder):
                ctx.progress.warn(line)
            if self.options.run:
                report = self._test(made, below, ctx)
        if made.is_new and (events := trace.so_far()):
            write_file(folder / timeline.FILE, events)
        draw(report, folder, ctx, made.seen)
        if is_broken:
            broken.raise_if_broken(report, folder, self.next_steps.with_apt)
        return report

    def _test(self, made: MadeImage, below: BuildReport | None, ctx: Context) -> BuildReport:
        """Run the recipe's suites, but for those that the image has passed. Raises SmokeError, with a report."""
        report, folder = made.report, self.images.folder(made.report)
        if made.is_new and not report.suites:
            how = f"test it by {listed(self.suites)}" if is_native(made.plan.platform) else "try it by an emulator"
            ctx.progress.note(summary.step(4, how))
        order = TrialOrder(
            artifact=report.artifact,
            suites=self.suites,
            device=self.options.device,
            folder=str(folder),
            passes=str(self.images.passes(report)),
            packages=tuple(package.name for package in report.packages),
            layout=report.digest if report.layout else "",
            rerun=self.options.rerun,
            own=report.own,
            starts=report.starts or (),
            platform=made.plan.platform.name,
        )
        if below is not None and run_suites.has_passed(order, ctx):  # better than what the image below it shows
            below = None
        if below is not None and (why := _objection(below, report, made.plan)):
            ctx.progress.note(f"the stack's suites run in {report.name}:{report.tag} itself: {why}")
            below = None
        if below is not None:
            order = msgspec.structs.replace(order, suites=())
        tested = run_suites.prove(report, order, ctx, below=below)
        if tested is report:
            return report
        tested = msgspec.structs.replace(tested, seconds=self.journal.seconds())
        write_file(folder / "report.json", encode(tested))
        run_suites.raise_if_failed(
            f"{tested.name}:{tested.tag}",
            tested.suites,
            order.folder,
            again=lambda package: self.next_steps.with_packages([package]),
            with_apt=lambda package: self.next_steps.with_apt([package]),
        )
        return tested


def may_be_on_top(lock: Lock, additions: Additions) -> bool:
    """Return whether additions are layers above the stack's image that change nothing of it, as far as a request shows.

    If so the stack's image is built and tested first; `credit.objection` judges by the layers.
    """
    changed = additions.environment or additions.files or additions.directories
    return not (lock.additions.moved or additions.apt or changed)


@trace.span("draw its page")
def draw(report: BuildReport, folder: Path, ctx: Context, seen: "Seen | None" = None) -> None:
    """Write the page of an image beside its report, which is in `folder`, where that is newer.

    `seen`: the image as this run has checked it.
    """
    written, page = folder / "report.json", folder / "report.html"
    sources = [path.stat().st_mtime_ns for path in (written, folder / timeline.FILE) if path.is_file()]
    if not report.layout or (page.is_file() and page.stat().st_mtime_ns >= max(sources)):
        return
    from graphcrate.pages import report as pages

    silent = dataclasses.replace(ctx, quiet=True)  # what it reads was read for the checks
    write_file(page, pages.html(pages.read(report.layout, silent, seen=seen)).encode())


def _objection(below: BuildReport, report: BuildReport, plan: Plan) -> str:
    """Say why results of the stack's image do not hold for this one; empty where they do."""
    if report.starts:
        return report.starts[0].sentence
    added = plan.added if isinstance(plan.added, tuple) else ()
    for other in report.beside:
        if (other.package in added) != (other.other in added):
            return f"{other.path} of {other.package} is in the folder of {other.other}"
    if any(suite.image == below.artifact.digest for suite in report.suites):
        return ""  # judged when this very image was tested first
    from graphcrate.assembly import credit  # reads layers: not for an image that is there unchanged

    return credit.objection(read_layout(Path(below.layout)), read_layout(Path(report.layout)))
