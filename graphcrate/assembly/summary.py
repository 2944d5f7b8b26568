"""A build's messages: its plan, its progress as a whole, and last tests with figures, image and commands.

What a plan has said is not said again at the end.
"""

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from graphcrate.compat.facts import (
    allowances,
    build_environment,
    compilers,
    driver_table,
    gpu_table,
    libraries,
    packages,
    slim,
    suites,
)
from graphcrate.compat.facts.gpu_table import models_named
from graphcrate.compat.plan import base_lines
from graphcrate.compat.variants.explain import explain, on_newer_base
from graphcrate.compat.variants.fallbacks import fallback_limits
from graphcrate.compat.variants.targets import MachineRequest, Target
from graphcrate.model.command import Command, command, setting
from graphcrate.model.lock import Compilation, DebianBase, Lock, LockedPackage
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import Recipe
from graphcrate.model.report import BuildReport, CandidateOutcome, Fallback, SharedPart, SmokeReport
from graphcrate.model.words import duration, listed, number_of, printable, size
from graphcrate.smoke.own import SAID

#: four names and more, one after the other
_MANY = re.compile(r"([\w.-]+), ([\w.-]+)((?:, [\w.-]+){2,})(?=[;:)]|$)")


def step(number: int, what: str) -> str:
    """Word the beginning of a step of a build."""
    return f"step {number} of 4: {what}"


class Upkeep(NamedTuple):
    """The end of the base's security updates, as a clause, and an alternative where it gets none."""

    support: str = ""
    instead: str = ""


def upkeep_of(
    lock: Lock, recipe: Recipe, machine: Target, again: Callable[[str], Command], today: datetime.date
) -> Upkeep:
    """Of a lock's base; where it gets none, the nearest variant that runs on this machine on a base that does.

    `again`: the command for another CUDA version.
    """
    variant = recipe.variant(lock.cuda)
    # A lock names an image of a registry by its digest; the tag that may say which Debian it is stands in the recipe.
    suite = lock.base.suite if isinstance(lock.base, DebianBase) else suites.of_base(variant.base) if variant else ""
    support, its_standing = suites.described(suite, today), suites.standing(suite, today)
    if its_standing is None or its_standing.state != "ended":
        return Upkeep(support)
    newer = on_newer_base(lock.cuda, explain(recipe, machine, MachineRequest()).rows, today)
    if newer is None:
        none = f"no variant of {recipe.name} on one runs there"
        return Upkeep(support, f"a new recipe with a newer base.suite (docs/recipes.md): {none}")
    on = f"torch {newer.torch} on {suites.titled(newer.base)}: {suites.described(newer.base, today)}"
    return Upkeep(support, f"{again(newer.cuda)}    ({on})")


class Aside(NamedTuple):
    """A plan's facts that are not in its lock."""

    insist: str = ""  #: of a fall-back: what `insistence` says
    disk: str = ""  #: what the build needs of it
    compiling: Sequence[str] = ()  #: how long, and which GPUs get no code
    notes: Sequence[str] = ()  #: on what was asked for
    usual: Sequence[str] = ()  #: notes that are the same for each build of a stack
    verbose: bool = True  #: with what is the same for each build
    origins: Sequence[str] = ()  #: which packages are of a place that a requirements file names


