"""publish and verify against a strict registry on loopback: the order of things, and what does not hold is told."""

import json
import shlex
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.artifacts import convert, locate
from graphcrate.artifacts.formats import sif
from graphcrate.artifacts.formats.packed import Compression
from graphcrate.build.pipeline import build_image
from graphcrate.host.context import Context
from graphcrate.model.audit import Audit
from graphcrate.model.errors import GateError, IntegrityError, ProofError, ResolutionError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.report import Artifact, Asked, BuildReport, Fallback, SmokeReport
from graphcrate.oci import push
from graphcrate.publish import policy, verify
from graphcrate.publish import registry as publishing
from graphcrate.publish.attest import keys
from tests import ROOT
from tests.unit import small_layouts, tars
from tests.unit.test_gate import contract
from tests.unit.writable_registry import WritableRegistry

TAG = "2.0.1-cu117-py311"
PROOFS = ("bill-of-materials", "provenance", "suites", "contracts", "audit")


@pytest.fixture
def ctx(tmp_path):
    environment = {"GRAPHCRATE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path), "COSIGN_PASSWORD": "canary"}
    ctx = Context(root=ROOT, environment=environment)
    yield ctx
    ctx.cache.close()


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
def publish(ctx, registry, folder):
    def run(to="team", **fields):
        request = policy.Request(ref=str(folder / "oci"), **fields)
        return publishing.publish(request, ctx, f"{registry.host}/{to}")

    return run


def checks(ctx, reference, **fields):
    found = verify.run(verify.Request(ref=reference, **fields), ctx, build_image)
    return {check.what: (check.ok, check.said) for check in found.checks}


def test_an_image_of_a_recipe_of_ones_own_is_judged_by_the_stack_that_it_extends(folder, publish):
    report = msgspec.json.decode((folder / "report.json").read_bytes(), type=BuildReport)
    mine = msgspec.structs.replace(report, name="mine", asked=Asked(recipe="torch", variant="11.7"))
    (folder / "report.json").write_bytes(encode(mine))
    assert publish().reference.endswith(f"/mine:{TAG}")


def test_cutting_nvidias_libraries_is_said_where_others_can_pull(folder, publish, ctx, monkeypatch):
    notes = []
    monkeypatch.setattr(type(ctx.progress), "note", lambda _, text: notes.append(text), raising=False)
    monkeypatch.setattr(publishing, "is_loopback", lambda _: False)
    report = msgspec.json.decode((folder / "report.json").read_bytes(), type=BuildReport)
    for slim, warned in (("yes", False), ("all", True)):
        cut = msgspec.structs.replace(report, asked=Asked(recipe="torch", variant="11.7", slim=slim))
        (folder / "report.json").write_bytes(encode(cut))
        publish()
        assert any("NVIDIA's own libraries were cut" in note for note in notes) is warned


def test_the_tag_is_set_when_all_of_it_is_there(registry, publish):
    found = publish(tags=("latest",))
    puts = [one.path for one in registry.asked if one.method == "PUT" and "/manifests/" in one.path]
    tags = [path.rpartition("/")[2] for path in puts]
    assert tags[-2:] == [TAG, "latest"]
    assert tags[:-2] == [found.digest, f"{found.digest.replace(':', '-')}.att"]
    assert len(found.proofs) == 1
    assert found.reference == f"{registry.host}/team/torch:{TAG}"


def test_again_sends_nothing(registry, publish):
    first = publish()
    received = registry.received
    assert publish().digest == first.digest
    assert registry.received == received


def test_what_is_attached_is_about_this_image_and_names_no_machine(ctx, registry, publish):
    found = publish()
    told = checks(ctx, found.reference)
    assert set(told) == {"bill of materials", "provenance", "smoke suites", "contracts", "audit"}
    assert set(told.values()) == {(True, "attached, and not signed")}
    assert all(b"secret-node" not in data for data in registry.blobs.values())
    assert any(b'"cpuOnlyAllowed":false' in data for data in registry.blobs.values())


def test_signed_with_a_key(ctx, publish, registry, tmp_path):
    private, public = keys.make_pair(tmp_path, "canary")
    found = publish(key=private)
    assert found.signed == "key"
    told = checks(ctx, found.reference, key=public)
    assert len(told) == 6
    assert all(ok for ok, _ in told.values()), told
    assert all(b"canary" not in data for data in registry.blobs.values())
    (tmp_path / "other").mkdir()
    _, other = keys.make_pair(tmp_path / "other", "canary")
    told = checks(ctx, found.reference, key=other)
    assert not any(ok for ok, _ in told.values()), told
    assert "another key" in told["signature"][1]
    # without a key it is said that nobody looked
    assert "no key was given" in checks(ctx, found.reference)["audit"][1]


def test_an_image_that_nobody_signed_or_spoke_of(ctx, registry, publish, tmp_path):
    _, public = keys.make_pair(tmp_path, "canary")
    found = publish()
    told = checks(ctx, found.reference, key=public)
    assert not any(ok for ok, _ in told.values()), told
    registry.documents = {path: told for path, told in registry.documents.items() if not path.endswith(".att")}
    told = checks(ctx, found.reference)
    assert set(told.values()) == {(False, "nothing of the kind is attached to this image")}
    assert len(told) == 5
    with pytest.raises(ResolutionError):
        verify.run(verify.Request(ref=f"{registry.host}/team/torch:none"), ctx, build_image)


def test_an_altered_signature_is_told(ctx, registry, publish, tmp_path):
    private, public = keys.make_pair(tmp_path, "canary")
    found = publish(key=private)
    for digest, data in list(registry.blobs.items()):
        if b"payloadType" in data:
            registry.blobs[digest] = data.replace(b"a", b"b", 1)
    with pytest.raises(IntegrityError):  # the registry serves other bytes than their digest says
        verify.run(verify.Request(ref=found.reference, key=public), ctx, build_image)


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
        ("{}/team", {"forms": ("sif",), "kernel": "5.14", "replace": True}),
        ("{}/team", {"compression": Compression.GZIP}),
        ("acr:cn-hangzhou/team", {"forms": ("sqsh",), "kernel": "5.14", "replace": True}),
        (
            "oras://{}/team",
            {"form": "oci", "mount_from": ("team/other",), "forms": ("sif",)},
        ),
        ("./shelf", {"form": "docker", "mount_from": ("team/other",), "tags": ("latest",), "key": Path("cosign.key")}),
    ],
)
def test_what_a_destination_has_no_use_for_is_said(ctx, registry, folder, to, useless):
    for field, value in useless.items():
        request = policy.Request(ref=str(folder / "oci"), **{field: value})
        with pytest.raises(UsageError, match="does not apply to"):
            publishing.publish(request, ctx, to.format(registry.host))
    assert registry.asked == []


