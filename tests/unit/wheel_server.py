"""A loopback server that serves small wheels as a simple index (HTML or JSON), PyTorch's channel and PyG's pages do.

Faults are given per path and are used up one per request: statuses, `Retry-After`, connections cut after some bytes,
wrong bytes, slowness. Every request is recorded.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import html
import json
import time
import urllib.parse

from tests.loopback import Answers, Asked, Loopback
from tests.unit import tars
from tests.unit.wheelmaker import wheel_bytes

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
MARK = '<meta name="pypi:repository-version" content="1.0">'  #: PEP 629


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """The fault of one request instead of the right answer."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    method: str = ""  # of the requests that it is for; empty: all
    cut_after: int | None = None  # bytes of the body, then the connection closes
    wrong: bool = False  # the body's bytes are flipped
    seconds: float = 0.0  # before the answer


@dataclasses.dataclass
class Page:
    """A listing that is rendered for each request, since its form depends on what the client accepts."""

    base: str  # prefix of the hrefs
    files: dict[str, bytes]
    hashes: bool = True
    metadata: str = ""  # hash of what is beside each file, or "true": an attribute of links (PEP 658, PEP 714)
    sizes: bool = True
    forms: tuple[str, ...] = ("json", "html")
    yanked: tuple[str, ...] = ()
    uploaded: str = ""  # when, where the JSON says so (PEP 700)
    later: tuple[str, ...] = ()  # files that were uploaded in 2030
    stale: dict[str, bytes] | None = None  # what a cache on the way shows to who does not say no-cache

    def json(self):
        """PEP 691, with sizes and times by PEP 700."""
        files = []
        for name, content in self.files.items():
            entry = {"filename": name, "url": self.base + urllib.parse.quote(name), "yanked": name in self.yanked}
            entry["hashes"] = {"sha256": sha256(content)} if self.hashes else {}
            time = "2030-01-01T00:00:00Z" if name in self.later else self.uploaded
            entry |= {"upload-time": time} if self.uploaded else {}
            files.append(entry | ({"size": len(content)} if self.sizes else {}))
        return json.dumps({"meta": {"api-version": "1.1"}, "name": "x", "files": files}).encode()

    def html(self):
        """PEP 503."""
        lines = []
        for name, content in self.files.items():
            target = urllib.parse.quote(self.base + name, safe=":/") + (
                f"#sha256={sha256(content)}" if self.hashes else ""
            )
            yanked = ' data-yanked="broken"' if name in self.yanked else ""
            beside = f' data-core-metadata="{self.metadata}"' if self.metadata else ""
            lines.append(f'<a href="{html.escape(target)}"{yanked}{beside}>{html.escape(name)}</a><br>')
        return f"<!DOCTYPE html><html><head>{MARK}</head><body>{''.join(lines)}</body></html>".encode()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class WheelServer(Loopback):
    """Use as a context manager. `url(path)` is the address of a path."""

    def __init__(self):
        self.bodies: dict[str, bytes] = {}
        self.pages: dict[str, Page] = {}
        self.redirects: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.asked: list[Asked] = []
        self.ranges = True
        self.validators: dict[str, str] = {}  # of files: ETag, or Last-Modified
        self.shift = 0  # bytes that an answer to a Range leaves out at its start

    def __enter__(self):
        return self.start(_Handler, owner=self)

    @property
    def port(self):
        return self.server.server_address[1]

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def paths(self, method="GET"):
        return [asked.path for asked in self.asked if asked.method == method]

    def put(self, path, content):
        """A file at this (unquoted) path; returns its sha256."""
        self.bodies[path] = content
        return sha256(content)

    def _serve(self, page, base, files, folder, **options):
        for name, content in files.items():
            self.put(f"{folder}/{name}", content)
        self.files |= files
        self.pages[page] = Page(base, files, **options)

    def simple(self, project, files, *, prefix="/simple", **options):
        """A project page of a simple index, files beside it under /files."""
        self._serve(f"{prefix}/{project}/", "/files/", files, "/files", **options)

    def pytorch(self, tag, files, *, prefix="/whl", **options):
        """PyTorch's channel of one CUDA version: an HTML index whose files are beside the project folders."""
        place = f"{prefix}/{tag}"
        for project in {name.split("-")[0] for name in files}:
            mine = {name: content for name, content in files.items() if name.split("-")[0] == project}
            page = f"{place}/{project.replace('_', '-').lower()}/"
            self._serve(page, f"{place}/", mine, place, forms=("html",), **options)

    def pyg(self, torch, files, *, hashes=False, **options):
        """PyG's links page `/whl/torch-2.0.0+cu118.html`; older ones carry no hashes."""
        page, base = f"/whl/torch-{torch}.html", f"torch-{torch}/"
        self._serve(page, base, files, f"/whl/torch-{torch}", hashes=hashes, forms=("html",), **options)


