"""`audit`: an image in any form, wheels and folders give the same answer; odd arguments get one that helps."""

import itertools
import json
import shutil

import pytest

from tests.unit import small_layouts
from tests.unit.audited import GOOD, MODULE, PACKAGES, PYTHON, SITE, TORCH
from tests.unit.elfmaker import SASS, entry, fat_binary, make_elf
from tests.unit.tars import file, overwrite, symlink
from tests.unit.wheelmaker import make_wheel

BROKEN = {**GOOD, "undefined": ("_ZN3c104cuda9SetDeviceEa",), "fatbin": fat_binary(entry(SASS, 70))}
WHAT = "refers to a symbol that nothing it is loaded with defines: c10::cuda::SetDevice(signed char)"


@pytest.fixture
def call(context, typed):
    return lambda *arguments: typed("audit", *arguments)


def files(module):
    """Path in the image → content: the usual stack, with what installers write beside it."""
    contents = {path: make_elf(**fields) for path, fields in {**PYTHON, **TORCH, MODULE: module}.items()}
    for one in PACKAGES:
        info = f"{SITE}/{one.name.replace('-', '_')}-{one.version}.dist-info"
        requires = "".join(f"Requires-Dist: {line}\n" for line in one.requires)
        contents[f"{info}/METADATA"] = f"Name: {one.name}\nVersion: {one.version}\n{requires}\n".encode()
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


def unpacked(folder, module):
    return written(folder, files(module))


def told(out):
    return [(one["severity"], one["check"], one["file"], one["what"]) for one in json.loads(out)["findings"]]


