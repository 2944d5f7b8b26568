"""Publish an image that may go out, to any destination: a registry, `oras://`, a folder."""

from collections.abc import Mapping

import msgspec

from graphcrate.artifacts.conversion.job import Options, check_options
from graphcrate.compat.facts import slim
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.key_files import check_readable
from graphcrate.model.command import command, setting
from graphcrate.model.errors import UsageError
from graphcrate.publish.destinations.destination import Deliveries, Destination, Published
from graphcrate.publish.destinations.folder import SharedFolder
from graphcrate.publish.destinations.oras import OrasRegistry
from graphcrate.publish.destinations.registry import Registry
from graphcrate.publish.policy import ImageEvidence, PublishRequest, examine, refuse_tags
from ociregistry.reference import TAG_RULE, is_tag

#: asked in this order what `--to` means to them; the last takes what has no other's form
DESTINATIONS: tuple[type[Destination], ...] = (SharedFolder, OrasRegistry, Registry)
FORMS = "\n".join(("--to is one of", *(kind.forms for kind in reversed(DESTINATIONS))))
#: option → field of the request; a destination says which of them apply (`Destination.options`)
OPTIONS = {
    "--form": "form",
    "--mount-from": "mount_from",
    "--key": "key",
    "--tag": "tags",
    "--short-tag": "short_tag",
    "--as": "forms",
    "--over": "over",
    "--kernel": "kernel",
    "--compression": "compression",
    "--replace": "replace",
}
#: in the cache: this person has read the line about NVIDIA's terms; another number when they or docs/terms.md change
_TERMS_SAID = ("said", "terms-1")


def parse_destination(text: str, environment: Mapping[str, str]) -> Destination:
    """The destination that `--to` names. `environment`: for HOME in paths. Raises UsageError with the forms."""
    try:
        parsed = (kind.parse(text, environment) for kind in DESTINATIONS)
        return next(destination for destination in parsed if destination is not None)
    except UsageError as error:
        raise UsageError(error.what, cause=error.cause, next_step=FORMS) from error


def destination_of(request: PublishRequest, ctx: Context, to: str) -> Destination:
    """Parse where it goes. Raises UsageError, also for an option that does not apply to it.

    Raises HostError for a folder that cannot be written.
    """
    destination = parse_destination(to, ctx.environment)
    check_options(request, _options(), destination.title, to)
    if ("delta" in request.forms) != bool(request.over):
        raise UsageError(
            "a delta and the image that it goes over are named together",
            next_step=f"{command('publish', request.ref, to=to, as_='delta', over='NAME:TAG')}",
        )
    for tag in request.tags:
        if not is_tag(tag):
            raise UsageError(
                f"{tag!r} is not a tag ({TAG_RULE})",
                cause="A further tag names the same image in the same repository, of which it says nothing.",
                next_step="--tag latest",
            )
    if request.key:
        check_readable(request.key)
    destination.check()
    return destination


def plan(request: PublishRequest, ctx: Context, to: str) -> Deliveries:
    """Tell what `publish` would deliver of an image that is there. Raises as that does."""
    destination, candidate = destination_of(request, ctx, to), examine(request, ctx)
    refuse_tags(candidate, destination.tags)
    name, tag = candidate.report.name, candidate.report.tag
    return Deliveries(name=name, tag=tag, destination=to, deliveries=destination.plan(candidate, request, ctx))


def _options() -> Options:
    """Of each option its field, and the destinations to which it applies."""
    return {
        option: (field, tuple(kind.title for kind in reversed(DESTINATIONS) if option in kind.options))
        for option, field in OPTIONS.items()
    }


def publish(request: PublishRequest, ctx: Context, to: str) -> Published:
    """Publish to the destination that `--to` names.

    Raises UsageError, GateError for an image that may not go out, and what converting, writing or sending raises.
    """
    start = settings.now()
    destination = destination_of(request, ctx, to)
    candidate = examine(request, ctx)
    refuse_tags(candidate, destination.tags)
    _warn_of_terms(candidate, destination, ctx)
    return msgspec.structs.replace(
        destination.publish(candidate, request, ctx),
        destination=to,
        layout=candidate.layout.digest,
        platform=candidate.layout.platform.name,
        cpu_only=candidate.evidence.cpu_only,
        emulated=candidate.evidence.emulated,
        seconds=round(settings.now() - start, 3),
    )


def _warn_of_terms(candidate: ImageEvidence, destination: Destination, ctx: Context) -> None:
    """Say on what terms others get NVIDIA's libraries: once for each user, and each time what speaks against it."""
    if destination.is_own:
        return
    report, asked = candidate.report, candidate.report.asked
    if report.torch_cuda == "cpu" and not (asked and asked.flavour == "devel"):
        return
    where = destination.receiver
    if asked and asked.slim == "all":
        ctx.progress.note(
            f"warning: NVIDIA's own libraries were cut in this image, and {where} hands it on: {slim.TERMS}. "
            f"Keep it within your site, or publish one with {setting(slim='yes')}"
        )
    if asked and asked.flavour == "devel" and candidate.lock.compilation and candidate.lock.compilation.toolkit:
        ctx.progress.note(
            f"warning: this image has NVIDIA's compiler, and {where} hands it on: section 1.1.2 of the CUDA Toolkit's "
            "EULA keeps developer tools for internal use. Keep it within your site, or leave "
            f"{setting(flavour='devel')} out"
        )
    marker = ctx.cache.path(*_TERMS_SAID)
    if not marker.exists():
        ctx.progress.note(
            f"terms: this image has libraries of NVIDIA's, and who gets it from {where} has them on NVIDIA's terms: "
            "docs/terms.md says which, and what they ask of you (said once)"
        )
        ctx.cache.keep(marker, b"")
