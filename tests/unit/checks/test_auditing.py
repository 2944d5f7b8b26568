"""`audit`: an image in any form, wheels and folders give the same answer; odd arguments get one that helps."""

import itertools
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from graphcrate.checks import broken, new_image
from graphcrate.checks.reading import read_image
from graphcrate.model.lock import encode
from tests.made import file_of, locked
from tests.unit import small_layouts
from tests.unit.audited import GOOD, MODULE, PACKAGES, PYTHON, SITE, TORCH
from tests.unit.compiled_plans import plain_lock
from tests.unit.elfmaker import SASS, entry, fat_binary, make_elf
from tests.unit.tars import file, overwrite, symlink
from tests.unit.wheel_server import core_metadata
from tests.unit.wheelmaker import make_wheel

BROKEN = {**GOOD, "undefined": ("_ZN3c104cuda9SetDeviceEa",), "fatbin": fat_binary(entry(SASS, 70))}
WHAT = "refers to a symbol that nothing it is loaded with defines: c10::cuda::SetDevice(signed char)"


@pytest.fixture
def call(context, typed):
    return lambda *arguments: typed("audit", *arguments, "--json")


def files(module):
    """Path in the image → content: the usual stack, with what installers write beside it."""
    contents = {path: make_elf(**fields) for path, fields in {**PYTHON, **TORCH, MODULE: module}.items()}
    for one in PACKAGES:
        info = f"{SITE}/{one.name.replace('-', '_')}-{one.version}.dist-info"
        contents[f"{info}/METADATA"] = core_metadata(one.name, one.version, one.requires).encode()
        rows = "".join(f"{path.removeprefix(f'{SITE}/')},,\n" for path in sorted(one.files))
        contents[f"{info}/RECORD"] = rows.encode()
    contents["/etc/ld.so.conf.d/local.conf"] = b"# ours\n/usr/lib/x86_64-linux-gnu\n"
    contents[f"{SITE}/torch/__init__.py"] = b"\x7fELF is not a library here\n"
    return contents


def layout(folder, module):
    entries = [file(path[1:], data, mode=0o755) for path, data in files(module).items()]
    layers = ([*entries, symlink("lib", "usr/lib")], [file("etc/motd", b"hello")])
    labels = {"graphcrate.architectures": "7.0,8.0+PTX"}
    return small_layouts.layout(folder, *layers, labels=labels)


def written(folder, contents):
    for path, data in contents.items():
        place = folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder


def unpacked(folder, module=GOOD):
    return written(folder, files(module))


def told(answer):
    """(severity, check, what) of each finding."""
    return [(one["severity"], one["check"], one["what"]) for one in json.loads(answer[1])["findings"]]


