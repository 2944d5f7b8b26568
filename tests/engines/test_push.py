"""Images to Debian's docker-registry: every log-in, every engine that pulls them, and what goes wrong on the way.

What arrives is whole, and what is secret stays where it is.
"""

import logging
import subprocess
import sys

import pytest

from graphcrate.model.errors import NetworkError
from graphcrate.model.plan import ConfigStep
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import write_layout
from ociregistry.credentials import Credential
from tests.conftest import ROOT
from tests.engines import tiny
from tests.engines.daemons import MACHINE, registry_server
from tests.engines.fault_proxy import FaultProxy, first, seeded, tunnel
from tests.engines.pushing import LOGIN, MIB, blob_bytes, check, random_layout, send
from tests.engines.workplace import call

pytestmark = [pytest.mark.slow, pytest.mark.engine("docker-registry")]


@pytest.fixture(scope="module")
def layout(ground):
    return random_layout(ground / "pushed")


@pytest.mark.parametrize("form", ["oci", "docker"])
def test_second_push_sends_no_layers_and_mounts_those_of_other_names(registry, layout, form):
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


def test_registry_with_basic_authentication_takes_the_right_password_only(basic_registry, layout):
    pushed = send(basic_registry, layout, "team/basic:v1", login=LOGIN)
    check(basic_registry, "team/basic:v1", layout, pushed, LOGIN)
    for wrong in (None, Credential(user=LOGIN.user, password="wrong")):
        with pytest.raises(NetworkError, match="refuses access"):
            send(basic_registry, layout, "team/basic:v1", login=wrong)


def test_registry_with_tokens_takes_the_login_and_mounts_what_it_may_read(token_registry, tokens, layout):
    pushed = send(token_registry, layout, "team/bearer:v1", login=LOGIN)
    check(token_registry, "team/bearer:v1", layout, pushed, LOGIN)
    pushed = send(token_registry, layout, "team/sister:v1", login=LOGIN, mount_from=["team/secret", "team/bearer"])
    assert pushed.bytes_mounted == blob_bytes(layout)
    check(token_registry, "team/sister:v1", layout, pushed, LOGIN)
    with pytest.raises(NetworkError, match="refuses access"):
        send(token_registry, layout, "team/secret:v1", login=LOGIN)
    assert {told for _, told in tokens.asked} == {LOGIN.basic}


def test_push_through_a_proxy_needs_the_registrys_certificate_authority(scratch, authority, layout):
    tls = authority.certificate, authority.key
    with registry_server(scratch, tls=tls) as address, tunnel(address) as proxy:
        environment = {"https_proxy": proxy, "SSL_CERT_FILE": str(authority.bundle)}
        pushed = send("registry.test", layout, "team/tls:v1", environment=environment)
        assert pushed.bytes_sent > blob_bytes(layout)
        with pytest.raises(NetworkError, match="certificate is not trusted"):
            send("registry.test", layout, "team/tls:v1", environment={"https_proxy": proxy})


MEMORY = r"""
import re, sys
from pathlib import Path
from graphcrate.host.net import Client
from graphcrate.host.progress import Progress
from graphcrate.oci import push, reference
from graphcrate.oci.layout import read_layout
from graphcrate.oci.registry import Repository
target = Repository(Client({}), reference.parse(sys.argv[2]), writes=True)
pushed = push.push_layout(target, read_layout(Path(sys.argv[1])), "oci", Progress())
most = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]  # ru_maxrss is the parent's, too
print(pushed.bytes_sent, int(most) << 10)
"""


@pytest.mark.weekly
def test_push_of_400_mib_takes_less_than_128_mib_of_memory(scratch):
    """Four layers of 100 MiB go at once."""
    large = random_layout(scratch / "large", [100 * MIB + number for number in range(4)])
    with registry_server(scratch) as address:
        command = [sys.executable, "-c", MEMORY, large.path, f"{address}/team/large:v1"]
        sent, memory = map(int, subprocess.check_output(command, cwd=ROOT).split())
    assert sent > blob_bytes(large)
    assert memory < 128 * MIB


