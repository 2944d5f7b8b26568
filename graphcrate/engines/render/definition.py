"""The definition file of a plan, for Apptainer and SingularityCE, and in a form that Singularity 3.5 reads."""

import msgspec

import graphcrate.engines.render.compilation as compilation
import graphcrate.engines.render.ideas as ideas
from graphcrate.compat.planning import EXAMPLES, PROGRAMS, SYSTEM_PATH
from graphcrate.compat.toolkit_assembly import PACKAGES
from graphcrate.engines.render.about import about, folder
from graphcrate.engines.render.layout import WIDTH, complete, rendered, wrapped
from graphcrate.model.plan import CUDA_HOME, VENV, Plan, PythonFrom
from graphcrate.model.recipe import Channel


class DefinitionForm(msgspec.Struct, frozen=True, kw_only=True):
    """How the definition is written.

    `arguments`: BOOTSTRAP and BASE as `%arguments`, which Apptainer has from 1.2 and SingularityCE from 4.0 on;
    without, `bootstrap` and `base` (empty: the plan's image) are written in. Nothing else is an argument: its value
    would stay in the image's copy of the text. Mirrors are variables of the shell: APPTAINERENV_…, SINGULARITYENV_….
    """

    arguments: bool = True
    bootstrap: str = "docker"
    base: str = ""


def definition(plan: Plan, form: DefinitionForm | None = None) -> str:
    """The text. Raises BuildError for a step that it cannot express."""
    form = form or DefinitionForm()
    ideas.refuse_unknown(plan, "definition file")
    parts = [*ideas.parts(plan), *compilation.parts(plan)]
    settings: dict[str, str] = {}
    for part in parts:
        settings |= ideas.arguments(plan, part)
    origin = {"BOOTSTRAP": form.bootstrap, "BASE": form.base or plan.base.image.reference}
    values = {
        "plan": plan,
        "about": about(plan),
        "folder": folder(plan),
        "file": filename(plan, form),
        "needs": "Apptainer 1.2, SingularityCE 4.0 or newer" if form.arguments else "Singularity 3.5.3 or newer",
        "program": "apptainer" if form.arguments else "singularity",
        "arguments": [f"{name}={value}" for name, value in origin.items()] if form.arguments else [],
        "bootstrap": "{{ BOOTSTRAP }}" if form.arguments else origin["BOOTSTRAP"],
        "base": "{{ BASE }}" if form.arguments else origin["BASE"],
        "settings": settings,
        "config": plan.config,
        "unwanted": plan.base.image.unwanted,
        "base_ideas": ideas.base(plan),
        "tool_ideas": ideas.tools(plan),
        # What an image brings is a stage; all else is done in one.
        "parts": [part for part in parts if not _is_image(part.origin)],
        "pulled": next((part for part in parts if _is_image(part.origin)), None),
        "toolkit_stays": compilation.in_image(plan),
        "bytecode": ideas.bytecode(plan),
        "final_ideas": ideas.base(plan, environment=False),
        "python_from_uv": plan.base.image.python_from is PythonFrom.UV,
        "with_wheels": Channel.LOCAL in ideas.channels(plan),
        "check": _check(plan),
        "description": _description(plan),
        "help": _help(plan),
        "CONTEXT": ideas.CONTEXT,
        "CUDA_HOME": CUDA_HOME,
        "WORK": ideas.WORK,
        "CERTIFICATES": ideas.CERTIFICATES,
        "EXAMPLES": EXAMPLES,
        "PROGRAMS": PROGRAMS,
        "SYSTEM_PATH": SYSTEM_PATH,
        "TOOLKIT": PACKAGES,
        "TOOLS": ideas.TOOLS,
        "VENV": VENV,
    }
    # A run script stands for the command: without arguments it says what the image is.
    elsewise = [*plan.config.command, *([plan.base.image.reference] if form.base else [])]
    return complete(plan, rendered("definition", values), "definition file", elsewise=elsewise)


def filename(plan: Plan, form: DefinitionForm) -> str:
    """`pyg.def`, or `pyg-singularity-3.5.def` without arguments."""
    return f"{plan.name}.def" if form.arguments else f"{plan.name}-singularity-3.5.def"


def _check(plan: Plan) -> str:
    modules = ["torch", "torch_geometric"] if plan.stack.torch_geometric else ["torch"]
    return f"import {', '.join(modules)}; print({', '.join(f'{module}.__version__' for module in modules)})"


def _description(plan: Plan) -> list[str]:
    return [
        *wrapped(about(plan)[0], 80),
        f"Run a program in it: singularity run --nv {plan.name}.sif python train.py",
        f"Programs to try are in {EXAMPLES}.",
    ]


def _help(plan: Plan) -> list[str]:
    return [line for paragraph in about(plan) for line in wrapped(paragraph, WIDTH - 4)]


def _is_image(origin: str) -> bool:
    """Whether a part comes from an image and not from another stage, whose name has neither tag nor digest."""
    return "@" in origin or ":" in origin
