"""Findings of `check` in images that real programs made: ours in each form, and a broken one."""

import json

import pytest

from tests.conftest import ROOT
from tests.engines.workplace import Workplace, call

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("mmdebstrap", "skopeo")]

#: As people write them: packages in root's home, a stub of the driver on the way, a script that swallows the command.
BROKEN = r"""
FROM {base}
ENV PATH=/root/venv/bin:$PATH HOME=/root LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs MOTD="see \${{SCRATCH}}"
ENV NVIDIA_DRIVER_CAPABILITIES=utility CUDA_VERSION=12.1.0 NVIDIA_REQUIRE_CUDA=cuda>=12.1
RUN mkdir -p /root/venv/lib/python3.11/site-packages/torch-2.0.1.dist-info \
 && touch /usr/lib/x86_64-linux-gnu/libcuda.so.1 \
 && ln -sfn /usr/share /etc/localtime && printf '#!/bin/sh\npython /app/main.py\n' > /start && chmod 755 /start
VOLUME /data
USER worker
ENTRYPOINT ["/start"]
"""
FAILS = {
    *("entrypoint", "user-known", "library-path", "hidden", "own-driver", "driver", "require-cuda", "path-login"),
    *("visible-devices", "driver-capabilities", "localtime", "volumes", "env-values"),
}


@pytest.fixture(scope="module")
def check(ground):
    """`build.py check`, as a person calls it; returns exit code and status by check."""

    def run(*arguments, environment=None):
        place = Workplace(ROOT, ground / "check-cache", environment or {})
        finished = place.run("check", *arguments, "--only", "runtimes", "--json")
        assert finished.code in (0, 14), finished.err
        findings = json.loads(finished.out)["runtimes"]["findings"]
        return finished.code, {finding["check"]: finding["status"] for finding in findings}

    return run


def with_status(found, *statuses):
    return {name for name, status in found.items() if status in statuses}


def test_our_image_keeps_all_contracts_in_every_form(check, built_image, scratch):
    code, found = check(built_image.layout, "--kernel", "3.10", "--gpu", "v100")
    assert (code, with_status(found, "fail", "warn")) == (14, {"gpu", "notebook"})  # torch for the CPU
    code, found = check(built_image.layout)
    assert (code, with_status(found, "fail", "warn")) == (0, {"notebook"})
    recorded = {finding["check"]: finding["status"] for finding in built_image.report["contracts"]}
    assert recorded == found, "what a build finds without reading wheels is what is there"
    for form in ("docker-archive", "oci-archive"):
        call("skopeo", "copy", "--insecure-policy", f"oci:{built_image.reference}", f"{form}:{scratch}/{form}:a:b")
        code, copied = check(f"{form}:{scratch}/{form}")
        assert code == 0
        assert {name for name in found if copied[name] != found[name]} <= {"manifest-type"}


@pytest.mark.engine("apptainer build")
def test_apptainers_sif_of_our_image_keeps_its_contracts(check, built_image, apptainer, scratch):
    call("apptainer", "build", scratch / "ours.sif", f"oci:{built_image.layout}", environment=apptainer)
    code, found = check(scratch / "ours.sif", "--kernel", "3.10")
    assert (code, with_status(found, "fail", "warn")) == (0, set())
    assert found["entrypoint"] == found["user-site"] == found["squashfs"] == found["etc"] == "pass"
    assert "notebook" not in found
    assert check(scratch / "ours.sif", "--runtime", "docker")[1]["layered"] == "fail"


@pytest.mark.engine("docker daemon")
def test_check_of_a_broken_image_fails_alike_in_docker_and_its_archive(check, docker, docker_base, scratch):
    (scratch / "Dockerfile").write_text(BROKEN.format(base=docker_base))
    call("docker", "--host", docker, "build", "--tag", "broken:1", scratch)
    old_host = ("--driver", "470.82.01")
    code, found = check("docker:broken:1", *old_host, environment={"DOCKER_HOST": docker})
    assert (code, with_status(found, "fail")) == (14, FAILS)
    assert found["home"] == found["user"] == found["skipped-entrypoint"] == "warn"
    call("docker", "--host", docker, "save", "--output", scratch / "saved.tar", "broken:1")
    assert check(scratch / "saved.tar", *old_host)[1] == found
