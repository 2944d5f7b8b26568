"""Provenance and reports as in-toto statements: their shape, their bytes, and what they must not tell."""

import json
import re
import string
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packageurl import PackageURL

from graphcrate.model.contract import Finding
from graphcrate.model.report import Asked, SmokeReport
from graphcrate.publish.attest import provenance, sbom, statement
from graphcrate.publish.attest.provenance import PREDICATE
from graphcrate.publish.attest.statement import Resource, Statement, Subject
from tests.unit.proof_lock import CREATED, DIGEST, LOCK, ON_REGISTRY, SUBJECT
from tests.unit.test_attest_sbom import CANARIES, files_of

GOLDEN = Path(__file__).parent / "golden" / "proof"
ASKED = Asked(recipe="pyg", variant="11.8", gpus=("v100",), channel="pytorch", extensions="auto")
SUITE = SmokeReport(
    suite="dna",
    status="passed",
    device="Tesla V100",
    seconds=12.5,
    metrics={"test_accuracy": 0.9},
    driver="535.54.03",
    runtime="apptainer",
    runtime_version="1.4.5",
    node="gpu-07.inside.example",
    partition="secret-project",
    job="4711",
)


def built(lock=LOCK, **more):
    return provenance.provenance(lock, ASKED, engine="embedded", created=CREATED, build_key="f" * 64, **more)


def as_json(said):
    return json.loads(statement.encode(said))


def test_provenance_is_the_same_bytes_as_ever():
    said = statement.make(SUBJECT, PREDICATE, built())
    assert msgspec.json.format(statement.encode(said), indent=2) + b"\n" == (GOLDEN / "provenance.json").read_bytes()


def is_resource(entry):
    """in-toto's ResourceDescriptor: only known fields; at least one of uri, digest and content."""
    known = {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}
    digests = entry.get("digest", {}).values()
    return entry.keys() <= known and {"uri", "digest"} & entry.keys() and all(map(is_hex, digests))


def is_hex(text):
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def is_uri(text):
    return re.match(r"[a-z][a-z0-9+.-]*:", text) is not None


@pytest.mark.parametrize("devel", [False, True])
def test_provenance_has_the_shape_of_slsa_1(devel):
    said = as_json(statement.make(SUBJECT, PREDICATE, built(devel=devel)))
    assert said.keys() == {"_type", "subject", "predicateType", "predicate"}
    assert (said["_type"], said["predicateType"]) == (statement.TYPE, "https://slsa.dev/provenance/v1")
    assert said["subject"] == [{"name": "pyg", "digest": {"sha256": DIGEST[7:]}}]
    predicate = said["predicate"]
    assert predicate.keys() == {"buildDefinition", "runDetails"}
    definition = predicate["buildDefinition"]
    assert definition.keys() == {"buildType", "externalParameters", "internalParameters", "resolvedDependencies"}
    assert is_uri(definition["buildType"])
    assert definition["externalParameters"] == {
        "recipe": "pyg",
        "variant": "11.8",
        "gpus": ["v100"],
        "channel": "pytorch",
        "extensions": "auto",
    }
    assert all(is_resource(entry) for entry in definition["resolvedDependencies"])
    details = predicate["runDetails"]
    assert details.keys() == {"builder"}, "a time or an invocation of the machine would make every build another one"
    assert is_uri(details["builder"]["id"])


def test_provenance_names_the_lock_and_every_file_of_it():
    dependencies = built()["buildDefinition"]["resolvedDependencies"]
    assert dependencies[0] == Resource(name="pytorch.lock.json", digest={"sha256": LOCK.sha256})
    named = {entry.digest.get("sha256") for entry in dependencies}
    assert {file.sha256 for file in files_of(LOCK)} <= named
    tools = {entry.name.partition("_")[0] for entry in dependencies if entry.annotations == {"use": "build"}}
    assert {"g++-11", "nvidia-cuda-toolkit"} <= tools
    assert "libc6" not in tools
    for entry in dependencies[1:]:
        assert PackageURL.from_string(entry.uri)


def test_a_base_from_a_registry_is_named_by_digest():
    dependencies = built(msgspec.structs.replace(LOCK, base=ON_REGISTRY))["buildDefinition"]["resolvedDependencies"]
    assert dependencies[1].digest == {"sha256": "b" * 64}
    assert dependencies[1].uri == f"pkg:oci/python@sha256:{'b' * 64}?arch=amd64"


FINDING = Finding(check="user", title="no user", runtimes=("pyxis",), status="pass", seen="root")


class Looked(msgspec.Struct):
    """As an audit's report: it begins with what a person called the image."""

    subject: str = "/home/alice/dist/pyg"
    glibc: str = "2.17"


def everything():
    return [
        statement.make(SUBJECT, PREDICATE, built()),
        statement.make(SUBJECT, statement.BILL, json.loads(sbom.sbom(LOCK, SUBJECT, created=CREATED))),
        statement.make(SUBJECT, statement.SMOKE, statement.smoke([SUITE])),
        statement.make(SUBJECT, statement.CONTRACTS, statement.contracts([FINDING])),
        statement.make(SUBJECT, statement.AUDIT, statement.audit(Looked())),
    ]


def test_reports_keep_what_proves_something():
    (suite,) = statement.smoke([SUITE], cpu_only_allowed=True)["suites"]
    assert suite["device"] == "Tesla V100"
    assert suite["driver"] == "535.54.03"
    assert suite["metrics"] == {"test_accuracy": 0.9}
    assert statement.smoke([SUITE], cpu_only_allowed=True)["cpuOnlyAllowed"] is True
    assert statement.contracts([FINDING])["findings"][0]["seen"] == "root"
    assert statement.audit(Looked()) == {"glibc": "2.17"}


def test_nothing_of_the_site_gets_out():
    said = b"".join(statement.encode(one) for one in everything()).decode()
    private = (*CANARIES, SUITE.node, SUITE.partition, SUITE.job, "/home/", "/root/", "/tmp/")
    assert not [word for word in private if word in said]


def test_what_is_no_statement_is_refused():
    for data in (b"", b"[]", b"{}", b'{"_type":1}', b"\xff", b'{"_type":"x","subject":[],"predicate":{}}'):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            statement.decode(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def shuffled(value, chance):
    """The same JSON value with its names in another order."""
    if isinstance(value, dict):
        pairs = [(name, shuffled(inner, chance)) for name, inner in value.items()]
        chance.shuffle(pairs)
        return dict(pairs)
    return [shuffled(inner, chance) for inner in value] if isinstance(value, list) else value


@given(
    st.text(alphabet=string.printable, max_size=10),
    st.dictionaries(st.text(max_size=5), JSON, max_size=4),
    st.randoms(use_true_random=False),
)
def test_one_value_has_one_encoding_and_comes_back(name, predicate, chance):
    subject = Subject(name=name, tag="t", digest=DIGEST)
    said = statement.make(subject, "urn:x:y", predicate)
    data = statement.encode(said)
    assert statement.encode(statement.make(subject, "urn:x:y", shuffled(predicate, chance))) == data
    assert statement.decode(data) == said
    assert statement.encode(statement.decode(data)) == data
    assert isinstance(statement.decode(data), Statement)
