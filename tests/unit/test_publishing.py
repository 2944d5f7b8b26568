"""publish and verify against a strict registry on loopback: the order of things, and what does not hold is told."""

import json
import shutil
from types import SimpleNamespace

import pytest

from graphcrate import admitting, converting, publishing, verifying
from graphcrate.attest import keyfile
from graphcrate.errors import GateError, IntegrityError, ProofError, ResolutionError, UsageError
from graphcrate.formats import sif
from graphcrate.formats.mksquashfs import Compression
from graphcrate.host.workplace import Workplace
from graphcrate.model.audit import Audit
from graphcrate.model.lock import encode
from graphcrate.model.report import Artifact, BuildReport, SmokeReport
from graphcrate.oci import push
from tests import ROOT
from tests.unit import small_layouts, tars
from tests.unit.test_gate import contract
from tests.unit.writable_registry import WritableRegistry

TAG = "2.0.1-cu117-py311"


@pytest.fixture
def place(tmp_path):
    environment = {"GRAPHCRATE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path), "COSIGN_PASSWORD": "canary"}
    place = Workplace(root=ROOT, environment=environment)
    yield place
    place.cache.close()


@pytest.fixture
def registry():
    with WritableRegistry() as registry:
        yield registry


@pytest.fixture
def folder(tmp_path):
    """An image's folder as a build leaves it, of two small layers and with the committed lock of torch."""
    folder = tmp_path / "dist/torch" / TAG
    folder.mkdir(parents=True)
    layout = small_layouts.layout(folder, [tars.file("a")], [tars.file("b")], tag=TAG)
    report = BuildReport(
        name="torch",
        tag=TAG,
        digest=layout.digest,
        artifact=Artifact(engine="embedded", kind="layout", reference=str(layout.path), digest=layout.digest, bytes=1),
        layout=str(layout.path),
        bytes=1,
        candidate="pypi",
        torch="2.0.1",
        torch_cuda="11.7",
        cuda="11.7",
        python="3.11",
        packages=(),
        smoke=SmokeReport(suite="torch", status="passed", device="Tesla V100", seconds=1.0),
        suites=(SmokeReport(suite="torch", status="passed", device="Tesla V100", seconds=1.0, node="secret-node"),),
        seconds=1.0,
        contracts=(contract("pass"),),
        build_key="key-1",
    )
    audit = Audit(
        subject="torch", form="layout", digest=layout.digest, python="3.11", binaries=1, bytes=1, glibc="", glibcxx="",
        gpus=(), code=(), findings=(), broken=(),
    )  # fmt: skip
    (folder / "report.json").write_bytes(encode(report))
    (folder / "audit.json").write_bytes(encode(audit))
    shutil.copy(ROOT / "images/torch/cu117/pypi.lock.json", folder / "lock.json")
    return folder


@pytest.fixture
def publish(place, registry, folder):
    def run(to="team", **fields):
        request = admitting.Request(ref=str(folder / "oci"), **fields)
        return publishing.publish(request, place, f"{registry.host}/{to}")

    return run


def checks(place, reference, **fields):
    found = verifying.run(verifying.Request(ref=reference, **fields), place)
    return {check.what: (check.ok, check.said) for check in found.checks}


def test_the_tag_is_set_when_all_of_it_is_there(registry, publish):
    found = publish(tags=("latest",))
    puts = [one.path for one in registry.asked if one.method == "PUT" and "/manifests/" in one.path]
    tags = [path.rpartition("/")[2] for path in puts]
    assert tags[-2:] == [TAG, "latest"]
    assert tags[0] == found.digest
    assert all(tag.startswith("sha256:") for tag in tags[:-2])
    assert len(tags) == 1 + len(found.proofs) + 2
    assert found.reference == f"{registry.host}/team/torch:{TAG}"


def test_again_sends_nothing(registry, publish):
    first = publish()
    received = registry.received
    assert publish().digest == first.digest
    assert registry.received == received


def test_what_is_attached_is_about_this_image_and_names_no_machine(place, registry, publish):
    found = publish()
    told = checks(place, found.reference)
    assert set(told) == {"bill of materials", "provenance", "smoke suites", "contracts", "audit"}
    assert set(told.values()) == {(True, "attached, and signed by nobody")}
    assert all(b"secret-node" not in data for data in registry.blobs.values())
    assert any(b'"cpuOnlyAllowed":false' in data for data in registry.blobs.values())


def test_signed_with_a_key(place, publish, registry, tmp_path):
    private, public = keyfile.make_pair(tmp_path, "canary")
    found = publish(signer=admitting.Signer(key=private))
    assert found.signed == "key"
    told = checks(place, found.reference, key=public)
    assert len(told) == 6
    assert all(ok for ok, _ in told.values()), told
    assert all(b"canary" not in data for data in registry.blobs.values())
    (tmp_path / "other").mkdir()
    _, other = keyfile.make_pair(tmp_path / "other", "canary")
    told = checks(place, found.reference, key=other)
    assert not any(ok for ok, _ in told.values()), told
    assert "another key" in told["signature"][1]
    # without a key it is said that nobody looked
    assert "no key was given" in checks(place, found.reference)["audit"][1]


def test_an_image_that_nobody_signed_or_spoke_of(place, registry, publish, tmp_path):
    _, public = keyfile.make_pair(tmp_path, "canary")
    found = publish()
    told = checks(place, found.reference, key=public)
    assert not any(ok for ok, _ in told.values()), told
    registry.documents = {
        path: (kind, data) for path, (kind, data) in registry.documents.items() if "subject" not in json.loads(data)
    }
    told = checks(place, found.reference)
    assert set(told.values()) == {(False, "nothing of the kind is attached to this image")}
    assert len(told) == 5
    with pytest.raises(ResolutionError):
        verifying.run(verifying.Request(ref=f"{registry.host}/team/torch:none"), place)


def test_an_altered_signature_is_told(place, registry, publish, tmp_path):
    private, public = keyfile.make_pair(tmp_path, "canary")
    found = publish(signer=admitting.Signer(key=private))
    for digest, data in list(registry.blobs.items()):
        if b"urn:graphcrate:audit" in data or b"dsseEnvelope" in data:
            registry.blobs[digest] = data.replace(b"a", b"b", 1)
    with pytest.raises(IntegrityError):  # the registry serves other bytes than their digest says
        verifying.run(verifying.Request(ref=found.reference, key=public), place)


def test_nothing_is_sent_of_what_may_not_go_out(registry, publish, folder):
    (folder / "audit.json").unlink()
    with pytest.raises(GateError, match="no audit"):
        publish()
    assert registry.asked == []


def test_an_image_of_nobody_knows_whom(registry, publish, folder):
    (folder / "report.json").unlink()
    with pytest.raises(UsageError, match="not built here"):
        publish()
    assert registry.asked == []


@pytest.mark.parametrize("content", [None, b"{}", b'{"format": 0}', b'{"recipe": "\xff"}'])
def test_an_image_whose_lock_cannot_be_read(registry, publish, folder, content):
    (folder / "lock.json").unlink()
    if content is not None:
        (folder / "lock.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"lock\.json does not say") as caught:
        publish()
    assert "builds it again" in caught.value.next_step
    assert registry.asked == []


@pytest.mark.parametrize("tag", ["x#y", "v 1", "a?b", "", "-x", "team/torch:1.0", f"v@sha256:{'0' * 64}", "x" * 129])
def test_what_is_no_tag_is_refused_before_anything_is_sent(registry, publish, tag):
    with pytest.raises(UsageError, match="is not a tag"):
        publish(tags=("good", tag))
    assert registry.asked == []


@pytest.mark.parametrize(
    ("to", "useless"),
    [
        ("{}/team", {"forms": ("sif",), "kernel": "5.14", "keep": 0, "replace": True}),
        ("{}/team", {"compression": Compression.GZIP}),
        ("acr:cn-hangzhou/team", {"forms": ("sqsh",), "kernel": "5.14", "keep": 3, "replace": True}),
        ("oras://{}/team", {"form": "oci", "mount_from": ("team/other",), "forms": ("sif",), "keep": 3}),
        ("./shelf", {"form": "docker", "mount_from": ("team/other",), "tags": ("latest",)}),
        ("bundle:x.tar", {"tags": ("latest",), "kernel": "5.14", "forms": ("sif",), "form": "oci", "replace": True}),
    ],
)
def test_what_a_destination_has_no_use_for_is_said(place, registry, folder, to, useless):
    for field, value in useless.items():
        request = admitting.Request(ref=str(folder / "oci"), **{field: value})
        with pytest.raises(UsageError, match="does not apply to"):
            publishing.publish(request, place, to.format(registry.host))
    assert registry.asked == []


@pytest.fixture
def on_cpu(folder, monkeypatch):
    """The image has passed on a CPU alone; what Singularity and enroot take of it is made up."""
    report = json.loads((folder / "report.json").read_text())
    for suite in (report["smoke"], *report["suites"]):
        suite["device"] = "cpu"
    (folder / "report.json").write_text(json.dumps(report))

    def converted(order, place):
        path = folder / f"torch.{order.to}"
        path.write_bytes(bytes(sif.MAGIC_OFFSET) + sif.MAGIC if order.to == "sif" else b"hsqs")
        return SimpleNamespace(path=str(path))

    monkeypatch.setattr(converting, "convert", converted)
    return folder


def test_what_went_out_without_a_gpu_says_so_on_a_shelf(place, on_cpu, tmp_path):
    request = admitting.Request(ref=str(on_cpu / "oci"), allow_cpu_only=True, forms=("sif", "sqsh"))
    publishing.publish(request, place, str(tmp_path / "shelf"))
    records = [json.loads(path.read_text()) for path in (tmp_path / "shelf/.graphcrate").iterdir()]
    assert [record["cpu_only"] for record in records] == [True, True]


def test_how_files_are_to_be_compressed_is_handed_on(place, on_cpu, tmp_path, monkeypatch):
    asked, converted = [], converting.convert

    def heard(order, place):
        asked.append((order.to, order.compression, order.kernel))
        return converted(order, place)

    monkeypatch.setattr(converting, "convert", heard)
    wanted = {"forms": ("sif", "sqsh"), "compression": Compression.GZIP, "kernel": "3.10"}
    request = admitting.Request(ref=str(on_cpu / "oci"), allow_cpu_only=True, **wanted)
    publishing.publish(request, place, str(tmp_path / "shelf"))
    assert asked == [("sif", "gzip", "3.10"), ("sqsh", "gzip", "3.10")]


def test_what_went_out_without_a_gpu_says_so_as_oras_under_every_tag(place, on_cpu, registry):
    request = admitting.Request(ref=str(on_cpu / "oci"), allow_cpu_only=True, tags=("latest",))
    found = publishing.publish(request, place, f"oras://{registry.host}/sifs")
    assert (found.tags, found.cpu_only) == ((TAG, "latest"), True)
    for tag in found.tags:
        told = json.loads(registry.documents[f"sifs/torch/manifests/{tag}"][1])
        assert told["annotations"] == {"graphcrate.cpu-only": "true"}


@pytest.mark.parametrize("scheme", ["oras://", ""])
def test_the_users_word_on_token_servers_holds_everywhere(place, on_cpu, registry, monkeypatch, scheme):
    seen, repository = [], push.repository

    def noted(*arguments, **options):
        seen.append(options["trusted_realms"])
        return repository(*arguments, **options)

    monkeypatch.setattr(push, "repository", noted)
    place.environment["REGISTRY_REALMS"] = "tokens.invalid"
    request = admitting.Request(ref=str(on_cpu / "oci"), allow_cpu_only=True)
    publishing.publish(request, place, f"{scheme}{registry.host}/team")
    assert set(seen) == {("tokens.invalid",)}


def test_errors_have_codes_of_their_own():
    assert (GateError.exit_code, ProofError.exit_code) == (16, 17)