@pytest.fixture
def on_cpu(folder, monkeypatch):
    """The image has passed on a CPU alone; what Singularity and enroot take of it is made up."""
    report = json.loads((folder / "report.json").read_text())
    for suite in (report["smoke"], *report["suites"]):
        suite["device"] = "cpu"
    (folder / "report.json").write_text(json.dumps(report))

    def converted(order, ctx):
        path = folder / f"torch{convert.SUFFIXES[order.to]}"
        path.write_bytes(bytes(sif.MAGIC_OFFSET) + sif.MAGIC if order.to == "sif" else b"hsqs")
        return SimpleNamespace(path=str(path))

    monkeypatch.setattr(convert, "convert", converted)
    return folder


def test_a_folder_gets_the_files_and_what_proves_them(ctx, on_cpu, tmp_path):
    request = policy.Request(ref=str(on_cpu / "oci"), allow_cpu_only=True, forms=policy.FILE_FORMS)
    published = publishing.publish(request, ctx, str(tmp_path / "shared"))
    files = {path.name for path in (tmp_path / "shared").iterdir() if path.is_file() and not path.is_symlink()}
    endings = ("sif", "sqsh", "oci.tar")
    assert files == {f"torch-{TAG}.{end}{more}" for end in endings for more in ("", ".sha256")}
    assert published.reference == str(tmp_path / "shared" / f"torch-{TAG}.sif")
    proofs = tmp_path / "shared" / f"torch-{TAG}.proofs"
    documents = {path.name: json.loads(path.read_text()) for path in proofs.iterdir()}
    assert documents.pop("report.json")["digest"] == json.loads((on_cpu / "report.json").read_text())["digest"]
    assert set(documents) == {f"{name}.json" for name in PROOFS}
    assert {f"sha256:{one['subject'][0]['digest']['sha256']}" for one in documents.values()} == {layout_digest(on_cpu)}
    assert documents["suites.json"]["predicate"]["cpuOnlyAllowed"] is True
    assert b"secret-node" not in b"".join((proofs / name).read_bytes() for name in documents)


def layout_digest(folder):
    return json.loads((folder / "oci/index.json").read_text())["manifests"][0]["digest"]


def test_an_archive_from_a_folder_is_the_image_again_elsewhere(ctx, folder, tmp_path, monkeypatch):
    request = policy.Request(ref=str(folder / "oci"), forms=("oci-archive",))
    published = publishing.publish(request, ctx, str(tmp_path / "a stick"))
    words = shlex.split(published.lines["elsewhere"].partition("    (")[0])
    make, target, _, tar, _, archive, _, unpacked, _, copy, report, copied = words[:1] + words[2:]
    assert (make, tar, copy, target) == ("mkdir", "tar", "cp", unpacked)
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    Path(target).mkdir(parents=True)
    with tarfile.open(archive) as opened:
        opened.extractall(unpacked)
    shutil.copy(report, copied)
    layout, known = locate.find_image(f"torch:{TAG}", Path("dist"))
    assert (layout.digest, known.build_key) == (layout_digest(folder), "key-1")


