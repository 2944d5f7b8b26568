"""The bill of materials: everything, once, in CycloneDX, the same bytes each time."""

import json
import re
import string
from pathlib import Path

import msgspec
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given
from hypothesis import strategies as st
from packageurl import PackageURL

from graphcrate.checks import licences as facts
from graphcrate.checks.licences import PackageFacts
from graphcrate.model.lock import ImageToolkit, LockedFile, LockedPackage, WheelToolkit, decode_lock
from graphcrate.model.recipe import Channel
from graphcrate.publish.attest.inventory import items
from graphcrate.publish.attest.sbom import sbom
from tests.unit.proof_lock import COMPILATION, CREATED, LOCK, ON_REGISTRY, PACKAGES, SUBJECT, sdist, wheel

GOLDEN = Path(__file__).parent / "golden" / "proof"
LOCKS = sorted((Path(__file__).parent.parent.parent / "images").glob("*/*/*.lock.json"))
CANARIES = ("/home/alice", "mirror.inside.example", "registry.inside.example")


def changed(**fields):
    return msgspec.structs.replace(LOCK, **fields)


def with_toolkit(toolkit):
    return changed(compilation=msgspec.structs.replace(COMPILATION, toolkit=toolkit))


def document(lock=LOCK, **more):
    return json.loads(sbom(lock, SUBJECT, created=CREATED, **more))


def by_name(found, name):
    return [component for component in found["components"] if component["name"] == name]


def properties(component):
    return {entry["name"]: entry["value"] for entry in component.get("properties", ())}


def files_of(value):
    """Every LockedFile below a value."""
    if isinstance(value, LockedFile):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from files_of(getattr(value, name))
    elif isinstance(value, tuple):
        for entry in value:
            yield from files_of(entry)


def is_valid(data):
    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(data.decode()) is None


def test_the_same_bytes_as_ever():
    assert sbom(LOCK, SUBJECT, created=CREATED) == (GOLDEN / "sbom.json").read_bytes()


KINDS = {
    "debian": LOCK,
    "registry": changed(base=ON_REGISTRY),
    "wheels": with_toolkit(WheelToolkit(version="13.0.88", wheels=(wheel("nvidia-cuda-nvcc", "13.0.88"),))),
    "image": with_toolkit(ImageToolkit(version="11.8.89", reference="nvidia/cuda", digest="sha256:" + "d" * 64)),
    "image by tag": with_toolkit(ImageToolkit(version="11.8.89", reference="nvidia/cuda", digest="")),
    "for the CPU": with_toolkit(None),
    "nothing compiled": changed(packages=PACKAGES[:5], compilation=None),
}


