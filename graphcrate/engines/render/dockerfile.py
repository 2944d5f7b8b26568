"""The Dockerfile of a plan. It builds with classic `docker build` from 17.05 on, with BuildKit and with podman."""

import json

import graphcrate.engines.render.compilation as compilation
import graphcrate.engines.render.ideas as ideas
from graphcrate.compat.planning import EXAMPLES, PROGRAMS, SYSTEM_PATH
from graphcrate.engines.render.about import about, folder
from graphcrate.engines.render.commands import Commands, run
from graphcrate.engines.render.layout import pairs, rendered
from graphcrate.model.plan import VENV, Plan, PythonFrom
from graphcrate.model.recipe import Channel

#: where uv keeps what it has downloaded, in stages that are left behind
UV_CACHE = "/root/.cache/uv"


def dockerfile(plan: Plan, *, cache_mounts: bool = False) -> str:
    """Write the text; `cache_mounts` is for BuildKit alone. Raises BuildError for a step that it cannot express."""
    ideas.refuse_unknown(plan, "Dockerfile")
    config, stages = plan.config, [*ideas.stages(plan), *compilation.stages(plan)]
    values = {
        "plan": plan,
        "about": about(plan),
        "folder": folder(plan),
        "config": config,
        "image": plan.base.image,
        "base_runs": ideas.base(plan),
        "tool_runs": ideas.tools(plan),
        "stages": stages,
        "beside": {stage.name for stage in stages if ideas.uses(stage, f"{ideas.CONTEXT}/wheels")},
        "arguments": {stage.name: ideas.arguments(plan, stage) for stage in stages},
        "python_from_uv": plan.base.image.python_from is PythonFrom.UV,
        "with_wheels": Channel.LOCAL in ideas.channels(plan),
        "uv_cache": UV_CACHE if cache_mounts else "",
        "instruction": _mounted if cache_mounts else _plain,
        # An engine cannot unset a variable; to the loader an empty one is as good (ld.so(8)).
        "environment": pairs({**config.environment, **dict.fromkeys(plan.base.image.unwanted, "")}, "    "),
        "labels": pairs(config.labels, "      "),
        "command": json.dumps(config.command),
        "entrypoint": json.dumps(config.entrypoint) if config.entrypoint else "",
        "CERTIFICATES": ideas.CERTIFICATES,
        "CONTEXT": ideas.CONTEXT,
        "EXAMPLES": EXAMPLES,
        "PROGRAMS": PROGRAMS,
        "SYSTEM_PATH": SYSTEM_PATH,
        "TOOLS": ideas.TOOLS,
        "VENV": VENV,
    }
    return rendered("Dockerfile", values)


def _plain(commands: Commands) -> str:
    return run(commands.commands)


def _mounted(commands: Commands) -> str:
    mount = f"--mount=type=cache,target={UV_CACHE},sharing=locked "
    return "RUN " + (mount if commands.cached else "") + run(commands.commands).removeprefix("RUN ")