def test_audit_of_a_layout_is_cached_and_judged_for_its_gpus(call, tmp_path):
    layout(tmp_path / "good", GOOD)
    first = call(tmp_path / "good/oci")[:2]
    assert first[0] == 0
    for blob in (tmp_path / "good/oci/blobs/sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            overwrite(blob, bytes(blob.stat().st_size))
    assert call(tmp_path / "good/oci")[:2] == first  # nothing is read again
    layout(tmp_path / "bad", BROKEN)
    answer = call(tmp_path / "bad/oci")
    symbols, (severity, check, what) = told(answer)
    assert (answer[0], symbols) == (15, ("fail", "symbols", WHAT))
    assert (severity, check, "A100" in what) == ("fail", "architectures", True)
    assert {"A100", "V100"} <= set(json.loads(answer[1])["gpus"])
    assert "2 of its findings fail" in answer[2]


def test_audit_of_a_build_is_for_the_requested_gpus(context, tmp_path):
    """An image with code for V100 alone, whose label says so: a request for A100 does not get it as good."""
    volta = {**GOOD, "fatbin": fat_binary(entry(SASS, 70))}
    entries = [file(path[1:], data, mode=0o755) for path, data in files(volta).items()]
    made = small_layouts.layout(
        tmp_path / "image", [*entries, symlink("lib", "usr/lib")], labels={"graphcrate.architectures": "7.0"}
    )
    report = small_layouts.report(made)
    image = read_image(str(made.path), context)
    failures = {
        gpu: new_image.vet(report, image, tmp_path, context, gpu).report.audit.failures
        for gpu in (None, "v100", "a100")
    }
    assert (failures[None], failures["v100"]) == ((), ())
    (failure,) = failures["a100"]
    assert "A100" in failure
    assert "A100" in (tmp_path / broken.AUDIT).read_text()


def test_audit_of_folders_and_wheels_has_the_same_findings(call, tmp_path):
    root, site = unpacked(tmp_path / "root", BROKEN), tmp_path / "site"
    answer = call(root, "--gpu", "v100")
    assert (answer[0], told(answer)) == (15, [("fail", "symbols", WHAT)])
    shutil.move(root / SITE[1:], site)
    torch = {path.removeprefix(f"{SITE}/"): make_elf(**fields) for path, fields in TORCH.items()}
    scatter = {MODULE.removeprefix(f"{SITE}/"): make_elf(**BROKEN)}
    wheels = [make_wheel(tmp_path, "torch", "2.0.1", torch), make_wheel(tmp_path, "torch_scatter", "2.1.2", scatter)]
    for names, base in itertools.product(([site], wheels), ([], ["--base", root])):
        answer = call(*names, *base)
        assert (answer[0], [each[2] for each in told(answer) if each[0] == "fail"]) == (15, [WHAT])


@pytest.mark.parametrize(
    ("tags", "code"),
    [(["aarch64"], 0), (["aarch64", "any"], 0), (["x86_64"], 15), (["aarch64", "x86_64"], 15)],
)
def test_audit_of_wheels_is_for_the_platform_that_all_of_them_name(call, tmp_path, tags, code):
    files = {"lib.cpython-311-x86_64-linux-gnu.so": make_elf(machine=183)}
    names = [f"cp311-cp311-manylinux_2_28_{tag}" if tag != "any" else "py3-none-any" for tag in tags]
    wheels = [
        make_wheel(tmp_path, f"part{number}", "1.0", files, tag=name, purelib=False)
        for number, name in enumerate(names)
    ]
    assert call(*wheels)[0] == code


@pytest.mark.parametrize("damage", [Path.unlink, lambda blob: overwrite(blob, blob.read_bytes()[:200])])
def test_audit_of_a_damaged_layout_fails(call, tmp_path, damage):
    layout(tmp_path / "image", GOOD)
    damage(max((tmp_path / "image/oci/blobs/sha256").iterdir(), key=lambda blob: blob.stat().st_size))
    answer = call(tmp_path / "image/oci")
    ((severity, check, what),) = told(answer)
    assert (answer[0], severity, check) == (15, "fail", "files")
    assert "the layers cannot be read" in what


def test_audit_of_a_site_folder_over_an_image_sees_its_packages(call, tmp_path):
    """Of an image that keeps its own elsewhere than ours do."""
    root, site = unpacked(tmp_path / "root"), tmp_path / "site"
    site.mkdir()
    for one in (root / SITE[1:]).glob("torch_scatter*"):
        shutil.move(one, site)
    conda = root / "opt/conda/lib/python3.11/site-packages"
    conda.parent.mkdir(parents=True)
    shutil.move(root / SITE[1:], conda)
    answer = call(site, "--base", root)
    assert (answer[0], told(answer)) == (0, [])


def test_audit_uses_requires_python_and_record(call, tmp_path):
    info = f"{SITE}/odd-1.0.dist-info"
    about = {"METADATA": b"Name: odd\nVersion: 1.0\nRequires-Python: <3.10\n", "RECORD": b"_module.so,,\n"}
    odd = {f"{info}/{name}": text for name, text in about.items()}
    root = written(unpacked(tmp_path / "root"), odd | {f"{SITE}/_module.so": make_elf(needed=("libgone.so",))})
    findings = json.loads(call(root)[1])["findings"]
    assert [(one["package"], one["check"]) for one in findings] == [("odd", "libraries"), ("odd", "metadata")]
    assert findings[1]["what"] == "needs Python <3.10; the image has 3.11"


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_audit_of_a_virtual_environment_reads_its_packages(call, tmp_path, mark):
    root = unpacked(tmp_path / "root")
    written(root / "opt/venv", {mark: b""})
    code, out, _ = call(root / "opt/venv")
    assert (code, json.loads(out)["python"], told((code, out))) == (0, "3.11", [])


def test_audit_ignores_condas_package_cache(call, tmp_path):
    """An older torch there, and what is built for it, count for nothing."""
    root = unpacked(tmp_path / "root")
    metadata = "lib/python3.11/site-packages/torch_scatter-2.1.1.dist-info/METADATA"
    wants = core_metadata("torch_scatter", "2.1.1", ["torch==1.13.1"]).encode()
    cached = {MODULE.replace("/opt/venv/", ""): make_elf(**BROKEN), metadata: wants}
    written(root / "opt/conda/pkgs/torch-scatter-2.1.1-py311_0", cached)
    assert told(call(root)) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.whl"], "there is no wheel a.whl"),
        (["gone"], "there is no image 'gone'"),
        (["root", "root"], "wheels, or one image or folder"),
        (["a.whl", "root"], "wheels, or one image or folder"),
        (["root", "--base", "root"], "has a base of its own"),
        (["root", "--gpu", "b7000"], "unknown GPU"),
        (["root", "--target", "dgx7"], "dgx7"),
        (["texts"], "nothing to audit in texts"),
        (["house"], "FOLDER/*.whl"),
    ],
)
def test_audit_of_an_invalid_argument_is_refused(call, tmp_path, arguments, words):
    unpacked(tmp_path / "root")
    text = b"something that is no program, as long as a header would be: " * 2
    written(tmp_path, {"texts/a.txt": text, "house/a.whl": text})
    code, out, err = call(*arguments)
    assert (code, out, words in err, "next:" in err) == (2, "", True, True), err


