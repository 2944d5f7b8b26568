"""publish and verify against a strict registry on loopback: the order of things, and what does not hold is told."""

import functools
import json
import shlex
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.artifacts import locate, origin
from graphcrate.artifacts.conversion.job import SUFFIXES
from graphcrate.assembly.pipeline import build_image
from graphcrate.model.errors import GateError, NetworkError, RecipeError, ResolutionError, UsageError
from graphcrate.model.lock import decode_lock, encode
from graphcrate.model.report import BuildParameters, BuildReport, Fallback, SmokeReport
from graphcrate.oci.registry import Repository
from graphcrate.publish import policy, publication, verify
from graphcrate.publish.destinations import destination as destination_module
from graphcrate.publish.destinations import registry as registry_destination
from sifsquash import sif
from sifsquash.values import Compression
from tests import ROOT
from tests.made import refused
from tests.unit import small_layouts, tars
from tests.unit.smoke.test_gate import audit, contract

TAG = "2.0.1-cu117-py311"
PROOFS = ("bill-of-materials", "provenance", "suites", "contracts", "audit")


@pytest.fixture
def ctx(context):
    context.environment["COSIGN_PASSWORD"] = "canary"
    for name in ("recipes", "images"):
        (context.root / name).symlink_to(ROOT / name)
    return context


@functools.cache
def small_lock():
    """The committed lock of torch with a few packages of its base; bills of whole locks are in `test_statements.py`."""
    whole = decode_lock((ROOT / "images/torch/cu117/pypi.lock.json").read_bytes())
    base = msgspec.structs.replace(whole.base, packages=whole.base.packages[:9])
    return encode(msgspec.structs.replace(whole, base=base))


def write_image(folder, tag, *layers):
    """Write an image that may be published, with what its build leaves beside it; return its layout."""
    folder.mkdir(parents=True)
    layout = small_layouts.layout(folder, *layers, tag=tag)
    about = {"suite": "torch", "status": "passed", "seconds": 1.0, "image": layout.digest}
    suite = SmokeReport(**about, device="Tesla V100", driver="535.54.03", node="secret-node")
    about = {"smoke": suite, "suites": (suite,), "contracts": (contract("pass"),), "build_key": "key-1"}
    (folder / "report.json").write_bytes(encode(small_layouts.report(layout, **about)))
    (folder / "audit.json").write_bytes(encode(audit(layout.digest)))
    (folder / "lock.json").write_bytes(small_lock())
    return layout


@pytest.fixture
def folder(tmp_path):
    """An image's folder as a build leaves it, of two small layers and with the committed lock of torch."""
    folder = tmp_path / "dist/torch" / TAG
    write_image(folder, TAG, [tars.file("a")], [tars.file("b")])
    return folder


def change(folder, **fields):
    """Change the report of an image."""
    known = msgspec.json.decode((folder / "report.json").read_bytes(), type=BuildReport)
    (folder / "report.json").write_bytes(encode(msgspec.structs.replace(known, **fields)))


@pytest.fixture
def publish(ctx, registry, folder):
    """A function that publishes; `{}` is the registry."""

    def run(to="{}/team", **fields):
        request = policy.PublishRequest(ref=str(folder / "oci"), **fields)
        return publication.publish(request, ctx, str(to).format(registry.host))

    return run


def checks(ctx, reference, **fields):
    found = verify.run(verify.VerifyRequest(ref=reference, **fields), ctx, build_image)
    return {check.what: (check.ok, check.said) for check in found.checks}


def test_publish_of_an_own_recipe_is_judged_by_its_stack(folder, publish):
    change(folder, name="mine", asked=BuildParameters(recipe="torch", variant="11.7"))
    assert publish().reference.endswith(f"/mine:{TAG}")


@pytest.fixture
def said(ctx, progress, monkeypatch):
    """Lines for people; loopback counts as a registry of others."""
    monkeypatch.setattr(type(ctx), "progress", progress)
    monkeypatch.setattr(registry_destination, "is_loopback", lambda _: False)
    return progress.lines


