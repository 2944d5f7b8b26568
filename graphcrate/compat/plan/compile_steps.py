"""Steps that compile: the extensions of a stack, then what the user added. Pure."""

import msgspec

from graphcrate.compat.facts import libraries
from graphcrate.model import plan as steps
from graphcrate.model.lock import Lock

#: what `import torch`, its build tools and the extensions' own imports need besides CUDA libraries
_TORCH_NEEDS = {
    "torch", "typing-extensions", "filelock", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "numpy",
    "scipy",
}  # fmt: skip
ADDED_SOURCES = "added packages, compiled"  #: title of a step


def compile_steps(lock: Lock) -> tuple[steps.CompileStep, ...]:
    """List what is compiled, and against what: the stack's extensions, then what the user added (`ADDED_SOURCES`)."""
    added = lock.additions.packages
    compiled = [package for package in lock.packages if package.compiled]
    torch = [
        package
        for package in lock.packages
        if not package.compiled and (package.name in _TORCH_NEEDS or package.name.startswith(("nvidia-", "cuda-")))
    ]
    made = []
    for title, is_added in (("compiled extensions", False), (ADDED_SOURCES, True)):
        if packages := tuple(package for package in compiled if (package.name in added) is is_added):
            assert lock.compilation is not None, "whoever locks a source locks its compiler"
            names = [package.name for package in packages]
            beside = (item for package in packages if not package.isolated for item in package.build)
            made.append(
                steps.CompileStep(
                    title=title,
                    python=lock.python,
                    packages=packages,
                    against=tuple(dict.fromkeys([*torch, *beside])),
                    compilation=libraries.without_others(lock.compilation, names),
                    base=lock.base if lock.compilation.crossed else msgspec.UNSET,
                )
            )
    return tuple(made)
