"""The documents of an image: its configuration and manifest, byte for byte."""

import datetime
import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from ocilayout import spec


class LayerLike(Protocol):
    """A layer of an image: `layer.Layer`, or a program's own record of one."""

    @property
    def digest(self) -> str: ...

    @property
    def diff_id(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def media_type(self) -> str: ...


class Documents(NamedTuple):
    """The bytes of an image's documents."""

    config: bytes
    manifest: bytes

    @property
    def digest(self) -> str:
        """Of the manifest: what `name@sha256:…` means."""
        return digest_of(self.manifest)


def documents(
    layers: Sequence[LayerLike], titles: Sequence[str], run: spec.RunConfig, created: int, architecture: str
) -> Documents:
    """The documents of an image of these layers, lowest first, with a title of each for its history.

    `created` in Unix seconds; `architecture` as Go names it: "amd64". The same arguments give the same bytes.
    """
    time = rfc3339(created)
    document = spec.ImageConfig(
        created=time,
        architecture=architecture,
        os="linux",
        config=run,
        rootfs=spec.RootFS(diff_ids=tuple(layer.diff_id for layer in layers)),
        history=tuple(spec.History(created=time, created_by=title) for _, title in zip(layers, titles, strict=True)),
    )
    encoded = msgspec.json.encode(document)
    manifest = spec.Manifest(
        schema_version=2,
        media_type=spec.MANIFEST,
        config=descriptor_of(spec.CONFIG, encoded),
        layers=tuple(
            spec.Descriptor(media_type=layer.media_type, digest=layer.digest, size=layer.size) for layer in layers
        ),
    )
    return Documents(encoded, msgspec.json.encode(manifest))


def digest_of(data: bytes) -> str:
    """`sha256:<hex>` of these bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def descriptor_of(media_type: str, data: bytes, annotations: dict[str, str] | None = None) -> spec.Descriptor:
    """Describe these bytes."""
    return spec.Descriptor(media_type=media_type, digest=digest_of(data), size=len(data), annotations=annotations or {})


def rfc3339(seconds: int) -> str:
    """Unix seconds as `2023-05-01T00:00:00Z`."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