def plan_lines(
    title: str,
    lock: Lock,
    outcomes: Sequence[CandidateOutcome],
    meaning: str,
    to_fetch: int,
    plan: Plan | None = None,
    upkeep: Upkeep | None = None,
    aside: Aside | None = None,
) -> list[str]:
    """The plan for people: what was chosen and why, what will be in the image, from where, how many bytes."""
    aside = aside or Aside()
    whole = size(sum(file.size for file in lock.files().values()))
    lines = [f"plan for {title}", *_moved_lines(lock), f"  to fetch  {size(to_fetch)} of {whole}"]
    lines += [f"  disk      {aside.disk}"] if aside.disk else []
    torch = lock.package("torch")
    limits = fallback_limits(torch.version if torch else "", lock.torch_cuda, lock.cuda)
    lines += _source_lines(outcomes, meaning, limits, aside.insist)
    lines += _base_lines(lock, upkeep or Upkeep())
    if not limits and torch and (needed := driver_table.drivers_of(torch.version, lock.torch_cuda)):
        lines.append(f"  driver    {needed}")
    lines += _channel_lines(lock)
    lines += [f"  from      {origin}" for origin in aside.origins]
    if lock.as_of and aside.verbose:
        newest = "; yours are the newest" if lock.additions.packages else ""
        lines.append(f"  as of     {lock.as_of}: what the recipe neither pins nor exempts{newest}")
    lines += _compiling_lines(lock, aside)
    lines += _added_lines(lock)
    lines += [f"  missing   {missing.told}" for missing in lock.missing]
    lines += _note_lines(lock, aside)
    if lock.drifted:
        lines.append(f"  drift     {base_lines.drift_line(lock.drifted)}")
    if lock.unfixed:
        lines.append(f"  fixes     {base_lines.unfixed_line(lock.unfixed)}")
    lines += [*slim.plan_lines(plan), *allowances.plan_lines(plan)] if plan else []
    left_out = len(_usual_notes(lock, aside)) + bool(lock.as_of)
    if left_out and not aside.verbose:
        lines.append(f"  more      {setting(verbose=True).both()}: {number_of(left_out, 'line')} that each build has")
    return lines


def _source_lines(
    outcomes: Sequence[CandidateOutcome], meaning: str, limits: Sequence[str], insist: str
) -> Iterator[str]:
    """Yield what became of each candidate, and the limits of a chosen fall-back."""
    for outcome in outcomes:
        if not outcome.chosen:
            fix = f" ({outcome.fix})" if outcome.fix else ""
            yield f"  source {outcome.candidate}: skipped: {outcome.constraint}{fix}"
            continue
        yield f"  source {outcome.candidate}: chosen" + (f": {meaning}" if meaning else "")
        if limits:
            yield f"    it {'; it '.join(limits)}"
        if insist:
            yield f"    {insist}"


def _compiling_lines(lock: Lock, aside: Aside) -> list[str]:
    """Say what is compiled and how long that takes; in one line where a plan is short."""
    compiled = _compiled_lines(lock)
    if compiled and aside.compiling and not aside.verbose:
        return ["; ".join([compiled[0], *aside.compiling]), *compiled[1:]]
    return [*compiled, *(f"    {line}" for line in aside.compiling)]


def _added_lines(lock: Lock) -> list[str]:
    """Say which packages are the user's own."""
    added = [package for package in lock.packages if package.name in lock.additions.packages]
    if not lock.additions.packages:
        return []
    names = ", ".join(f"{package.name} {package.version}" for package in added)
    total = sum(package.file.size for package in added)
    return [f"  added     {number_of(len(added), 'package')}, {size(total)}: {names}"]


def _note_lines(lock: Lock, aside: Aside) -> list[str]:
    """Say the notes of a lock and of what was asked for, and of each build of the stack where a plan is long."""
    own = lock.notes if lock.additions.packages else ()
    usual = _usual_notes(lock, aside) if aside.verbose else []
    return [f"  note      {_shortened(note)}" for note in (*own, *aside.notes, *usual)]


def _usual_notes(lock: Lock, aside: Aside) -> list[str]:
    """Return the notes that are the same for each build of a stack."""
    return [*(() if lock.additions.packages else lock.notes), *aside.usual]


def _moved_lines(lock: Lock) -> list[str]:
    """Say what this PyG cannot do without an extension that older releases did without."""
    pyg = lock.package("torch-geometric")
    if pyg is None:
        return []
    lost, extension = packages.moved(pyg.version, {package.name for package in lock.packages})
    return [f"  without   {lost}: PyG {pyg.version} has them by {extension} alone, which is missing"] if lost else []


def _shortened(note: str) -> str:
    """A note whose list of many names is cut to two: the report has all."""
    return _MANY.sub(lambda match: f"{match[1]}, {match[2]} and {match[3].count(',')} more", note)


