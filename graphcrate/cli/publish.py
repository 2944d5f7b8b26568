"""The commands `publish`, `verify` and `keys`: arguments to `publish.publication` and `verify`, `disk.key_files`."""

import dataclasses
import functools
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import msgspec
import typer

from graphcrate.cli import options
from graphcrate.cli.options import config, cuda_version, gpu_list, here, named, present, write
from graphcrate.model.command import ETC, command, for_shell, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.words import in_lines, size
from sifsquash.values import Compression

if TYPE_CHECKING:
    from graphcrate.compat.variants.request import BuildRequest
    from graphcrate.host.context import Context
    from graphcrate.publish.policy import PublishRequest


class FileForm(StrEnum):
    """A form of files that a folder can get: `policy.FILE_FORMS`."""

    SIF = "sif"
    SQSH = "sqsh"
    DELTA = "delta"
    ARCHIVE = "oci-archive"
    BUNDLE = "bundle"


Image = Annotated[
    str,
    typer.Argument(help="NAME:TAG below dist/, a layout, or a recipe, which is built first.", metavar="[REF|NAME]"),
]
Cuda = Annotated[str | None, typer.Option(callback=cuda_version, help="CUDA version of a recipe to build first.")]
Form = Annotated[
    Literal["docker", "oci"] | None,
    typer.Option(help="Of the manifest: docker, which every runtime can pull, enroot too; oci. docker if left out."),
]
Key = Annotated[
    Path | None, typer.Option(help="Sign with this key (cosign.key; `keys` makes one); in a folder, each file.")
]
Tag = Annotated[list[str] | None, typer.Option(help="On a registry, oras:// too: a further tag; again for more.")]
ShortTag = Annotated[
    bool,
    typer.Option("--short-tag", help="On a registry: set the short tag too: cu118, or cu118-compat for a fall-back."),
]
MountFrom = Annotated[
    list[str] | None, typer.Option(help="On a registry: a repository of it that may have layers of the image.")
]
CpuOnly = Annotated[
    bool, typer.Option("--allow-cpu-only", help="Publish without a pass on a GPU; it is recorded beside the image.")
]
Emulated = Annotated[
    bool,
    typer.Option(
        "--allow-emulated",
        help="Publish what an emulator alone has tried, for another processor; it is recorded beside the image.",
    ),
]
As = Annotated[
    list[FileForm] | None,
    typer.Option(
        "--as",
        help="In a folder: sif for Singularity, sqsh for enroot and pyxis, delta (with --over), oci-archive for all, "
        "bundle for a site without a network; again for more.",
    ),
]
Over = Annotated[str, typer.Option(help="Of a delta: the image that it goes over, NAME:TAG or a SIF.")]
Prune = Annotated[
    bool, typer.Option("--prune", help="List the deltas of a folder, and SIFs in bases/ that none goes over.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Of --prune: remove those SIFs.")]
PlanOnly = Annotated[
    bool,
    typer.Option("--plan", help="Check it, ask the destination, list what goes where with its bytes; send nothing."),
]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="In a folder: overwrite another file of that name. On a registry: drop a tag's other platforms.",
    ),
]


