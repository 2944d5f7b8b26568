"""Where a registry wants uploads sent, without a server: hosts other than loopback."""

import pytest

from graphcrate.host.http import Response
from graphcrate.host.retry import Retry
from graphcrate.model.errors import NetworkError
from graphcrate.oci import reference, spec
from graphcrate.oci.credentials import Credential
from graphcrate.oci.image import digest_of
from graphcrate.oci.registry import Repository
from graphcrate.oci.upload import Blob, Outcome, Pace, upload

DATA = b"a layer"
BLOB = Blob(descriptor=spec.Descriptor(media_type="x", digest=digest_of(DATA), size=len(DATA)), data=DATA)
LOGIN = Credential(user="robot", password="canary-password")


class Registry:
    """Stands in for `Client`: wants Basic, has no blob, sends uploads to `location`."""

    def __init__(self, location):
        self.location, self.asked = location, []

    def retry(self, tries):
        return Retry(lambda _: None)

    def send(self, method, url, *, headers, body, accept):
        self.asked.append((method, url, headers.get("Authorization", "")))
        answer = 404, {}
        if url.startswith("https://registry.example/") and "Authorization" not in headers:
            answer = 401, {"WWW-Authenticate": 'Basic realm="x"'}
        elif method == "POST":
            answer = 202, {"Location": self.location}
        elif method == "PUT":
            assert b"".join(body()) == DATA
            answer = 201, {}
        return Response(*answer, b"", url)


def sent(location):
    client = Registry(location)
    where = reference.parse("registry.example/team/image")
    target = Repository(client, where, lambda: LOGIN, writes=True)
    assert upload(target, BLOB, lambda _: None, Pace(0)).outcome is Outcome.SENT
    return [asked for asked in client.asked if asked[0] == "PUT"]


@pytest.mark.parametrize(
    ("location", "place", "known"),
    [
        ("/v2/up/1", "https://registry.example/v2/up/1?", True),
        ("https://registry.example/v2/up/1?state=a%2Fb", "https://registry.example/v2/up/1?state=a%2Fb&", True),
        ("http://registry.example/v2/up/1", "https://registry.example/v2/up/1?", True),
        ("https://registry.example:8443/v2/up/1", "https://registry.example:8443/v2/up/1?", False),
        ("https://storage.example/1", "https://storage.example/1?", False),
        ("https://registry.example.evil.net/1", "https://registry.example.evil.net/1?", False),
        ("https://registry.example@evil.net/1", "https://registry.example@evil.net/1?", False),
    ],
)
def test_a_login_goes_to_the_registry_alone(location, place, known):
    ((_, url, told),) = sent(location)
    assert url == f"{place}digest=sha256%3A{BLOB.descriptor.digest[7:]}"
    assert told == (LOGIN.basic if known else "")


def test_an_open_line_is_refused():
    with pytest.raises(NetworkError, match=r"sent to storage\.example without encryption"):
        sent("http://storage.example/1")
