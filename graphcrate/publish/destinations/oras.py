"""A SIF in a registry, as `apptainer push oras://…` would put it there: one layer that is the file, an empty config.

Media types are those of Apptainer's and SingularityCE's clients (Singularity before 3.7 asks for another one and cannot
pull it). The manifest is an OCI one: SingularityCE's older clients take no other for `oras://`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import msgspec

from graphcrate.host.progress import Progress
from graphcrate.oci import credentials
from graphcrate.oci.push import push_image
from graphcrate.oci.registry import Repository
from graphcrate.publish.destinations.destination import CPU_ONLY, EMULATED, Delivery, converted, made_of
from graphcrate.publish.destinations.parse import oras_location
from graphcrate.publish.destinations.registry import Push, Registry, Sent
from graphcrate.publish.policy import ImageEvidence, PublishRequest
from ocilayout import spec
from ocilayout.image import descriptor_of
from ociregistry.push import Pushed, put_manifest
from ociregistry.reference import Reference
from ociregistry.repository import Document
from ociregistry.upload import UploadBlob

CONFIG = "application/vnd.sylabs.sif.config.v1+json"
LAYER = "application/vnd.sylabs.sif.layer.v1.sif"


def push_sif(
    sif: Path,
    sha256: str,
    reference: Reference,
    target: Repository,
    progress: Progress,
    annotations: dict[str, str],
) -> Pushed:
    """Push a SIF with this hash under its manifest's digest, unless the registry has it; no tag is set.

    The same file under the same name gives the same digest. `annotations`: of the manifest. Raises NetworkError,
    IntegrityError, LayoutError for a file that changes meanwhile.
    """
    name = reference.repository.rpartition("/")[2]
    layer = spec.Descriptor(
        media_type=LAYER,
        digest=f"sha256:{sha256}",
        size=sif.stat().st_size,
        annotations={"org.opencontainers.image.title": f"{name}_{reference.tag}.sif"},
    )
    config = descriptor_of(CONFIG, spec.EMPTY_BLOB)
    # without `artifactType`: registries from before 2024 refuse what they do not know, and the config says it
    manifest: dict[str, object] = {"schemaVersion": 2, "mediaType": spec.MANIFEST, "config": config, "layers": [layer]}
    document = msgspec.json.encode({**manifest, **({"annotations": annotations} if annotations else {})})
    blobs = [UploadBlob(descriptor=layer, path=sif), UploadBlob(descriptor=config, data=spec.EMPTY_BLOB)]
    return push_image(target, blobs, document, spec.MANIFEST, progress)


@dataclass(frozen=True, kw_only=True)
class OrasRegistry(Registry):
    """A registry that gets a SIF, as Apptainer's `oras://` has it."""

    title: ClassVar[str] = "oras://"
    forms: ClassVar[str] = "    oras://registry.example/team      a SIF in a registry, for apptainer pull oras://…"
    options: ClassVar[frozenset[str]] = frozenset({"--key", "--tag", "--short-tag", "--kernel", "--compression"})

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str]) -> Self | None:
        """Read oras://HOST[:PORT][/PATH][:TAG]."""
        location = oras_location(text)
        return cls(host=location.host, repository=location.repository, tag=location.tag) if location else None

    def _parcel(self, push: Push, place: str) -> Delivery:
        sif = made_of(push.image, "sif")
        size = sif.stat().st_size if sif else push.image.layout.size
        return Delivery(what="SIF", place=place, bytes=size, is_made=bool(sif))

    def _short(self, image: ImageEvidence, request: PublishRequest) -> tuple[str, ...]:
        """The short tag with its platform: a SIF is for one, and its clients know of no index."""
        return tuple(f"{tag}{image.layout.platform.suffix}" for tag in super()._short(image, request))

    def _check_tags(self, push: Push) -> None:
        """Do nothing: a tag has one SIF."""

    def _set_tags(self, push: Push, document: Document) -> str:
        """Set each tag to the SIF."""
        for tag in push.tags:
            put_manifest(push.target, tag, document.data, document.media_type)
        return ""

    def _send(self, push: Push) -> Sent:
        """Make the SIF, and send it under its manifest's digest alone."""
        shown, is_plain = f"oras://{push.reference}", credentials.is_plain(push.reference.host, push.ctx.environment)
        lines = {"apptainer": f"apptainer pull {'--no-https ' * is_plain}{push.image.report.name}.sif {shown}"}
        marks = {CPU_ONLY: push.image.evidence.cpu_only, EMULATED: push.image.evidence.emulated}
        notes = {name: "true" for name, is_so in marks.items() if is_so}
        sif = converted(push.image, push.request, "sif", push.ctx)
        pushed = push_sif(Path(sif.path), sif.sha256, push.reference, push.target, push.ctx.progress, notes)
        return Sent(pushed, "", shown, lines)
