"""Index pages in all their forms."""

import pytest

from graphcrate.host.net import Client, HttpError
from graphcrate.model.errors import NetworkError
from graphcrate.resolve.sources.index import Listings, parse_html
from graphcrate.resolve.sources.source import Link, Source, SourceKind
from tests.unit.wheel_server import Fault, small_wheel

HASH = "ab" * 32
PAGE = "https://example.org/whl/cu118/torch/"


@pytest.fixture
def listings():
    return Listings(Client({}, sleep=lambda _: None))


def test_html_index_with_relative_quoted_and_hashed_links_is_parsed():
    body = f"""<!DOCTYPE html><html><body><h1>Links</h1>
    <a href="/whl/cu118/torch-2.0.1%2Bcu118-cp311-cp311-linux_x86_64.whl#sha256={HASH.upper()}">torch</a><br/>
    <a href="torch-1.0.tar.gz#md5=00" data-yanked="">x</a>
    <a href="torch-1.2.tar.gz#sha256={HASH}&amp;egg=torch">x</a>
    <a href="torch-1.1.tar.gz" data-yanked="no &lt;CUDA&gt;">x</a>
    <base href="/files/"><a href="a-1-py3-none-any.whl">a</a>
    <a href="">empty</a><a name="no-href">n</a><a href="../">up</a>
    </body></html>""".encode()
    torch = "https://example.org/whl/cu118/torch-2.0.1%2Bcu118-cp311-cp311-linux_x86_64.whl"
    assert parse_html(body, PAGE) == (
        Link(name="torch-2.0.1+cu118-cp311-cp311-linux_x86_64.whl", url=torch, sha256=HASH),
        Link(name="torch-1.0.tar.gz", url=PAGE + "torch-1.0.tar.gz", yanked=True),
        Link(name="torch-1.2.tar.gz", url=PAGE + "torch-1.2.tar.gz", sha256=HASH),
        Link(name="torch-1.1.tar.gz", url=PAGE + "torch-1.1.tar.gz", yanked=True, yanked_for="no <CUDA>"),
        Link(name="a-1-py3-none-any.whl", url="https://example.org/files/a-1-py3-none-any.whl"),
    )


@pytest.mark.parametrize("tag", ["link", "area", "base", "img"])
def test_addresses_of_other_tags_are_no_files_of_an_index(tag):
    """Style sheets, icons and feeds have addresses, too."""
    body = f"""<{tag} href="a-1-py3-none-any.whl" src="a-2-py3-none-any.whl"><a href="/b-1-py3-none-any.whl">b</a>"""
    assert [link.name for link in parse_html(body.encode(), PAGE)] == ["b-1-py3-none-any.whl"]


def test_html_index_links_have_requires_python_and_metadata():
    body = b"""<a href="a-1.tar.gz" data-requires-python="&gt;=3.9">a</a>
    <a href="b-1.tar.gz" data-core-metadata="sha256=00">b</a>
    <a href="c-1.tar.gz" data-dist-info-metadata="true">c</a>"""
    assert [(link.python, link.has_metadata) for link in parse_html(body, PAGE)] == [
        (">=3.9", False),
        ("", True),
        ("", True),
    ]


def test_index_page_and_its_failure_are_read_once(server, listings):
    name, content = small_wheel("demo-pkg", "1.0")
    server.simple("demo-pkg", {name: content})
    source = Source(SourceKind.INDEX, server.url("/simple"))
    for _ in range(2):
        (link,) = listings.project(source, "demo-pkg")
        assert (link.name, link.url) == (name, server.url(f"/files/{name}"))
        with pytest.raises(HttpError, match="404"):
            listings.project(source, "nothing")
    assert server.paths() == ["/simple/demo-pkg/", "/simple/nothing/"]
    for again in (True, False):  # what was read is read once more, and what is not there is not asked for again
        assert listings.project(source, "demo-pkg", again=again) == (link,)
        with pytest.raises(HttpError, match="404"):
            listings.project(source, "nothing", again=again)
    assert server.paths() == ["/simple/demo-pkg/", "/simple/nothing/", "/simple/demo-pkg/"]


@pytest.mark.parametrize("body", [b"<![x[", b'<a href="a-1-py3-none-any.whl">a</a><![ if '])
def test_unparsable_index_page_is_damaged(server, listings, body):
    server.put("/simple/demo/", body)
    with pytest.raises(HttpError, match="the page is damaged"):
        listings.project(Source(SourceKind.INDEX, server.url("/simple")), "demo")


PORTAL = b"""<!DOCTYPE html><html><head><title>Log in</title></head><body><form action="/login">
<input name="user"></form><a href="/help">help</a><a href="/app.tar.gz">app</a></body></html>"""


