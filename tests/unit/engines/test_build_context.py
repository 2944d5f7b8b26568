"""An engine's build context: the folder of its text, and the base."""

import dataclasses
import os
import stat
from unittest.mock import Mock

import msgspec
import pytest

from graphcrate.compat.plan.image_config import EXAMPLES
from graphcrate.compat.plan.planning import EXAMPLES_TITLE
from graphcrate.engines import context
from graphcrate.engines.backend import BuildOrder
from graphcrate.host.progress import Progress
from graphcrate.model.errors import HostError
from graphcrate.model.plan import FilesStep, PlannedFile
from graphcrate.model.recipe import Channel
from graphcrate.oci.validate import validate
from tests.made import refused
from tests.unit import tars
from tests.unit.engines.test_embedded_builder import BASE, planned, wheels, wheels_step

TRAIN = PlannedFile(path=f"{EXAMPLES}/train.py", content="#!/usr/bin/python\n", mode=0o755)
PROGRAMS = (TRAIN, PlannedFile(path=f"{EXAMPLES}/more/README.md", content="words\n"))
OTHERS = (PlannedFile(path="/opt/venv/pyvenv.cfg", content="x"),)


@pytest.fixture
def order(tmp_path, cache):
    (near, far), files = wheels(tmp_path / "wheels", near={"near.py": b"1"}, far={"far.py": b"2"})
    near = msgspec.structs.replace(near, channel=Channel.LOCAL)
    steps = FilesStep(title="virtual environment", files=OTHERS), wheels_step("both", (near, far))
    return BuildOrder(
        plan=planned(*steps, FilesStep(title=EXAMPLES_TITLE, files=PROGRAMS)), folder=tmp_path, base=None,
        files={near.file.sha256: files[near.file.sha256]}, cache=cache, environment={}, progress=Progress(),
    )  # fmt: skip


def written(order, folder):
    """The files of an order's folder: path → (mode, time)."""
    folder.mkdir()
    context.write(folder, order, "FROM x\n", "Dockerfile")
    return {
        path.relative_to(folder).as_posix(): (stat.S_IMODE(path.stat().st_mode), path.stat().st_mtime)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_build_context_has_text_programs_and_local_wheels_reproducibly(order, tmp_path):
    (wheel,) = order.files.values()
    one, two = (written(order, tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert one.keys() == {"Dockerfile", "examples/train.py", "examples/more/README.md", f"wheels/{wheel.name}"}
    assert (one["examples/train.py"][0], one["Dockerfile"][0]) == (0o755, 0o644)
    assert (tmp_path / "one" / "Dockerfile").read_text() == "FROM x\n"


def test_build_context_has_certificates_as_link_or_copy(order, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    bundle = tmp_path / "bundle.pem"
    order = dataclasses.replace(order, certificates=bundle)
    with refused(HostError, "bundle.pem cannot be read: No such file"):
        written(order, tmp_path / "without")
    bundle.write_text("CERTIFICATE")
    written(order, tmp_path / "context")
    assert (tmp_path / "context" / "ca.crt").read_text() == "CERTIFICATE"
    (wheel,) = order.files.values()
    assert (tmp_path / "context" / "wheels" / wheel.name).read_bytes() == wheel.read_bytes()


def test_build_arguments_have_both_proxy_spellings_and_those_of_the_order(order):
    given = {"http_proxy": "http://a", "HTTP_PROXY": "http://b", "NO_PROXY": "c", "HTTPS_PROXY": ""}
    proxies = {"http_proxy": "http://a", "HTTP_PROXY": "http://a", "no_proxy": "c", "NO_PROXY": "c"}
    order = dataclasses.replace(order, arguments={"MIRROR": "m"}, environment=given)
    assert context.arguments(order, "base:1") == {**proxies, "MIRROR": "m", "BASE": "base:1"}
    assert "BASE" not in context.arguments(order, "")


def test_logins_in_build_arguments_are_secrets():
    values = {"a": "http://me:pass@host:1/x@y", "b": "https://token@host", "c": "http://host/a@b", "d": "plain@text"}
    assert context.secrets(values) == ("me:pass", "token")


def test_proxy_on_loopback_needs_the_host_network():
    def needed(address):
        return context.needs_host_network({"no_proxy": "localhost", "http_proxy": address})

    assert all(map(needed, ("http://127.0.0.1:3128", "localhost:3128", "http://u:p@[::1]:1", "http://127.1.2.3")))
    assert not any(map(needed, ("http://proxy:3128", "127.example.com:1/localhost", "http://[broken", "")))


# --- the base -------------------------------------------------------------------------------------------------------


def make_layer(cache, folder, name):
    record = tars.record(folder, name, [tars.file(f"usr/{name}")])
    cache.adopt(folder / record.digest.removeprefix("sha256:"), cache.blob(record.digest))
    return record


def test_base_layout_has_layers_and_variables_without_labels(cache, tmp_path):
    one, two = (make_layer(cache, tmp_path, name) for name in ("one", "two"))
    base = msgspec.structs.replace(BASE, layers=(one, two), labels={"of": "the base"})
    made = context.base_layout(base, cache)
    assert validate(made).faults == ()
    assert [layer.digest for layer in made.layers] == [one.digest, two.digest]
    assert dict(made.environment) == base.environment
    assert (made.labels, made.config.run.entrypoint, made.tag) == ({}, None, "base")
    before = (made.path / "index.json").stat().st_ino
    assert context.base_layout(base, cache).digest == made.digest
    assert (made.path / "index.json").stat().st_ino == before
    others = [context.base_layout(msgspec.structs.replace(base, layers=(layer,)), cache) for layer in (one, two)]
    assert len({context.base_name(layout) for layout in (made, *others)}) == 3