def test_audit_of_a_damaged_wheel_ends_with_6(call, tmp_path):
    (tmp_path / "x-1.0-py3-none-any.whl").write_bytes(b"PK\x03\x04 and no more")
    code, _, err = call("x-1.0-py3-none-any.whl")
    assert (code, "x-1.0-py3-none-any.whl" in err) == (6, True)


def test_audit_of_a_lock_reads_its_wheels_from_the_cache(call, context, tmp_path):
    wheel = make_wheel(
        tmp_path, "torch_scatter", "2.1.1", {"torch_scatter/_a.so": make_elf(needed=("libcudart.so.13",))}
    )
    found = file_of(wheel.name, wheel.read_bytes())
    target = context.cache.file(found.sha256, found.name)
    target.parent.mkdir(parents=True)
    shutil.copy(wheel, target)
    packages = (locked((wheel.name, wheel.read_bytes())),)
    lock = msgspec.structs.replace(plain_lock(), packages=packages, request_sha256="0" * 64)
    (tmp_path / "pypi.lock.json").write_bytes(encode(lock))
    code, out, _ = call("pypi.lock.json")
    report = json.loads(out)
    assert (report["subject"], report["binaries"]) == ("pypi.lock.json", 1)
    assert (code, [one["what"] for one in report["findings"]]) == (
        15,
        ["needs libcudart.so.13, which nothing in the image has"],
    )
    (tmp_path / "other.lock.json").write_text("<<<<<<< HEAD\n{}")
    for names, words, expected in (
        (("other.lock.json",), "merge conflict", 3),
        (("no.lock.json",), "no lock", 2),
        (("pypi.lock.json", "x.whl"), "one lock", 2),
    ):
        code, _, err = call(*names)
        assert (code, words in err, "next:" in err) == (expected, True, True), err
