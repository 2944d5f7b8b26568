"""Which files a CUDA toolkit consists of today: Debian's packages by apt, wheels by uv, an image by its digest."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.artifacts import pull
from graphcrate.compat import toolkits
from graphcrate.inputs.bases.apt import Apt, find_mirror, folder_name
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import DebianToolkit, ImageToolkit, WheelToolkit
from graphcrate.oci import reference
from graphcrate.resolve.pinning import pin_wheels

if TYPE_CHECKING:
    from graphcrate.model.lock import DebianPackage, LockedPackage, Toolkit
    from graphcrate.resolve.offers import Offers, Sources
    from graphcrate.resolve.target import Target


def lock_toolkit(
    option: toolkits.Option, installed: Mapping[str, str], target: "Target", offers: "Offers"
) -> "Toolkit":
    """The toolkit's files. `installed`: versions of the image's packages by name; their files serve where they can.

    Raises ResolutionError when the archive or the index has another version, NetworkError.
    """
    match option.provider:
        case "debian":
            return DebianToolkit(
                version=option.version,
                suite=option.suite,
                packages=_debian(option, offers.market),
                wheels=_wheels(option, installed, target, offers),
            )
        case "pypi":
            return WheelToolkit(version=option.version, wheels=_wheels(option, installed, target, offers))
    return _image(option, offers.market)


def _wheels(
    option: toolkits.Option, installed: Mapping[str, str], target: "Target", offers: "Offers"
) -> tuple["LockedPackage", ...]:
    """The pinned wheels alone: what they depend on is there to run programs, and nothing runs here."""
    pins = toolkits.requirements(option, installed)
    names = {canonicalize_name(Requirement(pin).name) for pin in pins}
    # As overrides too: what the wheels ask of one another must not undo a pin.
    found = pin_wheels(pins, target, offers, overrides=pins)
    return tuple(package for package in found if package.name in names)


def _debian(option: toolkits.Option, market: "Sources") -> tuple["DebianPackage", ...]:
    mirror = find_mirror(option.suite, market.environment)
    name = folder_name(option.suite, mirror, toolkits.COMPONENTS)
    with market.cache.exclusively(f"apt-{name}"), market.cache.guard():
        folder = market.cache.path("bases", "apt", name)
        apt = Apt(folder, option.suite, mirror, market.environment, toolkits.COMPONENTS)
        apt.update()
        offered = apt.available(option.packages)
    return tuple(_of_version(wanted, option, offered) for wanted in sorted(option.packages))


def _of_version(name: str, option: toolkits.Option, offered: Sequence["DebianPackage"]) -> "DebianPackage":
    """The package with this nvcc, the archive's first where it has several."""
    of_name = [package for package in offered if package.name == name]
    for package in of_name:
        if package.version.startswith(option.version):
            return package
    has = ", ".join(package.version for package in of_name) or "none"
    raise ResolutionError(
        f"Debian {option.suite} has no {name} {option.version}",
        cause=f"The mirror has {has}; its contrib and non-free sections are needed for CUDA.",
        next_step="DEBIAN_MIRROR=http://a-mirror/debian make image …, or TOOLKIT=image",
    )


def _image(option: toolkits.Option, market: "Sources") -> ImageToolkit:
    wanted = reference.parse(option.reference)
    source = pull.repository(wanted, market.environment)
    document = pull.for_platform(source, source.manifest(wanted.digest or wanted.tag), str(wanted))
    pull.keep(market.cache, {document.digest: document.data})
    return ImageToolkit(version=option.version, reference=wanted.name, digest=document.digest)
