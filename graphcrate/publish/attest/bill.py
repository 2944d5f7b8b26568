"""Bill of materials in CycloneDX 1.6 (JSON): everything that a lock names, once each, by its package URL.

The same bytes for the same lock and image.
"""

import datetime
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from graphcrate import __version__
from graphcrate.checks.licences import PackageFacts
from graphcrate.compat import addresses, suites
from graphcrate.model.lock import (
    PLATFORM,
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
from graphcrate.model.report import CutFile
from graphcrate.oci import spec
from graphcrate.publish.attest.statement import Subject

IN_IMAGE = ComponentScope.REQUIRED  #: any other was used while the image was built, and left behind
_PYTHON = ("pypi", "generic")  #: types of the package URLs of Python packages
_LONGEST_LICENCE = 120  #: characters; longer ones are texts of licences, not names


def sbom(
    lock: Lock,
    subject: Subject,
    *,
    devel: bool = False,
    facts: Mapping[str, PackageFacts] | None = None,
    cut: Sequence[CutFile] = (),
) -> dict[str, Any]:
    """The document; its time is the lock's, never the clock's.

    `facts`: licences and requirements of Python packages, where they are known. `cut`: libraries with zeros in them,
    unlike those of the wheels whose hashes stand here.
    """
    document: dict[str, Any] = msgspec.json.decode(
        JsonV1Dot6(_bom(lock, subject, devel, facts or {}, cut)).output_as_string()
    )
    document.pop("serialNumber")
    content = hashlib.sha256(canonical(document)).hexdigest()
    return {**document, "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, content).urn}


def canonical(document: dict[str, Any]) -> bytes:
    """JSON with sorted names and two spaces: what no release of the library can put in another order."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def _bom(lock: Lock, subject: Subject, devel: bool, facts: Mapping[str, PackageFacts], cut: Sequence[CutFile]) -> Bom:
    # not why a package is missing: that may name a mirror of the user's
    about = {"recipe": lock.recipe, "cuda": lock.cuda, "candidate": lock.candidate, "python": lock.python}
    about |= {"torch:cuda": lock.torch_cuda, "missing": " ".join(package.name for package in lock.missing)}
    root = _root(lock, subject)
    metadata = BomMetaData(
        timestamp=datetime.datetime.fromtimestamp(lock.created, datetime.UTC),
        tools=ToolRepository(
            components=[Component(name="graphcrate", version=__version__, type=ComponentType.APPLICATION)]
        ),
        component=root,
        properties=_properties(about),
    )
    bom = Bom(metadata=metadata)
    inside = [_system(lock.base)] if isinstance(lock.base, DebianBase) else []
    python: dict[str, Component] = {}
    for component in parts(lock, devel=devel):
        if component.scope is IN_IMAGE:  # what is left behind may be of another version than what has the name inside
            inside.append(component)
            if component.purl is not None and component.purl.type in _PYTHON:
                python[component.name] = component
                component.licenses = _licences(facts.get(component.name, PackageFacts()).licences)
            changed = sorted(one.path for one in cut if one.package == component.name)
            component.properties.update(_properties({"slim:cut": " ".join(changed)}))
        bom.components.add(component)
        bom.register_dependency(component)
    bom.components.update(inside)
    bom.register_dependency(root, inside)
    for name, component in python.items():
        needed = facts[name].requires if name in facts else ()
        bom.register_dependency(component, [python[other] for other in needed if other in python and other != name])
    return bom


def _root(lock: Lock, subject: Subject) -> Component:
    return Component(
        name=subject.name,
        version=subject.tag,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        purl=PackageURL("oci", None, subject.name.rpartition("/")[2], subject.digest, {"arch": "amd64"}),
        hashes=_hashes(subject.sha256),
        properties=_properties({"lock:sha256": lock.sha256}),
    )


def _system(base: DebianBase) -> Component:
    """What scanners take the meaning of Debian's versions from."""
    suite = suites.known().get(base.suite)
    return Component(
        name="debian",
        version=suite.release if suite else base.suite,
        type=ComponentType.OPERATING_SYSTEM,
        bom_ref="operating-system",
    )


def parts(lock: Lock, *, devel: bool = False) -> Iterable[Component]:
    """All of the lock, in the order base, packages, what compiled them. `devel`: the image keeps compiler and toolkit.

    What is both in the image and a tool counts as being in the image.
    """
    known: dict[str | None, Component] = {}
    for one in _all(lock, devel):
        if one.bom_ref.value not in known or one.scope is IN_IMAGE:
            known[one.bom_ref.value] = one
    return known.values()


def _all(lock: Lock, devel: bool) -> Iterator[Component]:
    base, compilation = lock.base, lock.compilation
    if isinstance(base, DebianBase):
        yield from _debian(base.packages, base.suite, in_image=True)
    else:
        yield _image(base.reference, base.digest, base.platform, in_image=True)
    for package in lock.packages:
        back_end = [_python(tool, lock, in_image=False) for tool in package.build]
        details = {"built-with": " ".join(str(tool.bom_ref) for tool in back_end)}
        if compilation is not None and package.compiled:
            toolkit = compilation.toolkit
            details |= {
                "compiled:compiler": compilation.compiler,
                "compiled:architectures": " ".join(compilation.architectures) or "cpu",
                "compiled:toolkit": f"{toolkit.__struct_config__.tag} {toolkit.version}" if toolkit is not None else "",
            }
        yield _python(package, lock, in_image=True, details=details)
        yield from back_end
    if compilation is not None and (devel or any(package.compiled for package in lock.packages)):
        yield from _debian(compilation.base.packages, compilation.base.suite, devel)
        yield from (_python(tool, lock, in_image=devel) for tool in compilation.tools)
        yield from _toolkit(compilation.toolkit, lock, devel)


def _toolkit(toolkit: Toolkit | None, lock: Lock, in_image: bool) -> Iterator[Component]:
    if isinstance(toolkit, ImageToolkit):
        yield _image(toolkit.reference, toolkit.digest, PLATFORM, in_image)
    if isinstance(toolkit, DebianToolkit):
        yield from _debian(toolkit.packages, toolkit.suite, in_image)
    if isinstance(toolkit, DebianToolkit | WheelToolkit):
        yield from (_python(wheel, lock, in_image=in_image) for wheel in toolkit.wheels)


def _python(
    package: LockedPackage, lock: Lock, *, in_image: bool, details: Mapping[str, str] | None = None
) -> Component:
    about = {"channel": package.channel.value, **(details or {})}
    return _part(_python_purl(package, lock), package.file.sha256, in_image, about, package.file)


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


def _debian(packages: Iterable[DebianPackage], suite: str, in_image: bool) -> Iterator[Component]:
    for package in packages:
        qualifiers = {"arch": package.architecture, "distro": suite}
        purl = PackageURL("deb", "debian", package.name, package.version, qualifiers)
        yield _part(purl, package.file.sha256, in_image, {}, package.file)


def _image(reference: str, digest: str, platform: str, in_image: bool) -> Component:
    """An image by its digest; the user's registry that it came from is left out."""
    architecture = {"arch": platform.partition("/")[2]}
    purl = PackageURL("oci", None, reference.rpartition("/")[2].lower(), digest or None, architecture)
    return _part(purl, digest.removeprefix("sha256:") if spec.DIGEST.fullmatch(digest) else "", in_image, {})


def _part(
    purl: PackageURL, sha256: str, in_image: bool, details: Mapping[str, str], file: LockedFile | None = None
) -> Component:
    """One thing of the lock, known by its package URL. `details`: what CycloneDX has no word for."""
    about = {"use": "" if in_image else "build", **details}
    if file is not None:
        about |= {"file": file.name, "size": str(file.size)}
    return Component(
        name=purl.name,
        version=purl.version,
        type=ComponentType.CONTAINER if purl.type == "oci" else ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        scope=IN_IMAGE if in_image else ComponentScope.EXCLUDED,
        hashes=_hashes(sha256),
        properties=_properties(about),
    )


def _hashes(sha256: str) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []


def _properties(values: Mapping[str, str]) -> list[Property]:
    return [Property(name=f"graphcrate:{name}", value=value) for name, value in values.items() if value]


def _licences(texts: Iterable[str]) -> list[DisjunctiveLicense | LicenseExpression]:
    """SPDX ids as such, short names as names; whole texts are left out. An expression is one only where it is alone:
    the format allows no other licence beside it.
    """
    names = [text for text in texts if text and "\n" not in text and len(text) <= _LONGEST_LICENCE]
    licences = [LicenseFactory().make_from_string(name) for name in names]
    if len(licences) > 1:
        return [DisjunctiveLicense(name=one.value) if isinstance(one, LicenseExpression) else one for one in licences]
    return licences
