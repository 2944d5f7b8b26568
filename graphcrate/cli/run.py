"""The command `run`: its options stand before the program, whose own are not looked at. `cli` registers it."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
import typer.core

from graphcrate.cli import options
from graphcrate.cli.exit import OwnCommand
from graphcrate.cli.options import here, named, users_config
from graphcrate.model.command import command, for_shell
from graphcrate.model.errors import UsageError
from graphcrate.model.words import printable

if TYPE_CHECKING:
    from graphcrate.host.context import Context

Ref = Annotated[
    str,
    typer.Argument(
        help="NAME:TAG, the path of an image, REGISTRY/NAME:TAG, docker:NAME or podman:NAME; "
        "else this folder's recipe, built if need be.",
        metavar="[REF]",
    ),
]
Program = Annotated[
    list[str] | None,
    typer.Argument(help="Program and its arguments; the image's own if left out, else a shell.", metavar="[PROGRAM…]"),
]
Env = Annotated[
    list[str] | None,
    typer.Option(help="A variable, with its value here where none is given; again for more.", metavar="NAME[=VALUE]"),
]
EnvFile = Annotated[list[Path] | None, typer.Option(help="A file of lines NAME=VALUE; again for more.")]
Mount = Annotated[
    list[str] | None,
    typer.Option(help="A folder of this machine in the image; again for more.", metavar="SOURCE:TARGET[:ro]"),
]
Workdir = Annotated[str, typer.Option(help="Folder of the image to start in; else /work.")]
CacheDir = Annotated[
    Path | None, typer.Option(help="Folder for what programs download (HF_HOME, TORCH_HOME, …); outlives the run.")
]
Jupyter = Annotated[
    int | None,
    typer.Option(
        help="Start JupyterLab and print its address; the first free port from 8888 on.",
        metavar="[PORT]",
        min=0,
        max=65535,
    ),
]
Watched = Annotated[
    list[Path] | None, typer.Option(help="Run it again whenever this file or folder changes; again for more.")
]
Runner = Annotated[
    Literal["auto", "embedded", "docker", "podman", "apptainer", "singularity"],
    typer.Option(help="What runs it; auto: by what REF is."),
]


_JUPYTER, _ANY_PORT = "--jupyter", 0


class BeforeProgram(OwnCommand):
    """A command whose second argument is a program: no word from there on is an option of ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (click's, which typer has a copy of)
        """Set off the program by `--`. Raises UsageError for an option that docker or singularity has before it."""
        takes = {name: not getattr(option, "is_flag", False) for option in self.params for name in option_names(option)}
        takes |= dict.fromkeys(ctx.help_option_names, False)
        at, refs = 0, 0
        while at < len(args) and args[at] != "--":
            word = args[at]
            if word == _JUPYTER and not "".join(args[at + 1 : at + 2]).isdecimal():
                args = [*args[:at], f"{_JUPYTER}={_ANY_PORT}", *args[at + 1 :]]
                word = args[at]
            if word.startswith("-") and len(word) > 1:
                name, equals, _ = word.partition("=")
                _refuse_foreign(word, name in takes)
                at += 1 if equals or not takes.get(name) else 2
                continue
            if refs:
                args = [*args[:at], "--", *args[at:]]
                break
            at, refs = at + 1, 1
        if not refs:
            args = [*args[:at], "", *args[at:]]
        return super().parse_args(ctx, args)


def option_names(parameter: Any) -> list[str]:  # noqa: ANN401 (click's)
    """Return the names of an option, those that turn it off too; none of an argument."""
    return [] if parameter.param_type_name == "argument" else [*parameter.opts, *parameter.secondary_opts]


def _refuse_foreign(word: str, is_ours: bool) -> None:
    from graphcrate.engines.run_order import foreign

    if not is_ours and (instead := foreign(word)):
        raise UsageError(f"{printable(word)} is an option of another program's run", next_step=instead)


def run(
    ref: Ref = "",
    program: Program = None,
    env: Env = None,
    env_file: EnvFile = None,
    mount: Mount = None,
    workdir: Workdir = "",
    cache_dir: CacheDir = None,
    jupyter: Jupyter = None,
    watch: Watched = None,
    network: Annotated[bool, typer.Option(help="Let it use this machine's network, as other runtimes do.")] = True,
    runner: Runner = "auto",
    target: Annotated[
        str, typer.Option(help="A machine of targets/, or a file like those: the folders that it mounts.")
    ] = "",
    platform: options.AnyPlatform = "",
    trust_paths: options.TrustPaths = False,
    output: options.Output = Path("dist"),
) -> None:
    """Run a program inside an image, by default without any engine. This directory is /work inside."""
    from graphcrate.artifacts.locate import locate
    from graphcrate.engines.run_order import RunRequest
    from graphcrate.engines.trials import artifact

    ctx, own = here(), users_config()
    configured = list(own.mounts)
    if not ref:
        ref, mounts = _of_recipe(platform, ctx, trusts_paths=trust_paths)
        configured += mounts
    elif trust_paths:
        raise UsageError("--trust-paths is for this folder's recipe, and an image was named", next_step="leave one out")
    if target or own.target:
        from graphcrate.compat.variants import catalog
        from graphcrate.compat.variants.targets import MachineRequest

        configured += catalog.find_target(ctx, MachineRequest(target=target or own.target)).mounts
    if jupyter is not None and (program or not network):
        raise UsageError(
            "--jupyter starts JupyterLab, which needs the network, and no other program",
            next_step="leave the program and --no-network out, or --jupyter",
        )
    request = RunRequest(
        program=_notebook(jupyter) if jupyter is not None else program or (),
        env=env or (),
        env_files=env_file or (),
        mounts=mount or (),
        configured=configured,
        workdir=workdir,
        cache=cache_dir,
        network=network,
        watched=watch or (),
    )
    source = replace(locate(named(ref, output, platform), output), platform=options.platform_of(platform))
    sys.exit(artifact.run(source, runner, request, ctx))


def _notebook(port: int) -> tuple[str, ...]:
    from graphcrate.engines.embedded.run import SHELL
    from graphcrate.host.sandbox import attach
    from graphcrate.render.notebook import notebook

    return (*SHELL, "-c", notebook(str(attach.free_port(port)), for_shell(os.uname().nodename)))


def _of_recipe(platform: str, ctx: "Context", *, trusts_paths: bool) -> tuple[str, list[str]]:
    """Build the image of this folder's recipe, unless it is there; return its layout and the recipe's mounts."""
    from graphcrate.assembly import pipeline, project
    from graphcrate.cli.requests import build_request

    path = project.only_recipe(f"name an image: {command('run', 'NAME:TAG')}")
    mounts = project.mounts(path, trusts_paths=trusts_paths)
    request = build_request("image", f"./{path}", None, platform=platform, trust_paths=trusts_paths)
    return str(pipeline.build_image(request, ctx).layout), mounts
