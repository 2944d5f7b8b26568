"""A registry on loopback: manifests, blobs with ranges and redirects, token and Basic logins, and faults on demand.

Every request is recorded, so that a test can see who got which credentials.
"""

import base64
import dataclasses
import hashlib
import json
import re
import urllib.parse

from graphcrate.oci import spec
from tests import loopback
from tests.unit import tars


@dataclasses.dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    authorization: str


@dataclasses.dataclass
class RegistryServer(loopback.Loopback):
    """Use as a context manager. `login`: "" (none), "bearer" or "basic", for `user` with `password` where set.

    `faults` maps a part of a path to what happens to the next requests for it: a status, "truncate", "wrong".
    """

    login: str = ""
    user: str = ""
    password: str = ""
    realm: str = ""  # another token server than this one
    sends_on: tuple[int, str] = (0, "")  # status and Location of what it answers to an identity token
    storage: str = ""  # blobs are redirected to this address
    uses: int = 1_000_000  # of one token, before it has expired
    documents: dict[str, tuple[str, bytes]] = dataclasses.field(default_factory=dict)
    blobs: dict[str, bytes] = dataclasses.field(default_factory=dict)
    faults: dict[str, list] = dataclasses.field(default_factory=dict)
    asked: list[Asked] = dataclasses.field(default_factory=list)

    def __enter__(self):
        self.tokens: dict[str, int] = {}
        return self.start(self.answers, registry=self)

    @property
    def answers(self):
        """The class that answers requests."""
        return Answers

    @property
    def host(self) -> str:
        return self.address

    def seen(self, part: str) -> list[Asked]:
        return [asked for asked in self.asked if part in asked.path]

    def put(self, name: str, document: dict, media_type: str, *tags: str) -> dict:
        """Store a manifest or index under its digest and these tags; its descriptor."""
        data = json.dumps(document).encode()
        digest = tars.sha256(data)
        for what in (digest, *tags):
            self.documents[f"{name}/manifests/{what}"] = (media_type, data)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def blob(self, data: bytes, media_type: str) -> dict:
        self.blobs[tars.sha256(data)] = data
        return {"mediaType": media_type, "digest": tars.sha256(data), "size": len(data)}

    def image(
        self,
        name,
        layers,
        *tags,
        docker=False,
        types=(spec.LAYER_GZIP,),
        platform="linux/amd64",
        run=None,
        diff_ids=None,
    ):
        """Push an image of layers of tar entries; the manifest's descriptor with its platform."""
        system, architecture = platform.split("/")
        plain = [tars.tar(layer) for layer in layers]
        described = []
        for number, content in enumerate(plain):
            kind = types[number % len(types)]
            named = kind.replace("oci.image.layer.v1.tar", "docker.image.rootfs.diff.tar").replace("+", ".")
            described.append(self.blob(tars.compressed(content, kind), named if docker else kind))
        config = {
            "architecture": architecture,
            "os": system,
            "config": run or {"Env": None, "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids or [tars.sha256(content) for content in plain]},
            "history": [{"created_by": "test"} for _ in plain],
        }
        kinds = (spec.DOCKER_MANIFEST, spec.DOCKER_CONFIG) if docker else (spec.MANIFEST, spec.CONFIG)
        manifest = {
            "schemaVersion": 2,
            "mediaType": kinds[0],
            "config": self.blob(json.dumps(config).encode(), kinds[1]),
            "layers": described,
        }
        described = self.put(name, manifest, kinds[0], *tags)
        return {**described, "platform": {"os": system, "architecture": architecture}}

    def index(self, name, entries, *tags, media_type=spec.INDEX):
        return self.put(name, {"schemaVersion": 2, "mediaType": media_type, "manifests": entries}, media_type, *tags)


class Answers(loopback.Answers):
    registry: RegistryServer

    def do_GET(self):
        registry = self.registry
        path, _, query = self.path.partition("?")
        registry.asked.append(Asked(self.command, self.path, self.headers.get("Authorization", "")))
        fault = next((faults.pop(0) for part, faults in registry.faults.items() if part in path and faults), None)
        if isinstance(fault, int):
            self.answer(fault, b"{}", {"Retry-After": "0"} if fault == 429 else {})
        elif path == "/token":
            self.token(urllib.parse.parse_qs(query))
        elif path.startswith("/storage/"):
            self.blob(path.removeprefix("/storage/"), fault)
        elif path.startswith("/v2/") and self.allowed():
            self.content(path.removeprefix("/v2/"), fault)

    do_HEAD = do_GET

    def do_POST(self):
        """A token for an identity token."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.registry.asked.append(Asked("POST", f"{self.path}?{body}", self.headers.get("Authorization", "")))
        status, location = self.registry.sends_on
        if status:
            return self.answer(status, b"{}", {"Location": location})
        return self.token(urllib.parse.parse_qs(body))

    def basic(self):
        registry = self.registry
        expected = base64.b64encode(f"{registry.user}:{registry.password}".encode()).decode()
        return self.headers.get("Authorization", "") == f"Basic {expected}"

    def token(self, query):
        registry = self.registry
        if registry.user and not self.basic() and query.get("refresh_token") != [registry.password]:
            return self.answer(401, b"{}")
        token = hashlib.sha256(str(len(registry.tokens)).encode()).hexdigest()
        registry.tokens[token] = registry.uses
        kind = "access_token" if self.command == "POST" else "token"
        return self.answer(200, json.dumps({kind: token, "expires_in": 60}).encode())

    def allowed(self):
        registry = self.registry
        if registry.login == "basic" and not self.basic():
            self.answer(401, b"{}", {"WWW-Authenticate": 'Basic realm="registry"'})
            return False
        if registry.login == "bearer":
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if registry.tokens.get(token, 0) <= 0:
                realm = registry.realm or f"http://{registry.host}/token"
                challenge = f'Bearer realm="{realm}",service="test, \\"registry\\"",scope="repository:team/base:pull"'
                self.answer(401, b"{}", {"WWW-Authenticate": challenge})
                return False
            registry.tokens[token] -= 1
        return True

    def content(self, path, fault):
        registry = self.registry
        name, kind, what = re.fullmatch(r"(?:(.+)/(manifests|blobs)/(.+))?", path).groups()
        if kind == "blobs":
            if registry.storage and what in registry.blobs:
                return self.answer(307, headers={"Location": f"{registry.storage}/storage/{what}?signature=secret"})
            return self.blob(what, fault)
        media_type, data = registry.documents.get(f"{name}/manifests/{what}", ("", None))
        if data is None or media_type not in self.headers.get("Accept", ""):
            return self.answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        if fault == "wrong":
            data = data.replace(b'"schemaVersion": 2', b'"schemaVersion":  2')
        return self.answer(200, data, {"Content-Type": media_type})

    def blob(self, digest, fault):
        data = self.registry.blobs.get(digest)
        if data is None:
            return self.answer(404)
        if fault == "wrong":
            data = data[:-1] + bytes([data[-1] ^ 1])
        if wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            told = {"Content-Range": f"bytes {wanted[1]}-{len(data) - 1}/{len(data)}"}
            data = data[int(wanted[1]) :]
        most = len(data) // 2 if fault == "truncate" else None
        return self.answer(206 if wanted else 200, data, told if wanted else {}, most)
