"""A SIF in Debian's docker-registry, pulled and run by the real Apptainer."""

import json
import os
import subprocess
from types import SimpleNamespace

import pytest

from graphcrate.artifacts import convert
from graphcrate.host.cache import Cache
from graphcrate.host.http import Client
from graphcrate.host.progress import Silent
from graphcrate.oci import reference
from graphcrate.publish.destinations import oras
from tests.conftest import program
from tests.engines import tricky
from tests.engines.pushing import LOGIN
from tests.engines.workplace import call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine("docker-registry", "apptainer build", "unsquashfs", "root"),
]


@pytest.fixture(scope="module")
def sif(ground):
    """A small image as a SIF."""
    folder = ground / "oras"
    folder.mkdir()
    cache = Cache(folder / "cache")
    layout = tricky.layout(folder / "tricky" / "1.0" / "oci", cache)
    place = SimpleNamespace(cache=cache, progress=Silent(), environment=dict(os.environ))
    request = convert.Request(ref=str(layout.path), to="sif", output=folder / "made.sif")
    yield folder / convert.convert(request, place).path
    cache.close()


def push(address, sif, name, login=None):
    return oras.push_sif(
        sif,
        reference.parse(f"{address}/{name}"),
        client=Client({}),
        find_credential=lambda: login,
        progress=Silent(),
    )


def test_apptainer_pulls_the_very_file_and_runs_it(registry, sif, apptainer, scratch):
    push(registry, sif, "team/tricky:1.0")
    pulled = scratch / "pulled.sif"
    call("apptainer", "pull", "--no-https", pulled, f"oras://{registry}/team/tricky:1.0", environment=apptainer)
    assert pulled.read_bytes() == sif.read_bytes()
    assert call("apptainer", "run", pulled, environment=apptainer).strip() == "the command"


def test_apptainer_runs_it_from_there(registry, sif, apptainer):
    push(registry, sif, "team/tricky:2.0")
    done = call("apptainer", "exec", "--no-https", f"oras://{registry}/team/tricky:2.0", "hello", environment=apptainer)
    assert done.strip() == "hello"


def test_what_apptainer_pushes_itself_is_there_already(registry, sif, apptainer):
    """Its own push has the same layer and config: nothing is left to send but the manifest."""
    call("apptainer", "push", "--no-https", sif, f"oras://{registry}/team/theirs:1", environment=apptainer)
    pushed = push(registry, sif, "team/theirs:2")
    assert pushed.bytes_there == sif.stat().st_size + 2
    assert pushed.bytes_sent < 1000


def test_skopeo_reads_the_manifest(registry, sif):
    pushed = push(registry, sif, "team/tricky:3.0")
    command = [program("skopeo"), "inspect", "--tls-verify=false", "--raw", f"docker://{registry}/team/tricky:3.0"]
    raw = subprocess.run(command, check=True, capture_output=True).stdout
    assert json.loads(raw)["layers"][0]["mediaType"] == oras.LAYER
    assert json.loads(raw)["mediaType"] == pushed.media_type


def test_a_registry_with_a_login_gets_it_and_apptainer_takes_it_back(basic_registry, sif, apptainer, scratch):
    push(basic_registry, sif, "team/tricky:1.0", LOGIN)
    environment = {
        **apptainer,
        "APPTAINER_DOCKER_USERNAME": LOGIN.user,
        "APPTAINER_DOCKER_PASSWORD": LOGIN.password,
    }
    pulled = scratch / "pulled.sif"
    call("apptainer", "pull", "--no-https", pulled, f"oras://{basic_registry}/team/tricky:1.0", environment=environment)
    assert pulled.read_bytes() == sif.read_bytes()
