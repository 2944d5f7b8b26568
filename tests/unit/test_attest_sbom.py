"""The bill of materials: everything, once, in CycloneDX, the same bytes each time."""

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
from graphcrate.model.lock import ImageToolkit, LockedFile, WheelToolkit, decode_lock
from graphcrate.model.recipe import Channel
from graphcrate.publish.attest.inventory import items
from graphcrate.publish.attest.sbom import canonical, sbom
from tests.unit.proof_lock import COMPILATION, LOCK, ON_REGISTRY, PACKAGES, SUBJECT, sdist, wheel

GOLDEN = Path(__file__).parent / "golden" / "proof"
LOCKS = sorted((Path(__file__).parent.parent.parent / "images").glob("*/*/*.lock.json"))
CANARIES = ("/home/alice", "mirror.inside.example", "registry.inside.example")


def changed(**fields):
    return msgspec.structs.replace(LOCK, **fields)


def with_toolkit(toolkit):
    return changed(compilation=msgspec.structs.replace(COMPILATION, toolkit=toolkit))


def by_name(found, name):
    return [component for component in found["components"] if component["name"] == name]


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


def is_valid(found):
    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(canonical(found).decode()) is None


def test_the_same_bytes_as_ever():
    assert canonical(sbom(LOCK, SUBJECT)) == (GOLDEN / "sbom.json").read_bytes()


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
    found = sbom(lock, SUBJECT, devel=devel and lock.compilation is not None)
    assert is_valid(found)
    hashes = {entry["content"] for component in found["components"] for entry in component.get("hashes", ())}
    assert {file.sha256 for file in files_of(lock)} <= hashes
    assert not [canary for canary in CANARIES if canary in str(found)]
    # the schema's own address, and channels that are not the user's index
    assert set(re.findall(r"https?://([^/\"']+)", str(found))) <= {
        "cyclonedx.org",
        "download.pytorch.org",
        "data.pyg.org",
    }


def test_of_the_committed_locks_nothing_is_left_out():
    for path in LOCKS:
        lock = decode_lock(path.read_bytes())
        found = items(lock)
        used = lock.compilation if any(package.compiled for package in lock.packages) else None
        wanted = {file.sha256 for file in files_of((lock.base, lock.packages, used))}
        assert {item.sha256 for item in found} >= wanted, path
        assert len({item.purl for item in found}) == len(found), path
    assert is_valid(sbom(lock, SUBJECT))


def test_tools_are_said_to_be_in_a_devel_image():
    scopes = {component["name"]: component.get("scope") for component in sbom(LOCK, SUBJECT, devel=True)["components"]}
    for name in ("g++-11", "ninja", "nvidia-cuda-toolkit", "nvidia-cublas-cu11"):
        assert scopes[name] == "required"
    assert scopes["wheel"] == "excluded"


def test_the_image_depends_on_what_is_in_it():
    found = sbom(
        LOCK, SUBJECT, facts={"torch-geometric": PackageFacts(requires=("numpy", "torch", "tqdm", "torch-geometric"))}
    )
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in found["dependencies"]}
    inside = {component["bom-ref"] for component in found["components"] if component.get("scope") != "excluded"}
    assert set(graph["image"]) == inside
    (geometric,) = by_name(found, "torch-geometric")
    assert [ref.partition("@")[0] for ref in graph[geometric["bom-ref"]]] == ["pkg:pypi/numpy", "pkg:pypi/torch"]


@pytest.mark.parametrize(
    ("licences", "written"),
    [
        (("MIT",), [{"license": {"id": "MIT"}}]),
        (("Apache-2.0 OR BSD-3-Clause",), [{"expression": "Apache-2.0 OR BSD-3-Clause"}]),
        (("NVIDIA Proprietary Software",), [{"license": {"name": "NVIDIA Proprietary Software"}}]),
        (("Copyright (c)\nall of a licence's text", "x" * 121, ""), None),
        # beside another licence an expression is a name
        (("MIT OR ISC", "a text\nof lines", "ISC"), [{"license": {"id": "ISC"}}, {"license": {"name": "MIT OR ISC"}}]),
    ],
)
def test_licences_as_what_they_are(licences, written):
    found = sbom(LOCK, SUBJECT, facts={"numpy": PackageFacts(licences=licences)})
    (numpy,) = by_name(found, "numpy")
    assert numpy.get("licenses") == written
    assert is_valid(found)


def test_what_was_left_behind_is_not_described_by_what_is_in_the_image():
    known = {"ninja": PackageFacts(licences=("MIT",))}
    assert "MIT" not in str(sbom(LOCK, SUBJECT, facts=known))
    assert by_name(sbom(LOCK, SUBJECT, facts=known, devel=True), "ninja")[0]["licenses"] == [{"license": {"id": "MIT"}}]


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
    found = [
        sbom(LOCK, SUBJECT),
        sbom(LOCK, msgspec.structs.replace(SUBJECT, digest="sha256:" + "0" * 64)),
        sbom(changed(created=LOCK.created + 1), SUBJECT),
        sbom(changed(packages=PACKAGES[1:]), SUBJECT),
        sbom(LOCK, SUBJECT, devel=True),
    ]
    assert len({one["serialNumber"] for one in found}) == 5
    assert all(
        re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", one["serialNumber"]) for one in found
    )


NAMES = st.text(alphabet=string.ascii_lowercase + string.digits + "-", min_size=1, max_size=12).filter(
    lambda name: name[0] != "-" and name[-1] != "-"
)
VERSIONS = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}(\+[a-z0-9]{1,8})?", fullmatch=True)


@given(st.dictionaries(NAMES, st.tuples(VERSIONS, st.sampled_from(Channel), st.booleans()), max_size=8), st.randoms())
def test_the_order_of_the_lock_does_not_count_and_purls_come_back(named, chance):
    packages = [
        msgspec.structs.replace((sdist if is_sdist else wheel)(name, version), channel=channel)
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