@pytest.mark.parametrize("to", ["{}/team", "shelf"])
@pytest.mark.usefixtures("on_cpu")
def test_publish_of_cut_nvidia_libraries_warns(folder, publish, said, tmp_path, to):
    for slim, warned in (("yes", False), ("all", True)):
        change(folder, asked=BuildParameters(recipe="torch", variant="11.7", slim=slim))
        publish(tmp_path / to if to == "shelf" else to, allow_cpu_only=True)
        assert any("NVIDIA's own libraries were cut" in note for note in said) is warned


def test_publish_of_a_devel_image_warns_of_nvidias_tools(folder, publish, said):
    compiling = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
    (folder / "lock.json").write_bytes(encode(compiling))
    for flavour, warned in (("", False), ("devel", True)):
        change(folder, asked=BuildParameters(recipe="torch", variant="11.7", flavour=flavour))
        publish()
        assert any("keeps developer tools for internal use" in note for note in said) is warned


@pytest.mark.parametrize("first", ["{}/team", "oras://{}/sifs", "shelf", "archive"])
@pytest.mark.usefixtures("on_cpu")
def test_publish_prints_nvidias_terms_once_for_each_destination_kind(publish, said, registry, tmp_path, first):
    def run():
        forms = {"forms": ("oci-archive",)} if first == "archive" else {}
        to = first if "/" in first else tmp_path / first
        publish(to, allow_cpu_only=True, **forms)
        return [note for note in said if "docs/terms.md" in note]

    assert len(run()) == 1
    assert (ROOT / "docs/terms.md").is_file()
    assert len(run()) == 1  # not again


def test_publish_of_a_cpu_image_or_to_loopback_prints_no_nvidia_terms(publish, said, folder, ctx, monkeypatch):
    change(folder, torch_cuda="cpu")
    publish()
    change(folder, torch_cuda="11.7")
    monkeypatch.setattr(registry_destination, "is_loopback", lambda _: True)
    publish()
    assert not [note for note in said if "terms" in note]
    assert not ctx.cache.path("said").exists()


def test_publish_sets_tags_after_all_manifests(registry, publish):
    found = publish(tags=("latest",))
    puts = [one.path for one in registry.asked if one.method == "PUT" and "/manifests/" in one.path]
    tags = [path.rpartition("/")[2] for path in puts]
    assert tags[-2:] == [TAG, "latest"]
    assert tags[:-2] == [found.digest, f"{found.digest.replace(':', '-')}.att"]
    assert len(found.proofs) == 1
    assert found.reference == f"{registry.host}/team/torch:{TAG}"
    received = registry.received
    assert (publish().digest, registry.received) == (found.digest, received)


FALL_BACK = {"cuda": "11.8", "candidate": "compatible"}


@pytest.mark.parametrize(
    ("about", "short"), [({}, "cu117"), (FALL_BACK, "cu118-compat"), ({**FALL_BACK, "candidate": "pytorch"}, "cu118")]
)
def test_publish_short_tag_is_that_of_the_candidate(folder, publish, registry, about, short):
    change(folder, **about)
    assert publish(short_tag=True).tags == (TAG, short)
    assert f"team/torch/manifests/{short}" in registry.documents


@pytest.mark.parametrize("to", ["{}/team", "{}/team/torch:cu118"])
def test_publish_of_a_fallback_under_the_preferred_short_tag_is_refused(folder, publish, registry, ctx, to):
    change(folder, **FALL_BACK)
    tags = () if to.endswith("cu118") else ("latest", "cu118")
    with pytest.raises(UsageError, match="cu118 is the short tag") as caught:
        publish(to, tags=tags)
    assert "--tag cu118-compat" in caught.value.next_step
    assert registry.asked == []
    if tags:  # before anything is sent, with --plan too
        with pytest.raises(UsageError, match="cu118 is the short tag"):
            policy.examine(policy.PublishRequest(ref=str(folder / "oci"), tags=tags), ctx)
    assert publish(tags=("cu118-compat",)).tags[-1] == "cu118-compat"


def test_published_statements_verify_and_name_no_machine(ctx, registry, publish):
    found = publish()
    told = checks(ctx, found.reference)
    assert told.pop("name") == (True, f"nobody signed as what it was published; its own tag is {TAG}")
    assert set(told) == {"bill of materials", "provenance", "smoke suites", "contracts", "audit"}
    assert set(told.values()) == {(True, "attached, and not signed")}
    assert all(b"secret-node" not in data for data in registry.blobs.values())
    assert any(b'"cpuOnlyAllowed":false' in data for data in registry.blobs.values())


