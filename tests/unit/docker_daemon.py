"""A Docker daemon on loopback that tells its version."""

import dataclasses
import json

from tests.loopback import Answers, Loopback


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


class _Answers(Answers):
    def do_GET(self):
        told = {"Version": self.daemon.version, "ApiVersion": self.daemon.api}
        self.answer(200 if self.path.endswith("/version") else 404, json.dumps(told).encode())