def publish(
    image: Image = "",
    to: Annotated[str, typer.Option(help="registry.example/team, acr:cn-hangzhou/ns, oras://…, a folder.")] = "",
    cuda: Cuda = None,
    platform: options.Platform = "",
    gpu: options.Gpus = None,
    target: Annotated[str, typer.Option(help="A machine of targets/ to build it for.")] = "",
    form: Form = None,
    tag: Tag = None,
    short_tag: ShortTag = False,
    mount_from: MountFrom = None,
    plain_http: options.PlainHttp = False,
    key: Key = None,
    allow_cpu_only: CpuOnly = False,
    allow_emulated: Emulated = False,
    as_: As = None,
    over: Over = "",
    prune: Prune = False,
    yes: Yes = False,
    kernel: options.MountKernel = None,
    compression: options.Compression = None,
    replace: Replace = False,
    trust_paths: options.TrustPaths = False,
    output: options.Output = Path("dist"),
    plan: PlanOnly = False,
    as_json: options.Json = False,
) -> None:
    """Publish an image that passed its checks and tests. Blobs first, proofs, then the tag. Prints where."""
    from graphcrate.publish import policy, publication

    ctx = here(plain_http=plain_http)
    is_built_first = bool(image) and _is_recipe(image, (cuda, platform), output, ctx, trust_paths=trust_paths)
    to = to or config().to or _refuse_nowhere()
    if prune or yes or not image:
        _prune(image, to, ctx, prune=prune, yes=yes, as_json=as_json)
        return
    request = policy.PublishRequest(
        ref=named(image, output, platform) if ":" in image else image,  # else a recipe, or a path
        output=output,
        form=form,
        tags=tuple(tag or ()),
        short_tag=short_tag,
        mount_from=tuple(mount_from or ()),
        key=key,
        allow_cpu_only=allow_cpu_only,
        allow_emulated=allow_emulated,
        forms=tuple(form for form in policy.FILE_FORMS if form in (as_ or ())),
        over=over or None,
        kernel=kernel,
        compression=Compression(compression) if compression else None,
        replace=replace,
    )
    publication.destination_of(request, ctx, to)  # fail before anything is built
    if is_built_first:
        build = _build_request(image, cuda, platform, (gpu_list(gpu), target), output, trust_paths=trust_paths)
        request = dataclasses.replace(request, ref=_built(build, request, ctx, plan=plan, as_json=as_json))
    elif cuda or gpu or target:
        _refuse_of_built(image, to)
    deliver = functools.partial(_plan, is_built=not is_built_first) if plan else _deliver
    deliver(request, ctx, to, as_json=as_json)


def _deliver(request: "PublishRequest", ctx: "Context", to: str, *, as_json: bool) -> None:
    from graphcrate.publish import publication

    published = publication.publish(request, ctx, to)
    write(published, f"{published.reference}@{published.digest}\n", as_json=as_json)
    if published.form and published.digest != published.layout:
        ctx.progress.note(
            f"pin on the registry: @{published.digest} (Docker's form); below {request.output} the same image is "
            f"{published.name}:{published.tag}@{published.layout} (OCI's)"
        )
    _say_of_it(request.ref, published.lines, request.output, ctx)


def _plan(request: "PublishRequest", ctx: "Context", to: str, *, is_built: bool, as_json: bool) -> None:
    """Print what would be delivered of an image; ask the destination for one that is still to be built."""
    from graphcrate.publish import publication

    if not is_built:
        name, _, tag = request.ref.partition(":")
        publication.destination_of(request, ctx, to).require_answer(name, tag, request, ctx)
        return
    planned, lines = publication.plan(request, ctx, to), []
    for row in planned.deliveries:
        about = "" if row.is_made else "about "
        there = f", {size(row.bytes_there)} of it there" if row.bytes_there else ""
        lines.append(f"{row.place}  {about}{size(row.bytes)}{there}  ({row.what})\n")
    write(planned, "".join(lines), as_json=as_json)


def _prune(image: str, to: str, ctx: "Context", *, prune: bool, yes: bool, as_json: bool) -> None:
    from graphcrate.cli import tables
    from graphcrate.publish import publication
    from graphcrate.publish.destinations import bases, folder

    place = publication.parse_destination(to, ctx.environment)
    if image or not prune or not isinstance(place, folder.SharedFolder):
        raise UsageError(
            "publish takes an image, or --prune and a folder",
            next_step=f"{command('publish', 'NAME:TAG', to=to)}    or {command('publish', to='FOLDER', prune=True)}",
        )
    if not place.path.is_dir():
        raise UsageError(
            f"there is no folder {str(place.path)!r}", next_step=command("publish", to="FOLDER", prune=True)
        )
    known = bases.listed(place.path)
    doomed = [base for base in known if base.prunable]
    if yes:
        bases.remove(doomed)
    fate = "removed" if yes else "prunable"
    write(known, in_lines(tables.bases(known, fate)), as_json=as_json)
    if doomed and not yes:
        again = command("publish", to=to, prune=True, yes=True)
        ctx.progress.note(
            f"nothing was removed; {again}    removes what no delta of {place.path} needs (it sees no others)"
        )


def _refuse_nowhere() -> NoReturn:
    step = command("publish", ETC, to="registry.example/team")
    raise UsageError(f"there is no destination: {setting(to='…').both()}", next_step=step)


