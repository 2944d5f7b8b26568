"""A Docker daemon on loopback that tells its version and loads images."""

import dataclasses
import json
import re
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler

from tests.loopback import Loopback


@dataclasses.dataclass
class DockerDaemon(Loopback):
    """Use as a context manager."""

    version: str = "20.10.24"
    api: str = "1.41"
    unpacking: float = 0.0  # seconds that it takes

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
        if (path := self._path()) == "/version":
            self._json(200, {"Version": self.daemon.version, "ApiVersion": self.daemon.api})
        else:
            self._json(404, {"message": f"page not found: {path}"})

    def do_POST(self):
        self._body()
        if (path := self._path()) == "/images/load":
            time.sleep(self.daemon.unpacking)
            self._json(200, {"stream": "Loaded image: torch:1"})
        else:
            self._json(404, {"message": f"page not found: {path}"})

    def _path(self):
        return re.sub(r"^/v[0-9.]+", "", urllib.parse.unquote(urllib.parse.urlsplit(self.path).path))

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