def test_publish_with_a_key_signs_and_verifies(ctx, publish, registry, key_pairs):
    (private, public), (_, other) = key_pairs
    told = checks(ctx, publish().reference, key=public)
    assert (told.pop("name")[0], len(told), any(ok for ok, _ in told.values())) == (True, 6, False)
    found = publish(key=private)
    assert found.signed == "key"
    publish()  # again, without a key: what is signed stays
    told = checks(ctx, found.reference, key=public)
    assert (len(told), all(ok for ok, _ in told.values())) == (7, True), told
    assert all(b"canary" not in data for data in registry.blobs.values())
    told = checks(ctx, found.reference, key=other)
    assert (told.pop("name")[0], any(ok for ok, _ in told.values())) == (True, False), told
    assert "another key" in told["signature"][1]
    # without a key it is said that nobody looked
    assert "no key was given" in checks(ctx, found.reference)["audit"][1]
    with pytest.raises(ResolutionError):
        checks(ctx, f"{registry.host}/team/torch:none")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("audit.json", None, "no audit"),
        ("report.json", None, "not built here"),
        ("lock.json", None, r"lock\.json is missing"),
        ("lock.json", b'{"format": 0}', r"lock\.json: \$\.format: "),
        ("lock.json", b'{"recipe": "\xff"}', r"lock\.json: line 1, column 13: "),
    ],
)
def test_publish_of_an_incomplete_image_is_refused_with_a_next_step(registry, publish, folder, name, content, words):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises((GateError, RecipeError, UsageError), match=words) as caught:
        publish()
    assert caught.value.next_step
    assert registry.asked == []


@pytest.mark.parametrize("tag", ["x#y", "v 1", "a?b", "", "-x", "team/torch:1.0", f"v@sha256:{'0' * 64}", "x" * 129])
def test_publish_with_an_invalid_tag_sends_nothing(registry, publish, tag):
    with pytest.raises(UsageError, match="is not a tag"):
        publish(tags=("good", tag))
    assert registry.asked == []


@pytest.mark.parametrize(
    ("to", "useless"),
    [
        ("{}/team", {"forms": ("sif",), "kernel": "5.14", "compression": Compression.GZIP}),
        ("acr:cn-hangzhou/team", {"forms": ("sqsh",), "kernel": "5.14"}),
        ("oras://{}/team", {"form": "oci", "mount_from": ("team/other",), "forms": ("sif",), "replace": True}),
        ("./shelf", {"form": "docker", "mount_from": ("team/other",), "tags": ("latest",)}),
    ],
)
def test_publish_option_that_does_not_apply_to_the_destination_is_refused(registry, publish, to, useless):
    for field, value in useless.items():
        with pytest.raises(UsageError, match="does not apply to"):
            publish(to, **{field: value})
    assert registry.asked == []


@pytest.fixture
def planned(ctx, registry, folder):
    """A function that plans a publication; `{}` is the registry."""

    def run(to="{}/team", **fields):
        request = policy.PublishRequest(ref=str(folder / "oci"), **fields)
        return publication.plan(request, ctx, str(to).format(registry.host)).deliveries

    return run


def test_plan_for_a_registry_tells_bytes_and_tags_and_sends_nothing(planned, publish, registry):
    (before,) = planned(tags=("latest",))
    assert {one.method for one in registry.asked} <= {"GET", "HEAD"}
    assert (before.bytes > 0, before.bytes_there, before.is_made) == (True, 0, True)
    assert before.place == f"{registry.host}/team/torch:{TAG} and {registry.host}/team/torch:latest"
    sent = publish()
    (after,) = planned()
    assert after.bytes_there == after.bytes <= sent.bytes_sent


@pytest.mark.parametrize("to", ["{}/team", "oras://{}/sifs"])
def test_plan_for_a_registry_that_is_not_reached_is_a_network_error(planned, to, monkeypatch):
    with pytest.raises(NetworkError):
        planned(to.replace("{}", "127.0.0.1:9"))