@pytest.mark.parametrize("body", [PORTAL, b"", b"blocked", b'{"files": []}'], ids=["login", "empty", "text", "json"])
@pytest.mark.parametrize("kind", [SourceKind.INDEX, SourceKind.LINKS])
def test_login_page_in_place_of_an_index_is_a_network_error(server, listings, body, kind):
    """It was taken for an index without the package: "has no wheel of torch that fits Python 3.11"."""
    server.put("/simple/torch/", body)
    location = server.url("/simple" if kind is SourceKind.INDEX else "/simple/torch/")
    with pytest.raises(HttpError, match="no index of packages") as caught:
        listings.project(Source(kind, location), "torch")
    assert "login page" in caught.value.cause
    assert not caught.value.failure.is_temporary


@pytest.mark.parametrize(
    "head",
    [
        '<meta name="pypi:repository-version" content="1.3">',
        "<title>Links for torch</title>",
        "<h1>Index of /simple/torch/</h1>",
        "<title>Directory listing for /simple/torch/</title>",
    ],
)
def test_index_page_without_files_has_no_links(server, listings, head):
    server.put("/simple/torch/", f'<html><head>{head}</head><body><a href="../">../</a></body></html>'.encode())
    assert listings.project(Source(SourceKind.INDEX, server.url("/simple")), "torch") == ()


def test_busy_index_is_asked_again_with_more_retries(server, listings, monkeypatch):
    monkeypatch.setattr("patienthttp.retry.FIRST_PAUSE", 0.0)
    name, content = small_wheel("demo", "1.0")
    server.simple("demo", {name: content})
    server.faults["/simple/demo/"] = [Fault(status=503)] * 4
    source = Source(SourceKind.INDEX, server.url("/simple"))
    for _ in range(2):  # once more than the first request, in all
        with pytest.raises(HttpError, match="503"):
            listings.project(source, "demo", tries=1)
    assert len(server.asked) == 2
    assert [link.name for link in listings.project(source, "demo")] == [name]
    assert len(server.asked) == 5


def test_links_page_is_read_once_for_all_projects(server, listings):
    names = {name.replace("_", "-"): small_wheel(name, "2.1.2+pt20cu118") for name in ("torch_scatter", "pyg_lib")}
    server.pyg("2.0.0+cu118", dict(names.values()))
    source = Source(SourceKind.LINKS, server.url("/whl/torch-2.0.0+cu118.html"))
    for project, (name, _) in names.items():
        assert [link.name for link in listings.project(source, project)] == [name]
    assert len(server.asked) == 1


def test_wheel_folder_lists_its_wheels(tmp_path, listings):
    wheel = tmp_path / "torch-2.13.0+cpu-py3-none-any.whl"
    for path in (wheel, tmp_path / "README.txt"):
        path.write_bytes(b"1234")
    found = listings.project(Source(SourceKind.FOLDER, str(tmp_path)), "torch")
    assert found == (Link(name=wheel.name, url=wheel.as_uri(), size=4),)
    with pytest.raises(NetworkError, match="cannot be read"):
        listings.project(Source(SourceKind.FOLDER, str(tmp_path / "none")), "torch")


def test_file_index_is_read_with_quoted_paths(tmp_path, listings):
    """As pip's and uv's `file:///srv/simple`."""
    page = tmp_path / "my simple" / "torch" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../files/torch-2.0.1%2Bcpu-py3-none-any.whl#sha256={HASH}">torch</a>')
    source = Source(SourceKind.INDEX, (tmp_path / "my simple").as_uri())
    address = (tmp_path / "files/torch-2.0.1%2Bcpu-py3-none-any.whl").as_uri().replace("%25", "%")
    (link,) = listings.project(source, "torch")
    assert (link.name, link.url, link.sha256) == ("torch-2.0.1+cpu-py3-none-any.whl", address, HASH)
    assert listings.project(source, "numpy") == ()
    with pytest.raises(NetworkError, match="cannot be read: No such file"):
        listings.project(Source(SourceKind.INDEX, (tmp_path / "none").as_uri()), "torch")


def test_index_links_with_path_names_or_invalid_hashes_are_dropped():
    """Both become places in the cache."""
    names = ("x-1.0.tar.gz", "..%2F..%2Fx-1.0.tar.gz", "%2Fetc%2Fpasswd", "..", "a%00b", "a%0Ab")
    hashes = (HASH, "/etc/passwd", "..", HASH[1:], f"{HASH}0", "z" * 64)
    page = "".join(f'<a href="https://x/{name}#sha256={HASH}">a</a>' for name in names)
    assert [link.name for link in parse_html(page.encode(), "https://x/")] == ["x-1.0.tar.gz"]
    page = "".join(f'<a href="https://x/a.whl#sha256={one}">a</a>' for one in hashes)
    assert [link.sha256 for link in parse_html(page.encode(), "https://x/")] == [HASH, "", "", "", "", ""]
