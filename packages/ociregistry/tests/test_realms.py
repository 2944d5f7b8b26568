"""Challenges as registries write them, and who may see a password."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ociregistry.realms import Challenge, challenges, may_see, merged, site


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('Basic realm="registry"', [Challenge(scheme="basic", realm="registry")]),
        ("Basic", [Challenge(scheme="basic")]),
        (
            'Bearer realm="https://a/token",service="b",scope="repository:a/b:pull,push"',
            [Challenge(scheme="bearer", realm="https://a/token", service="b", scopes=("repository:a/b:pull,push",))],
        ),
        (
            'Basic realm="a, Bearer realm=\\"x\\"", BEARER Realm=https://t.example/t , scope="a:b:c d:e:f"',
            [
                Challenge(scheme="basic", realm='a, Bearer realm="x"'),
                Challenge(scheme="bearer", realm="https://t.example/t", scopes=("a:b:c", "d:e:f")),
            ],
        ),
        ("", []),
        ("realm=x", []),
    ],
)
def test_www_authenticate_challenges_are_parsed(header, expected):
    assert list(challenges(header)) == expected


def test_token_scopes_are_merged_by_repository():
    own = ("repository:team/image:pull,push", "repository:team/base:pull")
    assert merged(("repository:team/image:pull", *own)) == own
    assert merged(("repository:h:5000/a:pull",)) == ("repository:h:5000/a:pull",)
    assert merged(()) == ()


#: registry → token servers that may see its login, as the registries of these services name them, and that may not
SEE = {
    "registry-1.docker.io": ["https://auth.docker.io/token"],
    "registry.cn-hangzhou.aliyuncs.com": ["https://dockerauth.cn-hangzhou.aliyuncs.com/auth"],
    "team-registry.cn-shanghai.cr.aliyuncs.com": ["https://dockerauth-ee.cn-shanghai.aliyuncs.com/auth"],
    "registry.gitlab.com": ["https://gitlab.com/jwt/auth"],
    "registry.example.com.cn:5050": ["https://gitlab.example.com.cn/jwt/auth"],
    "registry.digitalocean.com": ["https://api.digitalocean.com/v2/registry/auth"],
    "harbor.example:8443": ["https://harbor.example:8443/service/token"],
    "10.0.0.5:5000": ["https://10.0.0.5:5001/token"],
    "http://localhost:5000": ["http://127.0.0.1:5001/token"],
}
DO_NOT = {
    "registry.example.com": [
        *("http://registry.example.com/token", "ftp://registry.example.com/token", "http://sso.example.org/token"),
        *("https://evil.example.net/token", "https://registry.example.com.evil.net/token", "https:///token"),
        *("https://registry.example.com@evil.net/token", "https://evilexample.com/token", "http://localhost/token"),
        *("https://127.0.0.1/token", "https://[registry.example.com/token"),
    ],
    "registry.example.com.cn": ["https://evil.com.cn/token"],
    "registry.example.co.uk": ["https://evil.co.uk/token"],
    "10.0.0.5": ["https://10.1.0.5/token"],
    "registry": ["https://evil/token"],
    "http://localhost:5000": ["http://evil.net/token", "http://127.evil.net/token", "http://sso.example.org/token"],
}


@pytest.mark.parametrize(("seen", "realms"), [(True, SEE), (False, DO_NOT)])
def test_realm_may_see_the_login_of_its_own_site_or_if_trusted(seen, realms):
    trusted = ("sso.example.org",)
    for registry, named in realms.items():
        address = registry if "//" in registry else f"https://{registry}"
        assert [realm for realm in named if may_see(realm, address, trusted) is not seen] == []
        assert may_see("https://sso.example.org/token", address, trusted)
        assert not may_see("https://sso.example.org/token", address, ())


@given(st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5}){1,4}", fullmatch=True))
def test_site_is_a_suffix_of_the_host(host):
    assert host == site(host) or host.endswith(f".{site(host)}")
    assert "." in site(host)
