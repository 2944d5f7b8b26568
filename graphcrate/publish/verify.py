"""Verify a published image: its signature, its name, its statements, and on demand the same bytes built again."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dssesign import bundles, keys, signing, verify
from dssesign.statement import Statement
from dssesign.verify import SignatureVerdict
from graphcrate.artifacts import pull
from graphcrate.artifacts.locate import find_image
from graphcrate.compat.plan import base_lines
from graphcrate.compat.variants.request import BuildRequest, SuiteOptions
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.host.context import Context
from graphcrate.host.disk import key_files, os_errors
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.sandbox.emulation import this_machine
from graphcrate.model import codec
from graphcrate.model.command import command, for_shell
from graphcrate.model.errors import IntegrityError, UsageError
from graphcrate.model.platform import Platform
from graphcrate.model.report import BuildParameters, BuildReport
from graphcrate.model.words import joined
from graphcrate.oci import access, push, reference
from graphcrate.oci.registry import Repository
from graphcrate.publish import attestations, names, predicates, provenance
from ocilayout import spec
from ociregistry import referrers
from ociregistry.reference import Reference
from ociregistry.repository import Document

_MOST_BESIDE = 4096  #: bytes of a signature or a checksum; they have some hundred
MOST_BUNDLES = 1000  #: that are read of one image; one that is published to ten names has twenty
#: how to build again, for `--rebuild`
Build = Callable[[BuildRequest, Context], BuildReport]


class VerifyCheck(msgspec.Struct, frozen=True):
    """One thing that `verify` looked at: `ok`, or not, in words. `note`: nothing says whether it is right."""

    what: str
    ok: bool
    said: str
    note: bool = False
    next_step: str = ""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """`verify --json`. `statements`: predicate types that are signed or attached; `names`: as what it was published."""

    reference: str
    digest: str
    platform: str = ""  #: of a tag for several, the one that was verified
    names: tuple[str, ...] = ()
    checks: tuple[VerifyCheck, ...]
    statements: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """A user's request. Without `key` signatures are not looked at."""

    ref: str
    key: Path | None = None  #: the public one
    platform: Platform | None = None  #: of a tag for several, the one that is verified; None: this machine's
    published_as: str = ""  #: of a copy: the name of what it is a copy of
    rebuild: bool = False  #: build it again
    wheels: Path | None = None  #: for it: the folder of a lock that has wheels of one's own


def run(request: VerifyRequest, ctx: Context, build: Build) -> Verification:
    """Verify an image on its registry, or a file of a shared folder by what is beside it.

    Raises UsageError, ResolutionError (no such image), NetworkError.
    """
    if Path(request.ref).is_file():
        return _of_file(request)
    key = key_files.read_public(request.key) if request.key else None
    name = reference.parse(request.ref.removeprefix("docker://"))
    source = access.repository(name, ctx)
    image = pull.find_manifest(source, name, ctx.cache, request.platform or this_machine())
    document = source.manifest(image.descriptor.digest)
    digest, checks = document.digest, []
    layers = attached_to(source, digest)
    signatures = list(verify.signatures(digest, layers, key, predicates.PUBLISHED))
    if key is not None:
        verdict = verify.best(digest, signatures)
        checks.append(VerifyCheck("signature", verdict.is_verified, verdict.message))
    attached = list(verify.attestations(digest, layers, key))
    statements: dict[str, Statement | None] = {}
    for predicate, (words, _) in predicates.KINDS.items():
        mine = [verdict for kind, verdict in attached if kind == predicate and not _of_another_builder(verdict)]
        best = verify.best(digest, mine)
        if best.is_verified:
            statements[predicate] = best.statement
        message = best.message if mine else "nothing of the kind is attached to this image"
        other = _ran_elsewhere(best.statement, document) if best.is_verified else ""
        emulated = best.is_verified and _is_emulated(best.statement)
        message += "; an emulator alone has tried this image, on no machine of its kind" if emulated else ""
        checks.append(VerifyCheck(words, best.is_verified and not other, other or message, note=emulated))
    published = names.known(signature.name for signature in signatures if signature.is_verified)
    checks.insert(1 if key else 0, _name(request, name, published, statements.get(predicates.BILL)))
    if request.rebuild:
        checks.append(_rebuilt(statements.get(predicates.PROVENANCE), document, request.wheels, ctx, build))
    return Verification(
        reference=str(name),
        digest=digest,
        platform=(request.platform or this_machine()).name if image.index else "",
        names=tuple(map(str, published)),
        checks=tuple(checks),
        statements=tuple(sorted(statements)),
    )


