import gzip
import random
from pathlib import Path

import msgspec
import pytest

from graphcrate.artifacts import pull
from graphcrate.host.context import Context
from graphcrate.host.process import Completed
from graphcrate.inputs.bases import registry
from graphcrate.model.errors import IntegrityError, LayoutError, NetworkError, ResolutionError
from graphcrate.model.lock import RegistryBase
from graphcrate.model.plan import ConfigStep
from graphcrate.model.recipe import BaseSpec
from graphcrate.oci import access
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import write_layout
from graphcrate.oci.reference import parse
from graphcrate.oci.validate import Validation, validate
from ocilayout import spec
from tests.made import place, refused
from tests.unit import tars
from tests.unit.registry_server import RegistryServer
from tests.unit.tars import file, folder, hardlink, symlink

LIBC = b"\x7fELF...\0GNU C Library (Debian GLIBC 2.36-9+deb12u4) stable release version 2.36.\n\0"
SYSTEM = [
    folder("usr/lib/x86_64-linux-gnu"),
    symlink("lib", "usr/lib"),
    file("usr/lib/x86_64-linux-gnu/libc.so.6", LIBC),
    file("etc/removed"),
]
PYTHON = [
    file("usr/local/bin/python3.11", b"#!", mode=0o755),
    hardlink("usr/local/bin/python", "usr/local/bin/python3.11"),
    file("etc/.wh.removed", b""),
]
RUN = {"Env": ["PATH=/usr/local/bin:/bin", "LANG=C.UTF-8"], "Labels": {"maintainer": "x"}, "Cmd": None}
FOREIGN = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
ALL_TYPES = (spec.LAYER_GZIP, spec.LAYER_ZSTD, spec.LAYER_TAR)


@pytest.fixture
def server(registry_server):
    return registry_server


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """Stands in for the sandbox; what was run, and in which root file system."""
    runs = []

    def run_in(rootfs, command):
        runs.append((rootfs, command.argv[0]))
        return Completed(0, ("graphcrate: 3.11.9 glibc 2.36",))

    monkeypatch.setattr(registry, "run_in", run_in)
    return runs


def locked(server, cache, python="3.11", tag="v1"):
    base = BaseSpec(provider="registry", reference=f"{server.host}/team/base:{tag}")
    return registry.lock(base, python, place(cache))


def prepared(server, cache, **more):
    return registry.prepare(locked(server, cache, **more), place(cache))


@pytest.mark.parametrize("docker", [False, True])
def test_registry_tag_is_locked_and_prepared_as_a_base(cache, docker, started):
    with RegistryServer(login="bearer") as server:
        image = server.image("team/base", [SYSTEM, PYTHON], docker=docker, run=RUN)
        other = server.image("team/base", [SYSTEM], platform="linux/arm64", docker=docker)
        unknown = {**other, "platform": {"os": "unknown", "architecture": "unknown"}}
        server.index("team/base", [unknown, other, image], "v1", media_type=spec.DOCKER_INDEX if docker else spec.INDEX)
        lock = locked(server, cache)
        base = registry.prepare(lock, place(cache))
    python = "/usr/local/bin/python3.11"
    assert lock == RegistryBase(reference=f"{server.host}/team/base", digest=image["digest"], interpreter=python)
    assert (base.python, base.python_version, base.glibc) == (python, "3.11.9", "2.36")
    assert base.environment == {"PATH": "/usr/local/bin:/bin", "LANG": "C.UTF-8"}
    assert base.labels == {"maintainer": "x"}
    assert not (base.rootfs / "etc/removed").exists()
    assert started == [(base.rootfs, python)]
    assert all(layer.media_type == spec.LAYER_GZIP for layer in base.layers)


def test_official_python_image_is_locked_without_pulling_layers(server, cache):
    server.image("team/base", [SYSTEM], "v1", run={"Env": ["PYTHON_VERSION=3.11.9"]})
    assert locked(server, cache).interpreter == "/usr/local/bin/python3.11"
    with pytest.raises(ResolutionError, match=r"no Python 3\.1\n"):
        locked(server, cache, python="3.1")
    assert len(server.seen("/blobs/")) == 1  # the configuration


def test_base_layers_of_every_type_become_gzip_layers(server, cache, tmp_path):
    """Gzip stays as it is; zstd and plain tars become gzip with the same diff_id, the same bytes anywhere."""
    server.image("team/base", [[file("x")], [*SYSTEM, *PYTHON[:1]], PYTHON[1:]], "v1", types=ALL_TYPES)
    base = prepared(server, cache)
    assert [layer.digest in server.blobs for layer in base.layers] == [True, False, False]
    assert base.layers[1].digest == "sha256:168ce272c92433d05102565209ce05615d746ed0be1d2cd2d952f5acabf0080d"
    for layer in base.layers:
        plain = gzip.decompress(cache.blob(layer.digest).read_bytes())
        assert (tars.sha256(plain), len(plain)) == (layer.diff_id, layer.unpacked_size)
        assert layer.size == cache.blob(layer.digest).stat().st_size
    image = make_image(base.layers, ConfigStep(environment={}, labels={}, command=("sh",)), 0, base.environment)
    assert validate(write_layout(tmp_path / "oci", image, cache.blob, "t")) == Validation()
    (tmp_path / "empty").touch()
    digest, size = pull._as_gzip(spec.LayerBlob(path=tmp_path / "empty", media_type=spec.LAYER_TAR), cache)
    assert (gzip.decompress(cache.blob(digest).read_bytes()), size > 0) == (b"", True)


