"""A registry on loopback that takes uploads as distribution specification 1.1 has them, strictly, and its moods.

It is a second implementation beside Debian's docker-registry: an upload has one address for its life, tells its Range
whenever it is asked, keeps what arrived of a chunk that broke off, and lists referrers.
"""

import dataclasses
import itertools
import json
import re
import urllib.parse

from tests.unit import tars
from tests.unit.registry_server import Answers, Asked, RegistryServer

_UPLOAD = re.compile(r"/v2/(.+)/blobs/uploads/(\d*)")
_MANIFEST = re.compile(r"/v2/(.+)/manifests/(.+)")


@dataclasses.dataclass
class WritableRegistry(RegistryServer):
    """`moods` are called with each request, its body not yet read, and may answer it: then they return true."""

    mounts: bool = True
    chunks: bool = True  # else an upload takes one PATCH or PUT with all
    least: int = 0  # OCI-Chunk-Min-Length, enforced
    most: int = 1 << 30  # bytes of one request
    uploads_at: str = ""  # uploads are sent to this address instead
    altered_digest: str = ""  # what Docker-Content-Digest says of whatever arrives
    tells: bool = True  # how far an upload is, when asked
    forgets: bool = False  # an upload of which a chunk broke off
    moods: list = dataclasses.field(default_factory=list)
    homes: dict[str, set[str]] = dataclasses.field(default_factory=dict)  # repository → digests of its blobs
    uploads: dict[str, bytearray] = dataclasses.field(default_factory=dict)
    received: int = 0  # bytes of bodies of uploads
    chunk_lengths: list[int] = dataclasses.field(default_factory=list)
    numbers: itertools.count = dataclasses.field(default_factory=itertools.count)
    order: list[str] = dataclasses.field(default_factory=list)  # what became whole: digests of blobs, manifests

    @property
    def answers(self):
        return _Writes

    def home(self, name, data):
        """Let a repository have a blob."""
        self.blobs[tars.sha256(data)] = data
        self.homes.setdefault(name, set()).add(tars.sha256(data))


class _Writes(Answers):
    timeout = 20

    def do_GET(self):
        if self.in_mood():
            return
        path = urllib.parse.urlsplit(self.path).path
        if not (found := _UPLOAD.fullmatch(path)):
            super().do_GET()
        elif self.noted() and self.allowed():
            self.where(found[2])

    do_HEAD = do_GET

    def do_POST(self):
        if self.path.startswith("/token"):
            return super().do_POST()
        if self.in_mood() or not (self.noted() and self.allowed()):
            return None
        name = _UPLOAD.fullmatch(urllib.parse.urlsplit(self.path).path)[1]
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        registry = self.registry
        digest = query.get("mount")
        if registry.mounts and digest in registry.homes.get(query.get("from"), ()):
            registry.homes.setdefault(name, set()).add(digest)
            return self.answer(201, headers={"Docker-Content-Digest": digest})
        number = str(next(registry.numbers))
        registry.uploads[number] = bytearray()
        headers = {"Location": f"{registry.uploads_at}/v2/{name}/blobs/uploads/{number}?signature=secret"}
        if registry.least:
            headers["OCI-Chunk-Min-Length"] = str(registry.least)
        return self.answer(202, headers=headers)

    def do_PATCH(self):
        if self.in_mood() or not (self.noted() and self.allowed()):
            return
        registry, number = self.registry, _UPLOAD.fullmatch(urllib.parse.urlsplit(self.path).path)[2]
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
        if self.in_mood() or not (self.noted() and self.allowed()):
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
        if self.noted():
            self.registry.uploads.pop(_UPLOAD.fullmatch(urllib.parse.urlsplit(self.path).path)[2], None)
            self.answer(204)

    def noted(self):
        self.registry.asked.append(Asked(self.command, self.path, self.headers.get("Authorization", "")))
        return True

    def allowed(self):
        """As its parent; a refused request's body, which is not read, must not be taken for the next request."""
        is_allowed = super().allowed()
        self.close_connection |= not is_allowed and self.command in ("PATCH", "PUT")
        return is_allowed

    def in_mood(self):
        return any(mood(self) for mood in self.registry.moods)

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
        location = f"{self.registry.uploads_at}{urllib.parse.urlsplit(self.path).path}?signature=secret"
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

    def content(self, path, fault):
        name, kind, what = re.fullmatch(r"(?:(.+)/(manifests|blobs)/(.+))?", path).groups()
        if kind == "blobs" and what not in self.registry.homes.get(name, ()):
            return self.answer(404)
        if kind == "manifests" and self.command == "HEAD":
            media_type, data = self.registry.documents.get(f"{name}/manifests/{what}", ("", None))
            if data is not None:
                headers = {"Content-Type": media_type, "Docker-Content-Digest": tars.sha256(data)}
                return self.answer(200, headers=headers)
        return super().content(path, fault)
