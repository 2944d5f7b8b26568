"""A registry: blobs, then the manifest by its digest, then statements and signatures, and the tags last of all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from dssesign import keys
from graphcrate.compat.facts import addresses
from graphcrate.host.context import Context
from graphcrate.host.disk import key_files
from graphcrate.host.sandbox.attach import ask_password
from graphcrate.model.words import listed
from graphcrate.oci import access, credentials
from graphcrate.oci.push import push_layout
from graphcrate.oci.reference import parse
from graphcrate.oci.registry import Repository
from graphcrate.publish import attestations, shared_tag
from graphcrate.publish.destinations.destination import Delivery, Destination, Published
from graphcrate.publish.destinations.parse import registry_location, vpc_reference
from graphcrate.publish.policy import ImageEvidence, PublishRequest, short_tag
from graphcrate.render.published import pulling
from ocilayout import spec
from ociregistry import referrers
from ociregistry.push import Pushed
from ociregistry.reference import Reference
from ociregistry.repository import Document
from patienthttp.errors import is_loopback


class Push(NamedTuple):
    """An image on its way: to which repository, under which tags, signed by which key."""

    image: ImageEvidence
    request: PublishRequest
    reference: Reference  #: with the first tag
    target: Repository
    tags: tuple[str, ...]
    key: keys.PrivateKey | None
    ctx: Context


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
        push = self._begin(image, request, None, ctx)
        shared_tag.state(push.target, push.reference.tag)
        self._check_tags(push)
        return (self._parcel(push, " and ".join(f"{push.reference.name}:{tag}" for tag in push.tags)),)

    def _parcel(self, push: Push, place: str) -> Delivery:
        layout = push.image.layout
        blobs = {blob.digest: blob for blob in (*layout.layers, layout.manifest.config)}.values()
        there = sum(blob.size for blob in blobs if push.target.has(blob))
        what = f"{len(layout.layers)} layers, their configuration and manifest"
        return Delivery(what=what, place=place, bytes=sum(blob.size for blob in blobs), bytes_there=there)

    def _target(self, name: str, tag: str, request: PublishRequest, ctx: Context) -> tuple[Reference, Repository]:
        reference = self.reference(name, tag)
        mount_from = request.mount_from
        find = credentials.for_destination
        return reference, access.repository(reference, ctx, find=find, writes=True, mount_from=mount_from)

    def _begin(self, image: ImageEvidence, request: PublishRequest, key: keys.PrivateKey | None, ctx: Context) -> Push:
        reference, target = self._target(image.report.name, image.report.tag, request, ctx)
        tags = (reference.tag, *self._short(image, request), *request.tags)
        return Push(image, request, reference, target, tuple(dict.fromkeys(tags)), key, ctx)

    def publish(self, image: ImageEvidence, request: PublishRequest, ctx: Context) -> Published:
        """Send it, attach statements and signatures, and set the tags when all of it is there."""
        key = key_files.read_private(request.key, ctx.environment, ask_password) if request.key else None
        push = self._begin(image, request, key, ctx)
        self._check_tags(push)
        sent = self._send(push)
        pushed = sent.pushed
        document = push.target.manifest(pushed.digest)
        attached = attestations.AttachedStatements()
        if key or sent.form:  # a SIF has no unsigned statements: Singularity's clients look for none
            subject = spec.Descriptor(media_type=pushed.media_type, digest=pushed.digest, size=len(document.data))
            names = [f"{push.reference.name}:{tag}" for tag in push.tags]
            attached = attestations.attach(push.target, image, subject, names, key, ctx)
        index = self._set_tags(push, document)
        # another client may have written that list meanwhile
        if why := referrers.add(push.target, pushed.digest, attached.referrers):
            ctx.progress.note(f"warning: {why}")
        return Published(
            name=image.report.name,
            tag=image.report.tag,
            reference=sent.shown,
            digest=pushed.digest,
            index=index,
            form=sent.form,
            tags=push.tags,
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

    def _check_tags(self, push: Push) -> None:
        """Refuse what may not stand under a tag beside the images for other platforms that it has."""
        if push.request.replace:
            return
        layout, note = push.image.layout, push.ctx.progress.note
        for tag in push.tags:
            shared_tag.check(push.target, tag, layout.platform, layout.config, push.key, note)

    def _set_tags(self, push: Push, document: Document) -> str:
        """Set the tags, each beside the images for other platforms that it has; the first one's index, if it is one."""
        layout, note, first = push.image.layout, push.ctx.progress.note, ""
        own = shared_tag.TaggedImage(document, layout.platform, layout.config)
        for tag in push.tags:
            name = f"{push.target.name}:{tag}"

            def sign(index: spec.Descriptor, name: str = name) -> None:
                if push.key is not None:
                    attestations.sign(push.target, index, [name], push.key, push.ctx)

            held = shared_tag.put(push.target, tag, own, sign, replace=push.request.replace)
            if len(platforms := held.images.platforms) > 1:
                note(f"{name} is for {listed(platforms)}: each runtime takes the one for its machine")
                if addresses.accelerates(self.host):
                    note(
                        f"warning: Alibaba makes no accelerated image of {name}, as it is for several platforms; "
                        f"--to {name}-{own.platform.architecture} gives this one a tag of its own"
                    )
                first = first or (held.digest if tag == push.tags[0] else "")
        return first

    def _send(self, push: Push) -> Sent:
        """Send blobs and manifest of the layout, under the manifest's digest alone."""
        form, reference = push.request.form or "docker", push.reference
        pushed = push_layout(push.target, push.image.layout, form, push.ctx.progress)
        is_plain = credentials.is_plain(reference.host, push.ctx.environment)
        report, inside = push.image.report, vpc_reference(reference)
        on_gpus = report.torch_cuda != "cpu"
        lines = pulling(reference, report.name, inside=inside, plain_http=is_plain, on_gpus=on_gpus)
        return Sent(pushed, form, str(reference), lines)
