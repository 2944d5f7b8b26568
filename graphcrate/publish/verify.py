"""Verify a published image: its signature, the statements about it, and on demand the same bytes built again."""

import functools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.artifacts.locate import find_image
from graphcrate.compat.request import BuildRequest
from graphcrate.host.context import Context
from graphcrate.host.http import Client
from graphcrate.model.errors import UNREADABLE, ResolutionError
from graphcrate.model.publish import Check, Verification
from graphcrate.model.report import BuildReport
from graphcrate.oci import credentials, push, reference, spec
from graphcrate.oci.registry import Repository
from graphcrate.publish.attest import keyfile, provenance, signing, statement, verify
from graphcrate.publish.attest.statement import Statement
from graphcrate.publish.attest.verify import Verdict

#: how to build again, for `--rebuild`
Build = Callable[[BuildRequest, Context], BuildReport]
#: What each image of ours has, and what people call it.
WANTED = {
    statement.BILL: "bill of materials",
    provenance.PREDICATE: "provenance",
    statement.SMOKE: "smoke suites",
    statement.CONTRACTS: "contracts",
    statement.AUDIT: "audit",
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks. Without `key` signatures are not looked at."""

    ref: str
    key: Path | None = None  #: the public one
    rebuild: bool = False  #: build it again
    wheels: Path | None = None  #: for it: the folder of a lock that has wheels of one's own


def run(request: Request, ctx: Context, build: Build) -> Verification:
    """Verify the image on its registry. Raises UsageError, ResolutionError (no such image), NetworkError."""
    key = keyfile.read_public(request.key) if request.key else None
    name = reference.parse(request.ref.removeprefix("docker://"))
    find = functools.partial(credentials.find, name, ctx.environment)
    source = Repository(Client(ctx.environment), name, find, trusted_realms=credentials.trusted_realms(ctx.environment))
    document = source.manifest(name.digest or name.tag)
    digest, checks = document.digest, []
    if key is not None:
        verdict = verify.signature(digest, *_read(source, signing.signature_tag(digest)), key)
        checks.append(Check(what="signature", ok=verdict.is_verified, said=verdict.message))
    attached = list(verify.attestations(digest, *_read(source, signing.attestation_tag(digest)), key))
    statements: dict[str, Statement | None] = {}
    for predicate, words in WANTED.items():
        mine = [one for kind, one in attached if kind == predicate and not _of_another_builder(one)]
        best = verify.best(digest, mine)
        if best.is_verified:
            statements[predicate] = best.statement
        message = best.message if mine else "nothing of the kind is attached to this image"
        checks.append(Check(what=words, ok=best.is_verified, said=message))
    if request.rebuild:
        checks.append(
            _rebuilt(
                statements.get(provenance.PREDICATE), document.data, document.media_type, request.wheels, ctx, build
            )
        )
    return Verification(reference=str(name), digest=digest, checks=tuple(checks), statements=tuple(sorted(statements)))


def _read(source: Repository, tag: str) -> tuple[bytes | None, dict[str, bytes]]:
    """The manifest under a tag, None where there is none, and by digest those of its blobs that can be of cosign's."""
    try:
        manifest = source.manifest(tag).data
    except ResolutionError:
        return None, {}
    blobs = {}
    with suppress(*UNREADABLE):
        for layer in msgspec.json.decode(manifest, type=spec.Manifest).layers:
            if layer.media_type in signing.MEDIA_TYPES:
                blobs[layer.digest] = source.config(layer)
    return manifest, blobs


def _of_another_builder(verdict: Verdict) -> bool:
    """Whether it is provenance that graphcrate did not write, such as a CI service's."""
    about = verdict.statement
    return (
        about is not None and about.predicate_type == provenance.PREDICATE and not provenance.is_ours(about.predicate)
    )


def _rebuilt(
    about: Statement | None, manifest: bytes, media_type: str, wheels: Path | None, ctx: Context, build: Build
) -> Check:
    """Build from the lock that the provenance names, and compare manifests."""
    what = "rebuild"
    if about is None:
        return Check(what=what, ok=False, said="no provenance holds that says what to build from")
    try:
        asked, wanted = provenance.read(about.predicate)
    except msgspec.ValidationError as error:
        return Check(what=what, ok=False, said=f"the provenance does not say what to build from: {error}")
    with ctx.cache.folder() as folder:
        # the target and driver are met by the variant that was chosen for them
        request = BuildRequest.again(asked, target="", driver="", wheels=wheels, output=folder, smoke=False)
        report = build(request, ctx)
        if report.lock_sha256 != wanted:
            difference = f"the lock here is {report.lock_sha256[:12]}…, the image's was {wanted[:12]}…"
            return Check(what=what, ok=False, said=f"{difference}: check out the commit that it was built from")
        layout, _ = find_image(report.layout, folder)
        own, _ = push.manifest_of(layout, "docker" if media_type == spec.DOCKER_MANIFEST else "oci")
    same = own == manifest
    return Check(what=what, ok=same, said=f"built again, {'the same' if same else 'and other'} bytes")
