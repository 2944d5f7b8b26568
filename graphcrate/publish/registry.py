"""Publish an image that may go out: to a registry (blobs, attestations, the tag last), as a SIF, or into a folder."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from graphcrate.artifacts import convert
from graphcrate.compat import slim
from graphcrate.compat.planning import EXAMPLES
from graphcrate.engines.render import jobs
from graphcrate.host import settings
from graphcrate.host.atomic import check_writable
from graphcrate.host.attach import ask_password
from graphcrate.host.context import Context
from graphcrate.model.errors import UsageError
from graphcrate.model.report import BuildReport
from graphcrate.model.words import is_loopback
from graphcrate.oci import access, credentials, push, referrers, spec
from graphcrate.oci.reference import TAG_RULE, is_tag
from graphcrate.publish import attestations
from graphcrate.publish.attest import keys
from graphcrate.publish.destinations import folder, oras
from graphcrate.publish.destinations.parse import Destination, Registry, parse_destination, reference_for, vpc_reference
from graphcrate.publish.policy import (
    FILE_FORMS,
    FileForm,
    ImageEvidence,
    PublishRequest,
    examine,
    refuse_tags,
    short_tag,
)

#: annotation of what went out without a pass on a GPU; the statement about its suites has a field for it
CPU_ONLY = "graphcrate.cpu-only"
#: the kinds are those of destinations (`parse`)
_OPTIONS: convert.Options = {
    "--form": ("form", ("registry",)),
    "--mount-from": ("mount_from", ("registry",)),
    "--key": ("key", ("registry", "oras")),
    "--tag": ("tags", ("registry", "oras")),
    "--short-tag": ("short_tag", ("registry", "oras")),
    "--as": ("forms", ("folder",)),
    "--kernel": ("kernel", ("folder", "oras")),
    "--compression": ("compression", ("folder", "oras")),
    "--replace": ("replace", ("folder",)),
}
#: in the cache: this person has read the line about NVIDIA's terms; another number when they or docs/terms.md change
_TERMS_SAID = ("said", "terms-1")
_WORDS = {"registry": "a registry", "oras": "oras://", "folder": "a folder"}


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """`publish --json`. `digest`: of the manifest that the reference names. `lines`: runtime → what its users type."""

    name: str
    tag: str
    destination: str = ""
    reference: str
    digest: str
    form: str = ""
    tags: tuple[str, ...] = ()
    bytes_sent: int = 0
    bytes_there: int = 0
    bytes_mounted: int = 0
    proofs: tuple[str, ...] = ()  #: digests of the manifests that hold statements and signatures
    signed: str = ""  #: "key"; empty: nobody signed
    cpu_only: bool = False
    seconds: float = 0.0
    lines: Mapping[str, str] = {}


def destination_of(request: PublishRequest, ctx: Context, to: str) -> Destination:
    """Parse where it goes. Raises UsageError, also for an option that does not apply to it.

    Raises HostError for a folder that cannot be written.
    """
    destination = parse_destination(to, ctx.environment)
    kind = "folder" if isinstance(destination, Path) else "oras" if destination.oras else "registry"
    convert.check_options(request, _OPTIONS, kind, to, _WORDS)
    for tag in request.tags:
        if not is_tag(tag):
            raise UsageError(
                f"{tag!r} is not a tag ({TAG_RULE})",
                cause="A further tag names the same image in the same repository, of which it says nothing.",
                next_step="--tag latest",
            )
    if isinstance(destination, Path):
        check_writable(destination)
    return destination


def publish(request: PublishRequest, ctx: Context, to: str) -> Published:
    """Publish where a person says (`publish.destinations.parse`).

    Raises UsageError, GateError for an image that may not go out, and what converting, writing or sending raises.
    """
    start = settings.now()
    destination = destination_of(request, ctx, to)
    candidate = examine(request, ctx)
    if isinstance(destination, Registry):
        refuse_tags(candidate, (destination.tag,))
    _warn_of_terms(candidate, destination, ctx)
    if isinstance(destination, Path):
        published = _to_folder(request, ctx, candidate, destination)
    else:
        published = _to_registry(request, ctx, candidate, destination)
    return msgspec.structs.replace(
        published,
        destination=to,
        cpu_only=candidate.evidence.cpu_only,
        seconds=round(settings.now() - start, 3),
    )


def _warn_of_terms(candidate: ImageEvidence, destination: Destination, ctx: Context) -> None:
    """Say on what terms others get NVIDIA's libraries: once for each person, and each time what speaks against it."""
    if isinstance(destination, Registry) and is_loopback(destination.host.partition(":")[0]):
        return
    report, asked = candidate.report, candidate.report.asked
    if report.torch_cuda == "cpu" and not (asked and asked.flavour == "devel"):
        return
    where = destination.host if isinstance(destination, Registry) else str(destination)
    if asked and asked.slim == "all":
        ctx.progress.note(
            f"warning: NVIDIA's own libraries were cut in this image, and {where} hands it on: {slim.TERMS}. "
            "Keep it within your site, or publish one with SLIM=yes"
        )
    if asked and asked.flavour == "devel" and candidate.lock.compilation and candidate.lock.compilation.toolkit:
        ctx.progress.note(
            f"warning: this image has NVIDIA's compiler, and {where} hands it on: section 1.1.2 of the CUDA Toolkit's "
            "EULA keeps developer tools for internal use. Keep it within your site, or leave FLAVOUR=devel out"
        )
    said = ctx.cache.path(*_TERMS_SAID)
    if not said.exists():
        ctx.progress.note(
            f"terms: this image has libraries of NVIDIA's, and who gets it from {where} has them on NVIDIA's terms: "
            "docs/terms.md says which, and what they ask of you (said once)"
        )
        ctx.cache.keep(said, b"")