def _refuse_of_built(image: str, to: str) -> None:
    raise UsageError(
        f"{image} is built: --cuda, --gpu and --target are for a recipe, which is built first",
        next_step=f"{command('publish', image, to=to)}, or {command('publish', 'pyg', cuda='…', gpu='…', to=to)}",
    )


def _say_of_it(ref: str, runtimes: Mapping[str, str], output: Path, ctx: "Context") -> None:
    """Say how each runtime gets a published image, and the limits of a fall-back."""
    from graphcrate.artifacts import locate
    from graphcrate.assembly import summary
    from graphcrate.compat.variants.next_steps import NextSteps
    from graphcrate.compat.variants.request import BuildRequest
    from graphcrate.model.report import BuildParameters

    for runtime, line in runtimes.items():
        ctx.progress.note(f"{runtime}: {line}")
    report = locate.find_image(ref, output)[1]
    if report.fallback:
        asked = report.asked or BuildParameters(recipe=report.name, variant=report.cuda)
        insisting = NextSteps(BuildRequest.again(asked)).from_channel(report.fallback.channel)
        lines = summary.fallback_lines(report, insisting)
        sys.stderr.write(in_lines(lines))


def _is_recipe(image: str, kind: tuple[str | None, str], output: Path, ctx: "Context", *, trust_paths: bool) -> bool:
    """Return whether a recipe is meant, which is built first, and no image. `kind`: CUDA version and platform.

    Raises UsageError where there is no such image, recipe or CUDA version of it: that is said before all else.
    """
    from graphcrate.compat.requirements import own
    from graphcrate.compat.variants import catalog

    cuda, platform = kind
    if not _names_recipe(image, ctx):
        present(image, output, platform, quiet=True)
        return False
    stack = own.find_stack(image, cuda, trusts_paths=trust_paths)
    recipe = catalog.find_recipe(ctx, stack.name, stack.file)
    if stack.cuda:
        again = lambda other: command("publish", image, cuda=other)  # noqa: E731
        catalog.refuse_unknown_cuda(recipe, stack.cuda, again, stack.file)
    return True


def _names_recipe(image: str, ctx: "Context") -> bool:
    """Return whether a name is that of a recipe. It goes before a folder of that name."""
    from graphcrate.artifacts.locate import is_image_file
    from graphcrate.compat.variants import catalog

    if image.endswith(".toml"):
        return True
    if ":" in image or "/" in image or is_image_file(image):
        return False
    if not Path(image).exists():
        return True
    is_known = catalog.recipe_path(ctx, image).is_file()
    if is_known:
        ctx.progress.note(f"{image} is the recipe of that name; ./{image} means the folder")
    return is_known


def _build_request(
    name: str, cuda: str | None, platform: str, machine: tuple[str, str], output: Path, *, trust_paths: bool
) -> "BuildRequest":
    """Ask for the image that is published: as a layout, which is what is sent. `machine`: GPUs and target."""
    from graphcrate.cli.requests import build_request
    from graphcrate.compat.variants.targets import MachineRequest

    asked = MachineRequest(gpu=machine[0], target=machine[1])
    request = build_request("publish", name, cuda, platform=platform, machine=asked, trust_paths=trust_paths)
    return msgspec.structs.replace(request, output=output, engine="embedded")


def _platform_of(build: "BuildRequest") -> Platform:
    """Return the platform of the image that is built."""
    from graphcrate.compat.facts import gpu_table

    if chosen := options.platform_of(build.platform):
        return chosen
    return gpu_table.machine_platform(gpu_table.gpu_models(build.machine.gpu) if build.machine.gpu else ()) or DEFAULT


def _built(request: "BuildRequest", publishing: "PublishRequest", ctx: "Context", *, plan: bool, as_json: bool) -> str:
    """Build what is published, or find it unchanged; its name. With `plan`: print what would be built."""
    from graphcrate.assembly import pipeline
    from graphcrate.publish import policy

    policy.refuse_early(publishing, request.additions.name or request.name, request.cuda, _platform_of(request))
    if not plan:
        return pipeline.build_image(request, ctx).image
    lines, value = pipeline.plan_image(request, ctx)
    write(value, in_lines(lines), as_json=as_json)
    return f"{value.name}:{value.tag}"


