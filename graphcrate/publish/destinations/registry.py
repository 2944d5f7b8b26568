"""A registry: blobs, then the manifest by its digest, then statements and signatures, and the tags last of all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from graphcrate.attest import keys
from graphcrate.compat.facts import addresses
from graphcrate.host.context import Context
from graphcrate.host.sandbox.attach import ask_password
from graphcrate.model.words import listed
from graphcrate.oci import access, credentials, push
from graphcrate.oci.reference import parse
from graphcrate.oci.registry import Repository
from graphcrate.publish import attestations, shared_tag
from graphcrate.publish.destinations.destination import Delivery, Destination, Published
from graphcrate.publish.destinations.parse import registry_location, vpc_reference
from graphcrate.publish.policy import ImageEvidence, PublishRequest, short_tag
from graphcrate.render import jobs
from ocilayout import spec
from ociregistry import referrers
from ociregistry.push import Pushed
from ociregistry.reference import Reference
from ociregistry.repository import Document
from patienthttp.errors import is_loopback


class Sent(NamedTuple):
    """An upload without a tag yet. `form`: of the manifest; empty: no image that runtimes pull."""

    pushed: Pushed
    form: str
    shown: str  #: the reference as its users write it
    lines: Mapping[str, str]  #: runtime → what they type


@dataclass(frozen=True, kw_only=True)
class Registry(Destination):
    """A registry. With a tag it is the whole reference; without, `repository` is what image names are put below."""

    host: str  #: with its port
    repository: str  #: empty: names stand directly below the host
    tag: str = ""

    title: ClassVar[str] = "a registry"
    forms: ClassVar[str] = """\
    registry.example/team             a registry: image and tag are appended (docker.io/USER on Docker Hub)
    registry.example/team/pyg:1.2     the whole name, taken as it is because it has a tag
    acr:cn-hangzhou/NAMESPACE         Alibaba Cloud (acr:INSTANCE@cn-hangzhou/NAMESPACE for an instance of one's own)"""
    options: ClassVar[frozenset[str]] = frozenset(
        {"--form", "--mount-from", "--key", "--tag", "--short-tag", "--replace"}
    )

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str]) -> Self | None:
        """Read HOST[:PORT][/PATH][:TAG] or `acr:…`: all that has no other destination's form."""
        host, repository, tag = registry_location(text)
        return cls(host=host, repository=repository, tag=tag)

    @property
    def receiver(self) -> str:
        """The registry's host."""
        return self.host

    @property
    def is_own(self) -> bool:
        """Return whether the registry runs on this machine."""
        return is_loopback(self.host.partition(":")[0])

    @property
    def tags(self) -> tuple[str, ...]:
        """The tag of the whole reference, where `--to` is one."""
        return (self.tag,) if self.tag else ()

    def reference(self, name: str, tag: str) -> Reference:
        """The reference to which the image `name`:`tag` goes: the destination's own name and tag where it has them.

        Raises UsageError for a name or tag that no registry takes.
        """
        where = self.repository if self.tag else f"{self.repository}/{name}".strip("/")
        return parse(f"{self.host}/{where}:{self.tag or tag}")

    def check(self) -> None:
        """Do nothing: whether a registry takes an image it says when it gets one."""

    def require_answer(self, name: str, tag: str, request: PublishRequest, ctx: Context) -> None:
        """Ask what the tag holds: the host, its name's spelling and the login have to be right for that."""
        reference, target = self._target(name, tag, request, ctx)
        shared_tag.state(target, reference.tag)

    def plan(self, image: ImageEvidence, request: PublishRequest, ctx: Context) -> tuple[Delivery, ...]:
        """Ask for each blob, and whether the tags may be set. The key is not asked for: that needs its password."""
        reference, target = self._target(image.report.name, image.report.tag, request, ctx)
        self.require_answer(image.report.name, image.report.tag, request, ctx)
        tags = self._tags(reference, image, request)
        self._check_tags(image, request, target, tags, None, ctx)
        places = " and ".join(f"{reference.name}:{tag}" for tag in tags)
        return (self._parcel(image, target, places),)

    def _parcel(self, image: ImageEvidence, target: Repository, place: str) -> Delivery:
        layout = image.layout
        blobs = {blob.digest: blob for blob in (*layout.layers, layout.manifest.config)}.values()
        there = sum(blob.size for blob in blobs if target.has(blob))
        what = f"{len(layout.layers)} layers, their configuration and manifest"
        return Delivery(what=what, place=place, bytes=sum(blob.size for blob in blobs), bytes_there=there)

    def _target(self, name: str, tag: str, request: PublishRequest, ctx: Context) -> tuple[Reference, Repository]:
        reference = self.reference(name, tag)
        mount_from = request.mount_from
        find = credentials.for_destination
        return reference, access.repository(reference, ctx, find=find, writes=True, mount_from=mount_from)

    def _tags(self, reference: Reference, image: ImageEvidence, request: PublishRequest) -> tuple[str, ...]:
        return tuple(dict.fromkeys((reference.tag, *self._short(image, request), *request.tags)))

    def publish(self, image: ImageEvidence, request: PublishRequest, ctx: Context) -> Published:
        """Send it, attach statements and signatures, and set the tags when all of it is there."""
        report = image.report
        key = keys.read_private(request.key, ctx.environment, ask_password) if request.key else None
        reference, target = self._target(report.name, report.tag, request, ctx)
        tags = self._tags(reference, image, request)
        self._check_tags(image, request, target, tags, key, ctx)
        sent = self._send(image, request, reference, target, ctx)
        pushed = sent.pushed
        document = target.manifest(pushed.digest)
        attached = attestations.AttachedStatements()
        if key or sent.form:  # a SIF has no unsigned statements: Singularity's clients look for none
            subject = spec.Descriptor(media_type=pushed.media_type, digest=pushed.digest, size=len(document.data))
            names = [f"{reference.name}:{tag}" for tag in tags]
            attached = attestations.attach(target, image, subject, names, key, ctx)
        index = self._set_tags(image, request, target, tags, document, key, ctx)
        # another client may have written that list meanwhile
        if why := referrers.add(target, pushed.digest, attached.referrers):
            ctx.progress.note(f"warning: {why}")
        return Published(
            name=report.name,
            tag=report.tag,
            reference=sent.shown,
            digest=pushed.digest,
            index=index,
            form=sent.form,
            tags=tags,
            bytes_sent=pushed.bytes_sent,
            bytes_there=pushed.bytes_there,
            bytes_mounted=pushed.bytes_mounted,
            proofs=attached.digests,
            signed="key" if key else "",
            lines={user: line for user, line in sent.lines.items() if not (index and user == "pai-accelerated")},
        )

    def _short(self, image: ImageEvidence, request: PublishRequest) -> tuple[str, ...]:
        """The short tag, where it is asked for: one for all platforms."""
        return (short_tag(image),) if request.short_tag else ()

    def _check_tags(
        self,
        image: ImageEvidence,
        request: PublishRequest,
        target: Repository,
        tags: Sequence[str],
        key: keys.PrivateKey | None,
        ctx: Context,
    ) -> None:
        """Refuse what may not stand under a tag beside the images for other platforms that it has."""
        if request.replace:
            return
        for tag in tags:
            shared_tag.check(target, tag, image.layout.platform, image.layout.config, key, ctx.progress.note)

    def _set_tags(
        self,
        image: ImageEvidence,
        request: PublishRequest,
        target: Repository,
        tags: Sequence[str],
        document: Document,
        key: keys.PrivateKey | None,
        ctx: Context,
    ) -> str:
        """Set the tags, each beside the images for other platforms that it has; the first one's index, if it is one."""
        own, first = shared_tag.TaggedImage(document, image.layout.platform, image.layout.config), ""
        for tag in tags:
            name = f"{target.name}:{tag}"

            def sign(index: spec.Descriptor, name: str = name) -> None:
                if key is not None:
                    attestations.sign(target, index, [name], key, ctx)

            held = shared_tag.put(target, tag, own, sign, replace=request.replace)
            if len(platforms := held.images.platforms) > 1:
                ctx.progress.note(f"{name} is for {listed(platforms)}: each runtime takes the one for its machine")
                if addresses.accelerates(self.host):
                    ctx.progress.note(
                        f"warning: Alibaba makes no accelerated image of {name}, as it is for several platforms; "
                        f"--to {name}-{own.platform.architecture} gives this one a tag of its own"
                    )
                first = first or (held.digest if tag == tags[0] else "")
        return first

    def _send(
        self, image: ImageEvidence, request: PublishRequest, reference: Reference, target: Repository, ctx: Context
    ) -> Sent:
        """Send blobs and manifest of the layout, under the manifest's digest alone."""
        form = request.form or "docker"
        pushed = push.push_layout(target, image.layout, form, ctx.progress)
        is_plain = credentials.is_plain(reference.host, ctx.environment)
        lines = jobs.pulling(reference, image.report.name, inside=vpc_reference(reference), plain_http=is_plain)
        return Sent(pushed, form, str(reference), lines)
