"""Destinations that take files: a shared folder, a registry that keeps SIFs, one bundle for a site without a network.

The gate is the same as for images on a registry (`admitting.examine`).
"""

import functools
from pathlib import Path

import msgspec

from graphcrate import converting, statements
from graphcrate.admitting import FILE_FORMS, Candidate, Request, examine
from graphcrate.destinations import bundle, oras, shelf
from graphcrate.destinations.parse import reference_for
from graphcrate.host import settings
from graphcrate.host.http import Client
from graphcrate.host.workplace import Workplace
from graphcrate.model.destination import Bundle, Folder, Oras
from graphcrate.model.publish import CPU_ONLY, Published
from graphcrate.oci import credentials


def deliver(request: Request, place: Workplace, destination: Oras | Folder | Bundle, to: str) -> Published:
    """Publish to a place that takes files. Raises as `admitting.examine`, and what writing or sending raises."""
    start = settings.now()
    candidate = examine(request, place)
    if isinstance(destination, Oras):
        made = _to_oras(request, place, candidate, destination)
    elif isinstance(destination, Folder):
        made = _to_folder(request, place, candidate, Path(destination.path))
    else:
        made = _to_bundle(place, candidate, Path(destination.path))
    return msgspec.structs.replace(
        made,
        destination=to,
        cpu_only=candidate.evidence.cpu_only,
        seconds=round(settings.now() - start, 3),
    )


def _published(candidate: Candidate, reference: str, digest: str) -> Published:
    report = candidate.report
    return Published(name=report.name, tag=report.tag, destination="", reference=reference, digest=digest, seconds=0.0)


def _converted(request: Request, place: Workplace, candidate: Candidate, form: converting.Form) -> Path:
    """The image in a runtime's own form, beside its layout; made where it is not there yet."""
    order = converting.Request(
        ref=str(candidate.layout.path),
        to=form,
        compression=request.compression,
        kernel=request.kernel,
        images=request.output,
        force=True,
    )
    return Path(converting.convert(order, place).path)


def _to_oras(request: Request, place: Workplace, candidate: Candidate, destination: Oras) -> Published:
    reference = reference_for(destination, candidate.report.name, candidate.report.tag)
    tags = tuple(dict.fromkeys((reference.tag, *request.tags)))
    pushed = oras.push_sif(
        _converted(request, place, candidate, "sif"),
        reference,
        client=Client(place.environment),
        find_credential=functools.partial(credentials.for_destination, reference, place.environment),
        progress=place.progress,
        tags=tags,
        annotations={CPU_ONLY: "true"} if candidate.evidence.cpu_only else {},
        trusted_realms=credentials.trusted_realms(place.environment),
    )
    made = _published(candidate, f"oras://{reference}", pushed.digest)
    name = candidate.report.name
    return msgspec.structs.replace(
        made,
        tags=tags,
        bytes_sent=pushed.bytes_sent,
        bytes_there=pushed.bytes_there,
        lines={"apptainer": f"apptainer pull {name}.sif oras://{reference}"},
    )


def _to_folder(request: Request, place: Workplace, candidate: Candidate, folder: Path) -> Published:
    report, lines = candidate.report, dict[str, str]()
    made: Published | None = None
    for form in request.forms or FILE_FORMS[:1]:
        shelved = shelf.publish(
            _converted(request, place, candidate, form),
            folder,
            report.name,
            report.tag,
            progress=place.progress,
            keep=request.keep,
            replace=request.replace,
            cpu_only=candidate.evidence.cpu_only,
        )
        for gone in shelved.removed:
            place.progress.note(f"removed {gone}, of which newer ones are kept")
        made = made or _published(candidate, shelved.path, f"sha256:{shelved.sha256}")
        used = shelved.latest or shelved.path
        if form == "sif":
            lines["singularity"] = f"singularity run --nv {used} python dna.py"
        else:
            lines["srun"] = (
                f"srun --container-image={Path(used).absolute()} python /opt/graphcrate/examples/torch_check.py"
            )
    assert made is not None  # there is always a form
    return msgspec.structs.replace(made, lines=lines)


def _to_bundle(place: Workplace, candidate: Candidate, target: Path) -> Published:
    written = bundle.write(candidate.folder, target, place, proofs=statements.files(candidate, place))
    made = _published(candidate, written.path, f"sha256:{written.sha256}")
    return msgspec.structs.replace(
        made, lines={"there": f"./build.py import {Path(written.path).name}    (in a clone of graphcrate)"}
    )