class _Handler(Answers):
    owner: WheelServer

    def handle_one_request(self):
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        server = self.owner
        server.asked.append(self.asked(path))
        pending = server.faults.get(path)
        fault = pending.pop(0) if pending and pending[0].method in ("", self.command) else Fault()
        time.sleep(fault.seconds)
        if path in server.redirects:
            return self._send(302, {"Location": server.redirects[path]}, b"", fault)
        if fault.status != 200:
            return self._send(fault.status, dict(fault.headers), b"no", fault)
        if path in server.pages:
            page, accepted = server.pages[path], self.headers.get("Accept", "")
            if page.stale is not None and self.headers.get("Cache-Control") != "no-cache":
                page = dataclasses.replace(page, files=page.stale)
            as_json = "json" in page.forms and (JSON_TYPE in accepted or "html" not in page.forms)
            body = page.json() if as_json else page.html()
            return self._send(200, {"Content-Type": JSON_TYPE if as_json else "text/html"}, body, fault)
        if path not in server.bodies:
            return self._send(404, {}, b"not found", fault)
        body = server.bodies[path]
        return self._send_file(bytes(byte ^ 0xFF for byte in body) if fault.wrong else body, fault)

    do_HEAD = do_GET

    def _send_file(self, body, fault):
        asked, same = self.headers.get("Range"), self.headers.get("If-Range")
        validator = self.owner.validators.get(urllib.parse.unquote(self.path), "")
        known = {"ETag" if '"' in validator else "Last-Modified": validator} if validator else {}
        if not asked or not self.owner.ranges or (same is not None and same != validator):
            return self._send(200, {"Accept-Ranges": "bytes", **known, **dict(fault.headers)}, body, fault)
        first, last = asked.removeprefix("bytes=").split("-")
        start = int(first) + self.owner.shift if first else max(len(body) - int(last), 0)
        end = min(int(last), len(body) - 1) if first and last else len(body) - 1
        if start >= len(body):
            return self._send(416, {"Content-Range": f"bytes */{len(body)}"}, b"", fault)
        headers = {"Content-Range": f"bytes {start}-{end}/{len(body)}", "Accept-Ranges": "bytes", **known}
        return self._send(206, headers, body[start : end + 1], fault)

    def _send(self, status, headers, body, fault):
        self.answer(status, body, headers, fault.cut_after)


def small_wheel(name, version, *, tag="py3-none-any", requires=(), content=b"x = 1\n", files=None):
    """A valid little wheel: (file name, bytes). `files`: name → bytes of more."""
    stem, metadata = name.replace("-", "_"), core_metadata(name, version, requires).encode()
    content = {f"{stem}/__init__.py": content, **(files or {})}
    data = wheel_bytes(stem, version, content, tag=tag, metadata=metadata)
    return f"{stem}-{version}-{tag}.whl", data


def small_sdist(name, version, *, pyproject, metadata_requires=(), requires_txt="", more=()):
    """A valid little sdist: (file name, bytes)."""
    stem = f"{name.replace('-', '_')}-{version}"
    texts = {"PKG-INFO": core_metadata(name, version, metadata_requires), "pyproject.toml": pyproject, **dict(more)}
    if requires_txt:
        texts[f"{name}.egg-info/requires.txt"] = requires_txt
    files = [tars.file(f"{stem}/{path}", text.encode()) for path, text in texts.items()]
    return f"{stem}.tar.gz", gzip.compress(tars.tar(files), mtime=0)


def small_crate(name, version, more=()):
    """A valid little crate, as crates.io has them: (file name, bytes)."""
    stem = f"{name}-{version}"
    texts = {"Cargo.toml": f'[package]\nname = "{name}"\nversion = "{version}"\n', "src/lib.rs": "", **dict(more)}
    files = [tars.file(f"{stem}/{path}", text.encode()) for path, text in texts.items()]
    return f"{stem}.crate", gzip.compress(tars.tar(files), mtime=0)


def core_metadata(name, version, requires):
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return text + "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
