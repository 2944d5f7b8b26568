"""Programs that people have read the image: skopeo and umoci."""

import json

import pytest

from tests.engines.workplace import call

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("user namespaces")]


@pytest.mark.engine("skopeo")
def test_skopeo_sees_the_digest_and_the_labels(built_image):
    seen = json.loads(call("skopeo", "inspect", f"oci:{built_image.reference}"))
    assert seen["Digest"] == built_image.report["digest"]
    assert len(seen["Layers"]) == len(built_image.report["layers"])
    assert seen["Architecture"] == "amd64"
    assert any(variable.startswith("PATH=/opt/venv/bin:") for variable in seen["Env"])
    assert not any(variable.startswith("LD_LIBRARY_PATH=") for variable in seen["Env"])


@pytest.mark.engine("umoci", "unshare", "root")
def test_umoci_unpacks_a_root_file_system_that_imports_torch(built_image, scratch):
    call("umoci", "unpack", "--image", built_image.reference, scratch / "bundle")
    config = json.loads((scratch / "bundle" / "config.json").read_text())
    environment = dict(variable.split("=", 1) for variable in config["process"]["env"])
    enter = 'cd "$0" && mount --rbind /dev dev && mount -t proc proc proc && exec /usr/sbin/chroot . "$@"'
    inside = ["unshare", "--mount", "/bin/sh", "-c", enter, scratch / "bundle" / "rootfs", "/usr/bin/env"]
    program = "import torch; print('torch', torch.__version__, float(torch.ones(3, 3).sum()))"
    told = call(*inside, "python", "-c", program, environment=environment)
    assert f"torch {built_image.report['torch']} 9.0" in told
