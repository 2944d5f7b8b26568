"""`diff` on the command line: what it takes, what it says, how it ends."""

import contextlib
import json

import docker.errors
import pytest
import requests.exceptions

from graphcrate.host.engines import docker_engine
from tests.unit import small_layouts
from tests.unit.artifacts.test_tree_readers import docker_archive
from tests.unit.tars import file, folder

FILES = (folder("etc"), file("etc/passwd", b"root"), file("etc/resolv.conf", b"nameserver"))


@pytest.fixture
def call(context, typed):
    return lambda *arguments: typed("diff", *arguments)


@pytest.fixture
def layout(tmp_path):
    """Writes a layout `<name>/tag/oci` below dist/ and returns its path."""
    return lambda name, *entries, **config: (
        small_layouts.layout(tmp_path / "dist" / name / "tag", entries, tag="tag", **config).path
    )


def test_diff_of_identical_layouts_ends_with_0(call, layout):
    path = layout("one", *FILES)
    for other in ("one:tag", path, path.parent, f"oci:{path}:tag", f"{path}:tag"):
        code, out, err = call("one:tag", other)
        assert (code, out.splitlines()[-1]) == (0, "identical"), err


def test_diff_of_different_images_ends_with_13(call, layout):
    layout("one", *FILES, environment={"A": "b"})
    layout("two", *FILES[:1], file("etc/passwd", b"toor", mode=0o600), FILES[2], environment={"A": "c"})
    code, out, err = call("one:tag", "two:tag")
    assert code == 13
    for line in ("mode: /etc/passwd: 0644 | 0600\n", "content: /etc/passwd: 4 bytes", "environment A: 'b' | 'c'\n"):
        assert line in out
    told = "3 differences: 1 mode, 1 content, 1 setting"
    assert f"graphcrate: one:tag and two:tag are not the same: {told}\n" in err
    code, out, _ = call("one:tag", "two:tag", "--json")
    found = json.loads(out)
    assert (code, found["first"], found["entries"]) == (13, "one:tag", [4, 4])
    assert [one["aspect"] for one in found["unexpected"]] == ["mode", "content", "setting"]


def test_diff_counts_lists_or_refuses_allowed_differences(call, layout, tmp_path):
    layout("one", *FILES)
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "passwd").write_bytes(b"root")
    for place, mode in (("etc/passwd", 0o644), ("etc", 0o755), ("", 0o755)):
        (tmp_path / "root" / place).chmod(mode)
    code, out, _ = call("one:tag", "root")
    assert "equal but for what may differ:\n     1 Apptainer and podman" in out
    assert (code, "resolv.conf" in out) == (0, False)
    _, out, _ = call("one:tag", "root", "--all")
    assert "only in the first: /etc/resolv.conf (file, 10 bytes" in out
    code, out, _ = call("one:tag", "root", "--strict")
    assert (code, "may differ" in out) == (13, False)


def test_diff_with_a_registry_image_downloads_it(call, layout, registry_server):
    layout("one", *FILES)
    registry_server.image("team/image", [FILES], "1.0")
    code, out, err = call("one:tag", f"{registry_server.host}/team/image:1.0")
    assert (code, "only in" in out or "content:" in out) == (0, False), err + out


def test_diff_of_an_unreadable_image_is_refused_before_reading(call, layout, tmp_path):
    layout("one", *FILES)
    (tmp_path / "text").write_text("hello\n")
    for argument, message in (
        ("nothing:here", "docker:NAME:TAG"),
        ("missing.sif", "docker:NAME:TAG"),
        ("text", "neither a tar nor a SIF nor a squashfs"),
        ("oras://registry.example.com/a:b", "oras://"),
    ):
        code, out, err = call("one:tag", argument)
        assert (code, out, message in err, "reading" in err) == (2, "", True, False)


class Api:
    """The part of Docker's SDK that is used. Of a repository's name alone a daemon saves each of its tags."""

    def inspect_image(self, reference):
        if reference == "":
            raise docker.errors.NullResource("Resource ID was not provided")
        if reference not in ("known", "known:1", "cut:1"):
            raise docker.errors.ImageNotFound("no such image")
        return {"Id": f"sha256:{reference}", "Size": 1000}

    def get_image(self, reference, chunk_size):
        data = docker_archive()
        assert reference.startswith("sha256:"), "`known` would be two images"
        if reference == "sha256:cut:1":
            yield data[:5000]
            raise requests.exceptions.ChunkedEncodingError("the daemon went away")
        yield from (data[start : start + 700] for start in range(0, len(data), 700))


def test_diff_of_a_docker_image_streams_it(call, monkeypatch, tmp_path):
    @contextlib.contextmanager
    def connected(environment):
        yield Api()

    monkeypatch.setattr(docker_engine, "connected", connected)
    (tmp_path / "saved.tar").write_bytes(docker_archive())
    for name in ("known:1", "known"):
        code, out, err = call(f"docker:{name}", "saved.tar", "--strict")
        assert (code, out.splitlines()[-1]) == (0, "identical"), err
    list_them, went = (2, "docker image ls"), (7, "the daemon went away")
    for name, (code, word) in {"other:1": list_them, "": list_them, "cut:1": went}.items():
        ended, _, err = call(f"docker:{name}", "saved.tar")
        assert (ended, word in err) == (code, True)
