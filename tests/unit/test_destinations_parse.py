"""What `--to` takes, and what it refuses with the forms that it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.model.errors import UsageError
from graphcrate.oci import reference
from graphcrate.publish.destinations.parse import Folder, Registry, parse, reference_for, vpc_reference
from tests.made import refused

HOME = {"HOME": "/home/me"}
ACR = "registry.cn-hangzhou.aliyuncs.com"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("registry.example/team", "registry.example/team/pyg:2.0"),
        ("registry.example", "registry.example/pyg:2.0"),
        ("localhost/a", "localhost/a/pyg:2.0"),
        ("localhost:5000", "localhost:5000/pyg:2.0"),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b/pyg:2.0"),
        ("registry.example/team/mine:v1", "registry.example/team/mine:v1"),
        ("docker://registry.example/team", "registry.example/team/pyg:2.0"),
        ("index.docker.io/me", "docker.io/me/pyg:2.0"),
        ("oras://registry.example/team", "oras registry.example/team/pyg:2.0"),
        ("oras://localhost:5000/a/pyg:1", "oras localhost:5000/a/pyg:1"),
        ("acr:cn-hangzhou/ns", f"{ACR}/ns/pyg:2.0"),
        ("acr:cn-hangzhou/ns/pyg:1.2", f"{ACR}/ns/pyg:1.2"),
        ("acr:lab@us-west-1/ns/deep", "lab-registry.us-west-1.cr.aliyuncs.com/ns/deep/pyg:2.0"),
        ("/shared/images", Folder(path="/shared/images")),
        ("../images.d/x", Folder(path="../images.d/x")),
        (".", Folder(path=".")),
        ("~/images", Folder(path="/home/me/images")),
        ("~", Folder(path="/home/me")),
        ("file:images", Folder(path="images")),
        ("file:/shared/images", Folder(path="/shared/images")),
        ("file:///shared/images", Folder(path="/shared/images")),
    ],
)
def test_what_a_person_may_write_and_where_an_image_goes(text, wanted):
    found = parse(text, HOME)
    if isinstance(found, Registry):
        found = f"{'oras ' if found.oras else ''}{reference_for(found, 'pyg', '2.0')}"
    assert found == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no host"),
        ("images", "./images"),
        ("team/pyg", "docker.io/team/pyg"),
        ("pyg.sif", "looks like a file"),
        ("/shared/pyg.sif", "a folder is wanted"),
        ("bundle:pyg", "not a host name"),
        ("file:", "path is missing"),
        ("~other/images", "other users"),
        ("docker.io", "docker.io/USER"),
        ("docker.io/pyg:1.2", "docker.io/USER"),
        ("https://registry.example/team", "registry.example/team"),
        ("oras:registry.example/team", "two slashes"),
        ("oras://team/pyg", "host of a registry: 'team'"),
        ("registry.example/team:", "tag is missing"),
        ("registry.example/Team", "not a repository"),
        ("registry.example/team/pyg:a b", "not a tag"),
        ("registry.example/team@sha256:" + 64 * "0", "a digest says"),
        ("registry.example:port/team", "not a host name"),
        ("acr:hangzhou/ns", "invalid region"),
        ("acr:cn-hangzhou", "namespace is missing"),
        ("acr:cn-hangzhou/ns:1", "a tag belongs to a repository"),
        ("acr:cn-hangzhou/ns/deep", "Personal Edition"),
        ("acr:crpi-a1@cn-hangzhou/ns/deep", "Personal Edition"),
        ("acr:cn-hangzhou/ns/deep/pyg:1", "Personal Edition"),
        ("acr:@cn-hangzhou/ns", "name of an instance"),
        ("acr:cn-hangzhou/NS", "not a repository"),
    ],
)
def test_anything_else_is_refused_with_the_forms(text, why):
    with refused(UsageError, why, "acr:cn-hangzhou/NAMESPACE"):
        parse(text, HOME)


def test_a_home_that_nobody_knows_is_said():
    with pytest.raises(UsageError, match="HOME is not set"):
        parse("~/images", {})


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("acr:cn-hangzhou/ns", "registry-vpc.cn-hangzhou.aliyuncs.com"),
        ("acr:lab@cn-hangzhou/ns", "lab-registry-vpc.cn-hangzhou.cr.aliyuncs.com"),
        ("acr:crpi-a1b2@cn-hangzhou/ns", "crpi-a1b2-vpc.cn-hangzhou.personal.cr.aliyuncs.com"),
    ],
)
def test_the_address_inside_the_vpc_is_found_from_either_way_to_name_it(text, inside):
    destination = parse(text, HOME)
    there = reference_for(destination, "pyg", "1")
    assert str(vpc_reference(there)) == f"{inside}/ns/pyg:1"
    by_host = reference_for(parse(f"{destination.host}/ns", HOME), "pyg", "1")
    assert vpc_reference(by_host) == vpc_reference(there)


def test_other_hosts_have_none():
    for host in ("registry.example", "registry-vpc.cn-hangzhou.aliyuncs.com", "aliyuncs.com"):
        assert vpc_reference(reference.parse(f"{host}/ns/pyg:1")) is None


@given(st.text(max_size=40) | st.from_regex(r"(acr|oras|file|docker):(//)?[a-z.@:/-]{0,30}", fullmatch=True))
def test_nothing_but_a_usage_error_comes_of_any_text(text):
    try:
        found = parse(text, HOME)
    except UsageError:
        return
    if isinstance(found, Registry):
        assert reference_for(found, "pyg", "1").host == found.host
