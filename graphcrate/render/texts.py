"""The texts of a plan: a Dockerfile, a definition, requirements, a page for people."""

import shlex
from collections.abc import Iterable

import msgspec

import graphcrate.render.steps as steps
from graphcrate.compat.facts import back_ends, build_environment, compilers, libraries
from graphcrate.compat.plan.image_config import EXAMPLES, SHELL
from graphcrate.compat.variants.fallbacks import fallback_code
from graphcrate.model.lock import DebianSource, LockedPackage
from graphcrate.model.plan import CUDA_HOME, VENV, CompileStep, Plan, RequirementsStep, ToolkitStep, WheelsStep
from graphcrate.model.recipe import CHANNELS
from graphcrate.render.layout import (
    CONTEXT,
    WIDTH,
    comment,
    double,
    pins,
    quoted,
    render_template,
    setup_options,
    shell,
    wrapped,
)

_SITE_PACKAGES = "SITE_PACKAGES"  #: stands for a folder that readers of the text know
_OPTIONS = {channel: "--extra-index-url" if row.is_index else "--find-links" for channel, row in CHANNELS.items()}


def dockerfile(plan: Plan, *, cache_mounts: bool = False) -> str:
    """Write a Dockerfile for classic `docker build` from 17.05 on, BuildKit (with `cache_mounts`) and podman."""
    stages = steps.stages(plan)
    values = {
        **_shared(plan, stages),
        "arguments": {stage.name: steps.arguments(plan, stage) for stage in stages},
        "stages": stages,
        "first": next((stage for stage in stages if stage.result == VENV), None),
        "bytecode_again": shell("bytecode", plan.stack.python, True),
        "uv_cache": "/root/.cache/uv" if cache_mounts else "",
    }
    return render_template("Dockerfile", values)


def definition(plan: Plan, *, bootstrap: str = "docker", base: str = "") -> str:
    """Write a definition that every Apptainer, SingularityCE and Singularity from 3.5.3 reads.

    `base` empty: on the plan's own image. Nothing else varies: no `%arguments`, which old engines refuse and whose
    values stay in the image's copy of the text. Mirrors are variables of the shell (APPTAINERENV_…, SINGULARITYENV_…).
    """
    stages, words = steps.stages(plan), about(plan)
    modules = ["torch", "torch_geometric"] if plan.stack.torch_geometric else ["torch"]
    values = {
        **_shared(plan, stages),
        "bootstrap": bootstrap,
        "origin": base or plan.base.image.reference,
        "settings": {name: value for stage in stages for name, value in steps.arguments(plan, stage).items()},
        # What an image brings is a stage; all else is done in one.
        "stages": [stage for stage in stages if not stage.is_image],
        "pulled": next((stage for stage in stages if stage.is_image), None),
        "toolkit_stays": steps.toolkit_stays(plan),
        "final": steps.base(plan, environment=False),
        "check": f"import {', '.join(modules)}; print({', '.join(f'{name}.__version__' for name in modules)})",
        "command": "" if plan.config.command == SHELL else shlex.join(plan.config.command),
        "description": [
            *wrapped(words[0], 80),
            f"Run a program in it: singularity run --nv {plan.name}.sif python train.py",
            f"Programs to try are in {EXAMPLES}.",
        ],
        "help": [line for paragraph in words for line in wrapped(paragraph, WIDTH - 4)],
    }
    return render_template("definition", values)


def _shared(plan: Plan, stages: Iterable[steps.Stage]) -> dict[str, object]:
    uv, archive = {**steps.UV, "sha256": steps.UV["sha256"][plan.platform.name]}, steps.archive_of(plan)
    return {
        "plan": plan,
        "about": about(plan),
        "folder": folder(plan),
        # Local files are beside the text.
        "beside": "." if plan.added is msgspec.UNSET else folder(plan),
        "how": "`make render`" if plan.added is msgspec.UNSET else "`render`",
        "config": plan.config,
        "image": plan.base.image,
        "base": steps.base(plan),
        "added_files": steps.added_files(plan),
        "bytecode": shell("bytecode", plan.stack.python, False),
        "tools": shell("tools", plan.base.image.brings_python, uv, archive),
        "archive": archive,
        "with_wheels": any(stage.uses(f"{CONTEXT}/wheels") for stage in stages),
    }


