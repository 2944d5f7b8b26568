"""Images that an engine pulls for a base, and the packages of a Debian in images. Pure."""

from graphcrate.compat.facts import suites
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import BaseImage
from graphcrate.model.recipe import Variant

#: apt: images are extended with it. libgomp1: PyG's extensions are linked to it and bring none. procps: `kill`, `ps`,
#: which job scripts need. passwd: `useradd` in images made from this one. ca-certificates: downloads of data sets.
DEBIAN_PACKAGES = ("apt", "ca-certificates", "libgomp1", "libstdc++6", "passwd", "procps", "python3", "tzdata")
#: What any Debian image has.
_ALWAYS_THERE = ("apt", "passwd")


def locked_image(lock: Lock, packages: tuple[str, ...]) -> BaseImage:
    """Return the image that an engine pulls for this lock's base.

    `packages`: what recipe and person add to a Debian.
    """
    if isinstance(lock.base, DebianBase):
        return _debian(lock.base.suite, lock.python, packages)
    digest = f"@{lock.base.digest}" if lock.base.digest else ""
    return _with_python(f"{lock.base.reference}{digest}", lock.base.interpreter)


def wanted_image(variant: Variant) -> BaseImage:
    """Return the image that an engine pulls for this variant's base, as its recipe has it."""
    if variant.base.provider != "registry":
        return _debian(variant.base.suite, variant.python, variant.base.packages)
    return _with_python(variant.base.reference, f"/usr/local/bin/python{variant.python}")


def base_packages(suite: str) -> tuple[str, ...]:
    """List this suite's packages in images. Raises ResolutionError for a suite that no base is made of."""
    return (*DEBIAN_PACKAGES, *suites.base_of(suite).fabric)


def _debian(suite: str, python: str, more: tuple[str, ...]) -> BaseImage:
    image = suites.distribution_of(suite).image.format(suite=suite)
    packages = tuple(sorted({*base_packages(suite), *more} - {*_ALWAYS_THERE}))
    return BaseImage(reference=image, interpreter=f"/usr/bin/python{python}", packages=packages)


def _with_python(reference: str, interpreter: str) -> BaseImage:
    return BaseImage(reference=reference, interpreter=interpreter, brings_python=True)
