"""What an engine gets to build from."""

import msgspec
import pytest

from graphcrate.compat.planning import EXAMPLES, EXAMPLES_TITLE
from graphcrate.engines.builders import Order, context
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Silent
from graphcrate.model.errors import HostError
from graphcrate.model.plan import FilesStep, PlannedFile
from graphcrate.model.recipe import Channel
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
        arguments={},
        certificates=None,
        cache=cache,
        environment={},
        progress=Silent(),
    )
    cache.close()


def written(order, folder, text="FROM x\n"):
    folder.mkdir()
    context.write(folder, order, text)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_it_has_the_text_the_programs_and_the_local_channels_files(order, tmp_path):
    names = written(order, tmp_path / "context")
    wheel = next(iter(order.files.values())).name
    assert names == {"Dockerfile", "examples/train.py", "examples/more/README.md", f"wheels/{wheel}"}
    assert (tmp_path / "context" / "examples" / "train.py").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "context" / "Dockerfile").read_text() == "FROM x\n"


def test_certificates_lie_beside_the_text(order, tmp_path):
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("CERTIFICATE")
    order = Order(**{**vars(order), "certificates": bundle})
    assert "ca.crt" in written(order, tmp_path / "context")
    assert (tmp_path / "context" / "ca.crt").read_text() == "CERTIFICATE"


def test_certificates_that_cannot_be_read_are_named(order, tmp_path):
    order = Order(**{**vars(order), "certificates": tmp_path / "none.pem"})
    with pytest.raises(HostError, match=r"none\.pem cannot be read: No such file"):
        written(order, tmp_path / "context")


def test_the_context_is_the_same_for_the_same_order(order, tmp_path):
    for name in ("one", "two"):
        written(order, tmp_path / name)
    one, two = (
        {path.relative_to(top): (path.stat().st_mode, path.stat().st_mtime) for path in top.rglob("*")}
        for top in (tmp_path / "one", tmp_path / "two")
    )
    assert one == two
    modes = {path.as_posix(): mode & 0o777 for path, (mode, _) in one.items()}
    assert modes["examples/train.py"] == 0o755
    assert modes["Dockerfile"] == 0o644


def test_a_copy_serves_where_no_link_can_be_made(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "source").write_bytes(b"x")
    monkeypatch.setattr(context.os, "link", refuse)
    context.link_or_copy(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"x"


def test_both_spellings_of_a_proxy_are_handed_on():
    found = context.proxies({"http_proxy": "http://a", "HTTP_PROXY": "http://b", "NO_PROXY": "c", "HTTPS_PROXY": ""})
    assert found == {"http_proxy": "http://a", "HTTP_PROXY": "http://a", "no_proxy": "c", "NO_PROXY": "c"}


def test_the_orders_own_arguments_go_before_the_environment(order):
    order = Order(**{**vars(order), "arguments": {"MIRROR": "m"}, "environment": {"https_proxy": "p"}})
    assert context.arguments(order, "base:1") == {
        "https_proxy": "p", "HTTPS_PROXY": "p", "MIRROR": "m", "BASE": "base:1",
    }  # fmt: skip
    assert "BASE" not in context.arguments(order, "")


def test_logins_in_addresses_are_secret():
    values = {"a": "http://me:pass@host:1/x@y", "b": "https://token@host", "c": "http://host/a@b", "d": "plain@text"}
    assert context.secrets(values) == ("me:pass", "token")


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:3128", "localhost:3128", "http://u:p@[::1]:1", "http://127.1.2.3"]
)
def test_a_server_on_loopback_needs_the_hosts_network(address):
    assert context.needs_host_network({"http_proxy": address})


@pytest.mark.parametrize(
    "address", ["http://proxy:3128", "http://10.0.0.1", "127.example.com:1/localhost", "http://[broken"]
)
def test_others_do_not(address):
    assert not context.needs_host_network({"http_proxy": address, "no_proxy": "localhost,127.0.0.1"})


def test_a_plan_without_local_files_needs_none():
    assert context.local_files(planned(PROGRAMS), {}) == {}
