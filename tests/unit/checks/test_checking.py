"""`check`: every form of an image gives the same view, odd images an answer, arguments a meaning."""

import json
import struct

import pytest

from graphcrate.artifacts.tree import opening
from graphcrate.checks.reading import read_image
from graphcrate.compat.variants import targets
from graphcrate.compat.variants.targets import Target
from graphcrate.model.contract import FileFact
from graphcrate.oci.layout import read_layout
from ocilayout import spec
from tests.unit import small_layouts, tars
from tests.unit.artifacts.test_tree_readers import docker_archive, oci_archive
from tests.unit.elfmaker import make_elf
from tests.unit.squashfs_samples import sample
from tests.unit.tars import file, folder, overwrite, symlink

NOTE = struct.pack("<III4sIIII", 4, 16, 1, b"GNU\0", 0, 3, 2, 0)
LIBC = b"\x7fELF" + NOTE + b"\0GNU C Library (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36.\n\0"
SITE = "opt/venv/lib/python3.11/site-packages"
BASE = [
    *(folder(name) for name in ("etc", "etc/profile.d", "root", "tmp", "usr/bin", "usr/lib/x86_64-linux-gnu")),
    symlink("bin", "usr/bin"),
    symlink("lib", "usr/lib"),
    file("usr/bin/dash", b"\x7fELF", mode=0o755),
    symlink("usr/bin/sh", "dash"),
    file("usr/lib/x86_64-linux-gnu/libc.so.6", LIBC, mode=0o755),
    file("etc/passwd", b"root:x:0:0::/root:/bin/sh\n"),
    file("etc/group", b"root:x:0:\n"),
    file("etc/profile", b'PATH="/usr/bin:/bin"\nexport PATH\n. /etc/profile.d/a.sh\n'),
    file("root/.bashrc", b"# new home"),
    symlink("etc/localtime", "/usr/share/zoneinfo/Etc/UTC"),
]
VERBS = [
    file("usr/lib/x86_64-linux-gnu/libibverbs.so.1", make_elf()),
    file("usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so", make_elf()),
    file("etc/libibverbs.d/mlx5.driver", b"driver mlx5\n"),
]
PROFILE = file("etc/profile.d/a.sh", b"PATH=/opt/venv/bin:$PATH\n")
WHEELS = [
    folder(f"{SITE}/torch-2.0.1+cu118.dist-info"),
    file(f"{SITE}/torch/version.py", b"__version__ = '2.0.1+cu118'\ncuda: Optional[str] = '11.8'\nhip = None\n"),
    folder(f"{SITE}/JupyterLab-4.0.1.dist-info"),
]
GOOD = {
    "PATH": "/opt/venv/bin:/usr/bin:/bin",
    "PYTHONNOUSERSITE": "1",
    "PYTORCH_VERSION": "2.0.1",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "NVIDIA_REQUIRE_CUDA": "cuda>=11.0",
}
RUN = {"Env": [f"{name}={value}" for name, value in GOOD.items()], "Cmd": ["sh"]}


@pytest.fixture
def call(context, typed):
    """`check` of the runtimes: (exit code, stdout, stderr)."""
    return lambda *arguments: typed("check", "--only", "runtimes", *arguments)


@pytest.fixture
def judged(call):
    """Calls with --json: (exit code, what is said of the runtimes, status of each check)."""

    def run(*arguments):
        code, out, err = call(*arguments, "--json")
        assert out, err
        said = json.loads(out)["runtimes"]
        return code, said, {finding["check"]: finding["status"] for finding in said["findings"]}

    return run


@pytest.fixture
def layout(tmp_path):
    """Writes a layout below dist/ and returns its path."""

    def write(*layers, environment=GOOD, name="image"):
        return small_layouts.layout(tmp_path / "dist" / name / "tag", *layers, tag="tag", environment=environment).path

    return write


HOST_OPTIONS = ("--gpu", "v100", "--driver", "450.80.02", "--kernel", "3.10", "--shm", "8g")


