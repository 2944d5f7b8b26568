"""A token server as Docker's token specification has them, whose tokens Debian's docker-registry takes."""

import base64
import contextlib
import json
import time
import urllib.parse

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.loopback import Answers, Loopback

SERVICE, ISSUER = "tests' registry", "tests' tokens"


class TokenServer(Loopback):
    """`asked`: (scopes, authorization) of each request. Grants `allowed` repositories (all actions) to one user."""

    def __init__(self, authority, login, allowed):
        self.authority, self.login, self.allowed = authority, login, allowed
        self.asked = []

    def __enter__(self):
        return self.start(_Answers, owner=self)

    @property
    def realm(self):
        return f"http://{self.address}/token"

    def settings(self):
        """The registry's `auth`."""
        keys = {"realm": self.realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(self.authority.bundle)}
        return {"token": keys}

    def token(self, scopes):
        access = []
        for kind, name, actions in (scope.split(":") for scope in scopes):
            granted = actions.split(",") if name in self.allowed else []
            access.append({"type": kind, "name": name, "actions": granted})
        certificate = x509.load_pem_x509_certificate(self.authority.certificate.read_bytes())
        chain = [base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()]
        now = int(time.time())
        claims = {"iss": ISSUER, "sub": self.login.user, "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now}
        head = {"typ": "JWT", "alg": "ES256", "x5c": chain}
        signed = b".".join(_encoded(json.dumps(part).encode()) for part in (head, {**claims, "access": access}))
        key = serialization.load_pem_private_key(self.authority.key.read_bytes(), None)
        r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return b".".join([signed, _encoded(r.to_bytes(32, "big") + s.to_bytes(32, "big"))]).decode()


def _encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class _Answers(Answers):
    owner: TokenServer

    def do_GET(self):
        owner, query = self.owner, urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        scopes, told = query.get("scope", []), self.headers.get("Authorization", "")
        owner.asked.append((scopes, told))
        status = 200 if told == owner.login.basic else 401
        body = json.dumps({"token": owner.token(scopes)} if status == 200 else {}).encode()
        with contextlib.suppress(ConnectionError):
            self.answer(status, body)