@pytest.mark.parametrize("devel", [False, True], ids=["", "devel"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_the_schema_says_and_has_every_file_of_the_lock(kind, devel):
    lock = KINDS[kind]
    data = sbom(lock, SUBJECT, created=CREATED, devel=devel and lock.compilation is not None)
    assert is_valid(data)
    hashes = {entry["content"] for component in json.loads(data)["components"] for entry in component.get("hashes", ())}
    wanted = {file.sha256 for file in files_of(lock)}
    assert wanted
    assert wanted <= hashes


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.parent.name}-{path.parent.name}")
def test_of_the_committed_locks_nothing_is_left_out(path):
    lock = decode_lock(path.read_bytes())
    found = items(lock)
    used = lock.compilation if any(package.compiled for package in lock.packages) else None
    assert {item.sha256 for item in found} >= {file.sha256 for file in files_of((lock.base, lock.packages, used))}
    assert len({item.purl for item in found}) == len(found)


def test_a_committed_lock_makes_a_valid_document():
    lock = decode_lock(next(path for path in LOCKS if path.parent.parent.name == "pyg").read_bytes())
    assert is_valid(sbom(lock, SUBJECT, created=lock.created))


def test_components_say_where_they_are_from():
    found = document()
    (torch,) = by_name(found, "torch")
    assert torch["purl"].startswith("pkg:pypi/torch@2.0.1%2Bcu118?")
    assert PackageURL.from_string(torch["purl"]).qualifiers["repository_url"].endswith("/cu118")
    (scatter,) = by_name(found, "torch-scatter")
    assert PackageURL.from_string(scatter["purl"]).qualifiers["repository_url"].endswith(".html")
    (numpy,) = by_name(found, "numpy")
    assert PackageURL.from_string(numpy["purl"]).qualifiers == {"file_name": "numpy-1.26.4-py3-none-any.whl"}
    (mine,) = by_name(found, "my-model")
    assert mine["purl"].startswith("pkg:generic/my-model@0.3?checksum=sha256:")
    (zlib,) = by_name(found, "zlib1g")
    assert zlib["purl"] == "pkg:deb/debian/zlib1g@1:1.2.13.dfsg-1?arch=amd64&distro=bookworm"
    (system,) = by_name(found, "debian")
    assert (system["type"], system["version"]) == ("operating-system", "12")


def test_what_was_compiled_says_with_what():
    found = document()
    (sparse,) = by_name(found, "torch-sparse")
    assert properties(sparse) | {"graphcrate:compiled:toolkit": "debian 11.8.89"} == properties(sparse)
    assert properties(sparse)["graphcrate:compiled:compiler"] == "g++-11"
    assert properties(sparse)["graphcrate:compiled:architectures"] == "7.0 8.0+PTX"
    (geometric,) = by_name(found, "torch-geometric")
    assert "pkg:pypi/wheel@0.48.0" in properties(geometric)["graphcrate:built-with"]
    (alone,) = by_name(document(with_toolkit(None)), "torch-sparse")
    assert "graphcrate:compiled:toolkit" not in properties(alone)


def test_tools_are_not_said_to_be_in_the_image_unless_they_are():
    scopes = {component["name"]: component.get("scope") for component in document()["components"]}
    for name in ("g++-11", "ninja", "nvidia-cuda-toolkit", "nvidia-cublas-cu11", "wheel"):
        assert scopes[name] == "excluded"
    assert scopes["setuptools"] == scopes["libc6"] == scopes["torch"] == "required"
    devel = {component["name"]: component.get("scope") for component in document(devel=True)["components"]}
    for name in ("g++-11", "ninja", "nvidia-cuda-toolkit", "nvidia-cublas-cu11"):
        assert devel[name] == "required"
    assert devel["wheel"] == "excluded"


def test_the_image_depends_on_what_is_in_it():
    found = document(facts={"torch-geometric": PackageFacts(requires=("numpy", "torch", "tqdm", "torch-geometric"))})
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in found["dependencies"]}
    inside = {component["bom-ref"] for component in found["components"] if component.get("scope") != "excluded"}
    assert set(graph["image"]) == inside
    (geometric,) = by_name(found, "torch-geometric")
    assert [ref.partition("@")[0] for ref in graph[geometric["bom-ref"]]] == ["pkg:pypi/numpy", "pkg:pypi/torch"]


@pytest.mark.parametrize(
    ("licence", "written"),
    [
        ("MIT", [{"license": {"id": "MIT"}}]),
        ("Apache-2.0 OR BSD-3-Clause", [{"expression": "Apache-2.0 OR BSD-3-Clause"}]),
        ("NVIDIA Proprietary Software", [{"license": {"name": "NVIDIA Proprietary Software"}}]),
        ("Copyright (c)\nall of a licence's text", None),
        ("x" * 121, None),
        ("", None),
    ],
)
def test_licences_as_what_they_are(licence, written):
    data = sbom(LOCK, SUBJECT, created=CREATED, facts={"numpy": PackageFacts(licences=(licence,))})
    (numpy,) = by_name(json.loads(data), "numpy")
    assert numpy.get("licenses") == written
    assert is_valid(data)


def test_many_licences_stand_side_by_side_and_an_expression_among_them_is_a_name():
    licences = ("GPL-2.0-or-later", "Artistic OR GPL-1.0-or-later", "MIT OR ISC", "a text\nof many lines")
    data = sbom(LOCK, SUBJECT, created=CREATED, facts={"numpy": PackageFacts(licences=licences)})
    (numpy,) = by_name(json.loads(data), "numpy")
    assert sorted(next(iter(one["license"].values())) for one in numpy["licenses"]) == sorted(licences[:3])
    assert {"license": {"id": "GPL-2.0-or-later"}} in numpy["licenses"]
    assert is_valid(data)


def test_what_was_left_behind_is_not_described_by_what_is_in_the_image():
    known = {"ninja": PackageFacts(licences=("MIT",))}
    assert "MIT" not in json.dumps(document(facts=known))
    assert by_name(document(facts=known, devel=True), "ninja")[0]["licenses"] == [{"license": {"id": "MIT"}}]


