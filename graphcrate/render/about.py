"""What the texts say of an image in words."""

from graphcrate.model.plan import Plan


def about(plan: Plan) -> tuple[str, ...]:
    """Paragraphs: what is in it, what choosing it means, what it lacks and what that costs."""
    stack = plan.stack
    built = "for CPUs" if stack.torch_cuda == "cpu" else f"for CUDA {stack.torch_cuda}"
    parts = [f"torch {stack.torch} {built}"]
    if stack.torch_geometric:
        parts.append(f"PyG {stack.torch_geometric}")
    parts.append(f"Python {stack.python}")
    paragraphs = [f"{stack.description}: {', '.join(parts)}."]
    if stack.meaning:
        paragraphs.append(f"{stack.meaning}.")
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


def folder(plan: Plan) -> str:
    """Where the texts of this plan are committed."""
    cuda = plan.stack.cuda
    return f"images/{plan.name}/{cuda if cuda == 'cpu' else 'cu' + cuda.replace('.', '')}"