# Engines pull


@pytest.fixture(scope="module")
def tiny_layout(ground, cache):
    """This machine's shell, as an image that says a word."""
    base = tiny.base(cache)
    config = ConfigStep(environment=base.environment, labels={}, command=("sh", "-c", "echo alive"))
    return write_layout(ground / "tiny", make_image(base.layers, config, 1_700_000_000), cache.blob, "1.0")


@pytest.fixture(scope="module", params=["oci", "docker"])
def pulled(request, registry, tiny_layout):
    """The references that engines pull, in both forms: `host:port/repository:tag`."""
    name = f"team/tiny-{request.param}:1.0"
    send(registry, tiny_layout, name, form=request.param)
    return f"{registry}/{name}"


@pytest.mark.engine("docker daemon")
def test_pushed_image_runs_in_docker(docker, pulled):
    run = ("docker", "--host", docker, "run", "--rm", "--network", "none", "--pull", "always")
    assert call(*run, pulled.replace("127.0.0.1", MACHINE)) == "alive\n"


@pytest.mark.engine("podman", "runc", "root")
def test_pushed_image_runs_in_podman(podman, pulled):
    call("podman", "pull", "--quiet", "--tls-verify=false", pulled, environment=podman)
    assert call("podman", "run", "--rm", "--network", "none", pulled, environment=podman) == "alive\n"


@pytest.mark.engine("apptainer build")
def test_pushed_image_runs_in_apptainer(apptainer, pulled, scratch):
    environment = {**apptainer, "APPTAINER_NOHTTPS": "1"}
    run = ("apptainer", "--silent", "run", f"docker://{pulled}")
    assert call(*run, environment=environment, folder=scratch) == "alive\n"


@pytest.mark.engine("apptainer build", "user namespaces")
def test_pushed_image_runs_without_an_engine_and_as_a_sif_of_ours(apptainer, workplace, pulled, scratch):
    assert workplace.run("run", f"docker://{pulled}").ok().out == "alive\n"
    workplace.run("convert", pulled, "--to", "sif", "--output", scratch / "tiny.sif").ok()
    assert call("apptainer", "--silent", "run", "tiny.sif", environment=apptainer, folder=scratch) == "alive\n"


# What goes wrong


@pytest.mark.parametrize("fault", ["lost", "cut"])
@pytest.mark.parametrize(("method", "part"), [("PATCH", ""), ("PUT", "uploads")])
def test_a_registry_that_got_more_than_we_know_of(registry, layout, fault, method, part):
    """docker-registry 2.8 forgets the upload; so it begins again."""
    name = f"team/noticed-{fault}-{method.lower()}:v1"
    with FaultProxy(registry, first(fault, method, part, times=2)) as between:
        pushed = send(between.address, layout, name)
        assert between.faults == [fault] * 2
    check(registry, name, layout, pushed)


def test_failing_pushes_print_log_and_raise_no_password(token_registry, basic_registry, layout, ground, capfd, caplog):
    """In nothing that is printed, logged or raised."""
    caplog.set_level(logging.DEBUG)
    raised, other = [], random_layout(ground / "other", [3 * MIB], seed=9)
    for registry, name in ((token_registry, "team/bearer:v9"), (basic_registry, "team/basic:v9")):
        with FaultProxy(registry, seeded(3)) as between:
            send(between.address, layout, name, login=LOGIN)
        for fault, method in (("503", "PATCH"), ("500 late", "PUT")):
            with FaultProxy(registry, first(fault, method, times=999)) as between:
                with pytest.raises(NetworkError) as caught:
                    send(between.address, other, name, login=LOGIN)
            assert not [one for one in between.seen if one.method == "PUT" and "manifests" in one.path]
            raised += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
    printed = capfd.readouterr()
    texts = "\n".join([*raised, printed.out, printed.err, caplog.text])
    assert len(raised) == 12
    for secret in LOGIN.secrets:
        assert secret not in texts
    assert "eyJ" not in texts, "the beginning of each JSON web token"