def test_check_of_a_good_image_ends_with_0_and_lists_findings(call, judged, layout):
    image = layout(BASE, [PROFILE, *VERBS], WHEELS)
    code, out, err = call("image:tag", *HOST_OPTIONS, "--all")
    assert code == 0, err + out
    assert {line.split("  ")[0] for line in out.splitlines() if line and line[0] != " "} == {
        "not known",
        "pass",
        "runtimes",
    }
    assert "pass       driver" in out.replace("the driver", "driver"), out
    code, said, _ = judged(image, "--runtime", "singularity", "--runtime", "docker", *HOST_OPTIONS)
    assert (code, said["runtimes"]) == (0, ["apptainer", "docker"])
    assert (said["host"]["driver"], said["host"]["shm"]) == ("450.80.02", 8 << 30)
    runtimes = {tuple(finding["runtimes"]) for finding in said["findings"]}
    assert runtimes <= {("docker",), ("apptainer",), ("docker", "apptainer")}


def test_check_of_a_broken_image_ends_with_14_with_why_and_fix(call, judged, layout):
    asked = layout(BASE, WHEELS, environment={"PATH": GOOD["PATH"]}), "--runtime", "pyxis", "--runtime-version", "3.4.0"
    code, out, err = call(*asked)
    failed = {name for name, status in judged(*asked)[2].items() if status == "fail"}
    assert failed == {"path-login", "visible-devices", "driver-capabilities", "manifest-type"}
    assert (code, "breaks 4 of 4" in err, "pass" in out.splitlines()[0]) == (14, True, False)
    assert sum(line.startswith("fail  ") for line in out.splitlines()) == 4
    assert "      fix: ENV NVIDIA_VISIBLE_DEVICES=all" in out


def test_check_prints_a_line_for_bytes_runtimes_and_binaries(typed, layout):
    image = layout(BASE, [PROFILE], WHEELS)
    code, out, err = typed("check", image, *HOST_OPTIONS)
    assert code == 0, err + out
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["bytes", "runtimes", "binaries"]
    assert json.loads(typed("check", image, "--only", "bytes", "--json")[1])["bytes"]["layers"] == 3


@pytest.mark.parametrize("parts", [(), ("--only", "runtimes", "--only", "binaries"), ("--only", "binaries")])
def test_check_of_unloadable_binaries_ends_with_15(typed, layout, parts):
    broken = [file(f"{SITE}/torch/_C.so", make_elf(needed=("libabsent.so.1",)), mode=0o755)]
    code, _, err = typed("check", layout(BASE, [PROFILE], WHEELS, broken), *HOST_OPTIONS, *parts)
    assert (code, "of its findings fail" in err) == (15, True), err


def test_check_of_broken_contracts_and_binaries_ends_with_14_and_counts_both(typed, layout):
    broken = [file(f"{SITE}/torch/_C.so", make_elf(needed=("libabsent.so.1",)), mode=0o755)]
    image = layout(BASE, WHEELS, broken, environment={"PATH": GOOD["PATH"]})
    code, _, err = typed("check", image, "--runtime", "pyxis")
    assert (code, "contracts" in err, "programs and libraries that fail: 1" in err) == (14, True, True), err


def test_check_target_gives_gpus_driver_and_runtimes(judged, layout, tmp_path):
    described = 'gpus = ["V100"]\ndrivers = ["470.1", "450.80.02"]\nruntimes = { apptainer = "1.2" }\n'
    (tmp_path / "mine.toml").write_text(described)
    said = judged(layout(BASE, [PROFILE], WHEELS), "--target", "mine.toml")[1]
    assert (said["host"]["gpus"], said["host"]["driver"], said["runtimes"]) == (["V100"], "450.80.02", ["apptainer"])


def test_check_only_fabric_judges_the_network_of_the_target_and_nothing_else(context, typed, layout, tmp_path):
    (tmp_path / "mine.toml").write_text('gpus = ["V100"]\n[fabric]\nkind = "roce"\nrails = 4\nrate = 200\n')
    arguments = (layout(BASE, WHEELS), "--target", "mine.toml", "--only", "fabric", "--json")
    code, out, err = typed("check", *arguments)
    assert out, err
    said = json.loads(out)
    assert (code, [finding["check"] for finding in said["runtimes"]["findings"]]) == (14, ["fabric"]), err
    assert ("bytes" in said, "binaries" in said) == (False, False) or not (said["bytes"] or said["binaries"])
    assert "RoCE: no libibverbs.so.1" in said["runtimes"]["findings"][0]["seen"]
    code, _, err = typed("check", *arguments[:3], "--only", "fabrik")
    assert (code, "the nearest is fabric" in err) == (2, True), err


