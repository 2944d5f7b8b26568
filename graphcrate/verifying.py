"""A published image and what is said about it: signatures, statements, and on demand the same bytes built again."""

import functools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate import asking, catalogue, pipeline
from graphcrate.attest import keyfile, provenance, reports, sbom, signing, statement, storage, verify
from graphcrate.attest.keys import PublicKey
from graphcrate.errors import IntegrityError, ResolutionError, UsageError
from graphcrate.host.http import Client
from graphcrate.host.workplace import Workplace
from graphcrate.model.proof import Outcome, Statement, Verdict
from graphcrate.model.publish import Check, Verification
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.oci import credentials, push, reference, spec
from graphcrate.oci.referrers import referrers
from graphcrate.oci.registry import Repository

#: What each image of ours has, and what people call it.
WANTED = {
    sbom.PREDICATE: "bill of materials",
    provenance.PREDICATE: "provenance",
    reports.SMOKE: "smoke suites",
    reports.CONTRACTS: "contracts",
    reports.AUDIT: "audit",
}


#: types of artifacts that hold such statements; others beside an image are somebody else's business
_TYPES = (signing.BUNDLE, statement.PAYLOAD, sbom.MEDIA_TYPE)
_UNSIGNED = "attached, and signed by nobody"
_UNCHECKED = "attached and signed, signature not checked: no key was given, and no identity"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks. Without `key` and `identity` signatures are not looked at."""

    ref: str
    key: Path | None = None  #: the public one
    identity: str = ""  #: of who signed without a key, as `issuer` vouches for it
    issuer: str = ""
    rebuild: bool = False  #: build it again
    wheels: Path | None = None  #: for it: the folder of a lock that has wheels of one's own


def run(request: Request, place: Workplace) -> Verification:
    """Look at the image on its registry. Raises UsageError, ResolutionError (no such image), NetworkError."""
    signer = _signer(request)
    name = reference.parse(request.ref.removeprefix("docker://"))
    find = functools.partial(credentials.find, name, place.environment)
    source = Repository(
        Client(place.environment), name, find, trusted_realms=credentials.trusted_realms(place.environment)
    )
    document = source.manifest(name.digest or name.tag)
    found = _Found(source, document.digest, signer)
    checks = list(found.checks())
    if request.rebuild:
        checks.append(_rebuilt(found, document.data, document.media_type, request.wheels, place))
    return Verification(
        reference=str(name), digest=document.digest, checks=tuple(checks), statements=tuple(sorted(found.said))
    )


class _ByKey:
    """Signatures that a key fits."""

    def __init__(self, key: PublicKey) -> None:
        self.key = key

    def bundle(self, digest: str, data: bytes, predicate_type: str) -> Verdict:
        return verify.bundle(digest, data, self.key, predicate_type)


class _ByIdentity:
    """Signatures of somebody without a key, as `cosign verify --certificate-identity … --certificate-oidc-issuer …`."""

    def __init__(self, identity: str, issuer: str) -> None:
        from graphcrate.host.keyless import Checker

        self._how, self._checker = f"signed by {identity}", Checker(identity, issuer)

    def bundle(self, digest: str, data: bytes, predicate_type: str) -> Verdict:
        try:
            kind, payload = self._checker.check(data)
        except IntegrityError as error:
            return Verdict(outcome=Outcome.WRONG_KEY, said=error.what)
        return verify.signed_payload(digest, kind, payload, predicate_type, how=self._how)


def _signer(request: Request) -> _ByKey | _ByIdentity | None:
    """Whose signatures count. Raises UsageError."""
    if bool(request.identity) != bool(request.issuer):
        given, missing = ("--identity", "--issuer") if request.identity else ("--issuer", "--identity")
        raise UsageError(
            f"{given} is given, and {missing} is not",
            cause="An identity is worth what its issuer vouches for: elsewhere anybody may have that name.",
            next_step="--identity me@example.com --issuer https://accounts.google.com, say",
        )
    if request.key and request.identity:
        raise UsageError("signatures are of a key or of an identity", next_step="leave --key or --identity out")
    if request.key:
        return _ByKey(keyfile.read_public(request.key))
    return _ByIdentity(request.identity, request.issuer) if request.identity else None


class _Artifact(msgspec.Struct):
    """What is read of a manifest that tells of an image."""

    layers: tuple[spec.Descriptor, ...]
    subject: spec.Descriptor | None = None


class _Found:
    """What lies beside an image. `said`: predicate type → statement, of those that hold."""

    def __init__(self, source: Repository, digest: str, signer: _ByKey | _ByIdentity | None) -> None:
        self._source, self._digest, self._signer = source, digest, signer
        self.said: dict[str, Statement | None] = {}

    def checks(self) -> Iterator[Check]:
        """The signature of the image, where it is known whose, then each statement."""
        entries = [entry for entry in referrers(self._source, self._digest) if entry.artifact_type in _TYPES]
        verdicts = [verdict for entry in entries for verdict in self._verdicts(entry)]
        if self._signer is not None:
            signatures = [one for kind, one in verdicts if kind == statement.COSIGN]
            if isinstance(self._signer, _ByKey):
                signatures.append(self._simple_signature(self._signer.key))
            verdict = verify.best(self._digest, signatures)
            yield Check(what="signature", ok=verdict.is_verified, said=verdict.said)
        for predicate, words in WANTED.items():
            mine = [one for kind, one in verdicts if kind == predicate and not _of_another_builder(one.statement)]
            best = verify.best(self._digest, mine) if mine else None
            if best is not None and best.is_verified:
                self.said[predicate] = best.statement
            said = best.said if best is not None else "nothing of the kind is attached to this image"
            yield Check(what=words, ok=best is not None and best.is_verified, said=said)

    def _simple_signature(self, key: PublicKey) -> Verdict:
        """Of the signature under cosign's older tag."""
        manifest = None
        blobs: Mapping[str, bytes] = {}
        with suppress(ResolutionError, *UNREADABLE):
            manifest = self._source.manifest(storage.signature_tag(self._digest)).data
            layers = msgspec.json.decode(manifest, type=spec.Manifest).layers
            blobs = {layer.digest: self._source.config(layer) for layer in layers}
        return verify.simple_signature(self._digest, manifest, blobs, key)

    def _verdicts(self, entry: spec.Descriptor) -> Iterator[tuple[str, Verdict]]:
        """(predicate type, verdict) of each blob of an artifact."""
        listed = entry.annotations.get(storage.PREDICATE) or entry.annotations.get(storage.IN_TOTO, "")
        try:
            artifact = msgspec.json.decode(self._source.manifest(entry.digest).data, type=_Artifact)
        except ResolutionError:
            yield listed, _amiss(f"the registry lists {entry.digest} with this image, and has it not")
        except UNREADABLE:
            yield listed, _amiss(f"{entry.digest}, which lies beside this image, is no manifest")
        else:
            if artifact.subject is not None and artifact.subject.digest != self._digest:
                yield listed, _amiss(f"attached, but to {artifact.subject.digest}", Outcome.OTHER_IMAGE)
                return
            for layer in artifact.layers:
                yield self._judged(entry.artifact_type, listed, self._source.config(layer))

    def _judged(self, artifact_type: str, listed: str, data: bytes) -> tuple[str, Verdict]:
        """(predicate type, verdict) of one blob. `listed`: the type that its annotations tell."""
        if artifact_type == signing.BUNDLE:
            payload_type, payload = _payload(data)
            kind = _kind(payload) or listed
            if self._signer is not None:
                return kind, self._signer.bundle(self._digest, data, kind)
            return kind, self._unchecked(payload_type, payload, kind, _UNCHECKED)
        kind = listed or _kind(data)
        if self._signer is not None:
            return kind, Verdict(outcome=Outcome.ABSENT, said=_UNSIGNED)
        if artifact_type == statement.PAYLOAD:
            return kind, self._unchecked(statement.PAYLOAD, data, kind, _UNSIGNED)
        try:
            about = sbom.about(data)
        except UNREADABLE:
            return kind, _amiss("attached, but no bill of materials")
        if about not in ("", self._digest):
            return kind, _amiss(f"attached, but about {about}, not about {self._digest}", Outcome.OTHER_IMAGE)
        return kind, Verdict(outcome=Outcome.VERIFIED, said=_UNSIGNED)

    def _unchecked(self, payload_type: str, payload: bytes, kind: str, said: str) -> Verdict:
        """Of a statement whose signature nobody asked for: it is one, about this image."""
        verdict = verify.signed_payload(self._digest, payload_type, payload, kind, how="attached")
        return msgspec.structs.replace(verdict, said=said) if verdict.is_verified else verdict


