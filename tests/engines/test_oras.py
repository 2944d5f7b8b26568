"""A SIF in Debian's docker-registry, pulled and run by the real Apptainer."""

import os
from hashlib import sha256
from types import SimpleNamespace

import pytest

from graphcrate.artifacts import convert
from graphcrate.host.http import Client
from graphcrate.host.progress import Progress
from graphcrate.oci import push, reference
from graphcrate.oci.registry import Repository
from graphcrate.publish.destinations import oras
from tests.engines import tricky
from tests.engines.pushing import LOGIN
from tests.engines.workplace import call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine("docker-registry", "apptainer build", "unsquashfs", "root"),
]


@pytest.fixture(scope="module")
def sif(ground, cache):
    """A small image as a SIF."""
    folder = ground / "oras"
    layout = tricky.layout(folder / "tricky" / "1.0" / "oci", cache)
    place = SimpleNamespace(cache=cache, progress=Progress(), environment=dict(os.environ))
    request = convert.Request(ref=str(layout.path), to="sif", output=folder / "made.sif")
    return folder / convert.convert(request, place).path


def pushed(address, sif, name, login=None):
    where = reference.parse(f"{address}/{name}")
    target = Repository(Client({}), where, lambda: login, writes=True)
    done = oras.push_sif(sif, sha256(sif.read_bytes()).hexdigest(), where, target, Progress(), {})
    push.put_manifest(target, where.tag, target.manifest(done.digest).data, done.media_type)
    return done


@pytest.mark.parametrize("login", [None, LOGIN], ids=["open", "login"])
def test_apptainer_pulls_the_very_file_and_runs_it(request, sif, apptainer, scratch, login):
    address = request.getfixturevalue("basic_registry" if login else "registry")
    pushed(address, sif, "team/tricky:1.0", login)
    told = {"APPTAINER_DOCKER_USERNAME": login.user, "APPTAINER_DOCKER_PASSWORD": login.password} if login else {}
    url, pulled = f"oras://{address}/team/tricky:1.0", scratch / "pulled.sif"
    call("apptainer", "pull", "--no-https", pulled, url, environment={**apptainer, **told})
    assert pulled.read_bytes() == sif.read_bytes()
    assert call("apptainer", "exec", "--no-https", url, "hello", environment={**apptainer, **told}).strip() == "hello"


def test_what_apptainer_pushes_itself_is_there_already(registry, sif, apptainer):
    """Its own push has the same layer and config: nothing is left to send but the manifest."""
    call("apptainer", "push", "--no-https", sif, f"oras://{registry}/team/theirs:1", environment=apptainer)
    found = pushed(registry, sif, "team/theirs:2")
    assert found.bytes_there == sif.stat().st_size + 2
    assert found.bytes_sent < 1000
