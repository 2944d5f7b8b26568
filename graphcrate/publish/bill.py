"""Bill of materials in CycloneDX 1.6 (JSON): everything that a lock names, once each, by its package URL.

The same bytes for the same lock and image.
"""

import datetime
import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.component_evidence import ComponentEvidence, Occurrence
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from graphcrate import __version__
from graphcrate.checks.bundled import Bundled
from graphcrate.checks.licences import PackageFacts
from graphcrate.checks.system import SystemPackage
from graphcrate.compat.facts import addresses, libraries, licences, pyg_lib, suites
from graphcrate.compat.facts.libraries import Library
from graphcrate.model.lock import (
    DebianBase,
    DebianPackage,
    DebianSource,
    DebianToolkit,
    ImageToolkit,
    Lock,
    LockedCrate,
    LockedFile,
    LockedPackage,
    Toolkit,
    WheelToolkit,
)
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.model.report import CutFile
from graphcrate.publish.predicates import Subject
from ocilayout import spec

IN_IMAGE = ComponentScope.REQUIRED  #: any other was used while the image was built, and left behind
_PYTHON = ("pypi", "generic")  #: types of the package URLs of Python packages
_LONGEST_LICENCE = 120  #: characters; longer ones are texts of licences, not names
#: source packages by name, version and architecture of a package, and what else its files say
System = Mapping[tuple[str, str, str], SystemPackage]
#: a package that was built again from the same source has this behind its version (Debian's binNMU)
_AGAIN = re.compile(r"\+b\d+$")