def _to_registry(request: PublishRequest, ctx: Context, candidate: ImageEvidence, destination: Registry) -> Published:
    """Blobs, then the manifest by its digest, then statements and signatures, and the tags when all of it is there."""
    report, evidence = candidate.report, candidate.evidence
    reference = reference_for(destination, report.name, report.tag)
    key = keys.read_private(request.key, ctx.environment, ask_password) if request.key else None
    target = access.repository(
        reference, ctx, find=credentials.for_destination, writes=True, mount_from=request.mount_from
    )
    is_plain = credentials.is_plain(reference.host, ctx.environment)
    if destination.oras:
        form, told = "", f"oras://{reference}"
        lines = {"apptainer": f"apptainer pull {'--no-https ' * is_plain}{report.name}.sif {told}"}
        notes = {CPU_ONLY: "true"} if evidence.cpu_only else {}
        sif = _converted(request, ctx, candidate, "sif")
        pushed = oras.push_sif(Path(sif.path), sif.sha256, reference, target, ctx.progress, notes)
    else:
        form, told = request.form or "docker", str(reference)
        lines = jobs.pulling(reference, report.name, inside=vpc_reference(reference), plain_http=is_plain)
        pushed = push.push_layout(target, candidate.layout, request.form or "docker", ctx.progress)
    short = (short_tag(candidate),) if request.short_tag else ()
    tags = tuple(dict.fromkeys((reference.tag, *short, *request.tags)))
    document = target.manifest(pushed.digest).data
    attached = attestations.AttachedStatements()
    if key or form:  # a SIF has no statements that nobody signed: Singularity's clients look for none
        subject = spec.Descriptor(media_type=pushed.media_type, digest=pushed.digest, size=len(document))
        names = [f"{reference.name}:{tag}" for tag in tags]
        attached = attestations.attach(target, candidate, subject, names, key, ctx)
    for tag in tags:
        push.put_manifest(target, tag, document, pushed.media_type)
    # somebody else may have written that list meanwhile
    if why := referrers.add(target, pushed.digest, attached.referrers):
        ctx.progress.note(f"warning: {why}")
    return Published(
        name=report.name,
        tag=report.tag,
        reference=told,
        digest=pushed.digest,
        form=form,
        tags=tags,
        bytes_sent=pushed.bytes_sent,
        bytes_there=pushed.bytes_there,
        bytes_mounted=pushed.bytes_mounted,
        proofs=attached.digests,
        signed="key" if key else "",
        lines=lines,
    )


def _to_folder(request: PublishRequest, ctx: Context, candidate: ImageEvidence, shared: Path) -> Published:
    """Each form as a file, then the build's report and the statements beside them."""
    report, placed, lines = candidate.report, [], {}
    for form in request.forms or FILE_FORMS[:1]:
        made, suffix = _converted(request, ctx, candidate, form), convert.SUFFIXES[form]
        target, latest = shared / f"{report.name}-{report.tag}{suffix}", shared / f"{report.name}{suffix}"
        source = Path(made.path)
        linked = folder.publish(source, made.sha256, target, latest, progress=ctx.progress, replace=request.replace)
        runtime, line = _line(form, target, latest if linked else target, report)
        lines[runtime] = line
        placed.append((target, made.sha256))
    for name, data in attestations.files(candidate, ctx).items():
        folder.write(_proofs(shared, report) / name, data)
    target, sha256 = placed[0]
    return Published(name=report.name, tag=report.tag, reference=str(target), digest=f"sha256:{sha256}", lines=lines)


def _proofs(shared: Path, report: BuildReport) -> Path:
    return shared / f"{report.name}-{report.tag}.proofs"


def _line(form: FileForm, target: Path, path: Path, report: BuildReport) -> tuple[str, str]:
    """Runtime and what its users type. `path`: the name that they use."""
    if form == "sif":
        nv = "" if report.torch_cuda == "cpu" else " --nv"
        return "singularity", f"singularity run{nv} {path} python {EXAMPLES}/torch_check.py"
    if form == "sqsh":
        return "srun", f"srun --container-image={Path(path).absolute()} python {EXAMPLES}/torch_check.py"
    there = f"dist/{report.name}/{report.tag}"
    unpack = f"mkdir -p {there}/oci && tar -xf {shlex.quote(str(target))} -C {there}/oci"
    copy = f"cp {shlex.quote(str(_proofs(target.parent, report) / 'report.json'))} {there}"
    return "elsewhere", f"{unpack} && {copy}    (in a clone of graphcrate: ./build.py run, convert and test take it)"


def _converted(request: PublishRequest, ctx: Context, candidate: ImageEvidence, form: FileForm) -> convert.Converted:
    """The image in a runtime's own form, beside its layout; made where it is not there yet."""
    is_squashed = form != "oci-archive" or request.forms == (form,)  # alone, it refuses the options
    order = convert.ConvertRequest(
        ref=str(candidate.layout.path),
        to=form,
        compression=request.compression if is_squashed else None,
        kernel=request.kernel if is_squashed else None,
        images=request.output,
        force=True,
        hashed=True,
    )
    return convert.convert(order, ctx)
