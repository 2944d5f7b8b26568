"""Runs commands in an OCI layout with no engine: `engines.runners.embedded`, for an artifact."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from graphcrate import __version__
from graphcrate.engines.runners import Runtime, embedded
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.report import Artifact
from graphcrate.oci.layout import is_whole, read_layout


def runtime(environment: Mapping[str, str]) -> Runtime:
    """graphcrate itself: a sandbox of its own."""
    return Runtime("graphcrate", __version__)


def exists(artifact: Artifact, environment: Mapping[str, str]) -> bool:
    """Whether the layout is there with all its blobs."""
    return is_whole(Path(artifact.reference), artifact.digest)


@contextlib.contextmanager
def opened(artifact: Artifact, *, cache: Cache, progress: Progress) -> Iterator[embedded.Inside]:
    """The layout, unpacked. Raises what `embedded.opened` raises."""
    with embedded.opened(read_layout(Path(artifact.reference)), cache=cache, progress=progress) as inside:
        yield inside
