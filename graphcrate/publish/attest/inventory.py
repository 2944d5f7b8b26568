"""Everything that a lock names, once each, with its package URL: what bill of materials and provenance are made of."""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from packageurl import PackageURL

from graphcrate.compat import addresses
from graphcrate.model.lock import (
    PLATFORM,
    Compilation,
    DebianBase,
    DebianPackage,
    DebianToolkit,
    ImageToolkit,
    Lock,
    LockedFile,
    LockedPackage,
    Toolkit,
    WheelToolkit,
)
from graphcrate.model.recipe import Channel
from graphcrate.oci import spec


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing of the lock. `purl` names it and is unique; `sha256` is empty where the lock has none (a toolkit of the
    machine, an image known by its tag).
    """

    kind: Literal["python", "debian", "image"]
    name: str
    version: str
    purl: str
    sha256: str = ""
    file: LockedFile | None = None
    channel: Channel | None = None
    in_image: bool = True  #: False: used while the image was built, and left behind
    built_with: tuple[str, ...] = ()  #: purls of the back-end of a pure sdist
    compilation: Compilation | None = None  #: with what a compiled sdist was compiled


def items(lock: Lock, *, devel: bool = False) -> tuple[Item, ...]:
    """All of the lock, in the order base, packages, what compiled them. `devel`: the image keeps compiler and toolkit.

    What is both in the image and a tool counts as being in the image.
    """
    known: dict[str, Item] = {}
    for item in _all(lock, devel):
        if item.purl not in known or (item.in_image and not known[item.purl].in_image):
            known[item.purl] = item
    return tuple(known.values())


def _all(lock: Lock, devel: bool) -> Iterator[Item]:
    base, compilation = lock.base, lock.compilation
    if isinstance(base, DebianBase):
        yield from _debian(base.packages, base.suite, in_image=True)
    else:
        yield _image(base.reference, base.digest, base.platform, in_image=True)
    for package in lock.packages:
        back_end = tuple(_python(build, lock, in_image=False) for build in package.build)
        yield msgspec.structs.replace(
            _python(package, lock, in_image=True),
            built_with=tuple(tool.purl for tool in back_end),
            compilation=compilation if package.compiled else None,
        )
        yield from back_end
    if compilation is not None and (devel or any(package.compiled for package in lock.packages)):
        yield from _debian(compilation.base.packages, compilation.base.suite, devel)
        yield from (_python(tool, lock, in_image=devel) for tool in compilation.tools)
        yield from _toolkit(compilation.toolkit, lock, devel)


def _toolkit(toolkit: Toolkit | None, lock: Lock, in_image: bool) -> Iterator[Item]:
    if isinstance(toolkit, ImageToolkit):
        yield _image(toolkit.reference, toolkit.digest, PLATFORM, in_image)
    if isinstance(toolkit, DebianToolkit):
        yield from _debian(toolkit.packages, toolkit.suite, in_image)
    if isinstance(toolkit, DebianToolkit | WheelToolkit):
        yield from (_python(wheel, lock, in_image=in_image) for wheel in toolkit.wheels)


def _python(package: LockedPackage, lock: Lock, *, in_image: bool) -> Item:
    return Item(
        kind="python",
        name=package.name,
        version=package.version,
        purl=_python_purl(package, lock).to_string(),
        sha256=package.file.sha256,
        file=package.file,
        channel=package.channel,
        in_image=in_image,
    )


def _python_purl(package: LockedPackage, lock: Lock) -> PackageURL:
    """Of a wheel from a folder the hash alone says what it is; its name may be anybody's.

    `repository_url` is there only for channels that are not the users' own index.
    """
    if package.channel is Channel.LOCAL:
        checksum = {"checksum": f"sha256:{package.file.sha256}"}
        return PackageURL("generic", None, package.name, package.version, checksum)
    qualifiers = {"file_name": package.file.name}
    torch = lock.package("torch")
    if package.channel is Channel.PYTORCH:
        qualifiers["repository_url"] = addresses.pytorch_index(lock.torch_cuda)
    elif package.channel is Channel.PYG:
        pages = addresses.pyg_links(torch.version, lock.torch_cuda) if torch else addresses.PYG
        qualifiers["repository_url"] = pages
    return PackageURL("pypi", None, package.name, package.version, qualifiers)


def _debian(packages: Iterable[DebianPackage], suite: str, in_image: bool) -> Iterator[Item]:
    for package in packages:
        qualifiers = {"arch": package.architecture, "distro": suite}
        yield Item(
            kind="debian",
            name=package.name,
            version=package.version,
            purl=PackageURL("deb", "debian", package.name, package.version, qualifiers).to_string(),
            sha256=package.file.sha256,
            file=package.file,
            in_image=in_image,
        )


def _image(reference: str, digest: str, platform: str, in_image: bool) -> Item:
    """An image by its digest; the user's registry that it came from is left out."""
    repository = reference.rpartition("/")[2].lower()
    architecture = platform.partition("/")[2]
    return Item(
        kind="image",
        name=repository,
        version=digest,
        purl=PackageURL("oci", None, repository, digest or None, {"arch": architecture}).to_string(),
        sha256=digest.removeprefix("sha256:") if spec.DIGEST.fullmatch(digest) else "",
        in_image=in_image,
    )
