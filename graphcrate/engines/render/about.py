"""What the texts say of an image in words."""

from graphcrate.compat import facts, fallback
from graphcrate.model.plan import CUDA_HOME, CompileStep, Plan, ToolkitStep


def about(plan: Plan) -> tuple[str, ...]:
    """Paragraphs: what is in it, what choosing it means, what it lacks and what that costs."""
    stack = plan.stack
    built = "for CPUs" if stack.torch_cuda == "cpu" else f"for CUDA {stack.torch_cuda}"
    parts = [f"torch {stack.torch} {built}"]
    if stack.torch_geometric:
        parts.append(f"PyG {stack.torch_geometric}")
    parts.append(f"Python {stack.python}")
    paragraphs = [f"{stack.description}: {', '.join(parts)}."]
    limits = fallback.limits(stack.torch, stack.torch_cuda, stack.cuda)
    if stack.meaning:
        paragraphs.append(" ".join((f"{stack.meaning}.", *(f"It {limit}." for limit in limits))))
    paragraphs += [_compiled(step) for step in plan.steps if isinstance(step, CompileStep)]
    paragraphs += [_devel(step) for step in plan.steps if isinstance(step, ToolkitStep)]
    if stack.missing:
        costs = "; ".join(
            f"{missing.name} ({missing.cost})" if missing.cost else missing.name for missing in stack.missing
        )
        paragraphs.append(f"Not in it, for want of a wheel when it was locked, with what that costs: {costs}.")
    if not stack.locked:
        paragraphs.append(
            "Nobody has locked this variant yet: versions below are what was asked for, and no file is checked. "
            f"`./build.py lock {plan.name} --cuda {stack.cuda}` and `make render`, on a network that reaches its "
            "channels, pin and check every file."
        )
    return tuple(paragraphs)


def _compiled(step: CompileStep) -> str:
    """What was compiled, with what, for which GPUs."""
    names = ", ".join(f"{package.name} {package.version}" for package in step.packages)
    used = step.compilation
    if used.toolkit is None:
        return f"Compiled from source by {used.compiler}, for CPUs alone: {names}."
    codes = ", ".join(_named(architecture) for architecture in used.architectures)
    return f"Compiled from source by {used.compiler} and CUDA {used.toolkit.version}: {names}; for GPUs {codes}."


def _named(architecture: str) -> str:
    """`7.0 (V100, TITAN V)`, `8.0+PTX (A100, A30; newer ones compile it when they first run it)`."""
    capability, ahead, _ = architecture.partition("+PTX")
    known = ", ".join(name.replace("_", " ") for name, value in facts.gpus().items() if value == capability)
    later = "newer ones compile it when they first run it" if ahead else ""
    said = "; ".join(text for text in (known, later) if text)
    return f"{architecture} ({said})" if said else architecture


def _devel(step: ToolkitStep) -> str:
    return (
        f"A devel image: its compiler and CUDA {step.toolkit.version} in {CUDA_HOME} stay, for extensions of your own."
    )


def folder(plan: Plan) -> str:
    """Where the texts of this plan are committed."""
    cuda = plan.stack.cuda
    return f"images/{plan.name}/{cuda if cuda == 'cpu' else 'cu' + cuda.replace('.', '')}"
