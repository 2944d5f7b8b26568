"""Bill of materials in CycloneDX 1.6 (JSON): 100 % of the lock, the same bytes for the same lock and image."""

import datetime
import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
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
from graphcrate.compat.facts import limits
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.report import CutFile
from graphcrate.publish.attest.inventory import Item, items
from graphcrate.publish.attest.statement import Subject

_IN_IMAGE = ComponentScope.REQUIRED
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
    bom = _bom(lock, subject, devel, facts or {})
    for component in bom.components:
        if changed := sorted(one.path for one in cut if one.package == component.name and component.scope is _IN_IMAGE):
            component.properties.update(_properties({"slim:cut": " ".join(changed)}))
    document: dict[str, Any] = msgspec.json.decode(JsonV1Dot6(bom).output_as_string())
    document.pop("serialNumber")
    content = hashlib.sha256(canonical(document)).hexdigest()
    return {**document, "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, content).urn}


def canonical(document: dict[str, Any]) -> bytes:
    """JSON with sorted names and two spaces: what no release of the library can put in another order."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def _bom(lock: Lock, subject: Subject, devel: bool, facts: Mapping[str, PackageFacts]) -> Bom:
    tool = Component(name="graphcrate", version=__version__, type=ComponentType.APPLICATION)
    root = _root(lock, subject)
    metadata = BomMetaData(
        timestamp=datetime.datetime.fromtimestamp(lock.created, datetime.UTC),
        tools=ToolRepository(components=[tool]),
        component=root,
        properties=_properties(
            {
                "recipe": lock.recipe,
                "cuda": lock.cuda,
                "candidate": lock.candidate,
                "python": lock.python,
                "torch:cuda": lock.torch_cuda,
                # not why it is missing: that may name a mirror of the user's
                "missing": " ".join(package.name for package in lock.missing),
            }
        ),
    )
    bom = Bom(metadata=metadata)
    inside = [_system(lock.base)] if isinstance(lock.base, DebianBase) else []
    python: dict[str, Component] = {}
    for item in items(lock, devel=devel):
        # what is left behind may be of another version than what the image has under that name
        is_inside = item.kind == "python" and item.in_image
        component = _component(item, facts.get(item.name, PackageFacts()) if is_inside else PackageFacts())
        bom.components.add(component)
        bom.register_dependency(component)
        if item.in_image:
            inside.append(component)
            python |= {item.name: component} if is_inside else {}
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
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=subject.sha256)],
        properties=_properties({"lock:sha256": lock.sha256}),
    )


def _system(base: DebianBase) -> Component:
    """What scanners take the meaning of Debian's versions from."""
    suite = limits().suites.get(base.suite)
    return Component(
        name="debian",
        version=suite.release if suite else base.suite,
        type=ComponentType.OPERATING_SYSTEM,
        bom_ref="operating-system",
    )


def _component(item: Item, facts: PackageFacts) -> Component:
    return Component(
        name=item.name,
        version=item.version or None,
        type=ComponentType.CONTAINER if item.kind == "image" else ComponentType.LIBRARY,
        bom_ref=item.purl,
        purl=PackageURL.from_string(item.purl),
        scope=_IN_IMAGE if item.in_image else ComponentScope.EXCLUDED,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=item.sha256)] if item.sha256 else [],
        licenses=_licences(facts.licences),
        properties=_properties(_details(item)),
    )


def _details(item: Item) -> dict[str, str]:
    """What CycloneDX has no word for."""
    details = {"use": "" if item.in_image else "build", "channel": item.channel.value if item.channel else ""}
    if item.file is not None:
        details |= {"file": item.file.name, "size": str(item.file.size)}
    if item.built_with:
        details["built-with"] = " ".join(item.built_with)
    if item.compilation is not None:
        toolkit = item.compilation.toolkit
        details |= {
            "compiled:compiler": item.compilation.compiler,
            "compiled:architectures": " ".join(item.compilation.architectures) or "cpu",
            "compiled:toolkit": f"{toolkit.__struct_config__.tag} {toolkit.version}" if toolkit is not None else "",
        }
    return details


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
