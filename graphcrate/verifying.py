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
from graphcrate.errors import ResolutionError
from graphcrate.host.http import Client
from graphcrate.host.workplace import Workplace
from graphcrate.model.proof import Asked, Outcome, Statement, Verdict
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


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks. `key`: the public key; None: signatures are not looked at. `rebuild`: build it again."""

    ref: str
    key: Path | None = None
    rebuild: bool = False
    wheels: Path | None = None  #: for it: the folder of a lock that has wheels of one's own


def run(request: Request, place: Workplace) -> Verification:
    """Look at the image on its registry. Raises UsageError, ResolutionError (no such image), NetworkError."""
    name = reference.parse(request.ref.removeprefix("docker://"))
    find = functools.partial(credentials.find, name, place.environment)
    source = Repository(
        Client(place.environment), name, find, trusted_realms=credentials.trusted_realms(place.environment)
    )
    document = source.manifest(name.digest or name.tag)
    key = keyfile.read_public(request.key) if request.key else None
    found = _Found(source, document.digest, key)
    checks = list(found.checks())
    if request.rebuild:
        checks.append(_rebuilt(found, document.data, document.media_type, request.wheels, place))
    return Verification(
        reference=str(name), digest=document.digest, checks=tuple(checks), statements=tuple(sorted(found.said))
    )


class _Found:
    """What lies beside an image. `said`: predicate type → statement, of those that hold."""

    def __init__(self, source: Repository, digest: str, key: PublicKey | None) -> None:
        self._source, self._digest, self._key = source, digest, key
        self.said: dict[str, Statement | None] = {}

    def checks(self) -> Iterator[Check]:
        """The signature of the image, where a key was given, then each statement."""
        if self._key is not None:
            verdict = self._signature(self._key)
            yield Check(what="signature", ok=verdict.is_verified, said=verdict.said)
        artifacts = referrers(self._source, self._digest)
        verdicts = [verdict for entry in artifacts for verdict in self._verdicts(entry)]
        for predicate, words in WANTED.items():
            mine = [one for kind, one in verdicts if kind == predicate]
            best = verify.best(self._digest, mine) if mine else None
            if best is not None and best.is_verified:
                self.said[predicate] = best.statement
            said = best.said if best is not None else "nothing of the kind is attached to this image"
            yield Check(what=words, ok=best is not None and best.is_verified, said=said)

    def _signature(self, key: PublicKey) -> Verdict:
        """The better of a bundle that says `signed` and the signature under cosign's older tag."""
        bundles = [
            verify.bundle(self._digest, data, key)
            for entry in referrers(self._source, self._digest, signing.BUNDLE)
            for data in self._blobs(entry).values()
        ]
        manifest = None
        blobs: Mapping[str, bytes] = {}
        with suppress(ResolutionError):
            manifest = self._source.manifest(storage.signature_tag(self._digest)).data
            layers = msgspec.json.decode(manifest, type=spec.Manifest).layers
            blobs = {layer.digest: self._source.config(layer) for layer in layers}
        simple = verify.simple_signature(self._digest, manifest, blobs, key)
        return verify.best(self._digest, [*bundles, simple])

    def _verdicts(self, entry: spec.Descriptor) -> Iterator[tuple[str, Verdict]]:
        """(predicate type, verdict) of each blob of an artifact."""
        for data in self._blobs(entry).values():
            if entry.artifact_type == signing.BUNDLE:
                if self._key is None:
                    yield _kind(data), _unchecked("attached and signed; no key was given to check it", _payload(data))
                else:
                    yield _kind(data), verify.bundle(self._digest, data, self._key)
            elif self._key is None:
                payload = data if entry.artifact_type == statement.PAYLOAD else b""
                kind = entry.annotations.get(storage.IN_TOTO, "")
                yield kind, _unchecked("attached, and signed by nobody", payload)

    def _blobs(self, entry: spec.Descriptor) -> dict[str, bytes]:
        manifest = msgspec.json.decode(self._source.manifest(entry.digest).data, type=spec.ArtifactManifest)
        return {layer.digest: self._source.config(layer) for layer in manifest.layers}


def _payload(data: bytes) -> bytes:
    """What a bundle says, whether it holds or not; empty for what is none."""
    with suppress(*UNREADABLE):
        return msgspec.json.decode(data, type=signing.Bundle).dsse_envelope.payload
    return b""


def _kind(data: bytes) -> str:
    """The predicate type that a bundle says it has."""
    with suppress(*UNREADABLE):
        return statement.decode(_payload(data)).predicate_type
    return ""


def _unchecked(said: str, payload: bytes) -> Verdict:
    """Of what was found and bears no signature that was asked for."""
    found = None
    with suppress(*UNREADABLE):
        found = statement.decode(payload) if payload else None
    return Verdict(outcome=Outcome.VERIFIED, said=said, statement=found)


def _rebuilt(found: _Found, manifest: bytes, media_type: str, wheels: Path | None, place: Workplace) -> Check:
    """Build from the lock that the provenance names, and compare manifests."""
    what = "rebuild"
    said = found.said.get(provenance.PREDICATE)
    if said is None:
        return Check(what=what, ok=False, said="there is no provenance to build from; with a key it is read")
    definition = said.predicate["buildDefinition"]
    asked = msgspec.convert(definition["externalParameters"], Asked)
    wanted = definition["resolvedDependencies"][0]["digest"]["sha256"]
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