def test_check_of_vulnerabilities_is_refused_with_the_scanners_commands(typed, layout):
    code, _, err = typed("check", layout(BASE), "--only", "vulnerabilities")
    assert (code, "asks nobody about known vulnerabilities" in err) == (2, True), err
    assert "next:  grype oci-dir:dist/" in err
    assert "docs/vulnerabilities.md" in err


def test_check_says_when_a_sites_plugin_wants_a_newer_c_library(context, typed, layout, tmp_path):
    site = 'gpus = ["A100"]\nglibc = "{}"\n[fabric]\nkind = "slingshot"\nplugin = "/opt/cray/ofi-nccl"\n'
    image = layout(BASE, [PROFILE, *VERBS], WHEELS)
    for glibc, status in (("2.31", "pass"), ("2.38", "warn")):
        (tmp_path / "alps.toml").write_text(site.format(glibc))
        code, out, err = typed("check", image, "--target", "alps.toml", "--only", "fabric", "--json")
        assert (code, json.loads(out)["runtimes"]["host"]["plugin"]) == (0, "/opt/cray/ofi-nccl"), err
        (finding,) = json.loads(out)["runtimes"]["findings"]
        assert (finding["status"], "glibc" in finding["seen"]) == (status, True)
    assert finding["fix"] == "a base of Debian trixie, with glibc 2.41"


def test_check_of_one_contract_takes_what_a_build_remembers_of_layers(context, typed, layout, monkeypatch):
    """Of a large image that is seconds instead of a minute."""
    image = layout(BASE, [PROFILE, *VERBS], WHEELS)
    read_image(str(image), context)  # as a build does
    monkeypatch.setattr("graphcrate.artifacts.tree.layers.open_blob", None)
    code, out, err = typed("check", image, "--only", "fabric", "--all")
    assert (code, "libraries of the network between nodes" in out) == (0, True), err


def test_check_of_a_base_without_updates_warns_and_ends_with_0(call, judged, typed, layout):
    """Debian has its os-release below /usr/lib, and a link to it."""
    text = b'PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\nVERSION_ID="11"\nVERSION_CODENAME=bullseye\nID=debian\n'
    release = [file("usr/lib/os-release", text), symlink("etc/os-release", "../usr/lib/os-release")]
    image = layout([*BASE, *release], [PROFILE], WHEELS)
    code, said, found = judged(image)
    assert (code, found["security-updates"], said["host"]["today"]) == (0, "warn", "2026-11-25")
    code, out, _ = call(image)
    (line,) = [line for line in out.splitlines() if "Debian bullseye" in line]
    assert (code, line.endswith("no security updates since 2026-08-31")) == (0, True)
    code, out, err = typed("check", image, "--json")  # read with its programs, as a build does
    assert code == 0, err
    statuses = {one["check"]: one["status"] for one in json.loads(out)["runtimes"]["findings"]}
    assert statuses["security-updates"] == "warn"


def test_shm_size_reads_dockers_units():
    sizes = {"64m": 64 << 20, "8g": 8 << 30, "8GiB": 8 << 30, "1024": 1024, "": None, "64kb": 64 << 10}
    assert {text: targets.host_of(Target(), text).shm for text in sizes} == sizes