def _channel_lines(lock: Lock) -> Iterator[str]:
    """Yield a line on each channel: how many packages of it, of which size, and the largest."""
    for channel in dict.fromkeys(package.channel for package in lock.packages if not package.index):
        members = [package for package in lock.packages if package.channel is channel and not package.index]
        total = sum(package.file.size for package in members)
        largest = sorted(members, key=lambda package: -package.file.size)[:4]
        names = ", ".join(f"{package.name} {package.version}" for package in largest)
        more = f" and {len(members) - len(largest)} more" if len(members) > len(largest) else ""
        yield f"  {channel.value:9} {number_of(len(members), 'package')}, {size(total)}: {names}{more}"


def _base_lines(lock: Lock, upkeep: Upkeep) -> list[str]:
    """Describe the base of the image, and until when it gets security updates."""
    if isinstance(lock.base, DebianBase):
        total = sum(package.file.size for package in lock.base.packages)
        line = f"  base      {suites.titled(lock.base.suite)}, {len(lock.base.packages)} packages, {size(total)}"
    else:
        line = f"  base      {lock.base.reference}@{lock.base.digest}"
    instead = [f"    instead: {upkeep.instead}"] if upkeep.instead else []
    return [line + (f"; {upkeep.support}" if upkeep.support else ""), *instead]


def _compiled_lines(lock: Lock) -> list[str]:
    """Describe packages that come as source and are compiled, with which tools and for which GPUs."""
    compilation = lock.compilation
    if compilation is None or not any(package.compiled for package in lock.packages):
        return []
    compiled = [_titled(package, compilation) for package in lock.packages if package.compiled]
    programs = [compilation.compiler]
    programs += [f"nvcc {compilation.toolkit.version}"] if compilation.toolkit else []
    if any(package.rust for package in lock.packages):
        programs.append(f"rustc {compilers.rust_of(compilation.base)}")
    gpus = f" for {', '.join(compilation.architectures)}" if compilation.architectures else " for the CPU"
    besides = f" and {', '.join(compilation.besides)}" if compilation.besides else ""
    lines = [f"  compile   {', '.join(compiled)}{gpus}, with {listed(programs)}{besides}"]
    if compilation.environment:
        lines += [f"    by {build_environment.written(compilation.environment)}, in the lock"]
    return lines


def _titled(package: LockedPackage, compilation: Compilation) -> str:
    """A compiled package with what is linked into it, crates of Rust too."""
    title = libraries.titled(package, compilation)
    if not package.vendored:
        return title
    return f"{title} (with {len(package.vendored)} crates, {size(sum(crate.file.size for crate in package.vendored))})"


def lines(report: BuildReport, seconds: float) -> Iterator[str]:
    """Yield the three lines of a build, and one each for results of the image below, a package that does without a
    library that is there, and a base that is not the lock's or lacks fixes.

    `seconds`: what this command took.
    """
    below = [suite for suite in report.suites if report.is_from_below(suite)]
    if inside := [suite for suite in report.suites if suite not in below]:
        yield f"tested  {_tested(inside)}"
    if below:
        stack = f"the stack's image {below[0].image.removeprefix('sha256:')[:12]}, whose layers it has unchanged"
        yield f"below   {_tested(below)} in {stack}; before publishing: {command('test', report.image)}"
    yield f"image   {report.image}, {size(report.bytes)}, after {seconds:.0f} s"
    yield from starting(report)
    yield from _said(inside)
    yield from _base_warnings(report)
    if report.layout:
        untried = report.suites and report.cuda != "cpu" and not any(suite.driver for suite in report.suites)
        on_gpu = f"; {command('test', report.image)} on a node with a GPU" if untried else ""
        run, convert = command("run", report.image, "--", "python", "…"), command("convert", report.image, to="sif")
        yield f"next    {run}; {convert}{on_gpu}"
    yield from _shared(report.shared)


