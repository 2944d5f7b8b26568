"""Provenance and reports as in-toto statements: their bytes, and what they must not tell."""

import json
from pathlib import Path

import msgspec
import pytest

from graphcrate.model.report import Asked, SmokeReport
from graphcrate.publish.attest import provenance, statement
from graphcrate.publish.attest.statement import Resource
from tests.unit.proof_lock import LOCK, ON_REGISTRY, SUBJECT
from tests.unit.test_attest_sbom import CANARIES, files_of

GOLDEN = Path(__file__).parent / "golden" / "proof"
ASKED = Asked(recipe="pyg", variant="11.8", gpus=("v100",), channel="pytorch", extensions="auto")
SUITE = SmokeReport(
    suite="dna", status="passed", device="Tesla V100", seconds=12.5, metrics={"test_accuracy": 0.9},
    driver="535.54.03", runtime="apptainer", runtime_version="1.4.5",
    node="gpu-07.inside.example", partition="secret-project", job="4711",
)  # fmt: skip


def built(lock=LOCK):
    return provenance.provenance(lock, ASKED, "embedded", "f" * 64)


def dependencies(lock=LOCK):
    return built(lock)["buildDefinition"]["resolvedDependencies"]


def test_provenance_is_the_same_bytes_as_ever():
    """No time and no invocation of the machine in it: either would make every build another one."""
    said = statement.encode(statement.make(SUBJECT, statement.PROVENANCE, built()))
    assert msgspec.json.format(said, indent=2) + b"\n" == (GOLDEN / "provenance.json").read_bytes()


def test_provenance_names_the_lock_and_every_file_of_it():
    assert dependencies()[0] == Resource(name="pytorch.lock.json", digest={"sha256": LOCK.sha256})
    assert {file.sha256 for file in files_of(LOCK)} <= {entry.digest.get("sha256") for entry in dependencies()}


def test_a_base_from_a_registry_is_named_by_digest():
    base = dependencies(msgspec.structs.replace(LOCK, base=ON_REGISTRY))[1]
    assert (base.digest, base.uri) == ({"sha256": "b" * 64}, f"pkg:oci/python@sha256:{'b' * 64}?arch=amd64")


class Looked(msgspec.Struct):
    """As an audit's report: it begins with what a person called the image."""

    subject: str = "/home/alice/dist/pyg"
    glibc: str = "2.17"


def test_reports_keep_what_proves_something_and_name_no_machine():
    smoke = statement.smoke([SUITE], cpu_only_allowed=True)
    (suite,) = smoke["suites"]
    assert (suite["device"], suite["driver"], suite["metrics"]) == ("Tesla V100", "535.54.03", {"test_accuracy": 0.9})
    assert smoke["cpuOnlyAllowed"] is True
    assert statement.audit(Looked()) == {"glibc": "2.17"}
    said = msgspec.json.encode([built(), smoke]).decode()
    assert not [word for word in (*CANARIES, SUITE.node, SUITE.partition, SUITE.job, "/home/") if word in said]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"_type":1}', b"\xff", b'{"_type":"x","subject":[]}'])
def test_what_is_no_statement_is_refused(data):
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        statement.decode(data)


def test_one_value_has_one_encoding_and_comes_back():
    names = (
        {"b": {"d": 1, "c": [{"f": "ü", "e": None}]}, "a": 2.5},
        {"a": 2.5, "b": {"c": [{"e": None, "f": "ü"}], "d": 1}},
    )
    one, other = (statement.make(SUBJECT, "urn:x:y", predicate) for predicate in names)
    assert statement.encode(one) == statement.encode(other)
    assert statement.decode(statement.encode(one)) == one
    assert json.loads(statement.encode(one))["_type"] == "https://in-toto.io/Statement/v1"
