"""The page for people beside an image's texts: what it is and the commands that build and run it."""

from graphcrate.compat.planning import EXAMPLES
from graphcrate.engines.render.about import about, folder
from graphcrate.engines.render.layout import rendered
from graphcrate.model.plan import CompileStep, Plan


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