def _amiss(said: str, outcome: Outcome = Outcome.MALFORMED) -> Verdict:
    return Verdict(outcome=outcome, said=said)


def _payload(data: bytes) -> tuple[str, bytes]:
    """Type and bytes of what a bundle says, whether it holds or not; empty for what is none."""
    with suppress(*UNREADABLE):
        sealed = msgspec.json.decode(data, type=signing.Bundle).dsse_envelope
        return sealed.payload_type, sealed.payload
    return "", b""


def _kind(payload: bytes) -> str:
    """The predicate type that a statement says it has."""
    with suppress(*UNREADABLE):
        return statement.decode(payload).predicate_type
    return ""


def _of_another_builder(said: Statement | None) -> bool:
    """Whether it is provenance that graphcrate did not write, such as a CI service's."""
    return said is not None and said.predicate_type == provenance.PREDICATE and not provenance.is_ours(said.predicate)


def _rebuilt(found: _Found, manifest: bytes, media_type: str, wheels: Path | None, place: Workplace) -> Check:
    """Build from the lock that the provenance names, and compare manifests."""
    what = "rebuild"
    said = found.said.get(provenance.PREDICATE)
    if said is None:
        return Check(what=what, ok=False, said="no provenance holds that says what to build from")
    try:
        asked, wanted = provenance.read(said.predicate)
    except msgspec.ValidationError as error:
        return Check(what=what, ok=False, said=f"the provenance does not say what to build from: {error}")
    with place.cache.folder() as folder:
        request = asking.Request(
            name=asked.recipe,
            cuda=asked.variant,
            gpu=",".join(asked.gpus) or None,
            channel=asked.channel or None,
            wheels=wheels,
            extensions=asked.extensions or "auto",
            toolkit=asked.toolkit or None,
            devel=asked.flavour == "devel",
            output=folder,
            smoke=False,
        )
        report = pipeline.build_image(request, place)
        if report.lock_sha256 != wanted:
            said_of_lock = f"the lock here is {report.lock_sha256[:12]}…, the image's was {wanted[:12]}…"
            return Check(what=what, ok=False, said=f"{said_of_lock}: check out the commit that it was built from")
        layout, _ = catalogue.find_image(report.layout, folder)
        own, _ = push.manifest_of(layout, "docker" if media_type == spec.DOCKER_MANIFEST else "oci")
    same = own == manifest
    return Check(what=what, ok=same, said=f"built again, {'the same' if same else 'and other'} bytes")
