"""The network: registries and indexes that break things on purpose, while an image is built and published."""

import base64
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

from graphcrate.model.errors import IntegrityError, NetworkError
from tests.conftest import IN_CI
from tests.engines.fault_proxy import NOTICED, UNNOTICED, FaultProxy, first, seeded
from tests.faults import project
from tests.faults.rows import ALL, Ended, Watch, row, rows
from tests.unit.registry_server import RegistryServer
from tests.unit.wheel_server import Fault

TORCH = "/files/torch-2.0.1-py3-none-any.whl"
SECRET = "canary-password"


def publish(origin, place, name, *more, door=None):
    """Publish the image that a place has, with a check of what arrived; the seconds that it took."""
    watch, to = Watch(), f"{(door or origin.door).address}/{name}"
    place.run("publish", f"torch:{origin.tag}", "--to", to, "--allow-cpu-only", "--json", *more).ok()
    seconds = watch.seconds
    assert door or project.left_behind(place) == []
    project.whole(origin.registry, f"{name}/torch", origin.tag)
    return seconds


@contextlib.contextmanager
def changed(thing, **fields):
    """Other values of a server for a time."""
    before = {name: getattr(thing, name) for name in fields}
    for name, value in fields.items():
        setattr(thing, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(thing, name, value)


PULLS = {
    "cut": ("a layer of the base that breaks off", ("short", 1)),
    "cut-thrice": ("a layer of the base that breaks off three times", ("short", 3)),
    "429": ("429 without Retry-After, twice", ("429", 2)),
    "429-after": ("429 with Retry-After", ("429 after", 1)),
    "503": ("503, twice", ("503", 2)),
    "500": ("500 after the request was read", ("500 late", 1)),
    "reset": ("a connection that is reset", ("reset", 1)),
}


@rows("Network", "`image` from an empty cache, the base's registry does it", PULLS)
def test_pull(origin, cold, case):
    kind, times = case
    with origin.failing(first(kind, "GET", "blobs", times=times)) as door:
        seconds = project.goes_on(cold, origin.digest)
        assert door.faults == [kind] * times
    return Ended("went on by itself; the same digest", seconds)


@row("Network", "a layer of the base with another bit", "`image` from an empty cache, then without that")
def test_pull_flipped(origin, cold):
    with origin.failing(first("flipped", "GET", "blobs", times=99)):
        project.failed(cold, cold.run(*project.IMAGE), IntegrityError.exit_code)
    return Ended("exit code 6; then the same command went on", project.goes_on(cold, origin.digest))


@row("Network", "blobs on another host than the registry", "`image`, from an empty cache, the registry needs a token")
def test_redirect(origin, cold):
    with RegistryServer(blobs=origin.registry.blobs) as storage:
        with changed(origin.registry, storage=f"http://{storage.host}", login="bearer"):
            seconds = project.goes_on(cold, origin.digest)
        assert storage.asked
        assert {one.authorization for one in storage.asked} == {""}
    return Ended("followed; the other host saw no token", seconds)


FILES = {
    "cut": ("a wheel that breaks off", [Fault(cut_after=100_000)], {}),
    "range-ignored": ("a wheel that breaks off, and Range is ignored", [Fault(cut_after=100_000)], {"ranges": False}),
    "range-wrong": ("a wheel that breaks off, and Range is answered wrongly", [Fault(cut_after=100_000)], {"shift": 7}),
    "429": ("an index with 429 and no Retry-After, twice", [Fault(status=429)] * 2, {}),
    "429-after": ("an index with Retry-After", [Fault(status=429, headers=(("Retry-After", "1"),))], {}),
    "503": ("an index with 503, twice", [Fault(status=503)] * 2, {}),
}


@rows("Network", "`image` from an empty cache", {name: (one[0], one[1:]) for name, one in FILES.items()})
def test_fetch(origin, cold, case):
    faults, fields = case
    with changed(origin.index, faults={TORCH: list(faults)}, **fields):
        seconds = project.goes_on(cold, origin.digest)
        assert origin.index.faults == {TORCH: []}
    return Ended("went on by itself; the same digest", seconds)


@rows(
    "Network",
    "`image` from an empty cache, then with an index that is whole",
    {
        "flipped": ("a wheel with other bytes than the lock says", Fault(wrong=True)),
        "gone": ("a wheel that has vanished", Fault(status=404)),
        "forbidden": ("an index that refuses", Fault(status=403)),
        "down": ("an index that is down", Fault(status=503)),
    },
)
def test_fetch_nothing(origin, cold, case):
    pages = {path: [case] * 99 for path in (TORCH, "/simple/torch/")} if case.status == 503 else {TORCH: [case] * 99}
    with changed(origin.index, faults=pages):
        done = cold.run(*project.IMAGE)
        project.failed(cold, done, IntegrityError.exit_code, NetworkError.exit_code, 4)
    how = f"exit code {done.code} and a sentence; then the same command went on"
    return Ended(how, project.goes_on(cold, origin.digest))


MOODS = {
    "mount": ("a mount answered with 202", {"mounts": False}, ("--mount-from", "faults/base")),
    "one-chunk": ("a registry that takes an upload in one request only", {"chunks": False}, ()),
    "small": ("a registry that takes at most 1 MiB a request", {"most": 1 << 20}, ()),
    "least": ("a registry that needs chunks of 8 MiB and more", {"least": 8 << 20}, ()),
    "forgets": ("a registry that forgets how far an upload is", {"tells": False, "forgets": True}, ()),
    "token": ("tokens that expire after twelve requests", {"login": "bearer", "uses": 12}, ()),
}


@rows("Network", "`publish` to it", {name: (one[0], (name, *one[1:])) for name, one in MOODS.items()})
def test_mood(origin, warm, case):
    name, fields, more = case
    with changed(origin.registry, **fields):
        seconds = publish(origin, warm, f"mood-{name}", *more)
    return Ended("went on by itself; the tag names a whole image", seconds)


@row("Network", "a registry that has others ask for its passwords", "`publish`, its realm is on another host")
def test_realm(origin, warm):
    login(warm, origin.door.address)
    with RegistryServer() as evil:
        realm = f"http://{evil.host.replace('127.0.0.1', 'localhost.evil.example')}/token"
        with changed(origin.registry, login="bearer", realm=realm):
            to = f"{origin.door.address}/realm"
            done = warm.run("publish", f"torch:{origin.tag}", "--to", to, "--allow-cpu-only")
        assert evil.asked == []
    said = project.failed(warm, done, NetworkError.exit_code)
    assert SECRET not in said
    assert "evil.example" in said
    assert f"realm/torch/manifests/{origin.tag}" not in origin.registry.documents
    how = "exit code 5, which names the other host; it heard nothing, no tag"
    return Ended(how, publish(origin, warm, "realm"))


def login(place, host):
    """Log in as docker does."""
    folder = place.cache.parent / ".docker"
    folder.mkdir()
    secret = base64.b64encode(f"canary-user:{SECRET}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": secret}}}))


