"""A registry on loopback: manifests, blobs with ranges, redirects, token and Basic logins, uploads, faults on demand.

Every request is recorded, so that a test can see who got which credentials. Uploads are as distribution specification
1.1 has them: a second implementation beside Debian's docker-registry, where an upload has one address for its life,
tells its Range whenever it is asked, and keeps what arrived of a chunk that broke off.
"""

import base64
import contextlib
import dataclasses
import hashlib
import itertools
import json
import re
import urllib.parse

from ocilayout import spec
from patienthttp.client import Response
from patienthttp.retry import Retry
from tests import loopback
from tests.unit import tars

_UPLOAD = re.compile(r"/v2/(.+)/blobs/uploads/(\d*)")
_MANIFEST = re.compile(r"/v2/(.+)/manifests/(.+)")


@dataclasses.dataclass
class RegistryServer(loopback.Loopback):
    """Use as a context manager. `login`: "" (none), "bearer" or "basic", for `user` with `password` where set.

    `faults` maps a part of a path to what happens to the next requests for it: a status, "truncate", "wrong".
    `strict`: a repository has the blobs of its `homes` alone. `moods` are called with each request, its body not yet
    read, and may answer it: then they return true.
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
    asked: list[loopback.Asked] = dataclasses.field(default_factory=list)
    strict: bool = False
    moods: list = dataclasses.field(default_factory=list)
    mounts: bool = True
    chunks: bool = True  # else an upload takes one PATCH or PUT with all
    least: int = 0  # OCI-Chunk-Min-Length, enforced
    most: int = 1 << 30  # bytes of one request
    altered_digest: str = ""  # what Docker-Content-Digest says of whatever arrives
    lists: bool = False  # referrers by itself, in pages of `page`
    page: int = 2
    tells: bool = True  # how far an upload is, when asked
    deletes: bool = True  # manifests
    forgets: bool = False  # an upload of which a chunk broke off
    homes: dict[str, set[str]] = dataclasses.field(default_factory=dict)  # repository → digests of its blobs
    uploads: dict[str, bytearray] = dataclasses.field(default_factory=dict)
    received: int = 0  # bytes of bodies of uploads
    chunk_lengths: list[int] = dataclasses.field(default_factory=list)
    numbers: itertools.count = dataclasses.field(default_factory=itertools.count)
    order: list[str] = dataclasses.field(default_factory=list)  # what became whole: digests of blobs, manifests

    def __enter__(self):
        self.tokens: dict[str, int] = {}
        return self.start(Answers, registry=self)

    @property
    def host(self) -> str:
        return self.address

    def seen(self, part: str) -> list[loopback.Asked]:
        return [asked for asked in self.asked if part in asked.path]

    def put(self, name: str, document: dict, media_type: str, *tags: str) -> dict:
        """Store a manifest or index under its digest and these tags; its descriptor."""
        data = json.dumps(document).encode()
        digest = tars.sha256(data)
        for what in (digest, *tags):
            self.documents[f"{name}/manifests/{what}"] = (media_type, data)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def blob(self, data: bytes, media_type: str, name: str) -> dict:
        self.home(name, data)
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
        more=(),
    ):
        """Push an image of layers of tar entries and of `more`, described; its descriptor with its platform."""
        system, architecture = platform.split("/")
        plain = [tars.tar(layer) for layer in layers]
        described = []
        for number, content in enumerate(plain):
            kind = types[number % len(types)]
            named = kind.replace("oci.image.layer.v1.tar", "docker.image.rootfs.diff.tar").replace("+", ".")
            described.append(self.blob(tars.compressed(content, kind), named if docker else kind, name))
        hashes = [*map(tars.sha256, plain), *(layer["digest"] for layer in more)]
        config = {
            "architecture": architecture,
            "os": system,
            "config": run or {"Env": None, "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids or hashes},
            "history": [{"created_by": "test"} for _ in plain],
        }
        kinds = (spec.DOCKER_MANIFEST, spec.DOCKER_CONFIG) if docker else (spec.MANIFEST, spec.CONFIG)
        manifest = {
            "schemaVersion": 2,
            "mediaType": kinds[0],
            "config": self.blob(json.dumps(config).encode(), kinds[1], name),
            "layers": [*described, *more],
        }
        described = self.put(name, manifest, kinds[0], *tags)
        return {**described, "platform": {"os": system, "architecture": architecture}}

    def home(self, name, data):
        """Let a repository have a blob."""
        self.blobs[tars.sha256(data)] = data
        self.homes.setdefault(name, set()).add(tars.sha256(data))

    def index(self, name, entries, *tags, media_type=spec.INDEX):
        return self.put(name, {"schemaVersion": 2, "mediaType": media_type, "manifests": entries}, media_type, *tags)


class Answers(loopback.Answers):
    registry: RegistryServer
    timeout = 20

    def do_GET(self):
        if self.in_mood():
            return
        registry = self.registry
        path, _, query = self.path.partition("?")
        fault = next((faults.pop(0) for part, faults in registry.faults.items() if part in path and faults), None)
        if isinstance(fault, int):
            self.answer(fault, b"{}", {"Retry-After": "0"} if fault == 429 else {})
        elif path == "/token":
            self.token(urllib.parse.parse_qs(query))
        elif path.startswith("/storage/"):
            self.blob(path.removeprefix("/storage/"), fault)
        elif path.startswith("/v2/") and self.allowed():
            if found := _UPLOAD.fullmatch(path):
                self.where(found[2])
            elif path.endswith("/tags/list"):
                self.tags(path.removeprefix("/v2/").removesuffix("/tags/list"), query)
            else:
                self.content(path.removeprefix("/v2/"), fault)

    do_HEAD = do_GET

    def do_POST(self):
        """Begin an upload, or give a token for an identity token."""
        if self.path.startswith("/token"):
            return self.token_for_identity()
        if self.in_mood() or not self.allowed():
            return None
        registry, (path, _, query) = self.registry, self.path.partition("?")
        name, query = _UPLOAD.fullmatch(path)[1], dict(urllib.parse.parse_qsl(query))
        digest = query.get("mount")
        if registry.mounts and digest in registry.homes.get(query.get("from"), ()):
            registry.homes.setdefault(name, set()).add(digest)
            return self.answer(201, headers={"Docker-Content-Digest": digest})
        number = str(next(registry.numbers))
        registry.uploads[number] = bytearray()
        headers = {"Location": f"/v2/{name}/blobs/uploads/{number}?signature=secret"}
        if registry.least:
            headers["OCI-Chunk-Min-Length"] = str(registry.least)
        return self.answer(202, headers=headers)

    def token_for_identity(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.registry.asked.append(self.asked(f"{self.path}?{body}"))
        status, location = self.registry.sends_on
        if status:
            return self.answer(status, b"{}", {"Location": location})
        return self.token(urllib.parse.parse_qs(body))

    def do_PATCH(self):
        if self.in_mood() or not self.allowed():
            return
        registry, number = self.registry, _UPLOAD.fullmatch(self.path.partition("?")[0])[2]
        length = int(self.headers["Content-Length"])
        begin, end = map(int, self.headers["Content-Range"].split("-"))
        upload = registry.uploads.get(number)
        if length > registry.most:
            self.leave(413)
        elif upload is None:
            self.leave(404)
        elif end - begin + 1 != length or begin != len(upload):
            self.leave(416)
        elif upload and not registry.chunks:
            self.leave(400, {"errors": [{"code": "UNSUPPORTED", "message": "one chunk only"}]})
        else:
            registry.chunk_lengths.append(length)
            self.take(number, length)
            if self.close_connection:
                return
            self.where(number, 202)

    def do_PUT(self):
        if self.in_mood() or not self.allowed():
            return None
        url = urllib.parse.urlsplit(self.path)
        length = int(self.headers["Content-Length"])
        if found := _MANIFEST.fullmatch(url.path):
            data = self.rfile.read(length)
            if len(data) < length:
                self.close_connection = True
                return None
            return self.manifest(*found.groups(), data)
        name, number = _UPLOAD.fullmatch(url.path).groups()
        registry = self.registry
        if length > registry.most:
            return self.leave(413)
        if number not in registry.uploads:
            return self.leave(404)
        if length:
            self.take(number, length)
            if self.close_connection:
                return None
        data, digest = bytes(registry.uploads.pop(number)), dict(urllib.parse.parse_qsl(url.query))["digest"]
        if tars.sha256(data) != digest:
            return self.answer(400, json.dumps({"errors": [{"code": "DIGEST_INVALID"}]}).encode())
        registry.home(name, data)
        registry.order.append(digest)
        return self.answer(201, headers={"Docker-Content-Digest": registry.altered_digest or digest})

    def do_DELETE(self):
        if self.in_mood():
            return
        if _MANIFEST.fullmatch(self.path):
            documents, whole = self.registry.documents, self.path.removeprefix("/v2/")
            same = [path for path, document in documents.items() if document == documents[whole]]
            for path in same if self.registry.deletes else ():
                del documents[path]
            self.answer(202 if self.registry.deletes else 405, b'{"errors":[{"code":"UNSUPPORTED"}]}')
        else:
            self.registry.uploads.pop(_UPLOAD.fullmatch(self.path.partition("?")[0])[2], None)
            self.answer(204)

    def in_mood(self):
        """Note the request; whether a mood has answered it."""
        if any(mood(self) for mood in self.registry.moods):
            return True
        self.registry.asked.append(self.asked(self.path))
        return False

    def leave(self, status, document=None, headers=None):
        """Answer without having read the body, and hang up."""
        self.close_connection = True
        self.answer(status, json.dumps(document or {}).encode(), {"Connection": "close", **(headers or {})})

    def take(self, number, length):
        """Append what comes of a body; a body that breaks off closes the connection."""
        registry = self.registry
        while length:
            piece = self.rfile.read1(min(length, 1 << 16))
            if not piece:
                self.close_connection = True
                if registry.forgets:
                    registry.uploads.pop(number, None)
                return
            registry.uploads[number] += piece
            registry.received += len(piece)
            length -= len(piece)

    def where(self, number, status=204):
        upload = self.registry.uploads.get(number)
        if upload is None or (status == 204 and not self.registry.tells):
            return self.answer(404)
        location = f"{self.path.partition('?')[0]}?signature=secret"
        return self.answer(status, headers={"Location": location, "Range": f"0-{max(len(upload) - 1, 0)}"})

    def manifest(self, name, what, data):
        registry = self.registry
        document, digest = json.loads(data), tars.sha256(data)
        blobs = [one["digest"] for one in [document.get("config"), *document.get("layers", ())] if one]
        if missing := [one for one in blobs if one not in registry.homes.get(name, ())]:
            faults = [{"code": "MANIFEST_BLOB_UNKNOWN", "detail": {"digest": one}} for one in missing]
            return self.answer(404, json.dumps({"errors": faults}).encode())
        kind = self.headers["Content-Type"]
        for tag in {what, digest}:
            registry.documents[f"{name}/manifests/{tag}"] = (kind, data)
        registry.order.append(what)
        headers = {"Docker-Content-Digest": registry.altered_digest or digest}
        return self.answer(201, headers=headers)

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
        is_allowed = self.knows_login()
        # a refused request's body, which is not read, must not be taken for the next request
        self.close_connection |= not is_allowed and self.command in ("PATCH", "PUT")
        return is_allowed

    def knows_login(self):
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
        name, kind, what = re.fullmatch(r"(?:(.+)/(manifests|blobs|referrers)/(.+))?", path).groups()
        if kind == "referrers":
            return self.referrers(name, what)
        if kind == "blobs":
            if registry.strict and what not in registry.homes.get(name, ()):
                return self.answer(404)
            if registry.storage and what in registry.blobs:
                return self.answer(307, headers={"Location": f"{registry.storage}/storage/{what}?signature=secret"})
            return self.blob(what, fault)
        media_type, data = registry.documents.get(f"{name}/manifests/{what}", ("", None))
        if registry.strict and self.command == "HEAD" and data is not None:
            return self.answer(200, headers={"Content-Type": media_type, "Docker-Content-Digest": tars.sha256(data)})
        if data is None or media_type not in self.headers.get("Accept", ""):
            return self.answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        if fault == "wrong":
            data = data.replace(b'"schemaVersion": 2', b'"schemaVersion":  2')
        return self.answer(200, data, {"Content-Type": media_type})

    def tags(self, name, query):
        """A page of the repository's tags."""
        prefix, page = f"{name}/manifests/", self.registry.page
        names = sorted(path.removeprefix(prefix) for path in self.registry.documents if path.startswith(prefix))
        names = [tag for tag in names if ":" not in tag and tag > dict(urllib.parse.parse_qsl(query)).get("last", "")]
        more = {"Link": f'</v2/{name}/tags/list?n={page}&last={names[page - 1]}>; rel="next"'} if names[page:] else {}
        self.answer(200, json.dumps({"name": name, "tags": names[:page] or None}).encode(), more)

    def referrers(self, name, digest):
        """A page of what has this subject, as distribution specification 1.1 lists it."""
        registry = self.registry
        if not registry.lists:
            return self.answer(404, b"404 page not found")
        entries = []
        for path, (kind, data) in sorted(registry.documents.items()):
            document = json.loads(data)
            if path == f"{name}/manifests/{tars.sha256(data)}" and document.get("subject", {}).get("digest") == digest:
                about = {"artifactType": document["artifactType"], "annotations": document["annotations"]}
                entries.append({"mediaType": kind, "digest": tars.sha256(data), "size": len(data), **about})
        first = int(self.path.partition("?from=")[2] or 0)
        last = first + registry.page
        index = {"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": entries[first:last]}
        more = {"Link": f'</v2/{name}/referrers/{digest}?from={last}>; rel="next"'} if last < len(entries) else {}
        return self.answer(200, json.dumps(index).encode(), {"Content-Type": spec.INDEX, **more})

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


LAYER = [tars.file("a", bytes(range(256)) * 400)]


@contextlib.contextmanager
def registry(docker=False, **options):
    """A registry with the image team/base:v1 of one LAYER, and that image's descriptor."""
    with RegistryServer(**options) as server:
        yield server, server.image("team/base", [LAYER], "v1", docker=docker)


class Answering:
    """Stands in for `Client` where a host other than loopback is needed."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def retry(self, tries):
        return Retry(lambda _: None)

    def send(self, method, url, *, headers=None, body=None, accept=(200,), limit=0):
        self.asked.append((method, url, dict(headers or {})))
        status, headers, body = self.answers.pop(0)
        return Response(status, headers, body, url)
