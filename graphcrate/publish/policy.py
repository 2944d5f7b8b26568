"""Publishing policy: what the user asks to publish, and which images may go out.

By digest, never by name: only what was audited, keeps its contracts and passed its suites.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from graphcrate.artifacts.locate import find_image
from graphcrate.checks import broken
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.variants import catalog
from graphcrate.host.context import Context
from graphcrate.host.disk import documents
from graphcrate.host.sandbox import emulation, gpu
from graphcrate.model.audit import Audit
from graphcrate.model.command import IMAGE_AGAIN, Command, command, for_shell, setting
from graphcrate.model.errors import GateError, RecipeError, UsageError
from graphcrate.model.lock import Lock
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.recipe import Variant
from graphcrate.model.report import BuildReport, Pass, SmokeReport
from graphcrate.model.suite import SUITES
from graphcrate.oci import push
from graphcrate.oci.layout import Layout
from graphcrate.smoke import emulated, memory
from graphcrate.smoke.own import programs
from graphcrate.smoke.suites import APART, START
from sifsquash.values import Compression

_CPU = "cpu"
_REBUILD = f"{IMAGE_AGAIN}    builds it again; what is unchanged comes from the cache"
FileForm = Literal["sif", "sqsh", "delta", "oci-archive", "bundle"]
FILE_FORMS: tuple[FileForm, ...] = ("sif", "sqsh", "delta", "oci-archive", "bundle")
_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class PublishRequest:
    """A user's request. `ref`: a built image; `form`: None: what every runtime among the image's can pull."""

    ref: str
    output: Path = Path("dist")
    form: push.ManifestForm | None = None
    tags: tuple[str, ...] = ()  #: further ones
    short_tag: bool = False  #: that of its variant and candidate (`catalog.short_tag`) is one of them
    mount_from: tuple[str, ...] = ()
    key: Path | None = None  #: that signs
    allow_cpu_only: bool = False
    allow_emulated: bool = (
        False  #: an emulator's proof is enough, which is recorded; with it no pass on a GPU is needed
    )
    forms: tuple[FileForm, ...] = ()  #: for a folder; none: sif
    over: str | None = None  #: of a delta: the image that it goes over
    kernel: str | None = None  #: of the machines that run those
    compression: Compression | None = None  #: of those; None: as `artifacts.conversion` chooses
    replace: bool = False  #: another file of the same name in the folder, or all that a tag holds, gives way


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why an image is not published, and what to do about it."""

    what: str
    fix: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence for the gate: the newest passes in this very image; `cpu_only`: none on a GPU, as a user allowed.

    `emulated`: none of its suites at all, but an emulator has imported and trained, as a user allowed.
    """

    suites: tuple[SmokeReport, ...]
    refusals: tuple[Refusal, ...]
    cpu_only: bool = False
    emulated: bool = False


@dataclass(frozen=True, kw_only=True)
class ImageEvidence:
    """An image with all that is known of it."""

    layout: Layout
    report: BuildReport
    lock: Lock
    audit: Audit
    evidence: Evidence
    variant: Variant


def examine(request: PublishRequest, ctx: Context) -> ImageEvidence:
    """Load the image if it may go out. Raises UsageError for none, GateError with every reason against it."""
    layout, report = find_image(request.ref, request.output)
    folder = layout.path.parent
    if not report.build_key:
        raise UsageError(
            f"{request.ref} was not built here: what is in it and whether it runs is not known",
            next_step=f"{command('list')}    has the stacks that are built, tested and published here",
        )
    audit = _read(folder / broken.AUDIT, Audit)
    lock = _lock(folder / "lock.json")
    stack = report.asked.recipe if report.asked else report.name
    recipe, variant = catalog.find_variant(ctx, stack, report.cuda)
    read = (_read(path, Pass) for path in sorted((folder / memory.FOLDER).glob("*.json")))
    passes = tuple(pass_ for pass_ in read if pass_ is not None)
    evidence = judge(
        report,
        audit,
        passes,
        variant.smoke or recipe.smoke,
        allow_cpu_only=request.allow_cpu_only,
        allow_emulated=request.allow_emulated,
    )
    if evidence.refusals or audit is None:
        reasons = evidence.refusals
        raise GateError(
            f"{report.name}:{report.tag} is not published: {reasons[0].what}"
            + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""),
            cause="; ".join(reason.what for reason in reasons[1:]),
            next_step=reasons[0].fix,
        )
    if evidence.emulated:
        ctx.progress.note(
            "warning: an emulator alone has tried it, on no machine of its kind and no GPU: published all the same, as "
            "--allow-emulated says, which is recorded beside it"
        )
    elif evidence.cpu_only:
        ctx.progress.note("no suite of it has passed on a GPU: published all the same, as --allow-cpu-only says")
    for start in report.starts or ():
        ctx.progress.note(f"{start.sentence}, which its label and the statement about its suites say")
    image = ImageEvidence(layout=layout, report=report, lock=lock, audit=audit, evidence=evidence, variant=variant)
    refuse_tags(image, request.tags)
    return image


def short_tag(candidate: ImageEvidence) -> str:
    """`cu118`; of a fall-back `cu118-compat`."""
    return next(
        (
            catalog.short_tag(candidate.variant, possible)
            for possible in candidate.variant.candidates
            if possible.name == candidate.report.candidate
        ),
        cuda_label(candidate.report.cuda),
    )


def refuse_tags(candidate: ImageEvidence, tags: Iterable[str]) -> None:
    """Refuse the short tag of another candidate of the same variant: who pulls it would get this one.

    Raises UsageError.
    """
    own, report = short_tag(candidate), candidate.report
    for other in candidate.variant.candidates:
        tag = catalog.short_tag(candidate.variant, other)
        if tag in tags and tag != own:
            raise UsageError(
                f"{tag} is the short tag of {report.name} as candidate {other.name!r} of its recipe makes it, and "
                f"{report.name}:{report.tag} is of {report.candidate!r}",
                cause="People pull the short tag without knowing which of the two they get; it would be whichever "
                "was published last.",
                next_step=f"--tag {for_shell(own)}    (--short-tag sets it)",
            )


def _on_slurm(name: str) -> Command:
    return command("test", name, runner="slurm", partition="…", gres="gpu:1")


def refuse_early(request: PublishRequest, name: str, cuda: str | None, platform: Platform = DEFAULT) -> None:
    """Refuse before a build what could not go out after it. Raises GateError.

    `name`: of the recipe. The build's own run decides on a machine with a GPU; elsewhere a pass of an earlier job on a
    node must be remembered beside an image of this recipe.
    """
    is_native = emulation.is_native(platform)
    if request.allow_emulated or (is_native and (request.allow_cpu_only or cuda == _CPU or gpu.is_here())):
        return
    remembered = (_read(path, Pass) for path in (request.output / name).glob(f"*/{memory.FOLDER}/*.json"))
    if any(pass_ and memory.is_consistent(pass_) and _is_gpu(pass_.report) for pass_ in remembered):
        return
    if not is_native:
        raise GateError(
            f"this machine runs no suite of an image for {platform.title}, and none is published without them",
            cause="An emulator imports and trains five steps here, which tests neither such a machine nor a GPU.",
            next_step=f"{command('publish', '…', allow_emulated=True)}, which is recorded beside the image; "
            f"or build it, then {_on_slurm('NAME:TAG')}",
        )
    raise GateError(
        f"no suite of {name} has passed on a GPU, and this machine has none",
        cause="Images are published after a test on a GPU, or where one says otherwise, which is recorded beside them.",
        next_step=f"{command('publish', '…', allow_cpu_only=True)}; or build it, then {_on_slurm('NAME:TAG')}",
    )


def _lock(path: Path) -> Lock:
    """Raises UsageError for none, RecipeError for one that is damaged or that an older graphcrate wrote."""
    lock = documents.read_lock(path, _REBUILD)
    if lock is None:
        raise UsageError(f"{path} is missing: it says what the image was built from", next_step=_REBUILD)
    return lock


def _read(path: Path, kind: type[_Value]) -> _Value | None:
    """A value beside an image; None where it is not there, damaged or of another version."""
    with contextlib.suppress(RecipeError):
        return documents.read(path, kind, "a result beside an image", _REBUILD)
    return None


def judge(
    report: BuildReport,
    audit: Audit | None,
    passes: Iterable[Pass],
    suites: Sequence[str],
    *,
    allow_cpu_only: bool = False,
    allow_emulated: bool = False,
) -> Evidence:
    """Judge an image by its reports. `suites`: those that its recipe has; `passes`: of any image.

    Tests of one's own, which the report names, have to pass as the suites do.

    A target with a GPU requires a pass on a GPU, of any of the suites: docs/publish.md says why one is enough. What an
    emulator has proved stands for the suites where the user says so, and counts as no suite.
    """
    # Tests of one's own have names by their number: a pass is of this one by what it runs.
    own = {program.name: program.version for program in programs(report.own)}
    known = (
        pass_
        for pass_ in passes
        if pass_.claim.version == own.get(pass_.claim.suite, pass_.claim.version)
        and memory.is_consistent(pass_)
        and (not report.starts or pass_.claim.suite not in suites or pass_.claim.version.endswith(APART))
    )
    name, passed = f"{report.name}:{report.tag}", tuple(_passed(report, known))
    names = {result.suite for result in passed}
    by_emulator = emulated.NAME in names and not names.intersection(suites)
    start = (START,) if report.starts and suites and not by_emulator else ()
    refusals = [*_refusals(report, audit, names, (*(() if by_emulator else suites), *start, *own))]
    without = report.torch_cuda != _CPU and not any(_is_gpu(result) for result in passed)
    if by_emulator and not allow_emulated:
        refusals.append(
            Refusal(
                what=f"an emulator alone has tried {name}: its suites ran on no machine of its kind and on no GPU",
                fix=f"{_on_slurm(name)}; or say {setting(allow_emulated=True).both()}, which is recorded beside the "
                "image",
            )
        )
    elif without and not (allow_cpu_only or by_emulator):
        refusals.append(
            Refusal(
                what=f"no suite of {name} has passed on a GPU, which it is built for",
                fix=f"{_on_slurm(name)}, or on a GPU node; or say "
                f"{setting(allow_cpu_only=True).both()}, which is recorded beside the image",
            )
        )
    may_be_without = allow_emulated if by_emulator else allow_cpu_only
    return Evidence(
        suites=passed,
        refusals=tuple(refusals),
        cpu_only=without and may_be_without,
        emulated=by_emulator and allow_emulated,
    )


def _passed(report: BuildReport, passes: Iterable[Pass]) -> Iterator[SmokeReport]:
    """Passes of this image: of the build, and those that are remembered, without those that say the same.

    What ran in the image below it, whose results a build may show, is not one of them.
    """
    remembered = [msgspec.structs.replace(pass_.report, image=pass_.claim.image) for pass_ in passes]
    seen = set[tuple[str, ...]]()
    for result in (*remembered, *report.suites, *([report.smoke] if report.smoke else ())):
        if result.status != "passed" or not _ran_in(report, result):
            continue
        key = (result.suite, result.device, result.driver, result.runtime, result.runtime_version, result.image)
        if key not in seen:
            seen.add(key)
            yield result


def _refusals(
    report: BuildReport, audit: Audit | None, passed: Collection[str], suites: Sequence[str]
) -> Iterator[Refusal]:
    """Yield an audit's, contracts' and suites' objections to an image. `passed`: names of suites."""
    name = f"{report.name}:{report.tag}"
    if audit is None or audit.digest != report.digest:
        what = f"there is no audit of this very image ({report.digest})"
        yield Refusal(what=what, fix=f"{IMAGE_AGAIN} again: every build audits")
        audit = None
    for finding in audit.findings if audit else ():
        if finding.severity == "fail":
            place = " ".join(filter(None, (finding.package, finding.file)))
            fix = finding.fix or str(command("check", name, only="binaries"))
            yield Refusal(what=f"audit: {place}: {finding.what}", fix=fix)
    if not report.contracts:
        yield Refusal(what="no contract was checked", fix=f"{IMAGE_AGAIN} again: every build checks them")
    for contract in report.contracts:
        if contract.status == "fail":
            what = f"contract {contract.check} ({', '.join(contract.runtimes)}): {contract.seen}"
            yield Refusal(what=what, fix=contract.fix)
    failed = {
        suite.suite: suite.reason for suite in report.suites if suite.status == "failed" and _ran_in(report, suite)
    }
    for suite in suites:
        if suite not in passed:
            why = f"failed: {failed[suite]}" if suite in failed else "has not passed in this very image"
            what, which = (f"the suite {suite}", suite) if suite in SUITES else (f"its test {suite}", "")
            yield Refusal(what=f"{what} {why}", fix=str(command("test", name, suite=which)))


def _ran_in(report: BuildReport, result: SmokeReport) -> bool:
    """Return whether a suite ran in the image of this report, or in what was made from it, such as a SIF on a node."""
    if report.layout and result.layout == report.digest:
        return bool(result.image)
    return result.image == report.artifact.digest


def _is_gpu(report: SmokeReport) -> bool:
    """Tell whether a result is of a GPU: the runner named one, and saw a driver, which no program of an image says."""
    return bool(report.device and report.driver) and report.device != "none" and not report.device.startswith(_CPU)
