"""Requirements of installed Python packages, by their metadata and by what is known that it leaves out."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from graphcrate.checks import system
from graphcrate.checks.audit.packages import TORCH, Packages
from graphcrate.compat.facts import packages as package_facts
from graphcrate.compat.facts import standard_library
from graphcrate.compat.facts.packages import requirements
from graphcrate.model.audit import AuditFinding, Contents, InstalledDistribution, Severity
from graphcrate.model.words import listed


def findings(contents: Contents, packages: Packages) -> Iterator[AuditFinding]:
    """Missing, of another version, twice, for another Python, or required in silence."""
    seen: dict[tuple[str, str], InstalledDistribution] = {}
    for distribution in contents.distributions:
        if other := seen.get((distribution.folder, distribution.name)):
            what = f"is installed twice: {other.version} and {distribution.version}"
            yield _finding(
                distribution,
                "warn",
                what,
                "files of both lie mixed",
                f"pip install --force-reinstall {distribution.name}",
            )
        seen[distribution.folder, distribution.name] = distribution
    debians = frozenset(_of_debian(contents))
    for distribution in contents.distributions:
        installed = packages.installed(packages.of(distribution).world)
        whole = contents.base  # of packages alone, more may lie where they will
        yield from _python(distribution, packages.pythons(distribution.folder))
        yield from _required(distribution, installed, packages, whole=whole)
        for requirement in package_facts.hidden(distribution.name, distribution.version, installed) if whole else ():
            what = f"{requirement.why}; its metadata does not say so"
            yield _finding(distribution, "fail", what, "its import fails", f"pip install {requirement.one_of[0]}")
        yield from _silent(distribution, packages, installed)
        if debians:
            yield from _apart(distribution, contents, packages, debians)


def _of_debian(contents: Contents) -> Iterator[str]:
    """Names of the Debian packages that an image has; none of what has no dpkg."""
    for name, *_ in system.installed(contents.texts.get(system.STATUS, b"").decode("utf-8", "replace")):
        yield name


def _apart(
    distribution: InstalledDistribution, contents: Contents, packages: Packages, debians: Collection[str]
) -> Iterator[AuditFinding]:
    """Yield imports of the standard library that Debian packages apart, where the image lacks that package.

    Only of Debian's own Python: others, in /usr/local or of conda, are whole.
    """
    for python in packages.pythons(distribution.folder):
        program = f"/bin/python{python}"
        if {path for path in contents.binaries if path.endswith(program)} != {f"/usr{program}"}:
            continue
        for row in standard_library.lacked(distribution.name, python, debians):
            package = standard_library.package_of(row.module, python)
            what = f"imports {row.module} on Python {python}, which Debian has in {package}; the image has not"
            finding = _finding(distribution, "fail", what, row.loses, f"apt install {package}")
            yield msgspec.structs.replace(finding, packages=(package,))


def _python(distribution: InstalledDistribution, pythons: Sequence[str]) -> Iterator[AuditFinding]:
    with contextlib.suppress(InvalidSpecifier, InvalidVersion):
        specifier = SpecifierSet(distribution.python)
        if pythons and not any(specifier.contains(f"{python}.99", prereleases=True) for python in pythons):
            what = f"needs Python {distribution.python}; the image has {listed(pythons)}"
            fix = f"a release of {distribution.name} for Python {listed(pythons)}"
            yield _finding(distribution, "warn", what, "it may not even be imported", fix)


def _required(
    distribution: InstalledDistribution,
    installed: Mapping[str, InstalledDistribution],
    packages: Packages,
    *,
    whole: bool,
) -> Iterator[AuditFinding]:
    for requirement in packages.requirements(distribution):
        name = canonicalize_name(requirement.name)
        what, fix = f"requires {requirement.name}{requirement.specifier}", str(requirement).partition(";")[0].strip()
        fix = f"pip install '{fix}'"
        dependency = installed.get(name)
        if dependency is None:
            if whole:
                yield _finding(
                    distribution, "warn", f"{what}, which is not installed", "an import that needs it fails", fix
                )
            continue
        try:
            version = Version(dependency.version)
        except InvalidVersion:
            continue
        if requirement.specifier.contains(version, prereleases=True):
            continue
        what += f"; {dependency.version} is installed"
        # the versions of `==2.0.1`, and of `==2.0.*` what it begins with
        clauses = [clause for clause in requirement.specifier if clause.operator == "=="]
        pins = [Version(clause.version.removesuffix(".*")) for clause in clauses]
        if name.startswith("nvidia-") and pins and all(pin.major == version.major and pin < version for pin in pins):
            # Built with 11.7, run with 11.8: minor-version compatibility (docs.nvidia.com/deploy/cuda-compatibility).
            yield _finding(
                distribution, "note", what, "nothing: within a major version NVIDIA's libraries keep their ABI", ""
            )
            continue
        severity, breaks = _severity(distribution, name, version, pins, packages)
        yield _finding(distribution, severity, what, breaks, fix)


def _severity(
    distribution: InstalledDistribution, name: str, installed: Version, pins: Sequence[Version], packages: Packages
) -> tuple[Severity, str]:
    """Judge another version than the one that is required, and what breaks.

    torch's C++ interface holds for one minor release: a package that links and pins it is built for it. Symbols may
    be there all the same, and the import then ends in a segmentation fault (torchvision 0.23 with torch 2.9).
    """
    if name != TORCH:
        return "warn", "its authors rule this version out"
    breaks = "its libraries are built for that torch: undefined symbols, or a crash"
    other_minor = any((pin.major, pin.minor) != (installed.major, installed.minor) for pin in pins)
    return ("fail" if other_minor and packages.links_torch(packages.of(distribution)) else "warn"), breaks


def _silent(
    distribution: InstalledDistribution, packages: Packages, installed: Mapping[str, InstalledDistribution]
) -> Iterator[AuditFinding]:
    """Packages that link torch and do not require it: nothing holds the two together."""
    package = packages.of(distribution)
    if (
        distribution.name == TORCH
        or packages.torch(package) in packages.required(package)
        or not packages.links_torch(package)
    ):
        return
    if any(canonicalize_name(requirement.name) == TORCH for requirement in requirements(distribution.requires, "")):
        return
    torch = installed[TORCH].version if TORCH in installed else "none"
    what = f"links torch and requires none: nothing keeps it to the torch that it was built for (installed: {torch})"
    yield _finding(distribution, "note", what, "an update of torch breaks it in silence", "pin both in one lock")


def _finding(distribution: InstalledDistribution, severity: Severity, what: str, breaks: str, fix: str) -> AuditFinding:
    return AuditFinding("metadata", severity, distribution.name, "", what, breaks, fix)