@row("Network", "a registry that takes at most 100 kB a request", "`publish`; then with that limit raised")
def test_push_nothing(origin, warm):
    with changed(origin.registry, most=100_000):
        to = f"{origin.door.address}/nothing"
        done = warm.run("publish", f"torch:{origin.tag}", "--to", to, "--allow-cpu-only")
    project.failed(warm, done, NetworkError.exit_code)
    assert f"nothing/torch/manifests/{origin.tag}" not in origin.registry.documents
    return Ended("exit code 5, no tag; then the same command went on", publish(origin, warm, "nothing"))


@row("Network", "a fifth of all requests fails, in seven ways", "`publish`, several seeds; `image` from an empty cache")
def test_a_fifth(origin, warm, scratch):
    def push(seed):
        """Bytes on the line of those that the image has, the faults, the number of requests, and seconds."""
        with FaultProxy(origin.registry.host, seeded(seed)) as door:
            seconds = publish(origin, warm, f"fifth-{seed}", door=door)
        return door.received / origin.report["bytes"], door.faults, len(door.seen), seconds

    number = 40 if ALL else 8
    with ThreadPoolExecutor(8) as pool:  # most of a push's time are pauses
        shares, kinds, requests, seconds = zip(*pool.map(push, range(number)), strict=True)
    faults = [len(some) for some in kinds]
    assert sum(faults) > 0.1 * sum(requests)
    assert set().union(*kinds) == {*UNNOTICED, *NOTICED}
    # How much of a body is on the line before its client hears of the fault is up to the machine's other work.
    assert max(shares) < (2 if IN_CI else 1.1), shares
    place = project.copy(origin.place, scratch / "other")
    with origin.failing(seeded(1)):
        project.goes_on(place, origin.digest)
    what = f"{number} pushes, {sum(faults)} of {sum(requests)} requests failed: all ended well"
    return Ended(f"{what} and sent at most {max(shares) - 1:.1%} more bytes than the image has", max(seconds))
