"""Publish an image that may go out: to a registry (blobs, attestations, the tag last), as a SIF, or into a folder."""

import functools
import shlex
from pathlib import Path

import msgspec

from graphcrate.artifacts import convert
from graphcrate.compat import slim
from graphcrate.compat.planning import EXAMPLES
from graphcrate.engines.render import jobs
from graphcrate.host import settings
from graphcrate.host.attach import ask_password
from graphcrate.host.context import Context
from graphcrate.host.http import Client
from graphcrate.model.errors import UsageError
from graphcrate.model.publish import CPU_ONLY, Published
from graphcrate.model.words import is_loopback
from graphcrate.oci import credentials, push
from graphcrate.oci.reference import TAG_RULE, Reference, is_tag
from graphcrate.oci.registry import Repository
from graphcrate.publish import attestations
from graphcrate.publish.attest import keyfile
from graphcrate.publish.attest.statement import Subject
from graphcrate.publish.destinations import folder, oras
from graphcrate.publish.destinations.parse import Destination, Folder, Registry, parse, reference_for, vpc_reference
from graphcrate.publish.policy import FILE_FORMS, Candidate, FileForm, Request, examine

#: the kinds are those of destinations (`parse`)
_OPTIONS: convert.Options = {
    "--form": ("form", ("registry",)),
    "--mount-from": ("mount_from", ("registry",)),
    "--key": ("key", ("registry", "oras")),
    "--tag": ("tags", ("registry", "oras")),
    "--as": ("forms", ("folder",)),
    "--kernel": ("kernel", ("folder", "oras")),
    "--compression": ("compression", ("folder", "oras")),
    "--replace": ("replace", ("folder",)),
}
_WORDS = {"registry": "a registry", "oras": "oras://", "folder": "a folder"}


def destination_of(request: Request, ctx: Context, to: str) -> Destination:
    """Parse where it goes. Raises UsageError, also for an option that does not apply to it."""
    destination = parse(to, ctx.environment)
    convert.check_options(request, _OPTIONS, destination.kind, to, _WORDS)
    for tag in request.tags:
        if not is_tag(tag):
            raise UsageError(
                f"{tag!r} is not a tag ({TAG_RULE})",
                cause="A further tag names the same image in the same repository, of which it says nothing.",
                next_step="--tag latest",
            )
    return destination


def publish(request: Request, ctx: Context, to: str) -> Published:
    """Publish where a person says (`publish.destinations.parse`).

    Raises UsageError, GateError for an image that may not go out, and what converting, writing or sending raises.
    """
    start = settings.now()
    destination = destination_of(request, ctx, to)
    candidate = examine(request, ctx)
    if isinstance(destination, Registry):
        _warn_of_terms(candidate, destination, ctx)
    if isinstance(destination, Folder):
        published = _to_folder(request, ctx, candidate, Path(destination.path))
    else:
        reference = reference_for(destination, candidate.report.name, candidate.report.tag)
        send = _to_oras if destination.oras else _to_registry
        published = send(request, ctx, candidate, reference)
    return msgspec.structs.replace(
        published,
        destination=to,
        cpu_only=candidate.evidence.cpu_only,
        seconds=round(settings.now() - start, 3),
    )


def _warn_of_terms(candidate: Candidate, destination: Registry, ctx: Context) -> None:
    asked, host = candidate.report.asked, destination.host
    if asked and asked.slim == "all" and not is_loopback(host.partition(":")[0]):
        ctx.progress.note(
            f"warning: NVIDIA's own libraries were cut in this image, and {host} hands it on: {slim.TERMS}. "
            "Keep it within your site, or publish one with SLIM=yes"
        )


def _to_registry(request: Request, ctx: Context, candidate: Candidate, reference: Reference) -> Published:
    """Blobs, then the manifest by its digest, then statements and signatures, and the tags when all of it is there."""
    report, client = candidate.report, Client(ctx.environment)
    key = keyfile.read_private(request.key, ctx.environment, ask_password) if request.key else None
    find = functools.partial(credentials.for_destination, reference, ctx.environment)
    realms, form = credentials.trusted_realms(ctx.environment), request.form or "docker"
    pushed = push.push_layout(
        candidate.layout,
        msgspec.structs.replace(reference, tag="", digest=""),  # under its digest alone, until all is there
        form=form,
        client=client,
        find_credential=find,
        progress=ctx.progress,
        mount_from=request.mount_from,
        trusted_realms=realms,
    )
    target = push.repository(reference, client=client, find_credential=find, trusted_realms=realms)
    subject = Subject(name=report.name, tag=report.tag, digest=pushed.digest)
    proofs = tuple(attestations.attach(target, candidate, subject, key, ctx))
    tags = tuple(dict.fromkeys((reference.tag, *request.tags)))
    document = target.manifest(pushed.digest)
    for tag in tags:
        push.put_manifest(target, tag, document.data, pushed.media_type)
    return msgspec.structs.replace(
        _published(candidate, str(reference), pushed.digest),
        form=form,
        tags=tags,
        bytes_sent=pushed.bytes_sent,
        bytes_there=pushed.bytes_there,
        bytes_mounted=pushed.bytes_mounted,
        proofs=proofs,
        signed="key" if key else "",
        lines=jobs.pulling(reference, report.name, inside=vpc_reference(reference)),
    )