def test_a_layout_is_read_once(call, tmp_path):
    layout(tmp_path / "good", GOOD)
    first = call(tmp_path / "good/oci", "--json")[:2]
    assert first[0] == 0
    for blob in (tmp_path / "good/oci/blobs/sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            overwrite(blob, bytes(blob.stat().st_size))
    assert call(tmp_path / "good/oci", "--json")[:2] == first  # nothing is read again
    layout(tmp_path / "bad", BROKEN)
    code, out, err = call(tmp_path / "bad/oci", "--json")
    assert code == 15
    # for the GPUs that the image says it is for: A100 has no code
    symbols, architectures = told(out)
    assert (symbols[0], symbols[1], symbols[3]) == ("fail", "symbols", WHAT)
    assert (architectures[0], architectures[1], "A100" in architectures[3]) == ("fail", "architectures", True)
    assert {"A100", "V100"} <= set(json.loads(out)["gpus"])
    assert "2 of its findings fail" in err


def test_folders_and_wheels_say_the_same(call, tmp_path):
    root = unpacked(tmp_path / "root", BROKEN)
    code, out, _ = call(root, "--json", "--gpu", "v100")
    assert (code, [each[3] for each in told(out)]) == (15, [WHAT])
    site = tmp_path / "site"
    shutil.move(root / SITE[1:], site)
    torch = {path.removeprefix(f"{SITE}/"): make_elf(**fields) for path, fields in TORCH.items()}
    wheels = [
        make_wheel(tmp_path, "torch", "2.0.1", torch),
        make_wheel(tmp_path, "torch_scatter", "2.1.2", {MODULE.removeprefix(f"{SITE}/"): make_elf(**BROKEN)}),
    ]
    for names, base in itertools.product(([site], wheels), ([], ["--base", root])):
        code, out, _ = call(*names, *base, "--json")
        findings = [each for each in told(out) if each[0] == "fail"]
        assert (code, [each[3] for each in findings]) == (15, [WHAT])


def test_an_image_whose_layers_cannot_be_read_is_not_fine(call, tmp_path):
    for damage in (lambda blob: blob.unlink(), lambda blob: overwrite(blob, blob.read_bytes()[:200])):
        layout(tmp_path / "image", GOOD)
        blobs = [blob for blob in (tmp_path / "image/oci/blobs/sha256").iterdir() if blob.stat().st_size > 1000]
        damage(max(blobs, key=lambda blob: blob.stat().st_size))
        code, out, _ = call(tmp_path / "image/oci", "--json")
        assert (code, [each[:3] for each in told(out)]) == (15, [("fail", "files", "")])
        assert "the layers cannot be read" in told(out)[0][3]
        shutil.rmtree(tmp_path / "image")


def test_an_environment_that_sees_the_systems_packages(call, tmp_path):
    root = unpacked(tmp_path / "root", GOOD)
    numpy = "usr/lib/python3/dist-packages/numpy-2.0.dist-info/METADATA"
    written(root, {numpy: b"Name: numpy\nVersion: 2.0\n"})
    metadata = next((root / SITE[1:]).glob("torch-*/METADATA"))
    metadata.write_text("Name: torch\nVersion: 2.0.1\nRequires-Dist: nvidia-cuda-runtime-cu11\nRequires-Dist: numpy\n")
    (root / "opt/venv/pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    assert [each[3] for each in told(call(root, "--json")[1])] == ["requires numpy, which is not installed"]
    (root / "opt/venv/pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = True\n")
    assert told(call(root, "--json")[1]) == []
    code, out, _ = call(root / "opt/venv", "--json")  # the packages in it
    assert (code, json.loads(out)["python"]) == (0, "3.11")


def test_packages_see_those_of_the_image_that_they_are_laid_over(call, tmp_path):
    """Of an image that keeps its own elsewhere than ours do."""
    root = unpacked(tmp_path / "root", GOOD)
    site, conda = tmp_path / "site", root / "opt/conda/lib/python3.11/site-packages"
    site.mkdir()
    for one in (root / SITE[1:]).glob("torch_scatter*"):
        shutil.move(one, site)
    conda.parent.mkdir(parents=True)
    shutil.move(root / SITE[1:], conda)
    code, out, _ = call(site, "--base", root, "--json")
    assert (code, told(out)) == (0, [])


def environment(folder, python, **packages):
    """One of conda's. `packages`: name → what it requires; the first has a module."""
    site, tag = f"lib/python{python}/site-packages", python.replace(".", "")
    module = f"{site}/{next(iter(packages))}/core.cpython-{tag}-x86_64-linux-gnu.so"
    contents = dict.fromkeys((module, f"bin/python{python}", "conda-meta/history"), make_elf())
    for name, requires in packages.items():
        lines = "".join(f"Requires-Dist: {one}\n" for one in requires)
        contents[f"{site}/{name}-0.6.dist-info/METADATA"] = f"Name: {name}\nVersion: 0.6\n{lines}".encode()
    return written(folder, contents)


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_an_environment_of_condas_is_not_that_of_the_image_below(call, tmp_path, python):
    below = environment(tmp_path / "root/opt/conda", python, conda=[], numpy=[], pluggy=[], requests=[]).parent.parent
    conda = environment(tmp_path / "conda", "3.11", pandas=["numpy", "pluggy<0.5"], pluggy=[])
    code, out, _ = call(conda, "--base", below, "--json")
    findings = ["requires numpy, which is not installed", "requires pluggy<0.5; 0.6 is installed"]
    assert (code, [each[3] for each in told(out)], json.loads(out)["python"]) == (0, findings, "3.11")


def test_what_an_environment_of_condas_lacks_is_told_without_the_image_below(call, tmp_path):
    conda = environment(tmp_path / "conda", "3.11", torchrl=["gone"])
    what = [each[3] for each in told(call(conda, "--json")[1])]
    assert "requires gone, which is not installed" in what
    assert any("does not say so" in each for each in what)
    site = conda / "lib/python3.11/site-packages"
    assert told(call(site, "--json")[1]) == []  # packages alone may be laid over more


def test_condas_cache_of_packages_is_not_installed(call, tmp_path):
    """An older torch there, and what is built for it, serve nobody and fail nobody."""
    root = unpacked(tmp_path / "root", GOOD)
    metadata = "lib/python3.11/site-packages/torch_scatter-2.1.1.dist-info/METADATA"
    wants = b"Name: torch_scatter\nVersion: 2.1.1\nRequires-Dist: torch==1.13.1\n"
    cached = {MODULE.replace("/opt/venv/", ""): make_elf(**BROKEN), metadata: wants}
    written(root / "opt/conda/pkgs/torch-scatter-2.1.1-py311_0", cached)
    code, out, _ = call(root, "--json")
    assert (code, told(out)) == (0, [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.whl"], "there is no wheel a.whl"),
        (["gone"], "there is no image 'gone'"),
        (["root", "root"], "one image or folder can be audited at a time"),
        (["a.whl", "root"], "wheels"),
        (["root", "--base", "root"], "has a base of its own"),
        (["root", "--gpu", "b7000"], "unknown GPU"),
        (["root", "--target", "dgx7"], "dgx7"),
        (["texts"], "nothing to audit in texts"),
        (["house"], "./build.py audit house/*.whl"),
    ],
)
def test_odd_arguments(call, tmp_path, arguments, words):
    unpacked(tmp_path / "root", GOOD)
    text = b"something that is no program, as long as a header would be: " * 2
    written(tmp_path, {"texts/a.txt": text, "house/a.whl": text})
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "next:" in err


def test_a_wheel_that_is_none(call, tmp_path):
    (tmp_path / "x-1.0-py3-none-any.whl").write_bytes(b"PK\x03\x04 and no more")
    code, _, err = call("x-1.0-py3-none-any.whl")
    assert (code, "x-1.0-py3-none-any.whl" in err) == (6, True)
