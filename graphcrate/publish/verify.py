"""Verify a published image: its signature, the statements about it, and on demand the same bytes built again."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.artifacts.locate import find_image
from graphcrate.compat import planning
from graphcrate.compat.request import BuildRequest
from graphcrate.host.context import Context
from graphcrate.host.http import Client
from graphcrate.model.report import BuildReport
from graphcrate.model.words import joined
from graphcrate.oci import credentials, push, reference, spec
from graphcrate.oci.registry import Document, Repository
from graphcrate.publish import attestations
from graphcrate.publish.attest import keys, provenance, signing, statement, verify
from graphcrate.publish.attest.statement import Statement
from graphcrate.publish.attest.verify import Verdict

#: how to build again, for `--rebuild`
Build = Callable[[BuildRequest, Context], BuildReport]


class Check(msgspec.Struct, frozen=True):
    """One thing that `verify` looked at: `ok`, or not, in words."""

    what: str
    ok: bool
    said: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """`verify --json`. `statements`: predicate types that are signed or attached."""

    reference: str
    digest: str
    checks: tuple[Check, ...]
    statements: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks. Without `key` signatures are not looked at."""

    ref: str
    key: Path | None = None  #: the public one
    rebuild: bool = False  #: build it again
    wheels: Path | None = None  #: for it: the folder of a lock that has wheels of one's own


def run(request: Request, ctx: Context, build: Build) -> Verification:
    """Verify the image on its registry. Raises UsageError, ResolutionError (no such image), NetworkError."""
    key = keys.read_public(request.key) if request.key else None
    name = reference.parse(request.ref.removeprefix("docker://"))
    find = functools.partial(credentials.find, name, ctx.environment)
    source = Repository(Client(ctx.environment), name, find, trusted_realms=credentials.trusted_realms(ctx.environment))
    document = source.manifest(name.digest or name.tag)
    digest, checks = document.digest, []
    if key is not None:
        verdict = verify.signature(digest, _layers(source, signing.signature_tag(digest)), key)
        checks.append(Check("signature", verdict.is_verified, verdict.message))
    attached = list(verify.attestations(digest, _layers(source, signing.attestation_tag(digest)), key))
    statements: dict[str, Statement | None] = {}
    for predicate, (words, _) in statement.KINDS.items():
        mine = [one for kind, one in attached if kind == predicate and not _of_another_builder(one)]
        best = verify.best(digest, mine)
        if best.is_verified:
            statements[predicate] = best.statement
        message = best.message if mine else "nothing of the kind is attached to this image"
        checks.append(Check(words, best.is_verified, message))
    if request.rebuild:
        checks.append(_rebuilt(statements.get(statement.PROVENANCE), document, request.wheels, ctx, build))
    return Verification(reference=str(name), digest=digest, checks=tuple(checks), statements=tuple(sorted(statements)))


def _layers(source: Repository, tag: str) -> list[tuple[spec.Descriptor, bytes]]:
    """What lies under a tag of cosign's, checked."""
    layers = attestations.stored(source, tag)
    return [(layer, source.config(layer)) for layer in layers if layer.media_type in signing.MEDIA_TYPES]


def _of_another_builder(verdict: Verdict) -> bool:
    """Whether it is provenance that graphcrate did not write, such as a CI service's."""
    about = verdict.statement
    return bool(about and about.predicate_type == statement.PROVENANCE and not provenance.is_ours(about.predicate))


def _rebuilt(about: Statement | None, document: Document, wheels: Path | None, ctx: Context, build: Build) -> Check:
    """Build from the lock that the provenance names, and compare manifests."""
    if about is None:
        return Check("rebuild", False, "no provenance holds that says what to build from")
    try:
        asked, wanted = provenance.read(about.predicate)
    except msgspec.ValidationError as error:
        return Check("rebuild", False, f"the provenance does not say what to build from: {error}")
    with ctx.cache.folder() as folder:
        # the target and driver are met by the variant that was chosen for them
        request = BuildRequest.again(asked, target="", driver="", wheels=wheels, output=folder, smoke=False)
        report = build(request, ctx)
        if report.lock_sha256 != wanted and report.drift:
            changes = joined(planning.drifted(report.drift))
            said = f"other bytes, as no place has all Debian packages of the lock; of today are {changes}"
            return Check("rebuild", False, f"{said}. DEBIAN_SNAPSHOT=URL of another snapshot service may help")
        if report.lock_sha256 != wanted:
            difference = f"the lock here is {report.lock_sha256[:12]}…, the image's was {wanted[:12]}…"
            return Check("rebuild", False, f"{difference}: check out the commit that it was built from")
        layout, _ = find_image(report.layout, folder)
        own, _ = push.manifest_of(layout, "docker" if document.media_type == spec.DOCKER_MANIFEST else "oci")
    same = own == document.data
    return Check("rebuild", same, f"built again, {'the same' if same else 'and other'} bytes")
