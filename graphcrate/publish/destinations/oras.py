"""A SIF in a registry, as `apptainer push oras://…` would put it there: one layer that is the file, an empty config.

Media types are those of Apptainer's and SingularityCE's clients (Singularity before 3.7 asks for another one and cannot
pull it). The manifest is an OCI one: SingularityCE's older clients take no other for `oras://`.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts.locate import kind_of
from graphcrate.host.http import Client
from graphcrate.host.progress import Progress
from graphcrate.model.errors import UsageError
from graphcrate.oci import push, spec
from graphcrate.oci.image import digest_of
from graphcrate.oci.push import Pushed
from graphcrate.oci.reference import Reference
from graphcrate.oci.registry import Repository
from graphcrate.oci.session import FindCredential
from graphcrate.oci.upload import Blob

CONFIG = "application/vnd.sylabs.sif.config.v1+json"
LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
_CHUNK = 4 << 20
TITLE = "org.opencontainers.image.title"  #: of a layer: the file's name


class _Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`artifactType` is left out: registries of before 2024 refuse what they do not know, and the config says it."""

    schema_version: int
    media_type: str
    config: spec.Descriptor
    layers: tuple[spec.Descriptor, ...]
    annotations: dict[str, str] = {}


def push_sif(
    sif: Path,
    reference: Reference,
    *,
    client: Client,
    find_credential: FindCredential,
    progress: Progress,
    tags: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
    trusted_realms: Collection[str] = (),
    attach: Callable[[Repository, str], None] | None = None,
) -> Pushed:
    """Push a SIF under the reference's tag, the tag last; what the registry has is not sent again.

    `tags`: further ones; `annotations`: of the manifest; `trusted_realms`: see `oci.realms.may_see`; `attach`: pushes
    what is said of the manifest with this digest, before any tag names it. The
    same file under the same name gives the same digest. Raises UsageError for anything but a SIF, NetworkError,
    IntegrityError, LayoutError for a file that changes meanwhile.
    """
    if not sif.is_file() or kind_of(sif) != "sif":
        raise UsageError(f"{sif} is not a SIF", next_step="./build.py convert NAME:TAG --to sif")
    if reference.digest:
        raise UsageError(
            f"{reference}: a digest says what an image is, not where it goes", next_step="--to oras://HOST/NAME:TAG"
        )
    with progress.task(f"reading {sif.name}", sif.stat().st_size) as task:
        layer = spec.Descriptor(
            media_type=LAYER,
            digest=f"sha256:{_sha256(sif, task.advance)}",
            size=sif.stat().st_size,
            annotations={TITLE: f"{reference.repository.rpartition('/')[2]}_{reference.tag}.sif"},
        )
    config = spec.Descriptor(media_type=CONFIG, digest=digest_of(spec.EMPTY_BLOB), size=len(spec.EMPTY_BLOB))
    manifest = _Manifest(
        schema_version=2,
        media_type=spec.MANIFEST,
        config=config,
        layers=(layer,),
        annotations=dict(sorted((annotations or {}).items())),
    )
    target = push.repository(reference, client=client, find_credential=find_credential, trusted_realms=trusted_realms)
    blobs = [Blob(descriptor=layer, path=sif), Blob(descriptor=config, data=spec.EMPTY_BLOB)]
    names, document = dict.fromkeys((reference.tag, *tags)), msgspec.json.encode(manifest)
    if attach is None:
        return push.push_image(target, reference, blobs, document, spec.MANIFEST, names, progress)
    digest = digest_of(document)
    pushed = push.push_image(target, reference, blobs, document, spec.MANIFEST, [digest], progress)
    attach(target, digest)
    for name in names:
        push.put_manifest(target, name, document, spec.MANIFEST)
    return pushed


def _sha256(path: Path, advance: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()
