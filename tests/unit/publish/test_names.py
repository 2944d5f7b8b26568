"""Names under which an image was published, against the one asked for."""

import pytest

from dssesign import statement
from graphcrate.oci import reference
from graphcrate.publish import names, predicates
from tests.unit.proof_lock import SUBJECT

HERE = "registry.example/team/pyg"
ALIBABA = "registry.cn-hangzhou.aliyuncs.com/ns/pyg:1.0"
INSIDE = "registry-vpc.cn-hangzhou.aliyuncs.com/ns/pyg:1.0"
DIGEST = "@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("asked", "signed", "is_ok", "is_known"),
    [
        (f"{HERE}:1.0", [f"{HERE}:1.0"], True, True),
        (f"{HERE}:cu118", [f"{HERE}:1.0", f"{HERE}:cu118"], True, True),
        (f"{HERE}:cu121", [f"{HERE}:1.0", f"{HERE}:cu118"], False, True),  # a replay
        (f"{HERE}:cu121{DIGEST}", [f"{HERE}:1.0"], False, True),
        (f"{HERE}{DIGEST}", [f"{HERE}:1.0"], True, True),
        (f"evil.example/team/pyg{DIGEST}", [f"{HERE}:1.0"], False, True),  # a copy
        ("registry.example/evil/pyg:1.0", [f"{HERE}:1.0"], False, True),
        ("registry.example/evil/pyg:1.0", [HERE], False, True),
        # published to two places: each has tags of its own
        ("b.example/pyg:new", [f"{HERE}:new", "b.example/pyg:1.0"], False, True),
        # what cosign or an older graphcrate signed has no tag; beside one that has, it allows nothing
        (f"{HERE}:1.0", [HERE], True, True),
        (f"{HERE}:9.9", [HERE], True, False),
        (f"{HERE}:9.9", [HERE, f"{HERE}:1.0"], False, True),
        (f"{HERE}:9.9", [], True, False),
        (f"{HERE}:9.9", ["no reference at all", "REG/X"], True, False),
        (INSIDE, [ALIBABA], True, True),
        (INSIDE.replace("1.0", "2.0"), [ALIBABA], False, True),
        ("localhost:5000/pyg:latest", ["localhost:5000/pyg"], True, False),
        ("pyg:1.0", ["docker.io/library/pyg:1.0"], True, True),
    ],
)
def test_unsigned_name_of_an_image_is_refused(asked, signed, is_ok, is_known):
    judged = names.judge(reference.parse(asked), names.known(signed), "1.0")
    assert (judged.is_ok, judged.is_known) == (is_ok, is_known), judged.message
    assert is_ok or reference.parse(asked).name in judged.message


def bill(predicate):
    return statement.make(SUBJECT.name, SUBJECT.digest, predicates.BILL, predicate)


def test_own_tag_is_read_from_the_bill_of_materials():
    made = bill({"metadata": {"component": {"version": "1.0"}}})
    assert names.own_tag(made) == "1.0"
    for predicate in ([], {}, {"metadata": 1}, {"metadata": {"component": {"version": 1}}}):
        assert names.own_tag(bill(predicate)) == ""
    assert names.own_tag(None) == ""
