"""What an engine gets to build from: the folder of its text, and the base."""

from pathlib import Path

import msgspec
import pytest

from graphcrate.compat.planning import EXAMPLES, EXAMPLES_TITLE
from graphcrate.engines import context
from graphcrate.engines.backend import Order
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Silent
from graphcrate.inputs.bases import Base
from graphcrate.model.errors import HostError
from graphcrate.model.plan import FilesStep, PlannedFile
from graphcrate.model.recipe import Channel
from graphcrate.oci.layer import LayerWriter
from graphcrate.oci.validate import validate
from tests.unit.test_embedded_builder import planned, wheels, wheels_step

PROGRAMS = FilesStep(
    title=EXAMPLES_TITLE,
    files=(
        PlannedFile(path=f"{EXAMPLES}/train.py", content="#!/usr/bin/python\n", mode=0o755),
        PlannedFile(path=f"{EXAMPLES}/more/README.md", content="words\n"),
    ),
)
OTHERS = FilesStep(title="virtual environment", files=(PlannedFile(path="/opt/venv/pyvenv.cfg", content="x"),))


@pytest.fixture
def order(tmp_path):
    cache = Cache(tmp_path / "cache")
    (tmp_path / "wheels").mkdir()
    packages, files = wheels(tmp_path / "wheels", near={"near.py": b"1"}, far={"far.py": b"2"})
    near, far = (package for name in ("near", "far") for package in packages if package.name == name)
    near = msgspec.structs.replace(near, channel=Channel.LOCAL)
    yield Order(
        plan=planned(OTHERS, wheels_step("both", (near, far)), PROGRAMS),
        folder=tmp_path,
        base=None,
        files={near.file.sha256: files[near.file.sha256]},
        cache=cache,
        environment={},
        progress=Silent(),
    )
    cache.close()


def written(order, folder, text="FROM x\n"):
    folder.mkdir()
    context.write(folder, order, text, "Dockerfile")
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_it_has_the_text_the_programs_and_the_local_channels_files_always_the_same(order, tmp_path):
    wheel = next(iter(order.files.values())).name
    for name in ("one", "two"):
        files = written(order, tmp_path / name)
        assert files == {"Dockerfile", "examples/train.py", "examples/more/README.md", f"wheels/{wheel}"}
    one, two = (
        {path.relative_to(top): (path.stat().st_mode, path.stat().st_mtime) for path in top.rglob("*")}
        for top in (tmp_path / "one", tmp_path / "two")
    )
    assert one == two
    modes = {path.as_posix(): mode & 0o777 for path, (mode, _) in one.items()}
    assert (modes["examples/train.py"], modes["Dockerfile"]) == (0o755, 0o644)
    assert (tmp_path / "one" / "Dockerfile").read_text() == "FROM x\n"


def test_certificates_lie_beside_the_text_and_a_copy_serves_where_no_link_can_be_made(order, tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(context.os, "link", refuse)
    bundle = tmp_path / "bundle.pem"
    order = Order(**{**vars(order), "certificates": bundle})
    with pytest.raises(HostError, match=r"bundle\.pem cannot be read: No such file"):
        written(order, tmp_path / "without")
    bundle.write_text("CERTIFICATE")
    written(order, tmp_path / "context")
    assert (tmp_path / "context" / "ca.crt").read_text() == "CERTIFICATE"
    (wheel,) = order.files.values()
    assert (tmp_path / "context" / "wheels" / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_orders_own_arguments_go_before_both_spellings_of_a_proxy(order):
    given = {"http_proxy": "http://a", "HTTP_PROXY": "http://b", "NO_PROXY": "c", "HTTPS_PROXY": ""}
    proxies = {"http_proxy": "http://a", "HTTP_PROXY": "http://a", "no_proxy": "c", "NO_PROXY": "c"}
    order = Order(**{**vars(order), "arguments": {"MIRROR": "m"}, "environment": given})
    assert context.arguments(order, "base:1") == {**proxies, "MIRROR": "m", "BASE": "base:1"}
    assert "BASE" not in context.arguments(order, "")


def test_logins_in_addresses_are_secret():
    values = {"a": "http://me:pass@host:1/x@y", "b": "https://token@host", "c": "http://host/a@b", "d": "plain@text"}
    assert context.secrets(values) == ("me:pass", "token")


def test_a_server_on_loopback_needs_the_hosts_network():
    def needed(address):
        return context.needs_host_network({"no_proxy": "localhost", "http_proxy": address})

    assert all(map(needed, ("http://127.0.0.1:3128", "localhost:3128", "http://u:p@[::1]:1", "http://127.1.2.3")))
    assert not any(map(needed, ("http://proxy:3128", "127.example.com:1/localhost", "http://[broken", "")))


# --- the base -------------------------------------------------------------------------------------------------------


def make_layer(cache, name):
    with cache.folder() as folder:
        with (folder / "layer").open("wb") as stream:
            writer = LayerWriter(stream, 1)
            writer.data(f"usr/{name}", name.encode() * 1000, 0o644)
            record = writer.finish(name, [])
        cache.adopt(folder / "layer", cache.blob(record.digest))
    return record


def make_base(*layers):
    return Base(
        layers=layers,
        rootfs=Path("/nowhere"),
        python="/usr/bin/python3.11",
        python_version="3.11.2",
        glibc="2.36",
        environment={"PATH": "/usr/bin", "GPG_KEY": "1"},
        labels={"of": "the base"},
    )


def test_the_base_is_its_layers_and_variables_without_labels_made_once(cache):
    one, two = make_layer(cache, "one"), make_layer(cache, "two")
    base = make_base(one, two)
    made = context.base_layout(base, cache)
    validate(made)
    assert [layer.digest for layer in made.layers] == [one.digest, two.digest]
    assert dict(made.environment) == base.environment
    assert (made.labels, made.config.run.entrypoint, made.tag) == ({}, None, "base")
    before = (made.path / "index.json").stat().st_ino
    assert context.base_layout(base, cache).digest == made.digest
    assert (made.path / "index.json").stat().st_ino == before
    others = [context.base_layout(make_base(layer), cache) for layer in (one, two)]
    assert len({context.base_name(layout) for layout in (made, *others)}) == 3
