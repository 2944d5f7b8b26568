"""The plan's packages as a requirements file with hashes, for pip and uv."""

import graphcrate.render.ideas as ideas
from graphcrate.model.plan import Plan, RequirementsStep, WheelsStep
from graphcrate.model.recipe import Channel
from graphcrate.render.about import about
from graphcrate.render.layout import comment, complete

_OPTIONS = {Channel.PYTORCH: "--extra-index-url", Channel.PYG: "--find-links"}


def requirements(plan: Plan) -> str:
    """The text: every package with its one file's hash; for an open plan what was asked for, without any."""
    locked = [package for step in plan.steps if isinstance(step, WheelsStep) for package in step.packages]
    opened = [text for step in plan.steps if isinstance(step, RequirementsStep) for text in step.requirements]
    how = "--no-deps --require-hashes " if plan.stack.locked else ""
    lines = [f"# {plan.name}:{plan.tag}", *(comment(paragraph) for paragraph in about(plan))]
    lines.append(f"#     uv pip install {how}--requirement requirements.txt    (Python {plan.stack.python}, x86-64)")
    lines += [
        f"{option} {ideas.address(plan, channel)}"
        for channel, option in _OPTIONS.items()
        if channel in ideas.channels(plan)
    ]
    for package in sorted(locked, key=lambda package: package.name):
        lines += [f"{package.name}=={package.version} \\", f"    --hash=sha256:{package.file.sha256}"]
    text = "\n".join([*lines, *opened]) + "\n"
    return complete(plan, text, "requirements file", only=(WheelsStep, RequirementsStep))
