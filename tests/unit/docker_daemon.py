"""A Docker daemon on loopback that can do what a test asks of one: versions, images, classic builds, containers."""

import dataclasses
import io
import json
import re
import tarfile
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler

from tests.loopback import Loopback


@dataclasses.dataclass
class DockerDaemon(Loopback):
    """Use as a context manager. `answers`: the build's events; `images`: name → inspection."""

    version: str = "20.10.24"
    api: str = "1.41"
    events: list = dataclasses.field(default_factory=list)
    images: dict = dataclasses.field(default_factory=dict)
    asked: list = dataclasses.field(default_factory=list)  # (method, path)
    query: dict = dataclasses.field(default_factory=dict)  # of the build
    context: dict = dataclasses.field(default_factory=dict)  # of the build: name → bytes
    loaded: bytes = b""
    unpacking: float = 0.0  # seconds that it takes
    refusal: tuple = ()  # (status, message) of the build
    dies: bool = False  # in the middle of a build

    def __enter__(self):
        return self.start(_Answers, daemon=self)

    @property
    def environment(self):
        return {"DOCKER_HOST": f"tcp://{self.address}", "PATH": "/nonexistent"}


class _Answers(BaseHTTPRequestHandler):
    daemon: DockerDaemon
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self._path()
        if path == "/version":
            self._json(200, {"Version": self.daemon.version, "ApiVersion": self.daemon.api})
        elif path == "/images/json":
            self._json(200, self._listed())
        elif found := re.fullmatch(r"/images/(.*)/json", path):
            name = found[1]
            known = self.daemon.images.get(name) or next(
                (image for image in self.daemon.images.values() if image["Id"] == name), None
            )
            self._json(200, known) if known else self._json(404, {"message": f"No such image: {name}"})
        else:
            self._json(404, {"message": f"page not found: {path}"})

    def do_POST(self):
        body = self._body()
        path = self._path()
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        if path == "/build":
            self.daemon.query = query
            with tarfile.open(fileobj=io.BytesIO(body)) as archive:
                self.daemon.context = {
                    member.name: archive.extractfile(member).read() for member in archive if member.isfile()
                }
            if self.daemon.refusal:
                self._json(self.daemon.refusal[0], {"message": self.daemon.refusal[1]})
            else:
                self._events()
        elif path == "/images/load":
            self.daemon.loaded = body
            time.sleep(self.daemon.unpacking)
            self._json(200, {"stream": "Loaded image: torch:1"})
        elif found := re.fullmatch(r"/images/(.*)/tag", path):
            name = f"{query['repo']}:{query['tag']}"
            image = next(image for image in self.daemon.images.values() if image["Id"] == found[1])
            self.daemon.images[name] = image
            self._json(201, {})
        else:
            self._json(404, {"message": f"page not found: {path}"})

    def do_DELETE(self):
        path = self._path()
        self.daemon.images.pop(path.removeprefix("/images/"), None)
        self._json(200, [])

    def _path(self):
        path = re.sub(r"^/v[0-9.]+", "", urllib.parse.unquote(urllib.parse.urlsplit(self.path).path))
        self.daemon.asked.append((self.command, path))
        return path

    def _listed(self):
        """Images by id with their names; nameless are those whose name is empty or begins with `-`."""
        names = {}
        for name, image in self.daemon.images.items():
            names.setdefault(image["Id"], []).extend([] if name.startswith("-") else [name])
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        wanted = json.loads(query.get("filters", "{}"))
        nameless = "dangling" in wanted
        return [{"Id": image, "RepoTags": tags} for image, tags in names.items() if bool(tags) != nameless]

    def _body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _json(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _events(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self.daemon.events:
            data = json.dumps(event).encode() + b"\r\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if self.daemon.dies:
            self.wfile.write(b"ff\r\n{")
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")