def requirements_text(plan: Plan) -> str:
    """Write every package with its one file's hash, for pip and uv; of an open plan what was asked for, without any."""
    locked = [package for step in plan.of(WheelsStep) for package in step.packages]
    compiled = [package for step in plan.of(CompileStep) for package in step.packages]
    opened = plan.of(RequirementsStep)
    channels = {package.channel for package in (*locked, *compiled)} | {step.channel for step in opened}
    options = dict.fromkeys(" ".join(step.options) for step in opened if step.options)
    how = "--no-deps --require-hashes " if plan.stack.locked else "".join(f"{words} " for words in options)
    runs_on = f"Python {plan.stack.python}, {plan.platform.title}"
    lines = [
        f"# {plan.name}:{plan.tag}",
        *(comment(paragraph) for paragraph in about(plan)),
        f"#     uv pip install {how}--requirement requirements.txt    ({runs_on})",
        *(f"{option} {steps.address(plan, channel)}" for channel, option in _OPTIONS.items() if channel in channels),
        *_pinned(locked),
        *(text for step in opened for text in step.requirements),
    ]
    return "\n".join(lines) + "\n"


def sources_text(plan: Plan) -> str:
    """Write what `requirements` leaves out, since it is compiled against what that installs; empty where nothing is."""
    compiled = plan.of(CompileStep)
    if not compiled:
        return ""
    used, packages = compiled[0].compilation, [package for step in compiled for package in step.packages]
    needed = [*used.tools, *(build for package in packages for build in package.build)]
    tools = ", ".join(f"{tool.name} {tool.version}" for tool in needed)
    cuda = f", CUDA {used.toolkit.version} in {CUDA_HOME}" if used.toolkit else ""
    besides = compilers.besides(packages, used.base.suite, used.besides)
    isolated = [package for package in packages if package.isolated]
    fixed = compilers.variables(used)
    variables = build_environment.of_step(fixed, isolated, used, requirements=_SITE_PACKAGES)
    is_named = any(_SITE_PACKAGES in value for value in variables.values())
    options = {package.name: back_ends.of_setup(package, used) for package in packages}
    words = [quoted(f"{name}:{setup_options(some)}") for name, some in options.items() if some]
    given = "".join(f"--config-settings-package {word} " for word in words)
    lines = [
        comment(f"{plan.name}:{plan.tag}: sources, to be compiled where requirements.txt has been installed."),
        comment(f"Wanted: {', '.join([used.compiler, *besides])}, Python's headers{cuda}; {tools}."),
        *([comment(f"{_SITE_PACKAGES}: the folder that those of Python are in.")] if is_named else []),
        *(f"#     export {name}={double(value)}" for name, value in variables.items()),
        f"#     uv pip install --no-deps --no-build-isolation --require-hashes {given}--requirement sources.txt",
        *(line for source in used.linked for line in _linked(source)),
        *_pinned(packages),
    ]
    return "\n".join(lines) + "\n"


def _linked(source: DebianSource) -> list[str]:
    """Write what a package is linked to, and how it takes that; without, it compiles and lacks what that is for."""
    how = libraries.library_of(source)
    edits = "; ".join(f"in {path} {new!r} for {old!r}" for path, old, new in how.edits)
    return [
        comment(
            f"{', '.join(how.packages)}: linked to {how.title}, a static library (gcc {how.options}) of Debian's "
            f"{source.file.name}, sha256 {source.file.sha256}; {edits}. With it in FOLDER:"
        ),
        *(f"#     export {name}={double(value)}" for name, value in how.variables.items()),
        f"#     export CPATH=FOLDER/{how.include[0]} LIBRARY_PATH=FOLDER",
    ]