@pytest.mark.usefixtures("on_cpu")
def test_plan_for_a_folder_lists_files_and_refuses_a_taken_name(planned, publish, folder, tmp_path, monkeypatch):
    shelf, more = tmp_path / "shared", {"allow_cpu_only": True}
    (sif_row, proofs) = planned(shelf, **more)
    assert not shelf.exists()
    assert (sif_row.place, sif_row.is_made) == (str(shelf / f"torch-{TAG}.sif"), False)
    assert (proofs.place, proofs.bytes > 0) == (str(shelf / f"torch-{TAG}.proofs"), True)
    publish(shelf, **more)
    monkeypatch.setattr(origin, "is_of", lambda path, digest: path.exists())
    assert [row.bytes == row.bytes_there for row in planned(shelf, **more)] == [True, False]
    (shelf / f"torch-{TAG}.sif").write_bytes(b"other")
    with pytest.raises(UsageError, match="another file"):
        planned(shelf, **more)
    assert planned(shelf, replace=True, **more)


@pytest.mark.usefixtures("on_cpu")
def test_missing_key_is_refused_before_anything_else_with_the_command_that_makes_one(planned, tmp_path):
    with refused(UsageError, "there is no file", "keys"):
        planned(tmp_path / "shared", key=tmp_path / "cosign.key")


@pytest.mark.usefixtures("on_cpu")
def test_file_of_a_folder_is_signed_and_verified_by_what_is_beside_it(publish, tmp_path, key_pairs):
    (private, public), (_, other) = key_pairs
    published = publish(tmp_path / "shared", key=private, allow_cpu_only=True)
    path = Path(published.reference)
    assert published.signed == "key"

    def told(**fields):
        found = verify.run(verify.VerifyRequest(ref=str(path), **fields), None, None)
        return {check.what: check.ok for check in found.checks}

    assert told(key=public) == {"signature": True, "checksum": True}
    newest = verify.run(verify.VerifyRequest(ref=str(path.with_name("torch.sif")), key=public), None, None)
    assert (newest.reference, [check.ok for check in newest.checks]) == (str(path.with_name("torch.sif")), [True, True])
    assert told(key=other) == {"signature": False, "checksum": True}
    with pytest.raises(UsageError, match="--rebuild is for an image on a registry"):
        told(rebuild=True)
    publish(tmp_path / "shared", key=private, allow_cpu_only=True)  # again: nothing changes
    assert told(key=public) == {"signature": True, "checksum": True}
    path.write_bytes(path.read_bytes() + b"x")
    assert told(key=public) == {"signature": False, "checksum": False}
    publish(tmp_path / "shared", replace=True, allow_cpu_only=True)
    assert told(key=public) == {"signature": False, "checksum": True}, "no signature rather than a wrong one"
    (path.parent / f"{path.name}.sha256").unlink()
    found = verify.run(verify.VerifyRequest(ref=str(path)), None, None)
    assert [(check.ok, check.note) for check in found.checks] == [(True, True), (True, True)]


def test_files_of_a_shared_folder_name_no_machine_that_tested_the_image(folder, publish, tmp_path, monkeypatch):
    made = folder / "torch.sif"
    made.write_bytes(bytes(sif.MAGIC_OFFSET) + sif.MAGIC)
    sha256 = tars.sha256(made.read_bytes())[7:]
    monkeypatch.setattr(destination_module, "convert", lambda *_: SimpleNamespace(path=str(made), sha256=sha256))
    publish(tmp_path / "shared")
    files = [path for path in (tmp_path / "shared").rglob("*") if path.is_file()]
    assert len(files) > len(PROOFS)
    assert [path for path in files if b"secret-node" in path.read_bytes()] == []
    (report,) = (tmp_path / "shared").rglob("report.json")
    (suite,) = msgspec.json.decode(report.read_bytes(), type=BuildReport).suites
    assert (suite.status, suite.device, suite.node) == ("passed", "Tesla V100", "")


