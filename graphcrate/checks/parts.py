"""Check an image without running it, in parts: its bytes, what runtimes require, its programs and libraries."""

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from graphcrate.artifacts.locate import Located, check_platform, locate
from graphcrate.artifacts.tree.opening import Fetch
from graphcrate.checks import wording
from graphcrate.checks.audit import run as auditing
from graphcrate.checks.contracts import run as contracts
from graphcrate.checks.contracts.fabric import fabric
from graphcrate.checks.reading import read_image, read_view
from graphcrate.compat.facts import gpu_table
from graphcrate.host.context import Context
from graphcrate.host.sandbox.emulation import this_machine
from graphcrate.model.answer import Answer
from graphcrate.model.audit import Audit
from graphcrate.model.contract import Host, ImageView, Inspection
from graphcrate.model.errors import AuditError, ContractError, GraphcrateError, LayoutError, UsageError
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.runtime import RuntimeName
from graphcrate.model.words import size
from graphcrate.oci.validate import validate

Part = Literal["bytes", "runtimes", "binaries"]
PARTS: tuple[Part, ...] = get_args(Part)
_OF_SCANNERS = "vulnerabilities"  #: a part until scanners took its place: docs/decisions/vulnerabilities.md


class Bytes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every blob of a layout read and compared with its digest. `not_checked`: why there is nothing to compare with.

    `faults`: all that breaks a rule of OCI images; `warnings`: what breaks none.
    """

    digest: str = ""
    layers: int = 0
    size: int = 0  #: of the layers as they are stored
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    not_checked: str = ""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """`check --json`. None: a part that was not asked for."""

    image: str
    bytes: Bytes | None = None
    runtimes: Inspection | None = None
    binaries: Audit | None = None


class CheckScope(NamedTuple):
    """The part of an image that is checked. `contracts`: ids of those that count of its part `runtimes`; empty: all."""

    parts: tuple[Part, ...] = PARTS
    contracts: frozenset[str] = frozenset()


EVERYTHING = CheckScope()


def scope_of(names: Sequence[str]) -> CheckScope:
    """Find the parts and the contracts that the user named; all where none was named. Raises UsageError."""
    if _OF_SCANNERS in names:
        raise UsageError(
            "a check asks nobody about known vulnerabilities",
            cause="Scanners know more of them, and read the image as it is.",
            next_step="grype oci-dir:dist/NAME/TAG/oci, or trivy as docs/vulnerabilities.md shows",
        )
    contracts_named = {check.id for check in contracts.CHECKS}.intersection(names)
    if strange := next((name for name in names if name not in PARTS and name not in contracts_named), None):
        near = difflib.get_close_matches(strange, (*PARTS, *(check.id for check in contracts.CHECKS)), n=1)
        hint = f"; the nearest is {near[0]}" if near else ""
        raise UsageError(
            f"there is no part and no contract {strange!r} of a check{hint}",
            next_step=f"choose from: {', '.join(PARTS)}, or a contract of docs/contracts.md",
        )
    if contracts_named and "runtimes" not in names:
        parts = tuple(part for part in PARTS if part in names or part == "runtimes")
        return CheckScope(parts, frozenset(contracts_named))
    return CheckScope(tuple(part for part in PARTS if part in names) or PARTS)


def check(
    ref: str,
    host: Host,
    ctx: Context,
    *,
    scope: CheckScope = EVERYTHING,
    runtimes: Sequence[RuntimeName] = (),
    output: Path = Path("dist"),
    fetch: Fetch = "small",
    asked: Platform | None = None,
) -> Checked:
    """Run the selected checks on an image of any form.

    Of one for several platforms that for the one `asked` for, else for machines with the host's GPUs, else for this
    machine. Raises UsageError for what does not exist, LayoutError for what is no image, NetworkError.
    """
    platform = asked or (gpu_table.machine_platform(host.gpus) or DEFAULT if host.gpus else this_machine())
    stored = _bytes(locate(ref, output), ctx, platform) if "bytes" in scope.parts else None
    view = audit = None
    if "binaries" in scope.parts:
        image = read_image(ref, ctx, output, fetch, platform)
        view, audit = image.view, auditing.judge(image.contents, host.gpus)
    elif "runtimes" in scope.parts:
        network = not scope.contracts or fabric.id in scope.contracts
        view = read_view(ref, ctx, output, fetch, platform, network=network)
    if view:
        check_platform(ref, view.settings.platform if view.settings else "", asked)
    inspected = None
    if view and "runtimes" in scope.parts:
        inspected = _inspected(view, host, runtimes, scope.contracts)
    return Checked(image=ref, bytes=stored, runtimes=inspected, binaries=audit)


def _inspected(view: ImageView, host: Host, runtimes: Sequence[RuntimeName], only: Collection[str]) -> Inspection:
    asked = tuple(runtimes) or contracts.targets(view)
    findings = contracts.judge(view, host, asked, only)
    return Inspection(image=view.name, form=view.form, runtimes=asked, host=host, findings=findings, unread=view.unread)


def failure(checked: Checked) -> GraphcrateError | None:
    """The error that a check ends with: bytes before contracts before binaries; None where nothing fails."""
    if checked.bytes and (faults := checked.bytes.faults):
        what = faults[0] if len(faults) == 1 else f"{len(faults)} faults in the bytes of {checked.image}"
        return LayoutError(what, cause="The image was changed after it was written, or its tool is faulty.")
    audited = checked.binaries.findings if checked.binaries else ()
    broken = [finding for finding in audited if finding.severity == "fail"]
    if checked.runtimes:
        findings = checked.runtimes.findings
        if failures := sum(finding.status == "fail" for finding in findings):
            also = f"Findings of its programs and libraries that fail: {len(broken)}." if broken else ""
            return ContractError(f"{checked.image} breaks {failures} of {len(findings)} contracts", cause=also)
    if broken:
        return AuditError(f"{checked.image} will not work: {len(broken)} of its findings fail")
    return None


def answer(checked: Checked, *, everything: bool) -> Answer:
    """Word all parts: what fails and warns, or everything, then a line of summary for each part."""
    answers: dict[Part, Answer] = {}
    if stored := checked.bytes:
        answers["bytes"] = wording.stored(stored.faults, stored.warnings, _bytes_line(stored))
    if judged := checked.runtimes:
        answers["runtimes"] = wording.contracts(judged.findings, judged.unread, everything=everything)
    if checked.binaries:
        answers["binaries"] = wording.audit(checked.binaries, everything=everything)
    sections = tuple(section for part_answer in answers.values() for section in part_answer.sections)
    summary = tuple(f"{part:8}  {line}" for part, part_answer in answers.items() for line in part_answer.summary)
    return Answer(sections, summary=summary)


def _bytes(image: Located, ctx: Context, platform: Platform) -> Bytes:
    if not image.has_layout:
        return Bytes(not_checked=f"not checked: a {image.form} has no digests to compare with")
    layout = image.layout_for(platform)
    total = sum(layer.size for layer in layout.layers)
    with ctx.progress.task(f"checking {image.name}", total) as task:
        validated = validate(layout, task.advance)
    return Bytes(
        digest=layout.digest,
        layers=len(layout.layers),
        size=total,
        faults=validated.faults,
        warnings=validated.warnings,
    )


def _bytes_line(stored: Bytes) -> str:
    if stored.not_checked:
        return stored.not_checked
    verdict = f"{len(stored.faults)} faults" if stored.faults else "every digest is right"
    return f"{stored.layers} layers, {size(stored.size)}: {verdict}, {stored.digest}"