METADATA = b"""Metadata-Version: 2.1
Name: Example_Package
License: MIT License
Classifier: License :: OSI Approved :: BSD License
Classifier: Programming Language :: Python
Requires-Dist: NumPy >=1.20
Requires-Dist: tomli ; python_version < "3.11"
Requires-Dist: typing_extensions ; python_version >= "3.11"
Requires-Dist: pytest ; extra == "test"
Requires-Dist: this is no requirement
"""


def facts_of(data, python="3.11"):
    texts = {
        "/opt/venv/lib/python3.11/site-packages/Example_Package-1.0.dist-info/METADATA": data,
        "/opt/venv/lib/python3.11/site-packages/nameless-1.0.dist-info/METADATA": b"Version: 1.0\n",
        "/usr/share/doc/free/METADATA": b"Name: elsewhere\n",
    }
    return facts.of_image(texts, python)


def test_metadata_is_read_for_the_images_own_python():
    assert facts_of(METADATA) == {
        "example-package": PackageFacts(licences=("BSD License",), requires=("numpy", "typing-extensions"))
    }
    assert facts_of(METADATA, "3.9")["example-package"].requires == ("numpy", "tomli")


@pytest.mark.parametrize(
    ("lines", "licences"),
    [
        (b"License-Expression: MIT\nLicense: other\n", ("MIT",)),
        (b"License: Apache 2.0\n", ("Apache 2.0",)),
        (b"License: UNKNOWN\n", ()),
        (b"Classifier: License :: OSI Approved :: MIT License\nLicense: other\n", ("MIT",)),
    ],
)
def test_a_licence_is_read_where_metadata_has_it(lines, licences):
    assert facts_of(b"Name: a\n" + lines) == {"a": PackageFacts(licences=licences)}


def test_another_lock_or_image_is_another_document_with_another_number():
    other = msgspec.structs.replace(SUBJECT, digest="sha256:" + "0" * 64)
    numbers = {
        json.loads(data)["serialNumber"]
        for data in (
            sbom(LOCK, SUBJECT, created=CREATED),
            sbom(LOCK, other, created=CREATED),
            sbom(LOCK, SUBJECT, created=CREATED + 1),
            sbom(changed(packages=PACKAGES[1:]), SUBJECT, created=CREATED),
            sbom(LOCK, SUBJECT, created=CREATED, devel=True),
        )
    }
    assert len(numbers) == 5
    assert all(re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", number) for number in numbers)


@pytest.mark.parametrize("lock", [LOCK, changed(base=ON_REGISTRY)], ids=["debian", "registry"])
def test_nothing_of_the_site_gets_out(lock):
    assert any(canary.encode() in msgspec.json.encode(lock) for canary in CANARIES)
    data = sbom(lock, SUBJECT, created=CREATED).decode()
    assert not [canary for canary in CANARIES if canary in data]
    # the schema's own address, and channels that are not the user's index
    hosts = set(re.findall(r"https?://([^/\"]+)", data))
    assert hosts == {"cyclonedx.org", "download.pytorch.org", "data.pyg.org"}


NAMES = st.text(alphabet=string.ascii_lowercase + string.digits + "-", min_size=1, max_size=12).filter(
    lambda name: name[0] != "-" and name[-1] != "-"
)
VERSIONS = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}(\+[a-z0-9]{1,8})?", fullmatch=True)


@given(st.dictionaries(NAMES, st.tuples(VERSIONS, st.sampled_from(Channel), st.booleans()), max_size=8), st.randoms())
def test_the_order_of_the_lock_does_not_count_and_purls_come_back(named, chance):
    packages = [
        LockedPackage(
            name=name,
            version=version,
            channel=channel,
            file=(sdist if is_sdist else wheel)(name, version).file,
        )
        for name, (version, channel, is_sdist) in named.items()
    ]
    one = items(changed(packages=tuple(packages), compilation=None))
    chance.shuffle(packages)
    other = items(changed(packages=tuple(packages), compilation=None))
    assert set(one) == set(other)
    for item in one:
        parsed = PackageURL.from_string(item.purl)
        assert (parsed.name, parsed.version) == (item.name, item.version)
        assert parsed.to_string() == item.purl
