"""Base images for engines that pull theirs: Debian's, Docker's of Python, NVIDIA's (CUDA's runtime alone). Pure."""

from typing import Literal

from graphcrate.compat.toolkits import nvidia_images
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import BaseImage, PythonFrom
from graphcrate.model.recipe import Variant

#: apt: images are extended with it. libgomp1: PyG's extensions are linked to it and bring none. procps: `kill`, `ps`,
#: which job scripts want. passwd: `useradd` in images made from this one. ca-certificates: downloads of data sets.
DEBIAN_PACKAGES = ("apt", "ca-certificates", "libgomp1", "libstdc++6", "passwd", "procps", "python3", "tzdata")
#: What any Debian image has.
_ALWAYS_THERE = ("apt", "passwd")
Choice = Literal["debian", "python", "nvidia"]


def locked_image(lock: Lock, packages: tuple[str, ...]) -> BaseImage:
    """What an engine pulls for this lock's base. `packages`: what the recipe adds to a Debian."""
    if isinstance(lock.base, DebianBase):
        return _debian(lock.base.suite, lock.python, packages)
    digest = f"@{lock.base.digest}" if lock.base.digest else ""
    return _with_python(f"{lock.base.reference}{digest}", lock.base.interpreter)


def wanted_image(variant: Variant) -> BaseImage:
    """What an engine pulls for this variant's base, as its recipe has it."""
    if variant.base.provider == "debian":
        return _debian(variant.base.suite, variant.python, variant.base.packages)
    return _with_python(variant.base.reference, f"/usr/local/bin/python{variant.python}")


def _debian(suite: str, python: str, more: tuple[str, ...]) -> BaseImage:
    packages = tuple(sorted({*DEBIAN_PACKAGES, *more} - {*_ALWAYS_THERE}))
    return BaseImage(reference=f"debian:{suite}-slim", interpreter=f"/usr/bin/python{python}", packages=packages)


def _with_python(reference: str, interpreter: str, packages: tuple[str, ...] = ()) -> BaseImage:
    return BaseImage(reference=reference, interpreter=interpreter, python_from=PythonFrom.IMAGE, packages=packages)


def chosen_image(choice: Choice, variant: Variant) -> BaseImage:
    """The base of this choice for a variant. Raises UsageError where NVIDIA has none for its CUDA version."""
    if choice == "debian":
        return wanted_image(variant)
    more = tuple(name for name in (*DEBIAN_PACKAGES, *variant.base.packages) if name not in (*_ALWAYS_THERE, "python3"))
    if choice == "python":
        suite = variant.base.suite or "bookworm"  # one whose compilers the lock knows
        return _with_python(f"python:{variant.python}-slim-{suite}", f"/usr/local/bin/python{variant.python}", more)
    images = nvidia_images()
    if variant.cuda not in images:
        raise UsageError(
            f"NVIDIA has no base image for CUDA {variant.cuda!r}; known are {', '.join(images)}",
            next_step=f"./build.py render NAME --cuda {variant.cuda} --base debian",
        )
    return BaseImage(
        reference=images[variant.cuda].removeprefix("docker.io/").replace("-devel-", "-base-"),
        # uv keeps this name for the newest patch release it has installed of a minor one.
        interpreter=f"/opt/python/cpython-{variant.python}-linux-x86_64-gnu/bin/python{variant.python}",
        python_from=PythonFrom.UV,
        packages=more,
        # They point it to folders of the driver, which containers get in other ways by now.
        unwanted=("LD_LIBRARY_PATH",),
    )