def test_check_of_an_archive_gives_the_view_of_its_layout(context, layout, tmp_path):
    layers = (BASE, [PROFILE], WHEELS)
    expected = read_image(str(layout(*layers)), context).view
    assert (expected.c_library.version, expected.c_library.kernel) == ("2.36", "3.2.0")
    assert (expected.torch, expected.cuda) == ("2.0.1+cu118", "11.8")
    assert expected.distributions == {"torch": "2.0.1+cu118", "jupyterlab": "4.0.1"}
    assert (expected.packages, expected.hidden) == ((f"/{SITE}",), {})
    assert expected.files["/bin/sh"] == FileFact(kind="symlink", link="dash", mode=0o755, size=4, text="\x7fELF")
    diff_ids = [tars.sha256(tars.tar(entries)) for entries in layers]
    config = {"architecture": "amd64", "os": "linux", "config": RUN, "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    (tmp_path / "saved.tar").write_bytes(docker_archive(layers, config))
    view = read_image("saved.tar", context).view
    assert (len(view.layers), view.layers[0].media_type, view.manifest_type) == (3, "", "")
    for name in ("files", "programs", "packages", "distributions", "torch", "cuda", "c_library", "unpacked"):
        assert getattr(view, name) == getattr(expected, name), name
    assert view.settings.variables == GOOD
    (tmp_path / "oci.tar").write_bytes(oci_archive(nested=True))
    view = read_image("oci.tar", context).view
    assert (view.manifest_type, len(view.layers), view.without_platform) == (spec.MANIFEST, 2, 0)


def test_check_of_squashfs_fails_on_an_old_kernel_and_folders_give_settings(context, judged, tmp_path):
    (tmp_path / "a.sqsh").write_bytes(sample("zstd"))
    view = read_image("a.sqsh", context).view
    assert (view.form, view.compression, view.settings) == ("squashfs", "zstd", None)
    code, _, found = judged("a.sqsh", "--kernel", "3.10")
    assert (code, found["squashfs"], found["unsquashfs"]) == (14, "fail", "warn")
    scripts = {"apptainer/.singularity.d/runscript": 'exec "$@"\n', "enroot/etc/rc": 'exec bash "$@"\n'}
    scripts["apptainer/.singularity.d/env/90-environment.sh"] = "export A=b\n"
    for name, text in scripts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_image("apptainer", context).view.settings.variables == {"A": "b"}
    assert read_image("enroot", context).view.settings.entrypoint == ("bash",)


def test_check_of_contradicting_or_truncated_layers_is_a_finding(judged, layout):
    cut = layout(BASE, WHEELS, name="cut")
    blob = read_layout(cut).layer_blobs[0].path
    overwrite(blob, blob.read_bytes()[:200])
    for image in (layout([symlink("lib", "usr/lib")], [file("lib/file")]), cut):
        code, said, found = judged(image, "--runtime", "docker")
        assert (code, found["layers"], found["glibc"], bool(said["unread"])) == (14, "fail", "unknown", True)


def damaged(image):
    """The layout with each of its layers damaged where its tar is whole all the same."""
    for blob in read_layout(image).layer_blobs:
        data = bytearray(blob.path.read_bytes())
        data[4] ^= 1  # the time in a gzip header
        overwrite(blob.path, bytes(data))
    return image


def test_check_names_each_of_five_damaged_layers(context, typed, layout):
    image = damaged(layout(*([file(name)] for name in "abcde")))
    code, out, err = typed("check", image, "--only", "bytes")
    assert (code, out.count("is damaged: its bytes hash to")) == (12, 5)
    assert "5 faults in the bytes of" in err
    code, out, _ = typed("check", image, "--only", "bytes", "--json")
    stored = json.loads(out)["bytes"]
    assert (code, stored["layers"], len(stored["faults"])) == (12, 5, 5)
    assert typed("check", image)[0] == 12, "whatever its contracts say"


def test_audit_names_each_of_five_damaged_layers(context, typed, layout):
    image = damaged(layout(*([file(name)] for name in "abcde")))
    code, out, _ = typed("audit", image, "--json")
    findings = [one for one in json.loads(out)["findings"] if one["check"] == "files"]
    assert (code, len(findings)) == (15, 5)


def test_check_of_one_damaged_layer_is_its_error(context, typed, layout):
    code, _, err = typed("check", damaged(layout([file("a")])), "--only", "bytes")
    assert (code, "is damaged: its bytes hash to" in err) == (12, True)


def test_check_of_a_text_file_missing_name_or_half_layout_is_refused(call, tmp_path):
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    assert [call(name)[0] for name in ("text", "nothing:here", "half")] == [2, 2, 12]


@pytest.fixture
def registry(registry_server):
    registry_server.image("team/image", [BASE, [PROFILE, *VERBS], WHEELS], "1.0", run=RUN)
    return registry_server


def test_check_of_a_registry_image_is_equal_for_each_form_of_its_name(context, judged, registry):
    plain = f"{registry.host}/team/image:1.0"
    code, said, found = judged(f"docker://{plain}", *HOST_OPTIONS)
    assert (code, said["form"], set(found.values())) == (0, "registry", {"pass", "unknown"})
    assert judged(plain, *HOST_OPTIONS) == (code, {**said, "image": plain}, found)
    assert read_image(f"docker://{registry.host}#team/image:1.0", context).view.torch == "2.0.1+cu118"  # enroot's


def test_check_with_fetch_none_has_unknown_findings(judged, registry):
    code, said, found = judged(f"docker://{registry.host}/team/image:1.0", "--fetch", "none")
    assert not registry.seen("/blobs/sha256:" + tars.sha256(tars.compressed(tars.tar(BASE), spec.LAYER_GZIP))[7:])
    assert (code, found["user-site"]) == (0, "pass")
    assert found["shell"] == found["path-login"] == found["etc"] == "unknown"
    assert "--fetch all" in said["unread"][0]


def test_check_fetches_the_lowest_layers_and_no_foreign_ones(context, monkeypatch, registry):
    foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar"
    document = json.loads(registry.documents["team/image/manifests/1.0"][1])
    document["layers"][1]["mediaType"] = foreign
    registry.put("team/image", document, spec.MANIFEST, "2.0")
    lowest = len(tars.compressed(tars.tar(BASE), spec.LAYER_GZIP))
    monkeypatch.setattr(opening, "_MOST_FETCHED", lowest + 10)
    view = read_image(f"docker://{registry.host}/team/image:1.0", context, fetch="small").view
    (left,) = view.unread
    assert left.startswith("2 of 3 layers (")
    assert left.endswith("were left on the registry (--fetch all brings them)")
    assert (view.c_library.version, view.torch) == ("2.36", "")
    view = read_image(f"docker://{registry.host}/team/image:2.0", context).view
    assert view.unread == (f"a layer of type {foreign} cannot be read",)
    assert view.layers[1].media_type == foreign


@pytest.mark.parametrize("parts", [(), ("--only", "binaries")])
def test_check_notes_unfetched_layers_without_failing(typed, monkeypatch, registry, parts):
    """A library that another layer may have is not absent, and nothing is called whole that was not read."""
    torch = [*WHEELS, file(f"{SITE}/torch/_C.so", make_elf(needed=("libabsent.so.1",)), mode=0o755)]
    registry.image("team/large", [BASE, [PROFILE], torch, [file("opt/large", bytes(99))]], "1.0", run=RUN)
    brought = (tars.compressed(tars.tar(layer), spec.LAYER_GZIP) for layer in (BASE, [PROFILE], torch))
    monkeypatch.setattr(opening, "_MOST_FETCHED", sum(map(len, brought)))
    image = f"{registry.host}/team/large:1.0"
    code, out, err = typed("check", image, *HOST_OPTIONS, *parts)
    assert code == 0, out + err
    assert "not looked at: 1 of 4 layers" in out
    assert "libabsent" not in out
    said = json.loads(typed("check", image, *HOST_OPTIONS, *parts, "--json")[1])["binaries"]
    severities = {one["severity"] for one in said["findings"] if "is not a whole ELF file" not in one["what"]}
    assert (severities, len(said["left"]), said["unread"], said["broken"]) == ({"note"}, 1, [], [])
    code, _, err = typed("check", image, *HOST_OPTIONS, *parts, "--fetch", "all")
    assert (code, "of its findings fail" in err) == (15, True), err


def test_check_of_an_unreadable_foreign_layer_fails(typed, registry):
    document = json.loads(registry.documents["team/image/manifests/1.0"][1])
    document["layers"][1]["mediaType"] = "application/vnd.docker.image.rootfs.foreign.diff.tar"
    registry.put("team/image", document, spec.MANIFEST, "2.0")
    code, out, _ = typed("check", f"{registry.host}/team/image:2.0", "--fetch", "none", "--only", "binaries")
    assert (code, "not looked at: 2 of 3" in out, "cannot be read" in out) == (15, True, True), out


def test_check_of_an_index_for_two_platforms_reads_that_of_the_gpus_machines(judged, registry):
    entries = [
        registry.image("team/image", [BASE], "arm", platform="linux/arm64", run=RUN),
        registry.image("team/image", [BASE], "amd", run=RUN),
    ]
    registry.index("team/image", entries, "both")
    for tag, gpu, status in (("both", "gh200", "pass"), ("both", "a100", "pass"), ("arm", "a100", "fail")):
        _, _, found = judged(f"docker://{registry.host}/team/image:{tag}", "--gpu", gpu)
        assert found["platform"] == status, (tag, gpu)


def test_check_of_a_registry_index_without_platforms_fails_for_pyxis(judged, registry):
    entry = registry.image("team/image", [BASE], run=RUN)
    del entry["platform"]
    registry.index("team/image", [entry], "index")
    code, _, found = judged(f"docker://{registry.host}/team/image:index", "--runtime", "pyxis")
    assert (code, found["index-platform"]) == (14, "fail")
