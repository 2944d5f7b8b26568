"""Servers asked for a locked .deb, as tables of answers: their order, the tries, and the answers that count."""

import json

import msgspec
import pytest

from graphcrate.host.net import HttpError
from patienthttp.client import Response
from patienthttp.errors import NoAnswer
from patienthttp.reach import Reach
from tests.made import deb, place
from upkeep.standing import presence
from upkeep.standing.presence import Presence

LISTED = "20261124T021215Z"
PATH, TWIN = "pool/updates/main/b/bash/bash_5_amd64.deb", "pool/main/b/bash/bash_5_amd64.deb"
BASH = deb("bash", "5", size=11, path=PATH)
MIRROR, OTHER, SNAPSHOT = "https://mirror.example", "https://other.example", "https://snapshot.example"
ON_MIRROR, TWIN_ON_MIRROR = f"{MIRROR}/debian-security/{PATH}", f"{MIRROR}/debian/{TWIN}"
QUESTION = f"{SNAPSHOT}/mr/binary/bash/5/binfiles"
MODIFIED = "Tue, 24 Nov 2026 02:12:15 GMT"


class Servers:
    """Stands for a client: sizes of files, texts of pages and times by address; all else is not there.

    A status in place of one is the server's answer.
    """

    def __init__(self):
        self.answers, self.asked = {}, []

    def __call__(self, environment, *, note):
        return self

    def _answer(self, method, url, tries):
        self.asked.append((method, url, tries))
        answer = self.answers.get(url, 404)
        if isinstance(answer, int) and answer >= 400:
            raise HttpError.of(NoAnswer.STATUS, url, f"{answer} no", answer)
        return answer

    def size(self, url, *, tries):
        return self._answer("size", url, tries)

    def request(self, method, url, *, tries=None):
        answer = self._answer(method, url, tries)
        headers = {"Last-Modified": answer} if method == "HEAD" else {}
        return Response(200, headers, answer.encode(), url)

    def urls(self):
        return [url for _, url, _ in self.asked]


@pytest.fixture
def servers(monkeypatch):
    made = Servers()
    monkeypatch.setattr(presence, "Client", made)
    return made


@pytest.fixture
def looking(servers, cache, no_places):
    def made(**more):
        environment = {**no_places, "DEBIAN_MIRROR": f"{MIRROR}/debian {OTHER}/debian", "DEBIAN_SNAPSHOT": SNAPSHOT}
        return Presence(place(cache, environment | more), Reach(), "bookworm")

    return made


def sightings(found):
    """Kind → whether it has the file, and why not."""
    return {(one.place.kind, one.place.host.partition(".")[0]): (one.has, one.why) for one in found}


def test_server_that_has_a_file_is_asked_once_with_few_tries(servers, looking):
    servers.answers[TWIN_ON_MIRROR] = 11
    found = sightings(looking().look(BASH, [LISTED, LISTED, "../../x"]))
    assert found["mirror", "mirror"] == (True, "")
    asked = servers.urls()
    assert sorted(set(asked)) == sorted(asked), "each address once, whatever the times"
    assert not [url for url in asked if ".." in url], "a time of a stranger's lock is no part of an address"
    assert {tries for method, _, tries in servers.asked if method == "size"} == {2}
    assert QUESTION not in asked, "one server has it"


def test_address_that_says_more_than_the_one_before_counts(servers, looking):
    servers.answers[ON_MIRROR] = 403
    assert sightings(looking().look(BASH, [""]))["mirror", "mirror"] == (False, "does not have it")
    servers.answers |= {ON_MIRROR: 404, TWIN_ON_MIRROR: 403}
    assert sightings(looking().look(BASH, [""]))["mirror", "mirror"] == (False, "does not have it")


def test_snapshot_service_is_not_asked_by_name_where_there_is_none(servers, looking):
    found = sightings(looking(DEBIAN_SNAPSHOT="none").look(BASH, [LISTED]))
    assert {kind for kind, _ in found} == {"mirror"}
    assert not [url for url in servers.urls() if "/mr/" in url]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (404, (False, "does not have it")),
        (403, (None, "HTTP 403")),
        ("no JSON", (None, "an answer that is not understood")),
        (json.dumps({"result": [{"hash": "1" * 40, "architecture": "arm64"}]}), (False, "does not have it")),
    ],
)
def test_answer_of_the_snapshot_service_by_name_goes_over_what_its_addresses_said(servers, looking, answer, expected):
    """Under its hash it may have a file that it has at no address of the time: then nothing is known."""
    servers.answers[QUESTION] = answer
    assert sightings(looking().look(BASH, [LISTED]))["snapshot", "snapshot"] == expected


@pytest.mark.parametrize("answer", [404, json.dumps({"result": []})])
def test_silent_address_of_the_snapshot_service_stays_unknown_whatever_it_says_by_name(servers, looking, answer):
    servers.answers[QUESTION] = answer
    look = looking()
    look.look(BASH, [LISTED])
    servers.answers |= {url: 403 for url in servers.urls() if url.startswith(f"{SNAPSHOT}/archive/")}
    assert sightings(look.look(BASH, [LISTED]))["snapshot", "snapshot"] == (None, "HTTP 403")


def test_snapshot_service_without_the_architecture_says_so_of_a_deb_without_a_path(servers, looking):
    servers.answers[QUESTION] = json.dumps({"result": [{"hash": "1" * 40, "architecture": "arm64"}]})
    found = sightings(looking().look(msgspec.structs.replace(BASH, path=""), [LISTED]))
    assert found == {("snapshot", "snapshot"): (False, "has it for no amd64")}


def test_day_on_which_a_file_came_is_the_first_mirrors_that_says_it(servers, looking):
    other = f"{OTHER}/debian-security/{PATH}"
    servers.answers |= {ON_MIRROR: 403, TWIN_ON_MIRROR: "no day", other: MODIFIED}
    assert looking().placed(BASH) == 1795486335.0
    assert {(method, tries) for method, _, tries in servers.asked} == {("HEAD", 2)}
    del servers.answers[other]
    assert looking().placed(BASH) is None
    servers.asked.clear()
    assert looking().placed(msgspec.structs.replace(BASH, path="../../etc/passwd")) is None
    assert servers.asked == []
