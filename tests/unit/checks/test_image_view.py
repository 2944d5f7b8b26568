"""From trees, odd ones too, to what contracts ask about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.artifacts.formats.runtime_files import SIF_SCRIPT
from graphcrate.artifacts.tree.reader import OpenedTree
from graphcrate.checks.contracts.check import absent, asked_by, check, passed, warned
from graphcrate.checks.contracts.paths import find_program, resolve_path
from graphcrate.checks.contracts.run import ASKED, CHECKS
from graphcrate.checks.contracts.view import view_of
from graphcrate.model.contract import Host, Settings
from graphcrate.model.runtime import RUNTIMES
from graphcrate.model.tree import Entry


def test_resolve_path_follows_links_inside_the_image():
    links = {"/bin": "usr/bin", "/usr/bin/python": "/../../opt/python", "/loop": "loop"}
    entries = {path: Entry("symlink", 0o777, link=link) for path, link in links.items()}
    entries |= dict.fromkeys(("/", "/usr", "/usr/bin"), Entry("folder", 0o755))
    entries["/opt/python"] = Entry("file", 0o755)
    places = {"/bin/python": "/opt/python", "/bin/../../bin/missing": "/usr/bin/missing", "/loop": "", "/": "/"}
    assert {path: resolve_path(entries, path) for path in places} == places
    assert find_program(entries, "python", ["", "/usr/sbin", "/bin"]) == "/bin/python"
    assert find_program(entries, "sh", ["/bin"]) == ""


def seen(entries, contents=(), settings=None, form="folder", asked=ASKED):
    tree = {"/": Entry("folder", 0o755), **entries}
    return view_of("x", OpenedTree("x", form, tree, dict(contents).__getitem__, settings=settings), asked)


def test_image_view_of_link_loops_devices_and_non_utf8_names_is_made():
    loop = {"/etc": Entry("symlink", 0o777, link="/etc"), "/bin/sh": Entry("device", 0o666, link="c 1:3")}
    settings = Settings(environment=("PATH=::relative:/bin", "ODD"), entrypoint=("",), volumes=("",))
    view = seen(loop, settings=settings)
    assert view.files["/etc"].real is None
    assert view.files["/bin/sh"].real == "device"
    assert seen({"/root/\udce9": Entry("file", 0o644, size=3)}).hidden["/root"].example == "/root/\\xe9"


def test_image_view_has_musl_conda_packages_and_cuda():
    assert seen({"/lib/ld-musl-x86_64.so.1": Entry("file", 0o755)}).c_library.name == "musl"
    conda = seen({"/root/miniconda3/conda-meta/numpy-1.26-py311_0.json": Entry("file", 0o644)})
    assert conda.packages == ("/root/miniconda3/conda-meta",)
    assert conda.distributions == {"numpy": "1.26"}
    assert seen({}, settings=Settings(environment=("CUDA_VERSION=11.8.0",))).cuda == "11.8"
    libc = "/lib/x86_64-linux-gnu/libc"
    old = {f"{libc}.so.6": Entry("symlink", 0o777, link="libc-2.31.so"), f"{libc}-2.31.so": Entry("file", 0o755, 9)}
    assert seen(old).c_library.version == "2.31"


def test_image_view_keeps_small_files_and_libc():
    kept = {"/etc/profile.d/a.sh": 100, "/usr/lib/os-release": 267, "/usr/lib/x86_64-linux-gnu/libc-2.31.so": 2_000_000}
    left = {"/usr/lib/x86_64-linux-gnu/libtorch.so": 2_000_000, "/bin/bash": 1_000_000, "/opt/lib/torch/nn.py": 1000}
    assert {path: size for path, size in {**kept, **left}.items() if ASKED.keeps(path, size)} == kept


def verdict(view, name):
    (one,) = (one for one in CHECKS if one.id == name)
    return one.find(view, Host(), RUNTIMES)


def test_image_view_finds_folders_with_a_trailing_slash():
    settings = Settings(working_folder="/work/", environment=("LD_LIBRARY_PATH=/gone/:/absent",))
    view = seen({"/work": Entry("folder", 0o755)}, settings=settings)
    assert verdict(view, "working-folder").status == "pass"
    assert verdict(view, "library-path").seen.endswith("none of it is in the image")


def test_image_view_reads_the_entrypoint_of_a_sif_script():
    """Apptainer writes ENTRYPOINT of an image of a registry into the script that starts the SIF."""
    texts = {SIF_SCRIPT: b"#!/bin/sh\nOCI_ENTRYPOINT='\"/app/start\"'\n", "/app/start": b'#!/bin/sh\nexec "$@"\n'}
    entries = {path: Entry("file", 0o755, size=len(text)) for path, text in texts.items()}
    view = seen(entries, texts, Settings(entrypoint=(SIF_SCRIPT,)), form="sif")
    assert verdict(view, "entrypoint").seen == "/app/start ends in exec"


@pytest.mark.parametrize(
    ("loaders", "name", "gpu", "status"),
    [
        (("/lib/ld-linux-aarch64.so.1",), "linux/arm64", "GH200", "pass"),
        (("/lib/ld-linux-aarch64.so.1",), "linux/arm64", "A100", "fail"),
        (("/lib64/ld-linux-x86-64.so.2",), "linux/amd64", "A100", "pass"),
        (("/lib64/ld-linux-x86-64.so.2",), "linux/amd64", "GH200", "fail"),
        (("/lib/ld-musl-aarch64.so.1",), "linux/arm64", "GH200", "pass"),
        (("/lib/ld-linux-aarch64.so.1", "/lib64/ld-linux-x86-64.so.2"), "", "A100", "unknown"),
        ((), "", "A100", "unknown"),
    ],
)
def test_platform_of_a_tree_without_configuration_is_that_of_its_loader(loaders, name, gpu, status):
    """A SIF, a squashfs and a folder do not say what they are for; an arm64 one was judged as x86-64."""
    links = {path: Entry("symlink", 0o777, link=f"usr{path}") for path in ("/lib", "/lib64")}
    entries = links | {f"/usr{path}": Entry("file", 0o755) for path in loaders}
    view = seen(entries, settings=Settings(platform="", entrypoint=(SIF_SCRIPT,)), form="sif")
    assert view.settings.platform == name
    (platform,) = (one for one in CHECKS if one.id == "platform")
    assert platform.find(view, Host(gpus=(gpu,)), RUNTIMES).status == status


@check("InfiniBand's library", *RUNTIMES, matching=r".*/libibverbs\.so[.\d]*", programs=("ibv_devinfo",))
def verbs(view, host):
    """Without it NCCL goes over TCP.
    Source: made up
    """
    return passed("there") if [*view.files, *view.programs] else absent(view, warned("not there", "add it"))


@check("forgotten", *RUNTIMES)
def forgotten(view, host):
    """It does not say what it looks at.
    Source: made up
    """
    return passed("there") if "/etc/libibverbs.d" in view.files else passed("not there")


def test_contract_check_sees_its_declared_paths():
    tree = {
        "/usr/lib/libibverbs.so.1": Entry("file", 0o755, size=9),
        "/usr/bin/ibv_devinfo": Entry("file", 0o755, size=9),
    }
    asked = asked_by((verbs,))
    assert seen(tree, asked=asked).files.keys() == {"/", "/usr/lib/libibverbs.so.1"}
    assert seen(tree, asked=asked).programs == {"ibv_devinfo": "/usr/bin/ibv_devinfo"}
    assert verbs.find(seen(tree, asked=asked), Host(), RUNTIMES).status == "pass"
    assert verbs.find(seen({}, asked=asked), Host(), RUNTIMES).status == "warn"
    assert asked_by((verbs, *CHECKS)).name != ASKED.name, "layers that were read before are read again"


def test_contract_check_with_an_undeclared_path_is_an_assertion_error():
    with pytest.raises(AssertionError, match="the check forgotten looks at /etc/libibverbs"):
        forgotten.find(seen({"/etc/libibverbs.d": Entry("folder", 0o755)}), Host(), RUNTIMES)


WORDS = st.text("/.ab :~é\0", max_size=8) | st.sampled_from(("sh", "/bin/sh", "-c", "/", "//", "./x", "a/b", "/a/"))


@given(st.lists(WORDS, max_size=3), st.lists(WORDS, max_size=3), WORDS, st.lists(WORDS, max_size=2), WORDS, WORDS)
def test_contract_checks_declare_their_paths_for_random_settings(entry, command, folder, volumes, path, libraries):
    settings = Settings(
        environment=(f"PATH={path}", f"LD_LIBRARY_PATH={libraries}"),
        entrypoint=tuple(entry),
        command=tuple(command),
        working_folder=folder,
        volumes=tuple(volumes),
    )
    for form in ("sif", "layout"):
        view = seen({"/bin/sh": Entry("file", 0o755, size=9), "/a": Entry("folder", 0o755)}, (), settings, form)
        assert len([one.find(view, Host(), RUNTIMES) for one in CHECKS]) == len(CHECKS)
