import pytest
from hypothesis import given
from hypothesis import strategies as st

from ociregistry.errors import ReferenceFormError
from ociregistry.reference import on_registry, parse
from tests.made import refused

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.11-slim", "docker.io/library/python:3.11-slim"),
        ("index.docker.io/library/python:3", "docker.io/library/python:3"),
        ("localhost/a", "localhost/a:latest"),
        ("localhost:5000/a/b__c:T", "localhost:5000/a/b__c:T"),
        ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ("ghcr.io/a/b:c@" + DIGEST, "ghcr.io/a/b:c@" + DIGEST),
        ("Registry/a", "Registry/a:latest"),
    ],
)
def test_reference_gets_dockers_defaults(text, full):
    assert str(parse(text)) == full


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is not a repository"),
        ("Python", "'Python' is not a repository"),
        ("a\n", "is not a repository"),
        ("a/../b", "'a/../b' is not a repository"),
        ("host.example/" + "a/" * 130 + "b", "longer than 255 characters"),
        ("host..example/a", "'host..example' is not a host name"),
        ("[::g]:1/a", "'[::g]' is not a host name"),
        ("host.example:99999/a", "'99999' is not a port of host.example (1 to 65535)"),
        ("host.example:0/a", "'0' is not a port"),
        ("host.example:port/a", "'port' is not a port"),
        ("host.example:" + "9" * 5000 + "/a", "is not a port"),
        ("[::1]:70000/a", "'70000' is not a port of [::1]"),
        ("docker://python", "'' is not a port"),
        ("a:", "'' is not a tag"),
        ("a:.b", "'.b' is not a tag"),
        ("a:" + "t" * 129, "is not a tag"),
        ("a@sha256:12", "'sha256:12' is not a digest"),
        ("a@sha512:" + "a" * 128, "is not a digest"),
        ("a@" + DIGEST.upper(), "is not a digest"),
    ],
)
def test_malformed_reference_names_its_wrong_part(text, why):
    with refused(ReferenceFormError, "is not an image reference: ", why, "[host[:port]/]repository"):
        parse(text)


component = st.from_regex(r"[a-z0-9]{1,8}((\.|_|__|-{1,3})[a-z0-9]{1,8}){0,2}", fullmatch=True)
host = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,4})?\.[a-z]{1,5}(:[1-9][0-9]{0,3})?", fullmatch=True)


@given(
    host,
    st.lists(component, min_size=1, max_size=4),
    st.from_regex(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,20})?", fullmatch=True),
    st.sampled_from(["", DIGEST]),
)
def test_reference_round_trips_through_text(host, components, tag, digest):
    repository = "/".join(components)
    text = f"{host}/{repository}" + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
    reference = parse(text)
    assert (reference.host, reference.repository, reference.digest) == (host, repository, digest)
    assert reference.tag == (tag or ("" if digest else "latest"))
    assert parse(str(reference)) == reference


@given(st.text(max_size=80))
def test_reference_of_any_text_is_parsed_or_a_form_error(text):
    try:
        reference = parse(text)
    except ReferenceFormError:
        return
    assert parse(str(reference)) == reference
    assert "//" not in str(reference)
    assert not any(character.isspace() for character in str(reference))


def test_on_registry_takes_docker_and_enroot_forms():
    for text in ("docker://r.example.com/team/pyg:1", "r.example.com#team/pyg:1", "r.example.com/team/pyg:1"):
        assert on_registry(text) == "r.example.com/team/pyg:1"
    for text in ("registry:5000/team/pyg:1", "localhost/pyg", "[::1]:5000/pyg", "registry.example:99999/x"):
        assert on_registry(text) == text
    assert on_registry("docker://pytorch/pytorch") == "pytorch/pytorch"
    for text in ("pytorch/pytorch", "pyg:1", "./pyg.sqsh", "oci:dist/pyg", "docker:pyg:1"):
        assert on_registry(text) == ""
