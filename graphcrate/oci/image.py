"""An image made of layer records: its configuration and manifest, byte for byte. Pure."""

import datetime
import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.model.plan import ConfigStep
from graphcrate.model.platform import DEFAULT, OS, Platform
from graphcrate.model.report import LayerRecord
from graphcrate.oci import spec

TITLE = "graphcrate: "  #: before a layer's title in the history


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of an image. The layers' blobs are in the cache."""

    config: bytes
    manifest: bytes
    layers: tuple[LayerRecord, ...]  #: lowest first
    platform: Platform = DEFAULT

    @property
    def digest(self) -> str:
        """Of the manifest: what `name@sha256:…` means."""
        return digest_of(self.manifest)


def digest_of(data: bytes) -> str:
    """`sha256:<hex>` of these bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def make_image(
    layers: Sequence[LayerRecord],
    config: ConfigStep,
    created: int,
    base_environment: Mapping[str, str] | None = None,
    platform: Platform = DEFAULT,
) -> Image:
    """The image of these layers, lowest first. `created` in Unix seconds; the same arguments give the same bytes.

    The base's variables come first and keep their place when `config` gives them another value. There is no
    `User` (runtimes of clusters ignore it) and no `Volumes` (enroot makes those folders inaccessible).
    """
    environment = {**(base_environment or {}), **config.environment}
    time = rfc3339(created)
    document = spec.ImageConfig(
        created=time,
        architecture=platform.architecture,
        os=OS,
        config=spec.RunConfig(
            env=tuple(f"{name}={value}" for name, value in environment.items()),
            entrypoint=config.entrypoint or None,
            cmd=config.command or None,
            working_dir=config.working_folder or None,
            labels=config.labels or None,
        ),
        rootfs=spec.RootFS(diff_ids=tuple(layer.diff_id for layer in layers)),
        history=tuple(spec.History(created=time, created_by=f"{TITLE}{layer.title}") for layer in layers),
    )
    encoded = msgspec.json.encode(document)
    manifest = spec.Manifest(
        schema_version=2,
        media_type=spec.MANIFEST,
        config=spec.Descriptor(media_type=spec.CONFIG, digest=digest_of(encoded), size=len(encoded)),
        layers=tuple(
            spec.Descriptor(media_type=layer.media_type, digest=layer.digest, size=layer.size) for layer in layers
        ),
    )
    return Image(config=encoded, manifest=msgspec.json.encode(manifest), layers=tuple(layers), platform=platform)


def rfc3339(seconds: int) -> str:
    """Unix seconds as `2023-05-01T00:00:00Z`."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