def _of_file(request: VerifyRequest) -> Verification:
    given = Path(request.ref)
    path = given.resolve() if given.is_symlink() else given  # the newest one's name, beside which no signature is
    unfit = {"--published-as": request.published_as, "--rebuild": request.rebuild, "--wheels": request.wheels}
    if options := [*filter(unfit.get, unfit), *(["--platform"] if request.platform else [])]:
        raise UsageError(f"{options[0]} is for an image on a registry", next_step=f"leave {options[0]} out")
    key = key_files.read_public(request.key) if request.key else None
    with os_errors.explaining(path):
        sha256 = sha256_of(path)
        signature, checksum = (_beside(path, end) for end in (keys.SIGNATURE, ".sha256"))
    checks = []
    if key is not None:
        sentence = f"there is no {path.name}{keys.SIGNATURE} beside it"
        is_signed = signature is not None and keys.fits_file(key, signature, sha256)
        if signature is not None:
            sentence = (
                "made by this key over this very file" if is_signed else "made by another key, or over another file"
            )
        checks.append(VerifyCheck("signature", is_signed, sentence))
    else:
        sentence = "there is none beside it" if signature is None else "not checked: --key cosign.pub checks it"
        checks.append(VerifyCheck("signature", True, sentence, note=True))
    if checksum is None:
        checks.append(VerifyCheck("checksum", True, f"there is no {path.name}.sha256 beside it", note=True))
    else:
        is_same = checksum.split()[:1] == [sha256.encode()]
        checks.append(VerifyCheck("checksum", is_same, f"of {'this very' if is_same else 'another'} file"))
    return Verification(reference=str(given), digest=f"sha256:{sha256}", checks=tuple(checks), statements=())


def _beside(path: Path, ending: str) -> bytes | None:
    """Read a small file that has a file's name and this ending; None where no such file is there."""
    with contextlib.suppress(FileNotFoundError), path.with_name(f"{path.name}{ending}").open("rb") as stream:
        return stream.read(_MOST_BESIDE)
    return None


def attached_to(source: Repository, digest: str) -> list[tuple[spec.Descriptor, bytes]]:
    """Signatures of and statements about an image, under cosign's tags and as referrers, their digests checked."""
    tags = (signing.signature_tag(digest), signing.attestation_tag(digest))
    layers = [layer for tag in tags for layer in _layers(source, attestations.stored(source, tag))]
    return layers + _referrers(source, digest)


def _is_emulated(about: Statement | None) -> bool:
    """Return whether it says that the image was published with an emulator's proof in place of its suites."""
    if not about or about.predicate_type != predicates.SMOKE or not isinstance(about.predicate, dict):
        return False
    return about.predicate.get(predicates.EMULATED) is True


def _ran_elsewhere(about: Statement | None, document: Document) -> str:
    """Say that suites ran in an image of another configuration, so of other layers; empty where they did not.

    The manifest that ran may differ from the registry's in its form. Statements from before November 2026 name none.
    """
    ran = about.predicate.get("ran") if about and isinstance(about.predicate, dict) else None
    if not about or about.predicate_type != predicates.SMOKE or not isinstance(ran, dict):
        return ""
    own = codec.decode(document.data, spec.Manifest).config.digest
    if ran.get("config") == own:
        return ""
    return f"the suites ran in an image with the configuration {ran.get('config')}, and this one has {own}"