@pytest.mark.parametrize("beside", [b"", b"not base64 \xff", b"AAAA", b"MEUC" * 30])
def test_damaged_signature_of_a_file_is_no_signature(beside, tmp_path, key_pairs):
    _, public = key_pairs[0]
    (tmp_path / "a.sif").write_bytes(b"a")
    (tmp_path / "a.sif.sig").write_bytes(beside)
    found = verify.run(verify.VerifyRequest(ref=str(tmp_path / "a.sif"), key=public), None, None)
    assert [check.ok for check in found.checks] == [False, True]


@pytest.fixture
def on_cpu(folder, monkeypatch):
    """The image has passed on a CPU alone; what Singularity and enroot take of it is made up: the orders for it."""
    ran = {"seconds": 1.0, "image": layout_digest(folder)}
    suite = SmokeReport(suite="torch", status="passed", device="cpu", **ran)
    change(folder, smoke=suite, suites=(suite,))
    orders = []

    def converted(order, ctx):
        orders.append(order)
        path = folder / f"torch{SUFFIXES[order.to]}"
        path.write_bytes(bytes(sif.MAGIC_OFFSET) + sif.MAGIC if order.to == "sif" else b"hsqs")
        return SimpleNamespace(path=str(path), sha256=tars.sha256(path.read_bytes())[7:])

    monkeypatch.setattr(destination_module, "convert", converted)
    return orders


def test_publish_to_a_folder_writes_images_and_proofs(folder, on_cpu, publish, tmp_path):
    wanted = {"forms": ("sif", "sqsh", "oci-archive"), "compression": Compression.GZIP, "kernel": "3.10"}
    published = publish(tmp_path / "shared", allow_cpu_only=True, **wanted)
    told = [(order.to, order.compression, order.kernel) for order in on_cpu]
    assert told == [("sif", "gzip", "3.10"), ("sqsh", "gzip", "3.10"), ("oci-archive", None, None)]
    files = {path.name for path in (tmp_path / "shared").iterdir() if path.is_file() and not path.is_symlink()}
    endings = ("sif", "sqsh", "oci.tar")
    assert files == {f"torch-{TAG}.{end}{more}" for end in endings for more in ("", ".sha256")}
    assert published.reference == str(tmp_path / "shared" / f"torch-{TAG}.sif")
    assert published.lines["singularity"].startswith(f"singularity run --nv {tmp_path}/shared/torch.sif python ")
    proofs = tmp_path / "shared" / f"torch-{TAG}.proofs"
    documents = {path.name: json.loads(path.read_text()) for path in proofs.iterdir()}
    for name in ("report.json", "lock.json"):  # what it was built from: a candidate may have no committed lock
        assert documents.pop(name) == json.loads((folder / name).read_text())
    assert set(documents) == {f"{name}.json" for name in PROOFS}
    assert {f"sha256:{one['subject'][0]['digest']['sha256']}" for one in documents.values()} == {layout_digest(folder)}
    assert documents["suites.json"]["predicate"]["cpuOnlyAllowed"] is True


@pytest.mark.parametrize("to", ["{}/team", "oras://{}/sifs", "folder"])
def test_publish_without_a_gpu_pass_is_refused_unless_cpu_only_is_allowed(
    folder, on_cpu, publish, tmp_path, registry, to
):
    where = tmp_path / "shared" if to == "folder" else to
    with pytest.raises(GateError, match="GPU"):
        publish(where)
    assert (on_cpu, registry.asked, (tmp_path / "shared").exists()) == ([], [], False)
    assert publish(where, allow_cpu_only=True).cpu_only


def layout_digest(folder):
    return json.loads((folder / "oci/index.json").read_text())["manifests"][0]["digest"]


