"""From trees, odd ones too, to what contracts ask about."""

from graphcrate.artifacts.tree.reader import OpenedTree
from graphcrate.checks.contracts.paths import find_program, resolve_path
from graphcrate.checks.contracts.view import view_of, wants_content
from graphcrate.model.contract import Settings
from graphcrate.model.tree import Entry


def test_links_are_followed_inside_the_image():
    links = {"/bin": "usr/bin", "/usr/bin/python": "/../../opt/python", "/loop": "loop"}
    entries = {path: Entry("symlink", 0o777, link=link) for path, link in links.items()}
    entries |= dict.fromkeys(("/", "/usr", "/usr/bin"), Entry("folder", 0o755))
    entries["/opt/python"] = Entry("file", 0o755)
    places = {"/bin/python": "/opt/python", "/bin/../../bin/missing": "/usr/bin/missing", "/loop": "", "/": "/"}
    assert {path: resolve_path(entries, path) for path in places} == places
    assert find_program(entries, "python", ["", "/usr/sbin", "/bin"]) == "/bin/python"
    assert find_program(entries, "sh", ["/bin"]) == ""


def seen(entries, contents=(), settings=None):
    tree = {"/": Entry("folder", 0o755), **entries}
    return view_of("x", OpenedTree("x", "folder", tree, dict(contents).__getitem__, settings=settings))


def test_odd_trees_give_a_view():
    loop = {"/etc": Entry("symlink", 0o777, link="/etc"), "/bin/sh": Entry("device", 0o666, link="c 1:3")}
    settings = Settings(environment=("PATH=::relative:/bin", "ODD"), entrypoint=("",), volumes=("",))
    view = seen(loop, settings=settings)
    assert view.files["/etc"].real is None
    assert view.files["/bin/sh"].real == "device"
    assert seen({"/root/\udce9": Entry("file", 0o644, size=3)}).hidden["/root"].example == "/root/\\xe9"


def test_musl_conda_and_cuda_of_a_base_image():
    assert seen({"/lib/ld-musl-x86_64.so.1": Entry("file", 0o755)}).c_library.name == "musl"
    conda = seen({"/root/miniconda3/conda-meta/numpy-1.26-py311_0.json": Entry("file", 0o644)})
    assert conda.packages == ("/root/miniconda3/conda-meta",)
    assert conda.distributions == {"numpy": "1.26"}
    assert seen({}, settings=Settings(environment=("CUDA_VERSION=11.8.0",))).cuda == "11.8"
    libc = "/lib/x86_64-linux-gnu/libc"
    old = {f"{libc}.so.6": Entry("symlink", 0o777, link="libc-2.31.so"), f"{libc}-2.31.so": Entry("file", 0o755, 9)}
    assert seen(old).c_library.version == "2.31"


def test_only_small_files_and_the_c_library_are_kept():
    kept = {"/etc/profile.d/a.sh": 100, "/usr/lib/os-release": 267, "/usr/lib/x86_64-linux-gnu/libc-2.31.so": 2_000_000}
    left = {"/usr/lib/x86_64-linux-gnu/libtorch.so": 2_000_000, "/bin/bash": 1_000_000, "/opt/lib/torch/nn.py": 1000}
    assert {path: size for path, size in {**kept, **left}.items() if wants_content(path, size)} == kept
