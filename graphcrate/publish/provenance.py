"""SLSA provenance v1 of a build: what was asked for, what went in, by which builder.

Shape: slsa.dev/spec/v1.0/provenance. Nothing in it comes from the machine that built the image: no user, no host, no
path, no time but the image's own.
"""

from typing import Annotated, Any

import msgspec

from dssesign.statement import Resource
from graphcrate import __version__
from graphcrate.model import codec
from graphcrate.model.lock import Lock
from graphcrate.model.report import BuildParameters
from graphcrate.model.values import OURS
from ocilayout.image import rfc3339

BUILD_TYPE = f"{OURS}build:1"  #: docs/decisions/proof.md says what its parameters are
BUILDER = f"{OURS}builder:"


class _Definition(msgspec.Struct, rename="camel"):
    external_parameters: BuildParameters
    resolved_dependencies: Annotated[tuple[Resource, ...], msgspec.Meta(min_length=1)]  #: the lock first


class _Predicate(msgspec.Struct, rename="camel"):
    build_definition: _Definition


def provenance(lock: Lock, asked: BuildParameters, engine: str, build_key: str) -> dict[str, Any]:
    """The predicate. `engine`: what built it (embedded, docker…); `build_key`: content id of the plan and the format.

    There is no invocation id and no time but the lock's: the same lock gives the same image anywhere.
    """
    from graphcrate.publish import bill

    lock_file = Resource(name=f"{lock.candidate}.lock.json", digest={"sha256": lock.sha256})
    parameters = {"created": rfc3339(lock.created), "candidate": lock.candidate, "buildKey": build_key}
    parts = bill.parts(lock, devel=asked.flavour == "devel")
    used = [
        Resource(
            name=next(
                (property_.value for property_ in part.properties if property_.name == "graphcrate:file"), part.name
            ),
            uri=part.bom_ref.value or "",
            digest={"sha256": part.hashes[0].content} if part.hashes else {},
            annotations={} if part.scope is bill.IN_IMAGE else {"use": "build"},
        )
        for part in parts
    ]
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": asked,
            "internalParameters": {name: value for name, value in parameters.items() if value},
            "resolvedDependencies": [lock_file, *used],
        },
        "runDetails": {"builder": {"id": f"{BUILDER}{engine}", "version": {"graphcrate": __version__}}},
    }


def is_ours(predicate: Any) -> bool:  # noqa: ANN401
    """Return whether a predicate of this type was written by graphcrate."""
    definition = predicate.get("buildDefinition") if isinstance(predicate, dict) else None
    return isinstance(definition, dict) and definition.get("buildType") == BUILD_TYPE


def read(predicate: Any) -> tuple[BuildParameters, str]:  # noqa: ANN401
    """Read the request and the lock's sha256 from a predicate of ours. Raises msgspec.ValidationError."""
    definition = codec.convert(predicate, _Predicate).build_definition
    lock = definition.resolved_dependencies[0]
    if "sha256" not in lock.digest:
        raise msgspec.ValidationError("the lock has no sha256")
    return definition.external_parameters, lock.digest["sha256"]
