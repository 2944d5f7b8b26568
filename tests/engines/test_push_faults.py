"""Pushing and pulling while things go wrong on the way: what arrives is whole, and what is secret stays where it is."""

import logging

import pytest

from graphcrate.model.errors import NetworkError
from graphcrate.oci import push
from tests.engines import fault_proxy
from tests.engines.fault_proxy import NOTICED, UNNOTICED, FaultProxy, any_fault, bearable, first, seeded
from tests.engines.pushing import LOGIN, MIB, blob_bytes, check, random_layout, send
from tests.unit.writable_registry import WritableRegistry

pytestmark = [pytest.mark.slow, pytest.mark.engine("docker-registry")]
SEEDS = range(5)


@pytest.fixture(scope="module")
def layout(ground):
    return random_layout(ground / "faulty")


@pytest.mark.parametrize("fault", ["lost", "cut"])
@pytest.mark.parametrize(("method", "part"), [("PATCH", ""), ("PUT", "uploads")])
def test_a_registry_that_got_more_than_we_know_of(registry, layout, fault, method, part):
    """docker-registry 2.8 forgets the upload; so it begins again."""
    name = f"team/noticed-{fault}-{method.lower()}-{part or 'chunk'}:v1"
    with FaultProxy(registry, first(fault, method, part, times=2)) as between:
        pushed = send(between.address, layout, name)
        assert between.faults == [fault] * 2
    check(registry, name, layout, pushed)


@pytest.fixture
def in_order(monkeypatch):
    """One blob after the other: then a seed means the same bytes each time."""
    monkeypatch.setattr(push, "THREADS", 1)


@pytest.mark.weekly
def test_a_fifth_of_all_requests_fails(registry, ground, in_order):
    """Over five images: at most a tenth more than without faults comes to the registry's side."""
    received = needed = faults = requests = 0
    for seed in SEEDS:
        layout = random_layout(ground / f"fifth-{seed}", seed=seed + 1)
        with FaultProxy(registry, seeded(seed, 0.2, bearable)) as between:
            pushed = send(between.address, layout, f"team/fifth-{seed}:v1")
        check(registry, f"team/fifth-{seed}:v1", layout, pushed)
        received, needed, faults = (
            received + between.received,
            needed + blob_bytes(layout),
            faults + len(between.faults),
        )
        requests += len(between.seen)
    assert faults > 0.15 * requests
    assert received / needed < 1.1, f"{received / needed:.3f} after {faults} faults"


@pytest.mark.weekly
def test_a_fifth_of_all_requests_fails_where_uploads_are_kept(ground, in_order):
    """With a registry that follows the specification, answers may be lost and chunks break off as well."""
    received = needed = 0
    kinds = set()
    for seed in SEEDS:
        layout = random_layout(ground / f"kept-{seed}", seed=seed + 100)
        with WritableRegistry() as server:
            with FaultProxy(server.host, seeded(seed, 0.2, any_fault)) as between:
                pushed = send(between.address, layout, "team/kept:v1")
            check(server.host, "team/kept:v1", layout, pushed)
            kinds |= set(between.faults)
        received, needed = received + between.received, needed + blob_bytes(layout)
    assert kinds == {*UNNOTICED, *NOTICED}
    assert received / needed < 1.1, f"{received / needed:.3f}"


def test_tls_with_faults(registry, authority, layout):
    """Answers before the end of a body are heard over TLS, too."""
    decide = seeded(1, 0.2, bearable)
    with FaultProxy(registry, decide, authority=authority) as between, fault_proxy.tunnel(between.address) as proxy:
        environment = {"https_proxy": proxy, "SSL_CERT_FILE": str(authority.bundle)}
        pushed = send("registry.test", layout, "team/tls-faults:v1", environment=environment)
        assert between.faults
    check(registry, "team/tls-faults:v1", layout, pushed)


def test_a_token_expires_in_mid_upload(token_registry, tokens, layout):
    asked = len(tokens.asked)
    # Once: a token that is refused at once, twice for one thread, ends the push.
    with FaultProxy(token_registry, first("expired", "PATCH")) as between:
        pushed = send(between.address, layout, "team/expiring:v1", login=LOGIN)
        assert between.faults == ["expired"]
    check(token_registry, "team/expiring:v1", layout, pushed, LOGIN)
    assert len(tokens.asked) >= asked + 2


def test_a_token_that_never_helps_ends_the_push(token_registry, ground):
    layout = random_layout(ground / "never", seed=50)
    with FaultProxy(token_registry, first("expired", "PATCH", times=1000)) as between:
        with pytest.raises(NetworkError, match="refuses access"):
            send(between.address, layout, "team/expiring:v2", login=LOGIN)
        assert not [one for one in between.seen if one.method == "PUT" and "manifests" in one.path]


def test_a_hostile_realm_hears_nothing(token_registry, authority, layout):
    with FaultProxy(token_registry, authority=authority) as evil, fault_proxy.tunnel(evil.address) as proxy:
        environment = {"https_proxy": proxy, "SSL_CERT_FILE": str(authority.bundle)}
        with FaultProxy(token_registry, realm="https://evil.example/token") as between:
            with pytest.raises(NetworkError, match=r"wants its login to be told to evil\.example"):
                send(between.address, layout, "team/lured:v1", login=LOGIN, environment=environment)
        assert evil.seen == []


def test_no_secret_shows(token_registry, basic_registry, layout, ground, capfd, caplog):
    """In nothing that is printed, logged or raised, whatever happens."""
    caplog.set_level(logging.DEBUG)
    raised, other = [], random_layout(ground / "other", [3 * MIB], seed=9)
    for registry, name in ((token_registry, "team/bearer:v9"), (basic_registry, "team/basic:v9")):
        with FaultProxy(registry, seeded(3, 0.2, bearable)) as between:
            send(between.address, layout, name, login=LOGIN)
        for fault, method in (("503", "PATCH"), ("expired", "POST"), ("500 late", "PUT")):
            with (
                FaultProxy(registry, first(fault, method, times=999)) as between,
                pytest.raises(NetworkError) as caught,
            ):
                send(between.address, other, name, login=LOGIN)
            raised += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
    printed = capfd.readouterr()
    texts = "\n".join([*raised, printed.out, printed.err, caplog.text])
    assert len(raised) == 18
    for secret in LOGIN.secrets:
        assert secret not in texts
    assert "eyJ" not in texts, "the beginning of each JSON web token"
