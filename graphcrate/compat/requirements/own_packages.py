"""Packages that a user adds to a stack: their names, merged, in a tag, and as provenance has them."""

from collections.abc import Collection

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.requirements.translated import is_stacks
from graphcrate.model.recipe import Additions, Expected, Variant
from projectfiles import git_address as git_addresses
from projectfiles.git_address import GitAddress

#: packages that people expect under one name
FLAVOURS = {"jupyter": ("jupyterlab", "ipykernel", "matplotlib", "pandas")}
LONGEST_SUFFIX = 48  #: characters of a tag that name packages; OCI allows 128 in all
GIT = "git+"


def wanted_packages(additions: Additions) -> tuple[str, ...]:
    """Packages by name, path and address, with those of the flavour."""
    return tuple(dict.fromkeys((*additions.packages, *FLAVOURS.get(additions.flavour, ()))))


def merge_additions(first: Additions, second: Additions) -> Additions:
    """Both; name, files, variables of the image and commands are the first's."""
    return msgspec.structs.replace(
        first,
        packages=tuple(dict.fromkeys((*first.packages, *second.packages))),
        constraints=(*first.constraints, *second.constraints),
        apt=tuple(dict.fromkeys((*first.apt, *second.apt))),
        build_apt=tuple(dict.fromkeys((*first.build_apt, *second.build_apt))),
        build_environment=first.build_environment | second.build_environment,
        flavour=second.flavour or first.flavour,
        channels=tuple(dict.fromkeys((*first.channels, *second.channels))),
        expected=(*first.expected, *second.expected),
        hashes=first.hashes | second.hashes,
        notes=(*first.notes, *second.notes),
    )


def below(words: Additions, from_file: Additions, file: str, *, alone: bool = False) -> Additions:
    """Merge a file's additions below packages that were typed, which go first; `alone`: without those.

    So `WITH=torch` takes the stack's torch in place of the file's.
    """
    names = {name_of(package) for package in words.packages}
    dropped = [package for package in from_file.packages if not is_local(package) and name_of(package) in names]
    typed = [
        Expected(name=name_of(package), where=file, specifier=str(specifier))
        for package in dropped
        if (specifier := Requirement(package).specifier) and not is_stacks(name_of(package))
    ]
    rest = msgspec.structs.replace(
        from_file,
        packages=tuple(package for package in from_file.packages if package not in dropped),
        constraints=tuple(
            constraint
            for constraint in from_file.constraints
            if is_local(constraint) or name_of(constraint) not in names
        ),
        expected=(
            *(
                msgspec.structs.replace(expected, binding=expected.binding and expected.name not in names)
                for expected in from_file.expected
            ),
            *typed,
        ),
        hashes={name: hashes for name, hashes in from_file.hashes.items() if name not in names},
    )
    return rest if alone else merge_additions(words, rest)


def recorded(additions: Additions) -> Additions:
    """As provenance has them: without paths and addresses of this machine, nor what is about a file alone."""
    names = tuple(name_of(package) if is_local(package) else package for package in additions.packages)
    return msgspec.structs.replace(additions, packages=names, channels=(), expected=(), hashes={}, notes=())


def with_apt(variant: Variant, additions: Additions) -> Variant:
    """The variant with the Debian packages that the user adds."""
    packages = tuple(dict.fromkeys((*variant.base.packages, *additions.apt)))
    return msgspec.structs.replace(variant, base=msgspec.structs.replace(variant.base, packages=packages))


def changes(additions: Additions, added: Collection[str]) -> bool:
    """Return whether they make another image than the stack's; `added`: names of the packages that it does not have."""
    return bool(added or msgspec.structs.replace(additions, packages=()))


def suffix(additions: Additions, added: Collection[str]) -> str:
    """Return a tag's suffix for them, `-lightning-wandb`; empty for an image with a name of its own.

    `added`: normalised names. What the stack has already, or a marker excludes, is left out.
    """
    packages = [package for package in additions.packages if is_local(package) or name_of(package) in added]
    rest = [*map(name_of, packages), *additions.apt]
    text = f"-{additions.flavour}" if additions.flavour else ""
    if additions.name:
        return text
    while rest and len(text) + 1 + len(rest[0]) <= LONGEST_SUFFIX:
        text += f"-{rest.pop(0)}"
    return f"{text}-and-{len(rest)}-more" if rest else text


def name_of(package: str) -> str:
    """The name to call a package by, normalised: of a path or an address its last part."""
    if is_local(package):
        path = package
        if package.startswith(GIT):
            address = git_address(package)
            path = address.subdirectory or address.url
        last = path.partition("#")[0].rstrip("/").rpartition("/")[2].removesuffix(".git")
        return str(canonicalize_name(last.partition("-")[0] if last.endswith(".whl") else last))
    return str(canonicalize_name(Requirement(package).name))


def git_address(package: str) -> GitAddress:
    """A `git+…` address of `Additions`, in its parts. Raises ValueError for one that `read_package` refuses."""
    return git_addresses.read(package.removeprefix(GIT))


def is_local(package: str) -> bool:
    """Return whether a package of `Additions` is a path or a git address, not a requirement."""
    return package.startswith(("/", GIT))