def sbom(
    lock: Lock,
    subject: Subject,
    *,
    devel: bool = False,
    facts: Mapping[str, PackageFacts] | None = None,
    system: System | None = None,
    cut: Sequence[CutFile] = (),
) -> dict[str, Any]:
    """The document; its time is the lock's, never the clock's.

    `facts`: of Python packages, `system`: of Debian's, as the image has them, where they are known. `cut`: libraries
    with zeros in them, unlike those of the wheels whose hashes stand here.
    """
    document: dict[str, Any] = msgspec.json.decode(
        JsonV1Dot6(_bom(lock, subject, devel, facts or {}, system or {}, cut)).output_as_string()
    )
    document.pop("serialNumber")
    content = hashlib.sha256(canonical(document)).hexdigest()
    return {**document, "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, content).urn}


def canonical(document: dict[str, Any]) -> bytes:
    """JSON with sorted names and two spaces: what no release of the library can put in another order."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def _bom(
    lock: Lock,
    subject: Subject,
    devel: bool,
    facts: Mapping[str, PackageFacts],
    system: System,
    cut: Sequence[CutFile],
) -> Bom:
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
    for component in parts(lock, devel=devel, upstream=True, system=system):
        if component.scope is IN_IMAGE:  # what is left behind may be of another version than what has the name inside
            inside.append(component)
            if component.purl is not None and component.purl.type in _PYTHON:
                python[component.name] = component
                _describe(component, facts.get(component.name, PackageFacts()))
            changed = sorted(file.path for file in cut if file.package == component.name)
            component.properties.update(_properties({"slim:cut": " ".join(changed)}))
        bom.components.add(component)
        bom.register_dependency(component)
    bom.components.update(inside)
    bom.register_dependency(root, inside)
    for name, component in python.items():
        needed = facts[name].requires if name in facts else ()
        bom.register_dependency(component, [python[other] for other in needed if other in python and other != name])
    return bom


def _describe(component: Component, facts: PackageFacts) -> None:
    """Add what a Python package says of itself: its licences, and what its wheel brought along of others."""
    component.licenses = _licences(facts.licences)
    component.components.update(_nested(component, bundled, number) for number, bundled in enumerate(facts.bundled))


def _nested(component: Component, bundled: Bundled, number: int) -> Component:
    """A library inside a package. It is evident from the file where there is one, else the wheel's own bill says so."""
    evidence = ComponentEvidence(occurrences=[Occurrence(location=bundled.path)]) if bundled.path else None
    return Component(
        name=bundled.name,
        version=bundled.version or None,
        type=ComponentType.LIBRARY,
        bom_ref=f"{component.bom_ref.value}#bundled-{number}",
        purl=PackageURL.from_string(bundled.purl) if bundled.purl else None,
        scope=component.scope,
        hashes=_hashes(bundled.sha256),
        licenses=_licences(bundled.licences),
        evidence=evidence,
    )


def _root(lock: Lock, subject: Subject) -> Component:
    return Component(
        name=subject.name,
        version=subject.tag,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        purl=PackageURL(
            "oci", None, subject.name.rpartition("/")[2], subject.digest, {"arch": lock.platform.architecture}
        ),
        hashes=_hashes(subject.digest.removeprefix("sha256:")),
        properties=_properties({"lock:sha256": lock.sha256}),
    )


def _system(base: DebianBase) -> Component:
    """Return the component by which scanners read the versions of .debs."""
    suite = suites.known().get(base.suite)
    return Component(
        name=suites.distribution_of(base.suite).name,
        version=suite.release if suite else base.suite,
        type=ComponentType.OPERATING_SYSTEM,
        bom_ref="operating-system",
    )


def parts(
    lock: Lock, *, devel: bool = False, upstream: bool = False, system: System | None = None
) -> Iterable[Component]:
    """All of the lock, in the order base, packages, what compiled them. `devel`: the image keeps compiler and toolkit.

    What is both in the image and a tool counts as being in the image. `upstream`: package URLs of Debian's packages
    name the source package, which advisories are about; by `system`, else by the path in the archive.
    """
    known: dict[str | None, Component] = {}
    for component in _all(lock, devel, (system or {}) if upstream else None):
        if component.bom_ref.value not in known or component.scope is IN_IMAGE:
            known[component.bom_ref.value] = component
    return known.values()


def _all(lock: Lock, devel: bool, system: System | None) -> Iterator[Component]:
    base, compilation = lock.base, lock.compilation
    if isinstance(base, DebianBase):
        yield from _debian(base.packages, base.suite, in_image=True, system=system)
    else:
        yield _image(base.reference, base.digest, base.platform, in_image=True)
    for package in lock.packages:
        back_end = [_python(tool, lock, in_image=False) for tool in package.build]
        details = {"packed-of": _packed_of(package, lock)} if package.commit else {}
        details |= {"built-with": " ".join(str(tool.bom_ref) for tool in back_end)}
        if compilation is not None and package.compiled:
            toolkit = compilation.toolkit
            details |= {
                "compiled:compiler": compilation.compiler,
                "compiled:architectures": " ".join(compilation.architectures) or "cpu",
                "compiled:toolkit": f"{toolkit.__struct_config__.tag} {toolkit.version}" if toolkit is not None else "",
            }
        component = _python(package, lock, in_image=True, details=details)
        if compilation is not None and package.compiled:
            linked = libraries.linked(package.name, compilation)
            component.components.update(_linked(component, library, source) for library, source in linked)
            component.components.update(_crate(component, crate) for crate in package.vendored)
        yield component
        yield from back_end
    if compilation is not None and (devel or any(package.compiled for package in lock.packages)):
        yield from _debian(compilation.base.packages, compilation.base.suite, devel, system)
        yield from (_python(tool, lock, in_image=devel) for tool in compilation.tools)
        for source in compilation.linked:
            yield from _debian([source], source.suite, False, None)
        if (cross := compilation.crossed) is not None:
            yield from _debian(cross.headers, compilation.base.suite, False, None)
        yield from _toolkit(compilation.toolkit, lock, devel, system)


def _linked(component: Component, library: Library, source: DebianSource) -> Component:
    """A library inside a package that is linked to it statically: no file of the image tells."""
    qualifiers = {"arch": source.architecture, "distro": source.suite}
    purl = PackageURL("deb", suites.distribution_of(source.suite).name, source.name, source.version, qualifiers)
    return Component(
        name=library.name,
        version=source.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{component.bom_ref.value}#linked-{library.name}",
        purl=purl,
        scope=component.scope,
        licenses=_licences([library.licence]),
        properties=_properties({"linked": "static", "source": source.file.name, "source:sha256": source.file.sha256}),
    )


def _crate(component: Component, crate: LockedCrate) -> Component:
    """A crate that a package in Rust is compiled with; some are for other systems, and not in it."""
    return Component(
        name=crate.name,
        version=crate.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{component.bom_ref.value}#crate-{crate.name}-{crate.version}",
        purl=PackageURL("cargo", None, crate.name, crate.version),
        scope=component.scope,
        properties=_properties({"source": crate.file.name, "source:sha256": crate.file.sha256}),
    )


def _toolkit(toolkit: Toolkit | None, lock: Lock, in_image: bool, system: System | None) -> Iterator[Component]:
    if isinstance(toolkit, ImageToolkit):
        yield _image(toolkit.reference, toolkit.digest, lock.platform.name, in_image)
    if isinstance(toolkit, DebianToolkit):
        yield from _debian(toolkit.packages, toolkit.suite, in_image, system)
    if isinstance(toolkit, DebianToolkit | WheelToolkit):
        yield from (_python(wheel, lock, in_image=in_image) for wheel in toolkit.wheels)


def _python(
    package: LockedPackage, lock: Lock, *, in_image: bool, details: Mapping[str, str] | None = None
) -> Component:
    about = {"channel": package.channel.value, **(details or {})}
    return _part(_python_purl(package, lock), package.file.sha256, in_image, about, package.file)


def _packed_of(package: LockedPackage, lock: Lock) -> str:
    """The repositories and commits that a source archive was packed of."""
    release = pyg_lib.release_at(package.commit)
    parts = release.of(lock.torch_cuda) if release else ()
    return " ".join(f"{part.repository}@{part.commit}" for part in parts) or package.commit


def _python_purl(package: LockedPackage, lock: Lock) -> PackageURL:
    """Of a wheel from a folder the hash alone says what it is; its name may be anybody's.

    `repository_url` is there only for channels that are not the users' own index.
    """
    if package.channel is Channel.LOCAL:
        checksum = {"checksum": f"sha256:{package.file.sha256}"}
        return PackageURL("generic", None, package.name, package.version, checksum)
    qualifiers = {"file_name": package.file.name}
    torch = lock.package("torch")
    if row := CHANNELS.get(package.channel):
        version = torch.version if torch else ""
        address = addresses.channel_address(package.channel, version, lock.torch_cuda)
        qualifiers["repository_url"] = address if torch or not row.for_torch else row.root
    return PackageURL("pypi", None, package.name, package.version, qualifiers)


def _debian(
    packages: Iterable[DebianPackage], suite: str, in_image: bool, system: System | None
) -> Iterator[Component]:
    """`system` None: package URLs that name no source package."""
    for package in packages:
        qualifiers = {"arch": package.architecture, "distro": suite}
        known = system.get((package.name, package.version, package.architecture)) if system is not None else None
        if system is not None and (source := _upstream(package, known)):
            qualifiers["upstream"] = source
        purl = PackageURL("deb", suites.distribution_of(suite).name, package.name, package.version, qualifiers)
        component = _part(purl, package.file.sha256, in_image, {}, package.file)
        component.licenses = _licences(known.licences) if known and in_image else []
        yield component


def _upstream(package: DebianPackage, known: SystemPackage | None) -> str:
    """`glibc`, or `bash@5.2.15-2` where the source has another version; empty: nothing tells."""
    if known is not None:
        source, version = known.source, known.version
    else:
        # pool/main/g/glibc/libc6_….deb: the archive keeps packages by their source (Debian's policy of its pool)
        folders = package.path.split("/")
        if folders[0] != "pool" or len(folders) < 5:
            return ""
        source, version = folders[-2], _AGAIN.sub("", package.version)
    return source if version == package.version else f"{source}@{version}"


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
    """SPDX ids as such, short names as names, with an address for terms that SPDX has no id for; whole texts are left
    out. An expression is one only where it is alone: the format allows no other licence beside it. So all of them are
    one expression where each is known to SPDX and one is more than an id.
    """
    names = list(dict.fromkeys(text for text in texts if text and "\n" not in text and len(text) <= _LONGEST_LICENCE))
    made = [_licence(name) for name in names]
    if len(made) > 1 and any(isinstance(licence, LicenseExpression) for licence in made):
        if together := licences.all_of(names):
            return [LicenseExpression(together)]
        return [
            DisjunctiveLicense(name=licence.value) if isinstance(licence, LicenseExpression) else licence
            for licence in made
        ]
    return made


def _licence(name: str) -> DisjunctiveLicense | LicenseExpression:
    if licences.is_ref(name) and (address := licences.address(name)):
        return DisjunctiveLicense(name=name, url=XsUri(address))
    return LicenseFactory().make_from_string(name)
