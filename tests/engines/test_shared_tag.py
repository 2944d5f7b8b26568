"""One tag for amd64 and arm64 on Debian's docker-registry: what each engine takes of it, and what graphcrate reads.

No program of the arm64 image is run here: a file in it says which one it is.
"""

import json

import pytest

from graphcrate.model.plan import ConfigStep
from graphcrate.model.platform import AMD64, ARM64
from graphcrate.oci import push
from graphcrate.oci.image import make_image, recorded
from graphcrate.oci.layout import write_layout
from graphcrate.publish import shared_tag
from ocilayout.layer import LayerWriter
from ociregistry.repository import Document
from sifsquash import sif
from tests.conftest import ROOT
from tests.engines import tiny
from tests.engines.daemons import MACHINE
from tests.engines.pushing import opened, send
from tests.engines.workplace import Workplace, call

pytestmark = [pytest.mark.slow, pytest.mark.engine("docker-registry")]
NAME = "team/both"


def image(cache, folder, platform):
    """This machine's shell, and a file that says the platform."""
    base = tiny.base(cache)
    with cache.folder() as scratch:
        with (scratch / "layer").open("wb") as stream:
            writer = LayerWriter(stream, 1)
            writer.data("etc/which", f"{platform.architecture}\n".encode(), 0o644)
            record = recorded(writer.finish(), "which")
        cache.adopt(scratch / "layer", cache.blob(record.digest))
    labels = {"org.opencontainers.image.title": "both", "graphcrate.cuda": "13.0"}
    config = ConfigStep(environment=base.environment, labels=labels, command=("cat", "/etc/which"))
    made = make_image([*base.layers, record], config, 1_700_000_000, platform=platform)
    return write_layout(folder / platform.architecture / "oci", made, cache.blob, "1.0")


@pytest.fixture(scope="module", params=["docker", "oci"])
def both(request, registry, ground, cache):
    """A tag that has an image for each platform, the manifests in this form: `host:port/repository:tag`."""
    tag = request.param
    for platform in (ARM64, AMD64):
        layout = image(cache, ground / tag, platform)
        send(registry, layout, f"{NAME}:{tag}{platform.suffix or '-amd64'}", form=tag)
        data, media_type = push.manifest_of(layout, tag)
        target, own = opened(registry, f"{NAME}:{tag}"), Document(data=data, media_type=media_type)
        tagged = shared_tag.TaggedImage(own, platform, layout.config)
        held = shared_tag.put(target, tag, tagged, lambda _: None, replace=False)
    assert held.images.platforms == (AMD64.name, ARM64.name)
    return f"{registry}/{NAME}:{tag}"


@pytest.mark.engine("docker daemon")
def test_docker_takes_its_machines_image_of_an_index_or_the_one_it_is_told(docker, both):
    reference = both.replace("127.0.0.1", MACHINE)
    start = ("docker", "--host", docker)
    assert call(*start, "run", "--rm", "--network", "none", "--pull", "always", reference) == "amd64\n"
    call(*start, "pull", "--quiet", "--platform", ARM64.name, reference)
    shown = call(*start, "image", "inspect", "--format", "{{.Architecture}}", reference)
    assert shown == "arm64\n"


@pytest.mark.engine("podman", "runc", "root")
def test_podman_takes_its_machines_image_of_an_index_or_the_one_it_is_told(podman, both):
    pull = ("podman", "pull", "--quiet", "--tls-verify=false")
    call(*pull, both, environment=podman)
    assert call("podman", "run", "--rm", "--network", "none", both, environment=podman) == "amd64\n"
    call(*pull, "--arch", "arm64", both, environment=podman)
    shown = call("podman", "image", "inspect", "--format", "{{.Architecture}}", both, environment=podman)
    assert shown == "arm64\n"


@pytest.mark.engine("apptainer build")
def test_apptainer_takes_its_machines_image_of_an_index_or_the_one_it_is_told(apptainer, both, scratch):
    environment = {**apptainer, "APPTAINER_NOHTTPS": "1"}
    run = ("apptainer", "--silent", "run", f"docker://{both}")
    assert call(*run, environment=environment, folder=scratch) == "amd64\n"
    pull = ("apptainer", "--silent", "pull", "--arch", "arm64", "arm64.sif", f"docker://{both}")
    call(*pull, environment=environment, folder=scratch)
    file = scratch / "arm64.sif"
    assert call("unsquashfs", "-o", sif.root_offset(file), "-cat", file, "etc/which") == "arm64\n"


@pytest.fixture(scope="module")
def place(ground):
    return Workplace(ROOT, ground / "check-cache", {})


@pytest.fixture
def check(place):
    """`build.py check` of what a registry has: what the contract `platform` saw."""

    def run(*arguments):
        done = place.run("check", *arguments, "--only", "platform", "--runtime", "docker", "--json")
        assert done.code == 0, done.err
        found = json.loads(done.out)["runtimes"]["findings"]
        return next(finding["seen"] for finding in found if finding["check"] == "platform")

    return run


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        (("--gpu", "gh200"), ARM64.name),
        (("--gpu", "a100"), AMD64.name),
        (("--platform", "arm64"), ARM64.name),
        (("--platform", "linux/amd64"), AMD64.name),
        ((), AMD64.name),
    ],
)
def test_check_reads_the_image_for_the_gpus_machines(both, check, asked, seen):
    assert check(both, *asked) == seen


@pytest.mark.engine("skopeo")
def test_convert_takes_the_platform_asked_for_of_a_copied_index(both, place, scratch):
    folder = scratch / "copied"
    call(
        "skopeo", "copy", "--insecure-policy", "--src-tls-verify=false", "--all", f"docker://{both}", f"oci:{folder}:x"
    )
    for platform in (AMD64, ARM64):
        file = scratch / f"{platform.architecture}.sqsh"
        done = place.run("convert", folder, "--to", "sqsh", "--output", file, "--platform", platform.name)
        assert done.code == 0, done.err
        assert call("unsquashfs", "-cat", file, "etc/which") == f"{platform.architecture}\n"
    done = place.run("run", folder, "--platform", "amd64", "--", "cat", "/etc/which")
    assert (done.code, done.out) == (0, "amd64\n"), done.err
