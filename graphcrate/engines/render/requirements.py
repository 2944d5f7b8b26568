"""The plan's packages as a requirements file with hashes, for pip and uv."""

from collections.abc import Sequence

import graphcrate.engines.render.ideas as ideas
from graphcrate.compat import compilers
from graphcrate.compat.planning import EXAMPLES
from graphcrate.engines.render.about import about, folder
from graphcrate.engines.render.layout import comment, double, rendered
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import CUDA_HOME, CompileStep, Plan, RequirementsStep, WheelsStep
from graphcrate.model.recipe import Channel

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
    lines += _pins(locked)
    return "\n".join([*lines, *opened]) + "\n"


def sources(plan: Plan) -> str:
    """What `requirements` leaves out, since it is compiled against what that installs; empty where nothing is."""
    steps = [step for step in plan.steps if isinstance(step, CompileStep)]
    if not steps:
        return ""
    compilation = steps[0].compilation
    tools = ", ".join(f"{tool.name} {tool.version}" for tool in compilation.tools)
    cuda = f", CUDA {compilation.toolkit.version} in {CUDA_HOME}" if compilation.toolkit else ""
    lines = [
        comment(f"{plan.name}:{plan.tag}: sources, to be compiled where requirements.txt has been installed."),
        comment(f"Wanted: {compilation.compiler}, Python's headers{cuda}; {tools}."),
        *(f"#     export {name}={double(value)}" for name, value in compilers.variables(compilation).items()),
        "#     uv pip install --no-deps --no-build-isolation --require-hashes --requirement sources.txt",
    ]
    return "\n".join([*lines, *_pins([package for step in steps for package in step.packages])]) + "\n"


def _pins(packages: Sequence[LockedPackage]) -> list[str]:
    found: list[str] = []
    for package in sorted(packages, key=lambda package: package.name):
        found += [f"{package.name}=={package.version} \\", f"    --hash=sha256:{package.file.sha256}"]
    return found


def readme(plan: Plan, lock: str = "") -> str:
    """`README.md` of the plan's folder. `lock`: name of the lock file there, empty without one."""
    stack = plan.stack
    make = [f"STACK={plan.name}"] if plan.name != "pyg" else []
    values = {
        "plan": plan,
        "stack": stack,
        "title": f"{plan.name}:{plan.tag}",
        "about": about(plan),
        "folder": folder(plan),
        "lock": lock,
        "make": " ".join([*make, f"CUDA={stack.cuda}"]),
        "program": f"{EXAMPLES}/{'dna.py' if stack.torch_geometric else 'torch_check.py'}",
        "compiled": next((step for step in plan.steps if isinstance(step, CompileStep)), None),
        "cpu": stack.cuda == "cpu",
        "gpus": "" if stack.cuda == "cpu" else " --gpus all",
        "nv": "" if stack.cuda == "cpu" else " --nv",
        "gres": "" if stack.cuda == "cpu" else " --gres=gpu:1",
    }
    return rendered("page.md", values)