def test_published_oci_archive_unpacks_to_the_same_image(folder, publish, tmp_path, monkeypatch):
    published = publish(tmp_path / "a stick", forms=("oci-archive",))
    words = shlex.split(published.lines["elsewhere"].partition("    (")[0])
    make, target, _, tar, _, archive, _, unpacked, _, copy, report, copied = words[:1] + words[2:]
    assert (make, tar, copy, target) == ("mkdir", "tar", "cp", unpacked)
    assert published.digest == tars.sha256(Path(archive).read_bytes())
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    Path(target).mkdir(parents=True)
    with tarfile.open(archive) as opened:
        opened.extractall(unpacked)
    shutil.copy(report, copied)
    layout, known = locate.find_image(f"torch:{TAG}", Path("dist"))
    assert (layout.digest, known.build_key) == (layout_digest(folder), "key-1")
    with pytest.raises(UsageError, match="does not apply to oci-archive"):
        publish(tmp_path / "a stick", forms=("oci-archive",), kernel="5.14")


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.usefixtures("on_cpu")
def test_published_sif_is_signed_before_its_tags_and_marked_cpu_only(publish, registry, key_pairs, signed):
    key = key_pairs[0][0] if signed else None
    found = publish("oras://{}/sifs", allow_cpu_only=True, tags=("latest",), key=key)
    assert (found.signed, found.tags, found.cpu_only) == ("key" if signed else "", (TAG, "latest"), True)
    names = [asked.path.rpartition("/")[2] for asked in registry.seen("/manifests/") if asked.method == "PUT"]
    digest = found.digest.replace("sha256:", "sha256-")
    under = [name for name in names if not name.startswith("sha256:")]
    assert under == [*([f"{digest}.sig", f"{digest}.att", digest] if signed else []), TAG, "latest"]
    assert (names[0], len(found.proofs)) == (found.digest, 2 + 2 + 5 if signed else 0)
    assert set(found.proofs[2:]) == {name for name in names[1:] if name.startswith("sha256:")}
    for tag in found.tags:
        told = json.loads(registry.documents[f"sifs/torch/manifests/{tag}"][1])
        assert told["annotations"] == {"graphcrate.cpu-only": "true"}


@pytest.mark.parametrize("scheme", ["oras://", ""])
@pytest.mark.usefixtures("on_cpu")
def test_trusted_realms_reach_all_repositories_of_publish(ctx, publish, monkeypatch, scheme):
    seen = []

    def noted(*arguments, **options):
        seen.append(options["trusted_realms"])
        return Repository(*arguments, **options)

    monkeypatch.setattr("graphcrate.oci.access.Repository", noted)
    ctx.environment["REGISTRY_REALMS"] = "tokens.invalid"
    publish(f"{scheme}{{}}/team", allow_cpu_only=True)
    assert set(seen) == {("tokens.invalid",)}


@pytest.mark.parametrize("channel", ["", "pypi"])
def test_publish_of_a_fallback_ends_with_its_limits(registry, folder, typed, ctx, channel):
    known = Fallback(meaning="torch of CUDA 11.7", limits=("has no code for H100 (sm_90)",), no_code=("H100",))
    known = msgspec.structs.replace(known, preferred="pytorch", torch="2.0.1", channel="pytorch", gains=("H100",))
    asked = BuildParameters(recipe="torch", variant="11.7", channel=channel, gpus=("h100",), extensions="auto")
    change(folder, fallback=known, asked=asked if channel else None)
    code, out, err = typed("publish", folder / "oci", "--to", f"{registry.host}/team")
    assert (code, out.startswith(f"{registry.host}/team/torch:{TAG}@sha256:"), out.count("\n")) == (0, True, 1), err
    gpu = " GPU=h100" if channel else ""
    assert err.splitlines()[-3:] == [
        f"torch:{TAG} is a fall-back: torch of CUDA 11.7",
        "  it has no code for H100 (sm_90)",
        f"  insist on torch 2.0.1, which has code for H100 (sm_90): "
        f"make image STACK=torch CUDA=11.7{gpu} CHANNEL=pytorch",
    ]


def test_publish_in_dockers_form_names_both_digests(registry, folder, typed):
    words = ("publish", folder / "oci", "--to", f"{registry.host}/team")
    _, out, err = typed(*words)
    ours, theirs = layout_digest(folder), out.strip().rpartition("@")[2]
    assert ours != theirs
    assert f"pin on the registry: @{theirs} (Docker's form)" in err
    assert f"torch:{TAG}@{ours} (OCI's)" in err
    made = json.loads(typed(*words, "--json")[1])
    assert (made["digest"], made["layout"]) == (theirs, ours)
    _, out, err = typed(*words, "--form", "oci")
    assert (out.strip().rpartition("@")[2], "pin on" in err) == (ours, False)