def verify(
    ref: Annotated[
        str, typer.Argument(help="An image on a registry, or a file.", metavar="REGISTRY/NAME[:TAG|@DIGEST]|FILE")
    ],
    key: Annotated[Path | None, typer.Option(help="Public key that must have signed it (cosign.pub).")] = None,
    platform: options.AnyPlatform = "",
    published_as: Annotated[
        str, typer.Option(help="Of a copy that you made: the name of the image that it is a copy of.")
    ] = "",
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build it again from its lock, and compare the bytes.")
    ] = False,
    wheels: Annotated[
        Path | None, typer.Option(help="Folder of wheels, where its lock names some of one's own.")
    ] = None,
    plain_http: options.PlainHttp = False,
    as_json: options.Json = False,
) -> None:
    """Verify a published image, or a file: names, signatures, statements."""
    from graphcrate.assembly import pipeline
    from graphcrate.cli import tables
    from graphcrate.model.answer import Answer, AnswerLine, Section
    from graphcrate.model.errors import ProofError
    from graphcrate.publish import verify as verifying

    _refuse_unpublished(ref, wheels)
    request = verifying.VerifyRequest(
        ref=ref,
        key=key,
        platform=options.platform_of(platform),
        published_as=published_as,
        rebuild=rebuild,
        wheels=wheels,
    )
    ctx = here(plain_http=plain_http)
    result = verifying.run(request, ctx, pipeline.build_image)
    entries = []
    for check in result.checks:
        label, style = (
            ("note", "yellow") if check.ok and check.note else ("pass", "green") if check.ok else ("fail", "bold red")
        )
        entries.append(AnswerLine(label, f"{check.what}: {check.said}", style=style))
    opening = (f"digest: {result.digest}" + (f" ({result.platform})" if result.platform else ""),)
    tables.write(result, Answer((Section(tuple(entries)),), opening=opening), as_json=as_json)
    failed = [check for check in result.checks if not check.ok]
    if failed:
        raise ProofError(
            f"{result.reference}: {failed[0].what}: {failed[0].said}",
            cause=f"{len(failed)} of {len(result.checks)} checks failed, of the image {result.digest}.",
            next_step=failed[0].next_step
            or f"do not run it before you know why; {command('publish', '…')} attaches and signs what is missing",
        )


def _refuse_unpublished(ref: str, wheels: Path | None) -> None:
    """Raise UsageError for what is neither a file nor on a registry, and for a folder of wheels that is not there."""
    from graphcrate.artifacts.names import has
    from ociregistry import reference

    if not Path(ref).is_file() and not reference.on_registry(ref):
        of_hub = "" if ref.startswith(("/", ".")) else f"; {for_shell(f'docker.io/{ref}')} for one of Docker Hub"
        is_here = Path(ref).exists() or any(has(ref, place) for place in options.places_of_images())
        named_else = "name an image on a registry, REGISTRY/NAME:TAG, or a file that is there"
        step = f"{command('check', ref)}    for an image here" if is_here else named_else
        raise UsageError(
            f"{ref!r} is not a file and names no registry, and `verify` is for what was published",
            next_step=f"{step}{of_hub}",
        )
    if wheels and not wheels.is_dir():
        raise UsageError(f"there is no folder {wheels}", next_step=command(ETC, wheels="/path"))


def keys(
    output: Annotated[Path, typer.Option(help="Folder for cosign.key and cosign.pub.")] = Path(),
) -> None:
    """Make a pair of keys to sign with, in cosign's format. COSIGN_PASSWORD or the terminal gives the password."""
    from graphcrate.host.disk.key_files import PASSWORD, make_pair
    from graphcrate.host.sandbox.attach import ask_password

    if not output.is_dir():
        raise UsageError(f"there is no folder {output}", next_step=f"mkdir -p {for_shell(output)}")
    password = here().environment.get(PASSWORD)
    if password is None:
        password = ask_password("password for the new key: ")
    if password is None:
        raise UsageError("there is no terminal to ask for a password", next_step=f"{PASSWORD}=… {command('keys')}")
    for path in make_pair(output, password):
        sys.stdout.write(f"{path}\n")
