"""Trees of small libraries: what is wrong with each is named, and nothing else."""

import os

import pytest
from elfmaker import PTX, SASS, entry, fat_binary, make_elf

from treeaudit import tree
from treeaudit.__main__ import main
from treeaudit.links import resolve
from treeaudit.loader import Loader, is_driver, system_folders

C = make_elf(soname="libc.so.6", defined=("memcpy@GLIBC_2.14",), versions=("GLIBC_2.14",))
CODE = fat_binary(entry(SASS, 80), entry(PTX, 86))
ARM = 183


def lay_out(root, files):
    """A tree: bytes are files, text is where a link leads."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            place.symlink_to(content)
    return root


def problems(root, files, **more):
    found = tree.problems(tree.read(lay_out(root, files)), **more)
    return [f"{one.path}: {one.check}: {one.what}" for one in found]


SYSTEM = {"lib/x86_64-linux-gnu/libc.so.6": C}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, []),
        ({"bin/tool": make_elf(undefined=("memcpy@GLIBC_2.14",), needs={"libc.so.6": ("GLIBC_2.14",)})}, []),
        ({"bin/tool": make_elf(needed=("libx.so.1",))}, ["/bin/tool: libraries: needs libx.so.1, which is not found"]),
        ({"bin/tool": make_elf(needed=("libx.so.1",), runpath="$ORIGIN/../own"), "own/libx.so.1": make_elf()}, []),
        ({"bin/tool": make_elf(needed=("libx.so.1",)), "usr/lib/libx.so.1": "../../own/x", "own/x": make_elf()}, []),
        (
            {"bin/tool": make_elf(needed=("libx.so.1",)), "opt/libx.so.1": make_elf(), "etc/ld.so.conf": b"/opt #\n"},
            [],
        ),
        ({"bin/tool": make_elf(needed=("libcuda.so.1",), undefined=("cuInit",))}, []),
        (
            {"bin/tool": make_elf(needed=("libc.so.6",), needs={"libc.so.6": ("GLIBC_2.34",)})},
            ["/bin/tool: versions: needs GLIBC_2.34 of /lib/x86_64-linux-gnu/libc.so.6, which is older or another one"],
        ),
        (
            {"bin/tool": make_elf(needed=("libc.so.6",), undefined=("gone", "?weak"))},
            ["/bin/tool: symbols: refers to gone, which nothing in the tree defines"],
        ),
        ({"lib/a.so": make_elf(machine=ARM)}, ["/lib/a.so: machine: is for EM_AARCH64, the tree for EM_X86_64"]),
        (
            {"bin/tool": make_elf(needed=("liba.so",)), "lib/liba.so": make_elf(machine=ARM)},
            [
                "/bin/tool: libraries: needs liba.so, which is not found",
                "/lib/liba.so: machine: is for EM_AARCH64, the tree for EM_X86_64",
            ],
        ),
        (
            {"lib/a.so": b"\x7fELF and no more"},
            ["/lib/a.so: file: /lib/a.so is not a whole ELF file"],
        ),
        ({"share/text": b"no ELF", "bin/out": "/../../etc/passwd", "lib/core": make_elf(kind=4)}, []),
    ],
)
def test_tree_has_its_problems_and_no_others(tmp_path, files, expected):
    found = problems(tmp_path, SYSTEM | {"bin/other": make_elf()} | files)
    assert [line.partition(": Invalid")[0] for line in found] == expected


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ((), []),
        (("8.0", "8.9", "9.0"), []),
        (("7.0", "8.0"), ["/a.so: gpu: has no code for GPUs of 7.0; it has 8.0, PTX 8.6"]),
    ],
)
def test_gpus_without_code_are_named(tmp_path, gpus, expected):
    assert problems(tmp_path, {"a.so": make_elf(fatbin=CODE), "b.so": make_elf()}, gpus=gpus) == expected
    assert tree.code(tree.read(tmp_path)) == tree.GpuCode(sass=("8.0",), ptx=("8.6",))


def test_gpu_code_of_another_format_is_a_problem(tmp_path):
    (line,) = problems(tmp_path, {"a.so": make_elf(fatbin=b"a stranger here!")})
    assert line.startswith("/a.so: gpu: /a.so: GPU code, byte 0: no fat binary begins here")


def test_bare_packages_may_rely_on_what_manylinux_has(tmp_path):
    files = {"pkg/a.so": make_elf(needed=("libc.so.6", "libstdc++.so.6", "libssl.so.3"), undefined=("memcpy",))}
    assert problems(tmp_path, files) == ["/pkg/a.so: libraries: needs libssl.so.3, which is not found"]
    assert tree.problems(tree.read(tmp_path), assumed=["libssl.so.3"]) == []


def test_rpath_of_whoever_loads_counts_and_runpath_does_not(tmp_path):
    for way, expected in (("rpath", "/own/libb.so"), ("runpath", "")):
        root = tmp_path / way
        files = {"bin/tool": make_elf(needed=("liba.so",), **{way: "/own"})}
        files |= {"own/liba.so": make_elf(needed=("libb.so",)), "own/libb.so": make_elf()}
        found = tree.read(lay_out(root, files))
        loader = Loader(found.binaries, found.links, "EM_X86_64", ())
        assert loader.find("libb.so", "/own/liba.so", ("/bin/tool",)) == expected
        missing = frozenset() if expected else frozenset(["libb.so"])
        assert loader.closure("/bin/tool")[1] == missing


def test_links_stay_in_the_tree_and_circles_end():
    links = {"/a": "/b", "/b": "a", "/up": "../../x", "/lib": "usr/lib"}
    for path, expected in (("/a", ""), ("/up/y", "/x/y"), ("/lib/../z", "/usr/z"), ("/", "/"), ("/plain", "/plain")):
        assert resolve(links.get, path) == expected


def test_driver_and_system_folders():
    assert [is_driver(name) for name in ("libcuda.so.1", "libnvidia-ml.so", "libcudart.so.12")] == [True, True, False]
    assert system_folders("aarch64-linux-gnu")[0] == "/lib/aarch64-linux-gnu"


def test_program_prints_problems_and_ends_with_1(tmp_path, capsys):
    lay_out(tmp_path, {"a.so": make_elf(fatbin=CODE, needed=("libx.so",))})
    assert main([str(tmp_path), "--gpu", "7.0"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "/a.so: gpu: has no code for GPUs of 7.0; it has 8.0, PTX 8.6",
        "/a.so: libraries: needs libx.so, which is not found",
    ]
    assert err == "1 programs and libraries, 2 problems; GPU code for 8.0 PTX 8.6\n"
    assert main([str(tmp_path), "--assume", "libx.so", "--gpu", "8.0"]) == 0


@pytest.mark.parametrize("words", [["missing"], [".", "--gpu", "sm_70"], []])
def test_wrong_call_ends_with_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: python -m treeaudit")


def test_fifo_in_a_tree_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert problems(tmp_path, {}) == []
