"""Records of layers that another machine has made: a build goes on from them without the wheels."""

import msgspec
import pytest

from graphcrate.engines.embedded import records
from graphcrate.host.disk.cache import Cache, kept_bytes
from graphcrate.inputs import bases
from graphcrate.inputs.bases import debian
from graphcrate.model.lock import Lock
from graphcrate.model.plan import BaseStep, FilesStep, PlannedFile
from graphcrate.model.report import LayerRecord
from tests.made import bookworm, deb
from tests.unit.engines.test_embedded_builder import (
    BASE,
    IMAGE,
    build,
    compiled_here,  # noqa: F401 (a fixture)
    planned,
    wheels,
    wheels_step,
)

DEBIAN = bookworm(deb("python3.11", "3.11.2-6"), deb("libc6", "2.36-9"))
HERE = msgspec.structs.replace(BASE, identity=bases.identity(DEBIAN))


def of_wheels(*steps):
    plan = planned(*steps)
    return msgspec.structs.replace(plan, steps=(BaseStep(base=DEBIAN, image=IMAGE), *plan.steps[1:]))


@pytest.fixture
def made(tmp_path, cache):
    """A plan of two layers that one machine has built; its layers, and the cache of another one with their blobs."""
    packages, files = wheels(tmp_path, one={"one/__init__.py": b"x = 1\n"}, two={"two.py": b""})
    venv = FilesStep(title="venv", files=(PlannedFile(path="/opt/venv/bin/python", link="/usr/bin/python3"),))
    plan = of_wheels(venv, wheels_step("first", packages[:1]), wheels_step("second", packages[1:]))
    layers = build(plan, files, cache, base=HERE)
    other = Cache(tmp_path / "other")
    for layer in layers:
        other.write(other.blob(layer.digest), cache.blob(layer.digest).read_bytes())
    yield plan, packages, layers, other
    other.close()


def lock_of(packages):
    fields = {"recipe": "r", "cuda": "cpu", "candidate": "pypi", "torch_cuda": "cpu", "python": "3.11", "created": 1}
    return Lock(**fields, request_sha256="", base=DEBIAN, packages=packages)


def test_layers_with_records_are_built_on_without_any_wheel(made, cache):
    plan, packages, layers, other = made
    assert records.layered(plan, other) == frozenset()
    assert records.to_bring(plan, lock_of(packages), other) == lock_of(packages)
    records.keep(records.packed(plan, cache), {layer.digest for layer in layers}, plan, other)
    assert records.layered(plan, other) == {package.file.sha256 for package in packages}
    assert records.to_bring(plan, lock_of(packages), other).packages == ()
    assert build(plan, {}, other, base=HERE) == layers


def test_base_whose_layer_and_record_came_needs_none_of_its_packages(made, cache):
    plan, packages, layers, other = made
    cache.keep(debian.record_path(DEBIAN, cache), msgspec.json.encode(layers[0]))
    records.keep(records.packed(plan, cache), {layers[0].digest}, plan, other)
    assert debian.made(DEBIAN, other) == layers[0]
    assert records.to_bring(plan, lock_of(packages), other).base.packages == ()


def test_record_of_a_layer_that_is_none_of_the_image_is_left_out(made, cache):
    """Another blob of this cache would be taken for it."""
    plan, packages, layers, other = made
    records.keep(records.packed(plan, cache), {layers[0].digest, layers[1].digest}, plan, other)
    assert records.layered(plan, other) == {packages[0].file.sha256}


def test_names_that_the_plan_does_not_have_are_written_nowhere(made, cache):
    plan, _, _, other = made
    before = sorted(path for path in other.root.rglob("*") if path.is_file())
    names = ("../outside", "/etc/x", "layers/0.json", "files/a/b", "")
    records.keep(msgspec.msgpack.encode(dict.fromkeys(names, b"{}")), (), plan, other)
    assert sorted(path for path in other.root.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize("data", [b"", b"\x80\x81", msgspec.msgpack.encode({"a": 1})])
def test_what_is_no_set_of_records_is_an_error_that_leaves_the_image(made, data):
    plan, _, _, other = made
    with pytest.raises(msgspec.DecodeError):
        records.keep(data, (), plan, other)


def test_record_that_is_there_stays_and_a_damaged_one_is_replaced(made, cache):
    plan, _, layers, other = made
    digests = {layer.digest for layer in layers}
    packed = records.packed(plan, cache)
    records.keep(packed, digests, plan, other)
    path = next(other.root.glob("layers/*.json"))
    own = msgspec.structs.replace(msgspec.json.decode(kept_bytes(path), type=LayerRecord), title="mine")
    other.keep(path, msgspec.json.encode(own))
    records.keep(packed, digests, plan, other)
    assert b"mine" in path.read_bytes()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    records.keep(packed, digests, plan, other)
    assert b"mine" not in path.read_bytes()
