"""The commands `publish`, `verify` and `keys`: arguments → `publishing`, `verifying`. `cli` registers them."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphcrate.cli.options import Gpus, cuda_version, joined

if TYPE_CHECKING:
    from graphcrate.host.context import Context

Image = Annotated[
    str, typer.Argument(help="NAME:TAG below dist/, a layout, or a recipe, which is built first.", metavar="REF|NAME")
]
To = Annotated[str, typer.Option(help="registry.example/team, acr:cn-hangzhou/ns, oras://…, a folder.")]
Cuda = Annotated[str | None, typer.Option(callback=cuda_version, help="CUDA version of a recipe to build first.")]
Target = Annotated[str, typer.Option(help="A machine of targets/ to build it for.")]
Form = Annotated[
    Literal["docker", "oci"] | None,
    typer.Option(help="Of the manifest: docker, which every runtime can pull, enroot too; oci. docker if left out."),
]
Tag = Annotated[list[str] | None, typer.Option(help="On a registry, oras:// too: a further tag; again for more.")]
MountFrom = Annotated[
    list[str] | None, typer.Option(help="On a registry: a repository of it that may have layers of the image.")
]
Key = Annotated[Path | None, typer.Option(help="Sign with this key (cosign.key; `keys` makes one).")]
CpuOnly = Annotated[
    bool, typer.Option("--allow-cpu-only", help="Publish without a pass on a GPU; it is recorded beside the image.")
]
As = Annotated[
    list[str] | None,
    typer.Option(
        "--as", help="In a folder: sif for Singularity, sqsh for enroot and pyxis, oci-archive for all; again for more."
    ),
]
Kernel = Annotated[
    str | None, typer.Option(help="Kernel of the machines that mount a sif: zstd from 4.14 on, else gzip.")
]
Squashed = Annotated[
    Literal["gzip", "zstd"] | None, typer.Option(help="Of those files, whatever the kernel; of sqsh zstd if left out.")
]
Replace = Annotated[bool, typer.Option("--replace", help="In a folder: another file of that name gives way.")]
Output = Annotated[Path, typer.Option(help="Where images are.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]


def publish(
    image: Image,
    to: To = "",
    cuda: Cuda = None,
    gpu: Gpus = None,
    target: Target = "",
    form: Form = None,
    tag: Tag = None,
    mount_from: MountFrom = None,
    key: Key = None,
    allow_cpu_only: CpuOnly = False,
    as_: As = None,
    kernel: Kernel = None,
    compression: Squashed = None,
    replace: Replace = False,
    output: Output = Path("dist"),
    as_json: Json = False,
) -> None:
    """Publish an image that passed its checks and tests. Blobs first, proofs, then the tag. Prints where."""
    from graphcrate.artifacts import locate
    from graphcrate.artifacts.formats.packed import Compression
    from graphcrate.cli.config import here
    from graphcrate.compat import fallback
    from graphcrate.compat.request import BuildRequest
    from graphcrate.model.lock import encode
    from graphcrate.model.report import Asked
    from graphcrate.publish import policy, registry

    ctx = here()
    to = to or _configured(image)
    request = policy.Request(
        ref=image,
        output=output,
        form=form,
        tags=tuple(tag or ()),
        mount_from=tuple(mount_from or ()),
        key=key,
        allow_cpu_only=allow_cpu_only,
        forms=policy.forms_of(as_ or ()),
        kernel=kernel,
        compression=Compression(compression) if compression else None,
        replace=replace,
    )
    registry.destination_of(request, ctx, to)  # fail before anything is built
    if ":" not in image and not Path(image).exists():
        request = dataclasses.replace(request, ref=_built(image, cuda, joined(gpu), target, output, ctx))
    elif cuda or gpu or target:
        raise _built_already(image)
    published = registry.publish(request, ctx, to)
    for runtime, line in published.lines.items():
        ctx.progress.note(f"{runtime}: {line}")
    sys.stdout.write(encode(published).decode() if as_json else f"{published.reference}@{published.digest}\n")
    sys.stdout.flush()
    report = locate.find_image(request.ref, output)[1]
    if report.fallback:
        asked = report.asked or Asked(recipe=report.name, variant=report.cuda)
        insisting = BuildRequest.again(asked, channel=report.fallback.channel).command()
        sys.stderr.write("".join(f"{line}\n" for line in fallback.closing(report, insisting)))


def _built_already(image: str) -> Exception:
    from graphcrate.model.errors import UsageError

    return UsageError(
        f"{image} is built: --cuda, --gpu and --target are for a recipe, which is built first",
        next_step=f"./build.py publish {image} --to …, or publish pyg --cuda … --gpu … --to …",
    )


def _configured(image: str) -> str:
    from graphcrate.cli.config import config
    from graphcrate.model.errors import UsageError

    if to := config().to:
        return to
    step = f"./build.py publish {image} --to registry.example/team    (make publish TO=…)"
    raise UsageError("publish wants to know where", next_step=step)


def _built(name: str, cuda: str | None, gpu: str | None, target: str, output: Path, ctx: "Context") -> str:
    """Build the recipe's image, or find it unchanged."""
    from graphcrate.build import pipeline
    from graphcrate.compat.request import BuildRequest

    report = pipeline.build_image(
        BuildRequest(name=name, cuda=cuda, gpu=gpu, target=target, output=output, engine="embedded"), ctx
    )
    return f"{report.name}:{report.tag}"


def verify(
    ref: Annotated[str, typer.Argument(help="An image on a registry.", metavar="REGISTRY/NAME[:TAG|@DIGEST]")],
    key: Annotated[Path | None, typer.Option(help="Public key that must have signed it (cosign.pub).")] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build it again from its lock, and compare the bytes.")
    ] = False,
    wheels: Annotated[
        Path | None, typer.Option(help="Folder of wheels, where its lock names some of one's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a published image and its statements. They are materials, provenance, suites, contracts, audit."""
    from graphcrate.build import pipeline
    from graphcrate.cli.config import here
    from graphcrate.model.errors import ProofError
    from graphcrate.model.lock import encode
    from graphcrate.publish import verify as verifying

    request = verifying.Request(ref=ref, key=key, rebuild=rebuild, wheels=wheels)
    result = verifying.run(request, here(), pipeline.build_image)
    if as_json:
        sys.stdout.write(encode(result).decode())
    else:
        for check in result.checks:
            sys.stdout.write(f"{'pass' if check.ok else 'fail'}\t{check.what}\t{check.said}\n")
    failed = [check for check in result.checks if not check.ok]
    if failed:
        raise ProofError(
            f"{result.reference}: {failed[0].what}: {failed[0].said}",
            cause=f"{len(failed)} of {len(result.checks)} checks failed, of the image {result.digest}.",
            next_step="do not run it before you know why; `./build.py publish` attaches and signs what is missing",
        )


def keys(
    output: Annotated[Path, typer.Option(help="Folder for cosign.key and cosign.pub.")] = Path(),
) -> None:
    """Make a pair of keys to sign with, in cosign's format. COSIGN_PASSWORD or the terminal gives the password."""
    from graphcrate.cli.config import here
    from graphcrate.host.attach import ask_password
    from graphcrate.model.errors import UsageError
    from graphcrate.publish.attest import keyfile
    from graphcrate.publish.attest.keys import PASSWORD

    password = here().environment.get(PASSWORD)
    if password is None:
        password = ask_password("password for the new key: ")
    if password is None:
        raise UsageError("there is no terminal to ask for a password", next_step=f"{PASSWORD}=… ./build.py keys")
    for path in keyfile.make_pair(output, password):
        sys.stdout.write(f"{path}\n")
