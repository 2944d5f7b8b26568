"""Images to Debian's docker-registry: every log-in, and every engine that pulls them."""

import contextlib
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from graphcrate.host.cache import Cache
from graphcrate.model.errors import NetworkError
from graphcrate.model.plan import ConfigStep
from graphcrate.oci import spec
from graphcrate.oci.credentials import Credential
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import write_layout
from tests.conftest import ROOT, program
from tests.engines import fault_proxy, tiny
from tests.engines.daemons import MACHINE, registry_server
from tests.engines.pushing import LOGIN, MIB, blob_bytes, check, random_layout, send

pytestmark = [pytest.mark.slow, pytest.mark.engine("docker-registry")]


@pytest.fixture(scope="module")
def layout(ground):
    return random_layout(ground / "pushed")


@pytest.mark.parametrize("form", ["oci", "docker"])
def test_plain(registry, layout, form):
    names = f"team/plain-{form}:v1", f"team/mounted-{form}:v1"
    pushed = send(registry, layout, names[0], form=form)
    check(registry, names[0], layout, pushed)
    assert pushed.bytes_sent - blob_bytes(layout) < 2000
    again = send(registry, layout, names[0], form=form)
    assert again.bytes_sent < 2000
    assert again.bytes_there == blob_bytes(layout)
    mounted = send(registry, layout, names[1], form=form, mount_from=["team/none", names[0].partition(":")[0]])
    assert mounted.bytes_mounted == blob_bytes(layout)
    assert mounted.bytes_sent < 2000


def test_who_does_not_ask_for_the_oci_form_gets_dockers(registry, layout):
    """enroot's first request names no OCI type; this registry turns Docker's form into an older one for it."""
    answers = {}
    for form in ("docker", "oci"):
        send(registry, layout, f"team/enroot:{form}", form=form)
        for accept in ("*/*", f"{spec.DOCKER_MANIFEST}, {spec.DOCKER_INDEX}"):
            url = f"http://{registry}/v2/team/enroot/manifests/{form}"
            asked = urllib.request.Request(url, method="HEAD", headers={"Accept": accept})
            try:
                with urllib.request.urlopen(asked) as answer:
                    answers[form, accept] = answer.status, answer.headers["Content-Type"]
            except urllib.error.HTTPError as error:
                answers[form, accept] = error.code, ""
    assert [status for status, _ in answers.values()] == [200, 200, 404, 404]
    assert answers["docker", f"{spec.DOCKER_MANIFEST}, {spec.DOCKER_INDEX}"][1] == spec.DOCKER_MANIFEST


def test_basic(basic_registry, layout):
    pushed = send(basic_registry, layout, "team/basic:v1", login=LOGIN)
    check(basic_registry, "team/basic:v1", layout, pushed, LOGIN)
    for wrong in (None, Credential(user=LOGIN.user, password="wrong")):
        with pytest.raises(NetworkError, match="refuses access"):
            send(basic_registry, layout, "team/basic:v1", login=wrong)


def test_tokens(token_registry, tokens, layout):
    pushed = send(token_registry, layout, "team/bearer:v1", login=LOGIN)
    check(token_registry, "team/bearer:v1", layout, pushed, LOGIN)
    pushed = send(token_registry, layout, "team/sister:v1", login=LOGIN, mount_from=["team/secret", "team/bearer"])
    assert pushed.bytes_mounted == blob_bytes(layout)
    check(token_registry, "team/sister:v1", layout, pushed, LOGIN)
    with pytest.raises(NetworkError, match="refuses access"):
        send(token_registry, layout, "team/secret:v1", login=LOGIN)
    assert {told for _, told in tokens.asked} == {LOGIN.basic}