def test_base_with_another_or_broken_python_is_refused(server, cache, monkeypatch):
    server.image("team/base", [SYSTEM, PYTHON], "v1")
    with refused(ResolutionError, "has no Python 3.9", "It has 3.11."):
        locked(server, cache, python="3.9")
    for done, message in (
        (Completed(127, ("no such file",)), r"does not run \(exit code 127\): no such file"),
        (Completed(0, ("graphcrate: 3.11.9 none",)), "has no glibc"),
    ):
        monkeypatch.setattr(registry, "run_in", lambda *_, found=done, **__: found)
        with pytest.raises(ResolutionError, match=message):
            prepared(server, cache)


def test_registry_document_without_an_image_for_the_platform_is_refused(server, cache):
    arm = server.image("team/base", [SYSTEM], "arm", platform="linux/arm64")
    server.index("team/base", [arm], "index")
    server.put("team/base", {"schemaVersion": 2, "mediaType": "x/y"}, spec.MANIFEST, "v1")
    server.put("team/base", {"schemaVersion": 2}, spec.MANIFEST, "v2")
    chart = {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": tars.sha256(b""), "size": 0}
    server.put("team/base", {"schemaVersion": 2, "config": chart, "layers": []}, spec.MANIFEST, "v3")
    loop = {"mediaType": spec.INDEX, "digest": "", "size": 1, "platform": {"os": "linux", "architecture": "amd64"}}
    for _ in range(5):
        loop = {**server.index("team/base", [loop], "v4"), "platform": loop["platform"]}
    image = server.image("team/base", [PYTHON])
    manifest = msgspec.json.decode(server.documents[f"team/base/manifests/{image['digest']}"][1])
    manifest["layers"][0]["mediaType"] = FOREIGN
    server.put("team/base", manifest, spec.MANIFEST, "v5")
    for tag, kind, *words in (
        ("index", ResolutionError, "no image for linux/amd64", "linux/arm64"),
        ("arm", ResolutionError, "no image for linux/amd64", "linux/arm64"),
        ("v1", ResolutionError, "type x/y"),
        ("v2", IntegrityError, "malformed"),
        ("v3", ResolutionError, "not a container image"),
        ("v4", ResolutionError, "index of indexes"),
        ("v5", ResolutionError, FOREIGN),
    ):
        with refused(kind, *words):
            locked(server, cache, tag=tag)


def test_truncated_pull_of_a_base_resumes(server, cache):
    """Layers that have arrived are not asked for again, and the broken one goes on where it stopped."""
    server.image("team/base", [SYSTEM, PYTHON, [file("big", random.Random(0).randbytes(3_000_000))]], "v1")
    big = max(server.blobs, key=lambda digest: len(server.blobs[digest]))
    server.faults[big] = ["truncate", 404]
    with pytest.raises(NetworkError, match="404"):
        locked(server, cache)
    partial = cache.root / "partial" / big.removeprefix("sha256:")
    assert 0 < partial.stat().st_size < len(server.blobs[big])
    arrived = {f"sha256:{path.name}" for path in (cache.root / "blobs" / "sha256").iterdir()}
    before = len(server.asked)
    assert prepared(server, cache).glibc == "2.36"
    again = {asked.path.rpartition("/")[2] for asked in server.asked[before:]}
    assert big in again
    assert not arrived & again


def test_cached_base_is_not_pulled_again_except_damaged_layers(server, cache, started):
    server.image("team/base", [SYSTEM, PYTHON], "v1")
    manifest = access.repository(parse(f"{server.host}/team/base"), Context(root=Path.cwd(), environment={})).manifest(
        "v1"
    )
    digest = msgspec.json.decode(manifest.data)["layers"][0]["digest"]
    cache.blob(digest).write_bytes(tars.compressed(tars.tar([file("rot")]), spec.LAYER_GZIP))
    with pytest.raises(LayoutError, match="its configuration says"):
        locked(server, cache)
    assert not list((cache.root / "bases").rglob("rootfs"))
    lock = locked(server, cache)
    base = registry.prepare(lock, place(cache))
    before = len(server.asked)
    assert registry.prepare(lock, place(cache)) == base
    assert len(server.asked) == before
    known = pull.folder(lock.digest, cache)
    for path in (cache.blob(lock.digest), *known.glob("*.json")):
        tars.overwrite(path, path.read_bytes().replace(b"2", b"1", 1))
        assert registry.prepare(lock, place(cache)) == base