def _to_oras(request: Request, ctx: Context, candidate: Candidate, reference: Reference) -> Published:
    report, proofs = candidate.report, list[str]()
    tags = tuple(dict.fromkeys((reference.tag, *request.tags)))
    key = keyfile.read_private(request.key, ctx.environment, ask_password) if request.key else None

    def attach(target: Repository, digest: str) -> None:
        subject = Subject(name=report.name, tag=report.tag, digest=digest)
        proofs.extend(attestations.attach(target, candidate, subject, key, ctx))

    pushed = oras.push_sif(
        _converted(request, ctx, candidate, "sif"),
        reference,
        client=Client(ctx.environment),
        find_credential=functools.partial(credentials.for_destination, reference, ctx.environment),
        progress=ctx.progress,
        tags=tags,
        annotations={CPU_ONLY: "true"} if candidate.evidence.cpu_only else {},
        trusted_realms=credentials.trusted_realms(ctx.environment),
        attach=attach if key else None,
    )
    return msgspec.structs.replace(
        _published(candidate, f"oras://{reference}", pushed.digest),
        tags=tags,
        proofs=tuple(proofs),
        signed="key" if key else "",
        bytes_sent=pushed.bytes_sent,
        bytes_there=pushed.bytes_there,
        lines={"apptainer": f"apptainer pull {report.name}.sif oras://{reference}"},
    )


def _to_folder(request: Request, ctx: Context, candidate: Candidate, shared: Path) -> Published:
    """Each form as a file, then the build's report and the statements beside them."""
    report, forms = candidate.report, request.forms or FILE_FORMS[:1]
    files = {
        form: folder.publish(
            _converted(request, ctx, candidate, form),
            shared,
            report.name,
            report.tag,
            convert.SUFFIXES[form],
            progress=ctx.progress,
            replace=request.replace,
        )
        for form in forms
    }
    for name, data in attestations.files(candidate, ctx).items():
        folder.write(shared / f"{report.name}-{report.tag}.proofs" / name, data)
    first = files[forms[0]]
    lines = dict(_line(form, placed, candidate) for form, placed in files.items())
    return msgspec.structs.replace(_published(candidate, first.path, f"sha256:{first.sha256}"), lines=lines)


def _line(form: FileForm, placed: folder.Placed, candidate: Candidate) -> tuple[str, str]:
    """Runtime and what its users type."""
    report, path = candidate.report, placed.latest or placed.path
    nv = "" if report.torch_cuda == "cpu" else " --nv"
    if form == "sif":
        return "singularity", f"singularity run{nv} {path} python {EXAMPLES}/torch_check.py"
    if form == "sqsh":
        return "srun", f"srun --container-image={Path(path).absolute()} python {EXAMPLES}/torch_check.py"
    there, proofs = (
        f"dist/{report.name}/{report.tag}",
        Path(placed.path).with_name(f"{report.name}-{report.tag}.proofs"),
    )
    unpack = f"mkdir -p {there}/oci && tar -xf {shlex.quote(placed.path)} -C {there}/oci"
    copy = f"cp {shlex.quote(str(proofs / 'report.json'))} {there}"
    return "elsewhere", f"{unpack} && {copy}    (in a clone of graphcrate: ./build.py run, convert and test take it)"


def _converted(request: Request, ctx: Context, candidate: Candidate, form: FileForm) -> Path:
    """The image in a runtime's own form, beside its layout; made where it is not there yet."""
    is_squashed = form != "oci-archive" or request.forms == (form,)  # alone, it refuses the options
    order = convert.Request(
        ref=str(candidate.layout.path),
        to=form,
        compression=request.compression if is_squashed else None,
        kernel=request.kernel if is_squashed else None,
        images=request.output,
        force=True,
    )
    return Path(convert.convert(order, ctx).path)


def _published(candidate: Candidate, reference: str, digest: str) -> Published:
    report = candidate.report
    return Published(name=report.name, tag=report.tag, destination="", reference=reference, digest=digest, seconds=0.0)
