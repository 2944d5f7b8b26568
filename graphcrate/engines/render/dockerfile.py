"""The Dockerfile of a plan. It builds with classic `docker build` from 17.05 on, with BuildKit and with podman."""

import json

import msgspec

import graphcrate.engines.render.compilation as compilation
import graphcrate.engines.render.ideas as ideas
from graphcrate.compat.planning import EXAMPLES, PROGRAMS, SYSTEM_PATH
from graphcrate.engines.render.about import about, folder
from graphcrate.engines.render.commands import Commands, run
from graphcrate.engines.render.layout import complete, pairs, rendered
from graphcrate.model.plan import VENV, Plan, PythonFrom
from graphcrate.model.recipe import Channel

#: where uv keeps what it has downloaded, in stages that are left behind
UV_CACHE = "/root/.cache/uv"


class DockerForm(msgspec.Struct, frozen=True, kw_only=True):
    """How the Dockerfile is written. `cache_mounts`: for BuildKit alone."""

    cache_mounts: bool = False


def dockerfile(plan: Plan, form: DockerForm | None = None) -> str:
    """The text. Raises BuildError for a step that it cannot express."""
    form = form or DockerForm()
    ideas.refuse_unknown(plan, "Dockerfile")
    config, parts = plan.config, [*ideas.parts(plan), *compilation.parts(plan)]
    values = {
        "plan": plan,
        "about": about(plan),
        "folder": folder(plan),
        "config": config,
        "image": plan.base.image,
        "base_ideas": ideas.base(plan),
        "tool_ideas": ideas.tools(plan),
        "parts": parts,
        "beside": {part.name for part in parts if ideas.uses(part, f"{ideas.CONTEXT}/wheels")},
        "arguments": {part.name: ideas.arguments(plan, part) for part in parts},
        "python_from_uv": plan.base.image.python_from is PythonFrom.UV,
        "with_wheels": Channel.LOCAL in ideas.channels(plan),
        "uv_cache": UV_CACHE if form.cache_mounts else "",
        "instruction": _mounted if form.cache_mounts else _plain,
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
    return complete(plan, rendered("Dockerfile", values), "Dockerfile")


def _plain(idea: Commands) -> str:
    return run(idea.commands)


def _mounted(idea: Commands) -> str:
    mount = f"--mount=type=cache,target={UV_CACHE},sharing=locked "
    return "RUN " + (mount if idea.cached else "") + run(idea.commands).removeprefix("RUN ")
