"""`publish` and `verify`: the small real image to a real registry and from there into an engine; what keeps it back."""

import dataclasses
import json

import pytest

from tests.engines.workplace import call

pytestmark = [pytest.mark.slow, pytest.mark.engine("docker-registry")]
PASSWORD = {"COSIGN_PASSWORD": "canary-c0ffee"}


@pytest.fixture(scope="module")
def published(workplace, built_image, registry):
    return workplace.run("publish", built_image.layout, "--to", f"{registry}/team", "--tag", "latest", "--json").json


def test_it_is_there_under_its_tags_and_said_to_whom_it_concerns(published, built_image, registry):
    tag = built_image.report["tag"]
    assert published["reference"] == f"{registry}/team/torch:{tag}"
    assert published["tags"] == [tag, "latest"]
    assert published["form"] == "docker"  # which enroot can pull, too
    assert published["lines"]["srun"].startswith(f"srun --container-image='{registry}#team/torch:{tag}' ")
    assert len(published["proofs"]) == 1
    assert not published["cpu_only"]  # it is for the CPU


def test_layers_that_are_there_are_not_sent_again(workplace, built_image, published, registry):
    again = workplace.run("publish", built_image.layout, "--to", f"{registry}/team", "--json").json
    assert (again["digest"], again["proofs"]) == (published["digest"], published["proofs"])
    assert again["bytes_sent"] < 2000
    options = ("--to", f"{registry}/other/mine:v1", "--mount-from", "team/torch", "--json")
    other = workplace.run("publish", built_image.layout, *options).json
    assert other["reference"] == f"{registry}/other/mine:v1"
    assert other["bytes_sent"] < 2000
    assert other["bytes_mounted"] > 100 * other["bytes_sent"]


def test_what_is_said_of_it_holds(workplace, built_image, published):
    options = built_image.request
    wheels = options[options.index("--wheels") :][:2] if "--wheels" in options else ()
    checked = workplace.run("verify", published["reference"], "--rebuild", *wheels, "--json")
    assert checked.code == 0, checked.err
    found = {check["what"]: check for check in checked.json["checks"]}
    assert set(found) == {"bill of materials", "provenance", "smoke suites", "contracts", "audit", "rebuild"}
    assert all(check["ok"] for check in found.values())
    assert "not signed" in found["audit"]["said"]
    assert found["rebuild"]["said"] == "built again, the same bytes"


def test_a_shared_folder(workplace, built_image, scratch):
    shared, tag = scratch / "shared", built_image.report["tag"]

    def publish(*options):
        quick = ("--to", shared, "--compression", "zstd")
        return workplace.run("publish", built_image.layout, *quick, *options, "--json").json

    made = publish("--as", "sif", "--as", "sqsh")
    kinds = ("sif", "sqsh")
    assert {path.name for path in shared.iterdir()} == {
        f"torch-{tag}.proofs",
        *(f"torch.{kind}" for kind in kinds),
        *(f"torch-{tag}.{kind}{end}" for kind in kinds for end in ("", ".sha256")),
    }
    call("sha256sum", "--check", "--quiet", f"torch-{tag}.sif.sha256", folder=shared)
    assert made["lines"]["singularity"].startswith(f"singularity run {shared}/torch.sif python ")
    before = (shared / f"torch-{tag}.sif").stat().st_ino
    assert publish()["digest"] == made["digest"]
    assert (shared / f"torch-{tag}.sif").stat().st_ino == before


def test_a_site_without_a_network(workplace, built_image, scratch):
    """What `publish` prints puts the archive where every command takes the image by its name."""
    made = workplace.run("publish", built_image.layout, "--to", scratch, "--as", "oci-archive", "--json").json
    command = made["lines"]["elsewhere"].partition("    (")[0]
    call("sh", "-ec", command, folder=scratch)
    name, tag = "torch", built_image.report["tag"]
    there = scratch / "dist" / name / tag
    assert workplace.run("validate", f"{name}:{tag}", "--output", scratch / "dist").code == 0
    assert json.loads((there / "report.json").read_text())["digest"] == built_image.report["digest"]
    proofs = scratch / f"{name}-{tag}.proofs"
    provenance = json.loads((proofs / "provenance.json").read_text())
    assert f"sha256:{provenance['subject'][0]['digest']['sha256']}" == built_image.report["digest"]
    bill = json.loads((proofs / "bill-of-materials.json").read_text())["predicate"]
    python = [part for part in bill["components"] if part.get("purl", "").startswith("pkg:pypi/")]
    unknown = {part["name"] for part in python if part.get("scope") != "excluded" and not part.get("licenses")}
    assert unknown.isdisjoint({"torch", "numpy"})
    assert len(unknown) < len(python) / 4, unknown


def test_a_signature_and_another_key(workplace, built_image, registry, scratch):
    signer = dataclasses.replace(workplace, environment={**workplace.environment, **PASSWORD})
    for folder in ("ours", "theirs"):
        (scratch / folder).mkdir()
        assert signer.run("keys", "--output", scratch / folder).code == 0
    reference = f"{registry}/signed/torch:1"
    unsigned = workplace.run("publish", built_image.layout, "--to", reference)
    assert unsigned.code == 0, unsigned.err
    key = scratch / "ours/cosign.pub"
    early = workplace.run("verify", reference, "--key", key)
    assert (early.code, early.out.startswith("fail  signature: ")) == (17, True)

    signed = signer.run(
        "publish", built_image.layout, "--to", reference, "--key", scratch / "ours/cosign.key", "--json"
    )
    assert signed.json["signed"] == "key"
    assert PASSWORD["COSIGN_PASSWORD"] not in signed.out + signed.err
    checked = workplace.run("verify", reference, "--key", key)
    assert checked.code == 0, checked.err
    assert {line.split()[0] for line in checked.out.splitlines()} == {"pass"}
    wrong = workplace.run("verify", reference, "--key", scratch / "theirs/cosign.pub")
    assert wrong.code == 17
    assert "another key" in wrong.err
