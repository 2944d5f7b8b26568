"""The commands that judge images, packages and machines: `check`, `validate`, `audit`, `explain`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from graphcrate.cli import options
from graphcrate.cli.options import config, cuda_version, gpu_list, here, named, present
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.model.command import command
from graphcrate.model.errors import NetworkError, UsageError
from graphcrate.model.runtime import RUNTIMES
from graphcrate.model.words import listed

if TYPE_CHECKING:
    from graphcrate.checks import parts
    from graphcrate.host.context import Context
    from graphcrate.model.audit import Audit

Ref = Annotated[
    str,
    typer.Argument(
        help="NAME:TAG, a path (layout, archive, .sif, .sqsh, folder), docker:NAME or REGISTRY/NAME:TAG.", metavar="REF"
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(help="Wheels, a lock, a folder of packages, or an image as for `check`.", metavar="REF|WHEEL…"),
]

Only = Annotated[
    list[str] | None,
    typer.Option(
        help="bytes: sizes, digests, archives; "
        f"runtimes: what {listed(row.title for row in RUNTIMES.values())} require; "
        "binaries: libraries, symbols and GPU code; or a contract of docs/contracts.md, such as fabric. "
        "Again for more; all if left out."
    ),
]


def hosts(*, as_json: bool) -> None:
    """Try each host that a build may ask. Raises NetworkError where a needed one is not reached."""
    from graphcrate.compat.variants.request import SourceOptions
    from graphcrate.resolve.sources import hosts as asked
    from graphcrate.resolve.sources.request_sources import Sources

    ctx = here()
    tried = asked.tried(Sources(SourceOptions(), ctx.cache, ctx.environment))
    lost = asked.lacking(tried)
    rows = [{**msgspec.structs.asdict(host), "reached": host.reached} for host in tried]
    text = "".join(f"{line}\n" for host in tried for line in host.lines())
    options.write({"hosts": rows, "lacking": lost}, text, as_json=as_json)
    if lost:
        raise NetworkError(
            f"no host was reached for: {'; '.join(lost)}",
            cause="A firewall, a proxy that is not set, or no network.",
            next_step="let the hosts above through, set https_proxy, or name a mirror: PIP_INDEX_URL, DEBIAN_MIRROR",
        )


def check(
    ref: Ref,
    only: Only = None,
    target: options.Target = "",
    runtime: options.Runtime = None,
    runtime_version: options.RuntimeVersion = "",
    gpu: options.Gpus = None,
    driver: options.Driver = "",
    kernel: options.Kernel = "",
    glibc: options.Glibc = "",
    platform: options.AnyPlatform = "",
    shm: Annotated[str, typer.Option(help="Size of /dev/shm in containers, such as 64m.")] = "",
    fetch: Annotated[
        Literal["small", "all", "none"],
        typer.Option(help="Layers to download from a registry; small: 1 GB at most."),
    ] = "small",
    plain_http: options.PlainHttp = False,
    everything: Annotated[bool, typer.Option("--all", help="List what passed and what is not known, too.")] = False,
    output: options.Output = Path("dist"),
    as_json: options.Json = False,
) -> None:
    """Check any image without running it. Reads its bytes, what runtimes require of it, its programs and libraries."""
    from graphcrate.checks import parts
    from graphcrate.cli import tables
    from graphcrate.compat.variants import catalog, targets
    from graphcrate.host import settings
    from graphcrate.resolve import libraries

    target = target or ("" if gpu or driver or kernel or glibc or runtime else config().target)
    ctx = here(plain_http=plain_http)
    described = MachineRequest(
        target=target,
        gpu=gpu_list(gpu),
        driver=driver,
        runtimes=tuple(runtime or ()),
        runtime_version=runtime_version,
        kernel=kernel,
        glibc=glibc,
    )
    ref = present(ref, output, platform)
    machine, scope = catalog.find_target(ctx, described), parts.scope_of(only or ())
    checked = parts.check(
        ref,
        targets.host_of(machine, shm, settings.today()),
        ctx,
        scope=scope,
        runtimes=targets.runtimes_of(tuple(machine.runtimes)),
        output=output,
        fetch=fetch,
        asked=options.platform_of(platform),
    )
    if checked.binaries:
        checked = msgspec.structs.replace(checked, binaries=libraries.advised(checked.binaries, ctx))
    tables.write(checked, parts.answer(checked, everything=everything), as_json=as_json)
    _raise_if_failed(checked)


def _raise_if_failed(checked: "parts.Checked") -> None:
    """Raise the error that a check ends with, with what brings a library that is missing."""
    from graphcrate.checks import parts
    from graphcrate.resolve import libraries

    if error := parts.failure(checked):
        error.next_step = (checked.binaries and libraries.next_step(checked.binaries)) or error.next_step
        raise error


def validate(ref: Ref, output: options.Output = Path("dist")) -> None:
    """Check an image's bytes alone: `check --only bytes`."""
    check(ref, only=["bytes"], output=output)