def _name(
    request: VerifyRequest, asked: Reference, published: Sequence[Reference], about: Statement | None
) -> VerifyCheck:
    """Tell whether it was published as what the user asks for, or as what they say that it is a copy of."""
    if request.published_as:
        original = reference.parse(request.published_as)
        tag = original.tag if names.has_tag(request.published_as) else asked.tag
        asked = Reference(host=original.host, repository=original.repository, tag=tag)
    judged = names.judge(asked, published, names.own_tag(about))
    step = ""
    if not judged.is_ok:
        again = command("verify", request.ref, key=request.key, published_as=str(published[0]))
        step = f"take the image from where it was published; of a copy that you made yourself: {again}"
    return VerifyCheck("name", judged.is_ok, judged.message, note=not judged.is_known, next_step=step)


def _layers(source: Repository, layers: Iterable[spec.Descriptor]) -> list[tuple[spec.Descriptor, bytes]]:
    """List which of these are signatures or statements, checked."""
    mine = (layer for layer in layers if layer.media_type in signing.MEDIA_TYPES or _is_bundle(layer.media_type))
    return [(layer, source.config(layer)) for layer in mine]


def _referrers(source: Repository, digest: str) -> list[tuple[spec.Descriptor, bytes]]:
    """The bundles that refer to an image: what is in those manifests, checked."""
    # cosign 3.1 lists its own under the type of their empty configuration
    every = referrers.listed(source, digest)
    mine = [
        descriptor
        for descriptor in every
        if _is_bundle(descriptor.artifact_type) or descriptor.artifact_type == spec.EMPTY
    ]
    if len(mine) > MOST_BUNDLES:
        raise IntegrityError(
            f"{len(mine)} signatures and statements refer to {source.name}@{digest}, more than the {MOST_BUNDLES} read",
            cause="Whoever may write to the repository can add any number of them.",
            next_step=f"see whose they are, and delete what is not needed: "
            f"oras discover {for_shell(f'{source.name}@{digest}')}",
        )
    return [layer for descriptor in mine for layer in _layers(source, attestations.stored(source, descriptor.digest))]


def _is_bundle(kind: str) -> bool:
    return kind.startswith(bundles.FAMILY)


def _of_another_builder(verdict: SignatureVerdict) -> bool:
    """Return whether it is provenance that graphcrate did not write, such as a CI service's."""
    about = verdict.statement
    return bool(about and about.predicate_type == predicates.PROVENANCE and not provenance.is_ours(about.predicate))


def _again(asked: BuildParameters, wheels: Path | None, output: Path) -> BuildRequest:
    """The request of a build again. Target and driver are met by the variant that was chosen for them."""
    request = BuildRequest.again(asked)
    return msgspec.structs.replace(
        request,
        machine=MachineRequest(gpu=request.machine.gpu),
        sources=msgspec.structs.replace(request.sources, wheels=wheels),
        suites=SuiteOptions(run=False),
        output=output,
    )


def _rebuilt(
    about: Statement | None, document: Document, wheels: Path | None, ctx: Context, build: Build
) -> VerifyCheck:
    """Build from the lock that the provenance names, and compare manifests."""
    if about is None:
        return VerifyCheck("rebuild", False, "no provenance holds that says what to build from")
    try:
        asked, lock_sha256 = provenance.read(about.predicate)
    except msgspec.ValidationError as error:
        return VerifyCheck("rebuild", False, f"the provenance does not say what to build from: {error}")
    with ctx.cache.folder() as folder:
        report = build(_again(asked, wheels, folder), ctx)
        if report.lock_sha256 != lock_sha256 and report.drift:
            changes = joined(base_lines.drifted(report.drift))
            difference = f"other bytes, as no place has all Debian packages of the lock; of today are {changes}"
            return VerifyCheck(
                "rebuild", False, f"{difference}. DEBIAN_SNAPSHOT=URL of another snapshot service may help"
            )
        if report.lock_sha256 != lock_sha256:
            difference = f"the lock here is {report.lock_sha256[:12]}…, the image's was {lock_sha256[:12]}…"
            return VerifyCheck("rebuild", False, f"{difference}: check out the commit that it was built from")
        layout, _ = find_image(report.layout, folder)
        own, _ = push.manifest_of(layout, "docker" if document.media_type == spec.DOCKER_MANIFEST else "oci")
    same = own == document.data
    return VerifyCheck("rebuild", same, f"built again, {'the same' if same else 'and other'} bytes")