def test_options_of_squashed_files_are_not_for_an_archive(ctx, folder, tmp_path):
    request = policy.Request(ref=str(folder / "oci"), forms=("oci-archive",), kernel="5.14")
    with pytest.raises(UsageError, match="does not apply to oci-archive"):
        publishing.publish(request, ctx, str(tmp_path / "stick"))


def test_how_files_are_to_be_compressed_is_handed_on(ctx, on_cpu, tmp_path, monkeypatch):
    asked, converted = [], convert.convert

    def heard(order, ctx):
        asked.append((order.to, order.compression, order.kernel))
        return converted(order, ctx)

    monkeypatch.setattr(convert, "convert", heard)
    wanted = {"forms": ("sif", "sqsh"), "compression": Compression.GZIP, "kernel": "3.10"}
    request = policy.Request(ref=str(on_cpu / "oci"), allow_cpu_only=True, **wanted)
    publishing.publish(request, ctx, str(tmp_path / "shelf"))
    assert asked == [("sif", "gzip", "3.10"), ("sqsh", "gzip", "3.10")]


def test_what_went_out_without_a_gpu_says_so_as_oras_under_every_tag(ctx, on_cpu, registry):
    request = policy.Request(ref=str(on_cpu / "oci"), allow_cpu_only=True, tags=("latest",))
    found = publishing.publish(request, ctx, f"oras://{registry.host}/sifs")
    assert (found.tags, found.cpu_only) == ((TAG, "latest"), True)
    for tag in found.tags:
        told = json.loads(registry.documents[f"sifs/torch/manifests/{tag}"][1])
        assert told["annotations"] == {"graphcrate.cpu-only": "true"}


def test_a_sif_is_signed_before_a_tag_names_it(ctx, on_cpu, registry, tmp_path):
    private, _ = keys.make_pair(tmp_path, "canary")
    request = policy.Request(ref=str(on_cpu / "oci"), allow_cpu_only=True, tags=("latest",), key=private)
    found = publishing.publish(request, ctx, f"oras://{registry.host}/sifs")
    assert (found.signed, len(found.proofs)) == ("key", 2)
    names = [asked.path.rpartition("/")[2] for asked in registry.seen("/manifests/") if asked.method == "PUT"]
    digest = found.digest.replace("sha256:", "sha256-")
    assert set(names[1:3]) == {f"{digest}.att", f"{digest}.sig"}
    assert (names[0], names[3:]) == (found.digest, [TAG, "latest"])


@pytest.mark.parametrize("scheme", ["oras://", ""])
def test_the_users_word_on_token_servers_holds_everywhere(ctx, on_cpu, registry, monkeypatch, scheme):
    seen, repository = [], push.repository

    def noted(*arguments, **options):
        seen.append(options["trusted_realms"])
        return repository(*arguments, **options)

    monkeypatch.setattr(push, "repository", noted)
    ctx.environment["REGISTRY_REALMS"] = "tokens.invalid"
    request = policy.Request(ref=str(on_cpu / "oci"), allow_cpu_only=True)
    publishing.publish(request, ctx, f"{scheme}{registry.host}/team")
    assert set(seen) == {("tokens.invalid",)}


def test_errors_have_codes_of_their_own():
    assert (GateError.exit_code, ProofError.exit_code) == (16, 17)


@pytest.mark.parametrize("channel", ["", "pypi"])
def test_what_a_fall_back_cannot_do_is_the_last_word(ctx, registry, folder, typed, monkeypatch, channel):
    known = Fallback(meaning="torch of CUDA 11.7", limits=("has no code for H100 (sm_90)",), no_code=("H100",))
    known = msgspec.structs.replace(known, preferred="pytorch", torch="2.0.1", channel="pytorch", gains=("H100",))
    report = msgspec.json.decode((folder / "report.json").read_bytes(), type=BuildReport)
    asked = Asked(recipe="torch", variant="11.7", channel=channel, gpus=("v100",), extensions="auto")
    report = msgspec.structs.replace(report, fallback=known, asked=asked if channel else None)
    (folder / "report.json").write_bytes(encode(report))
    monkeypatch.setattr(Context, "here", classmethod(lambda kind: ctx))
    code, out, err = typed("publish", folder / "oci", "--to", f"{registry.host}/team")
    assert (code, out.startswith(f"{registry.host}/team/torch:{TAG}@sha256:"), out.count("\n")) == (0, True, 1), err
    gpu = " GPU=v100" if channel else ""
    assert err.splitlines()[-3:] == [
        f"torch:{TAG} is a fall-back: torch of CUDA 11.7",
        "  it has no code for H100 (sm_90)",
        f"  insist on torch 2.0.1, which has code for H100 (sm_90): "
        f"make image STACK=torch CUDA=11.7{gpu} CHANNEL=pytorch",
    ]