def _shared(parts: Sequence[SharedPart]) -> Iterator[str]:
    """Yield a line for each shared cache that something came from: what, and who made it."""
    for place in dict.fromkeys(part.place for part in parts):
        taken = [part for part in parts if part.place == place]
        titles, total = listed([part.title for part in taken]), size(sum(part.bytes for part in taken))
        makers = listed(list(dict.fromkeys(part.maker for part in taken)))
        took = sum(part.seconds for part in taken)
        saved = f"; making that took {duration(took)}" if took else ""
        yield f"from    the shared cache {place}: {titles}, {total}{saved}; made by {makers}"


def warnings(report: BuildReport) -> Iterator[str]:
    """Yield what a user has to know who was told nothing else: that the image is not quite what was asked for."""
    yield from _base_warnings(report)
    if known := report.fallback:
        yield f"{report.name}:{report.tag} is a fall-back: {known.meaning}; it {'; it '.join(known.limits)}"
    yield from starting(report)
    yield from _said(report.suites)


def _base_warnings(report: BuildReport) -> Iterator[str]:
    """Warn where the base differs from its lock, or lacks a part of its suite."""
    if report.drift:
        yield f"drift   {base_lines.drift_line(report.drift)}; {setting(locked=True)} refuses that"
    if report.unfixed:
        yield f"fixes   {base_lines.unfixed_line(report.unfixed)}"


def starting(report: BuildReport) -> Iterator[str]:
    """Say what runs by itself in an image: its suites ran without it, and again with it."""
    return (f"starts  {printable(start.sentence)}: the suites ran without it" for start in report.starts or ())


def _said(results: Iterable[SmokeReport]) -> Iterator[str]:
    """Yield what packages said at their import about what they do without."""
    return (f"warning {line}" for result in results for line in result.metrics.get(SAID, ()))


def _tested(results: Sequence[SmokeReport]) -> str:
    passed = [_with_figures(result) for result in results if result.status == "passed"]
    devices = dict.fromkeys(result.device for result in results)
    others = [f"{result.suite} {result.status}" for result in results if result.status != "passed"]
    return "; ".join([f"{listed(passed)} passed on {listed(devices)}" if passed else "", *others]).strip("; ")


def _with_figures(suite: SmokeReport) -> str:
    accuracy, epochs = suite.metrics.get("test_accuracy"), suite.metrics.get("epochs")
    figures = [f"accuracy {accuracy:.2f}"] if isinstance(accuracy, float) else []
    figures += [f"{epochs} epochs"] if isinstance(epochs, int) else []
    return f"{suite.suite} ({', '.join(figures)})" if figures else suite.suite


def insistence(known: Fallback | None, command: Command, gpus: Sequence[str]) -> str:
    """Say how to get the torch that a fall-back stands in for; empty where the recipe has none. `command` does it.

    `gpus`: that the image is for, if any; empty too where that torch has code for none of them that this one lacks.
    """
    if known is None or not known.torch:
        return ""
    gained = {gpu_table.compute_capability(model) for model in known.gains}
    if gpus and gained.isdisjoint(map(gpu_table.compute_capability, gpus)):
        return ""
    more = f", which has code for {models_named(known.gains)}" if known.gains else ""
    return f"insist on torch {known.torch}{more}: {command}"


def fallback_lines(report: BuildReport, insist: Command) -> Iterator[str]:
    """Yield the lines of `publish` on a fall-back; none for another image. `insist`: the command that takes none."""
    known = report.fallback
    if known is None:
        return
    yield f"{report.name}:{report.tag} is a fall-back: {known.meaning}"
    yield from (f"  it {limit}" for limit in known.limits)
    if not known.torch:
        return
    out = next((outcome for outcome in report.outcomes if outcome.candidate == known.preferred), None)
    if out is not None:
        yield f"  torch {known.torch} was skipped: {out.constraint}" + (f" ({out.fix})" if out.fix else "")
    if insisted := insistence(known, insist, report.asked.gpus if report.asked else ()):
        yield f"  {insisted}"
