"""Base images for engines that pull theirs. Pure."""

from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import BaseImage
from graphcrate.model.recipe import Variant

#: apt: images are extended with it. libgomp1: PyG's extensions are linked to it and bring none. procps: `kill`, `ps`,
#: which job scripts want. passwd: `useradd` in images made from this one. ca-certificates: downloads of data sets.
DEBIAN_PACKAGES = ("apt", "ca-certificates", "libgomp1", "libstdc++6", "passwd", "procps", "python3", "tzdata")
#: What any Debian image has.
_ALWAYS_THERE = ("apt", "passwd")


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


def _with_python(reference: str, interpreter: str) -> BaseImage:
    return BaseImage(reference=reference, interpreter=interpreter, brings_python=True)