def audit(
    names: Names,
    base: Annotated[str, typer.Option(help="Image or root file system that wheels or packages are installed in.")] = "",
    gpu: options.Gpus = None,
    target: options.Target = "",
    plain_http: options.PlainHttp = False,
    output: options.Output = Path("dist"),
    as_json: options.Json = False,
) -> None:
    """Check wheels, a lock or packages without running them. Says which libraries will not load or run."""
    from graphcrate.checks import wording
    from graphcrate.checks.audit import run as auditing
    from graphcrate.cli import tables
    from graphcrate.compat.facts.gpu_table import gpu_models
    from graphcrate.compat.variants import catalog
    from graphcrate.model.errors import AuditError
    from graphcrate.resolve import libraries

    ctx, models = here(plain_http=plain_http), gpu_list(gpu)
    gpus = gpu_models(models) if models else ()
    if target:
        gpus = catalog.find_target(ctx, MachineRequest(target=target, gpu=models)).gpus or ()
    if names[0].endswith(".lock.json"):
        audited = _audited_lock(names, ctx, base, gpus, output)
    else:
        names = [name if name.endswith(".whl") else present(name, output) for name in names]
        audited = auditing.run(names, ctx, base=base and named(base, output), gpus=gpus, output=output)
    audited = libraries.advised(audited, ctx)
    tables.write(audited, wording.audit(audited), as_json=as_json)
    if failures := sum(finding.severity == "fail" for finding in audited.findings):
        what = f"{audited.subject} will not work: {failures} of its findings fail"
        raise AuditError(what, next_step=libraries.next_step(audited))


def _audited_lock(names: list[str], ctx: "Context", base: str, gpus: Sequence[str], output: Path) -> "Audit":
    """Audit the wheels that a lock names, fetched where the cache lacks them, for the GPUs that it compiles for."""
    from graphcrate.checks.audit import run as auditing
    from graphcrate.compat.facts import gpu_table
    from graphcrate.compat.variants import catalog
    from graphcrate.compat.variants.request import SourceOptions
    from graphcrate.host.disk import documents
    from graphcrate.resolve.sources.fetch import fetch

    if len(names) > 1:
        raise UsageError("one lock can be audited at a time", next_step=command("audit", names[0]))
    path = Path(names[0])
    lock = documents.read_lock(
        path, catalog.renewal_of(ctx, path), committed=path.absolute().is_relative_to(ctx.root / "images")
    )
    if lock is None:
        raise UsageError(f"there is no lock {names[0]}", next_step="ls images/*/*/*.lock.json")
    paths = fetch(lock, SourceOptions(), ctx)
    wheels = [str(paths[package.file.sha256]) for package in lock.packages if package.file.name.endswith(".whl")]
    compiled = lock.compilation.architectures if lock.compilation else ()
    capabilities = {name.removesuffix("+PTX") for name in compiled}
    gpus = gpus or [model for model, capability in gpu_table.gpus().items() if capability in capabilities]
    return msgspec.structs.replace(auditing.run(wheels, ctx, base=base, gpus=gpus, output=output), subject=names[0])


def explain(
    name: Annotated[
        str,
        typer.Argument(help="Recipe, such as pyg (`list` has all), or the file of one of your own.", metavar="[NAME]"),
    ] = "pyg",
    target: options.Target = "",
    cuda: Annotated[str | None, typer.Option(callback=cuda_version, help="Show this CUDA version first.")] = None,
    gpu: options.Gpus = None,
    driver: options.Driver = "",
    runtime: options.Runtime = None,
    runtime_version: options.RuntimeVersion = "",
    kernel: options.Kernel = "",
    glibc: options.Glibc = "",
    trust_paths: options.TrustPaths = False,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Say which CUDA version runs on a machine, and why others do not."""
    from graphcrate.cli import tables
    from graphcrate.compat.requirements import own
    from graphcrate.compat.variants import catalog
    from graphcrate.compat.variants import explain as explaining
    from graphcrate.host import settings

    ctx = here()
    described = MachineRequest(
        target=target,
        gpu=gpu_list(gpu),
        driver=driver,
        runtimes=tuple(runtime or ()),
        runtime_version=runtime_version,
        kernel=kernel,
        glibc=glibc,
    )
    stack = own.find_stack(name, cuda, trusts_paths=trust_paths)
    recipe, cuda = catalog.find_recipe(ctx, stack.name, stack.file), stack.cuda
    if cuda is not None:
        catalog.refuse_unknown_cuda(recipe, cuda, lambda other: command("explain", name, cuda=other), stack.file)
    machine = catalog.find_target(ctx, described)
    explanation = explaining.explain(recipe, machine, described, cuda, settings.today(), stack.file)
    tables.write(explanation, explaining.answer(explanation, verbose=verbose), as_json=as_json)
    if explaining.chosen_row(explanation) is None:
        raise explaining.nothing_runs(explanation)
