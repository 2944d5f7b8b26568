"""The definition file of a plan, in the form that every Apptainer, SingularityCE and Singularity from 3.5.3 reads."""

import graphcrate.engines.render.compilation as compilation
import graphcrate.engines.render.ideas as ideas
from graphcrate.compat.planning import EXAMPLES, PROGRAMS, SYSTEM_PATH
from graphcrate.compat.toolkits import PACKAGES
from graphcrate.engines.render.about import about, folder
from graphcrate.engines.render.layout import WIDTH, rendered, wrapped
from graphcrate.model.plan import CUDA_HOME, VENV, Plan, PythonFrom
from graphcrate.model.recipe import Channel


def definition(plan: Plan, *, bootstrap: str = "docker", base: str = "") -> str:
    """Write the text; `base` empty: on the plan's own image. Raises BuildError for a step that it cannot express.

    Nothing else varies: no `%arguments`, which old engines refuse and whose values stay in the image's copy of the
    text. Mirrors are variables of the shell (APPTAINERENV_…, SINGULARITYENV_…).
    """
    ideas.refuse_unknown(plan, "definition file")
    stages = [*ideas.stages(plan), *compilation.stages(plan)]
    settings: dict[str, str] = {}
    for stage in stages:
        settings |= ideas.arguments(plan, stage)
    values = {
        "plan": plan,
        "about": about(plan),
        "folder": folder(plan),
        "bootstrap": bootstrap,
        "base": base or plan.base.image.reference,
        "settings": settings,
        "config": plan.config,
        "unwanted": plan.base.image.unwanted,
        "base_runs": ideas.base(plan),
        "tool_runs": ideas.tools(plan),
        # What an image brings is a stage; all else is done in one.
        "stages": [stage for stage in stages if not _is_image(stage.origin)],
        "pulled": next((stage for stage in stages if _is_image(stage.origin)), None),
        "toolkit_stays": compilation.in_image(plan),
        "bytecode": ideas.bytecode(plan),
        "final_runs": ideas.base(plan, environment=False),
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
    return rendered("definition", values)


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
    """Whether a stage comes from an image and not from another stage, whose name has neither tag nor digest."""
    return "@" in origin or ":" in origin