def test_tls(scratch, authority, layout):
    tls = authority.certificate, authority.key
    with registry_server(scratch, tls=tls) as address, fault_proxy.tunnel(address) as proxy:
        environment = {"https_proxy": proxy, "SSL_CERT_FILE": str(authority.bundle)}
        pushed = send("registry.test", layout, "team/tls:v1", environment=environment)
        assert pushed.bytes_sent > blob_bytes(layout)
        again = send("registry.test", layout, "team/tls:v1", environment=environment)
        assert again.bytes_sent == 0
        with pytest.raises(NetworkError, match="certificate is not trusted"):
            send("registry.test", layout, "team/tls:v1", environment={"https_proxy": proxy})


MEMORY = r"""
import re, sys
from pathlib import Path
from graphcrate.host.http import Client
from graphcrate.host.progress import Silent
from graphcrate.oci import push, reference
from graphcrate.oci.layout import read_layout
pushed = push.push_layout(read_layout(Path(sys.argv[1])), reference.parse(sys.argv[2]), form="oci",
    client=Client({}), find_credential=lambda: None, progress=Silent())
most = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]  # ru_maxrss is the parent's, too
print(pushed.bytes_sent, int(most) << 10)
"""


@pytest.mark.weekly
def test_memory_does_not_grow_with_layers(scratch):
    """Four layers of 100 MiB go at once."""
    large = random_layout(scratch / "large", [100 * MIB + number for number in range(4)])
    with registry_server(scratch) as address:
        command = [sys.executable, "-c", MEMORY, large.path, f"{address}/team/large:v1"]
        sent, memory = map(int, subprocess.check_output(command, cwd=ROOT).split())
    assert sent > blob_bytes(large)
    assert memory < 128 * MIB


@pytest.fixture(scope="module")
def tiny_layout(ground):
    """This machine's shell, as an image that says a word."""
    cache = Cache(ground / "tiny-cache")
    base = tiny.base(cache)
    config = ConfigStep(environment=base.environment, labels={}, command=("sh", "-c", "echo alive"))
    return write_layout(ground / "tiny", make_image(base.layers, config, 1_700_000_000), cache.blob, "1.0")


@pytest.fixture(scope="module", params=["oci", "docker"])
def pulled(request, registry, tiny_layout):
    """What engines pull, in both forms: `host:port/repository:tag`."""
    name = f"team/tiny-{request.param}:1.0"
    send(registry, tiny_layout, name, form=request.param)
    return f"{registry}/{name}"


def call(*command, environment=None):
    finished = subprocess.run(
        [program(command[0]), *map(str, command[1:])],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.engine("docker daemon")
def test_docker_pulls_and_runs_it(docker, pulled):
    name = pulled.replace("127.0.0.1", MACHINE)
    call("docker", "--host", docker, "pull", "--quiet", name)
    assert call("docker", "--host", docker, "run", "--rm", "--network", "none", name) == "alive\n"


@pytest.mark.engine("podman", "runc", "root")
def test_podman_pulls_and_runs_it(podman, pulled):
    call("podman", "pull", "--quiet", "--tls-verify=false", pulled, environment=podman)
    assert call("podman", "run", "--rm", "--network", "none", pulled, environment=podman) == "alive\n"


@pytest.mark.engine("skopeo")
def test_skopeo_copies_it(pulled, scratch, tiny_layout):
    call("skopeo", "copy", "--insecure-policy", "--src-tls-verify=false", f"docker://{pulled}", f"dir:{scratch}/copy")
    for layer in tiny_layout.layers:
        copied = scratch / "copy" / layer.digest.removeprefix("sha256:")
        assert copied.read_bytes() == tiny_layout.blob(layer.digest).read_bytes()


@pytest.mark.engine("apptainer build")
def test_apptainer_pulls_and_runs_it(apptainer, pulled, scratch):
    environment = {**apptainer, "APPTAINER_NOHTTPS": "1"}
    call("apptainer", "--silent", "pull", scratch / "image.sif", f"docker://{pulled}", environment=environment)
    with contextlib.chdir(scratch):
        assert call("apptainer", "--silent", "run", scratch / "image.sif", environment=environment) == "alive\n"
