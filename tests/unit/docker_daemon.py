"""A Docker daemon on loopback that tells its version."""

import dataclasses
import json
import re
import urllib.parse
from http.server import BaseHTTPRequestHandler

from tests.loopback import Loopback


@dataclasses.dataclass
class DockerDaemon(Loopback):
    """Use as a context manager."""

    version: str = "20.10.24"
    api: str = "1.41"

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

    def _path(self):
        return re.sub(r"^/v[0-9.]+", "", urllib.parse.unquote(urllib.parse.urlsplit(self.path).path))

    def _json(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