def _pinned(packages: Iterable[LockedPackage]) -> list[str]:
    return [pin.replace(" --hash", " \\\n    --hash") for pin in pins(packages)]


def readme(plan: Plan) -> str:
    """Write `README.md` of the plan's folder."""
    stack, cpu = plan.stack, plan.stack.cuda == "cpu"
    values = {
        "plan": plan,
        "stack": stack,
        "title": f"{plan.name}:{plan.tag}",
        "about": about(plan),
        "folder": folder(plan),
        "lock": f"{stack.candidate}.lock.json" if stack.locked else "",
        "make": ("" if plan.name == "pyg" else f"STACK={plan.name} ") + f"CUDA={stack.cuda}",
        "program": f"{EXAMPLES}/{'dna.py' if stack.torch_geometric else 'torch_check.py'}",
        "compiled": next(iter(plan.of(CompileStep)), None),
        "cpu": cpu,
        "gpus": "" if cpu else " --gpus all",
        "nv": "" if cpu else " --nv",
        "gres": "" if cpu else " --gres=gpu:1",
    }
    return render_template("page.md", values)


def folder(plan: Plan) -> str:
    """Return where the texts of this plan are committed."""
    cuda = plan.stack.cuda
    return f"images/{plan.name}/{cuda if cuda == 'cpu' else 'cu' + cuda.replace('.', '')}"


def about(plan: Plan) -> tuple[str, ...]:
    """Write paragraphs: what is in the image, what choosing it means, what it lacks and what that costs."""
    stack = plan.stack
    parts = [f"torch {stack.torch} {'for CPUs' if stack.torch_cuda == 'cpu' else f'for CUDA {stack.torch_cuda}'}"]
    parts += [f"PyG {stack.torch_geometric}"] if stack.torch_geometric else []
    paragraphs = [f"{stack.description}: {', '.join([*parts, f'Python {stack.python}'])}."]
    if stack.meaning:
        limits = fallback_code(stack.torch, stack.torch_cuda, stack.cuda)
        paragraphs.append(" ".join((f"{stack.meaning}.", *(f"It {limit}." for limit in limits))))
    paragraphs += [_compiled(step) for step in plan.of(CompileStep)]
    paragraphs += [
        f"A devel image: its compiler and CUDA {step.toolkit.version} in {CUDA_HOME} stay, for extensions of your own."
        for step in plan.of(ToolkitStep)
    ]
    if stack.missing:
        costs = (f"{missing.name} ({missing.cost})" if missing.cost else missing.name for missing in stack.missing)
        why = "Not in it, for lack of a wheel when it was locked, with what that costs"
        paragraphs.append(f"{why}: {'; '.join(costs)}.")
    if not stack.locked:
        paragraphs.append(
            "Nobody has locked this variant yet: versions below are what was asked for, and no file is checked. "
            f"`./build.py lock {plan.name} --cuda {stack.cuda}` and `make render`, on a network that reaches its "
            "channels, pin and check every file."
        )
    return tuple(paragraphs)


def _compiled(step: CompileStep) -> str:
    """Write what was compiled, with what, for which GPUs."""
    used = step.compilation
    names = ", ".join(libraries.titled(package, used) for package in step.packages)
    if used.toolkit is None:
        return f"Compiled from source by {used.compiler}, for CPUs alone: {names}."
    codes = ", ".join(_explained(architecture) for architecture in used.architectures)
    how = f"Compiled from source by {used.compiler} and CUDA {used.toolkit.version}"
    return f"{how}: {names}; for GPUs of compute capability {codes}."


def _explained(architecture: str) -> str:
    """Write `7.0`, `8.0+PTX (newer ones compile it when they first run it)`.

    Names of GPUs are left out: with each new one all texts would change, and images that engines make of them.
    """
    return f"{architecture} (newer ones compile it when they first run it)" if "+PTX" in architecture else architecture
