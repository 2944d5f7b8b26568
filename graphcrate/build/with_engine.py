"""Images built by an engine: which one, what it is told of mirrors and certificates, and running what it built."""

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from graphcrate.compat.addresses import cuda_tag, pyg_page
from graphcrate.compat.request import SourceOptions
from graphcrate.engines import render
from graphcrate.engines.builders import BUILDERS, Order
from graphcrate.engines.runners import RUNNERS
from graphcrate.host.context import Context
from graphcrate.inputs.bases import Base
from graphcrate.inputs.bases.apt import find_mirror
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import Plan, content_id
from graphcrate.model.recipe import Channel
from graphcrate.model.report import Artifact
from graphcrate.resolve.base import planned_base, prepare_base
from graphcrate.resolve.channels import Kind, mirror_of
from graphcrate.resolve.fetch import fetch
from graphcrate.resolve.user_index import user_indexes

NAMES = tuple(name for name in BUILDERS if name != "embedded")
#: tried in this order where the embedded builder cannot work
INSTEAD = ("docker", "podman", "apptainer")


def check(name: str, ctx: Context) -> str:
    """The engine's version. Raises UsageError for one that there is not, HostError for one that cannot be used."""
    if name not in NAMES:
        raise UsageError(
            f"there is no engine {name!r}; there are embedded, {', '.join(NAMES)}",
            next_step="make image CUDA=11.8    (picks one that works here)",
        )
    return BUILDERS[name]().check(ctx.environment)


def first_that_answers(ctx: Context) -> str | None:
    """The first engine that can be used here."""
    for name in INSTEAD:
        try:
            check(name, ctx)
        except HostError:
            continue
        return name
    return None


def key(name: str, plan: Plan) -> str:
    """What an engine's image depends on, as one word: plan, engine and text."""
    text = render.dockerfile(plan) + render.definition(plan)
    return f"{content_id(plan)}-{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def build(name: str, plan: Plan, lock: Lock, sources: SourceOptions, folder: Path, ctx: Context) -> Artifact:
    """Build the plan's image with an engine, on the lock's own base. Raises what `Builder.build` raises."""
    folder.mkdir(parents=True, exist_ok=True)
    base, notes = _base(plan, lock, ctx)
    order = Order(
        plan=plan,
        folder=folder,
        base=base,
        files=_local_files(lock, sources, ctx),
        arguments=arguments(plan, lock, sources, ctx.environment),
        certificates=_certificates(ctx.environment),
        cache=ctx.cache,
        environment=ctx.environment,
        progress=ctx.progress,
    )
    return msgspec.structs.replace(BUILDERS[name]().build(order), notes=notes)


def _base(plan: Plan, lock: Lock, ctx: Context) -> tuple[Base | None, tuple[str, ...]]:
    """The lock's own base; None where the engine pulls it by digest, or its like because none can be made here."""
    if not isinstance(lock.base, DebianBase):
        return None, ()
    try:
        return prepare_base(ctx, planned_base(plan)), ()
    except HostError as error:
        image = plan.base.image.reference
        note = f"the base is {image} with Debian's packages of today, not the lock's own ({error.what})"
        ctx.progress.note(note)
        return None, (note,)


def exists(artifact: Artifact, ctx: Context) -> bool:
    """Whether the image is still what the builder made."""
    return RUNNERS[artifact.kind]().exists(artifact, ctx.environment)


def arguments(plan: Plan, lock: Lock, sources: SourceOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """Build arguments by name, those that the text knows: mirrors and package index as this user has set them."""
    mirror = mirror_of(sources)
    torch, torch_cuda = plan.stack.torch, plan.stack.torch_cuda
    user = user_indexes(environment, ask_uv=lambda: "")
    values = {"PACKAGE_INDEX": mirror.pypi or user.default}
    if mirror.pytorch_kind is Kind.INDEX:
        values["PYTORCH_INDEX"] = mirror.pytorch.format(tag=cuda_tag(torch, torch_cuda))
    values["PYG_LINKS"] = mirror.pyg.format(page=pyg_page(torch, torch_cuda))
    if isinstance(lock.base, DebianBase):
        # A machine without Debian's archives leaves it to the base image.
        with contextlib.suppress(HostError):
            values["DEBIAN_MIRROR"] = find_mirror(lock.base.suite, environment).main
    text = render.dockerfile(plan)
    return {
        name: value.rstrip("/")
        for name, value in values.items()
        if value.startswith(("http://", "https://")) and f"ARG {name}" in text
    }


def _local_files(lock: Lock, sources: SourceOptions, ctx: Context) -> Mapping[str, Path]:
    """The local channel's files, which no engine can fetch."""
    packages = tuple(package for package in lock.packages if package.channel is Channel.LOCAL)
    only = msgspec.structs.replace(lock, packages=packages)
    return fetch(only, sources, ctx.cache, ctx.environment, ctx.progress) if packages else {}


def _certificates(environment: Mapping[str, str]) -> Path | None:
    path = Path(environment.get("SSL_CERT_FILE", ""))
    return path if path.is_file() else None
