"""Platforms: each room takes its names from the platform's row, and no other module has one of them."""

import ast
import re
from types import SimpleNamespace

import msgspec
import pytest

from debroot.contents import libraries
from graphcrate.artifacts.tree.binaries import of_opened, over
from graphcrate.artifacts.tree.reader import OpenedTree
from graphcrate.artifacts.wheel import check_tags, supported_tags
from graphcrate.checks.audit.loading import Loader
from graphcrate.checks.audit.packages import Packages
from graphcrate.checks.contracts import contents as contracts
from graphcrate.checks.contracts.view import _c_library
from graphcrate.compat.facts.packages import markers
from graphcrate.compat.variants import recipes
from graphcrate.host.sandbox import gpu
from graphcrate.inputs.bases import install
from graphcrate.model.audit import Contents
from graphcrate.model.contract import Settings
from graphcrate.model.errors import BuildError, HostError, RecipeError
from graphcrate.model.lock import DebianBase, DebianPackage, LockedFile, RegistryBase, decode_lock, platform_of
from graphcrate.model.plan import ConfigStep
from graphcrate.model.platform import (
    AMD64,
    ARM64,
    DEFAULT,
    PLATFORMS,
    SUPPORTED,
    Platform,
    of_machine,
    platform_named,
    supported,
)
from graphcrate.model.recipe import BaseSpec
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import read_layout, write_layout
from graphcrate.publish.bill import _root
from graphcrate.render.steps import UV
from graphcrate.resolve.sources.target import WheelTarget, target_of
from nsbox.syscalls import MACHINES
from ocilayout import spec
from sifsquash import sif
from tests import ROOT, modules_of_house, nodes_of, tree_of_file
from tests.made import place, refused
from tests.unit.contract_cases import GOOD, HOST
from treeaudit.loader import loadable, system_folders
from treeaudit.values import Binary

#: no processor: each of its names is its own, so that a room which has a name from elsewhere is seen
MADE_UP = Platform(
    architecture="goarch",
    variants=("", "v7"),
    debian="debarch",
    machine="uname",
    title="a title",
    elf="EM_MADE_UP",
    elf_number=250,
    triplet="uname-linux-gnu",
    loader="/libmade/ld-made-up.so.3",
    musl="/lib/ld-musl-made.so.1",
    ldconfig="MadeUp",
    oldest_glibc=30,
    qemu="qemu-made",
)
SHA256 = "a" * 64
EMPTY = ConfigStep(environment={}, labels={}, command=("sh",))


def test_platform_rows_are_unique_and_all_are_supported():
    assert (SUPPORTED, DEFAULT) == ((AMD64, ARM64), AMD64)
    for field in ("architecture", "debian", "machine", "elf", "elf_number", "triplet", "loader", "musl", "qemu"):
        assert len({getattr(row, field) for row in PLATFORMS}) == len(PLATFORMS), field
    assert [platform_named(row.name) for row in PLATFORMS] == list(PLATFORMS)
    assert [of_machine(row.machine) for row in PLATFORMS] == list(PLATFORMS)
    assert of_machine("riscv64") is None


# -- each room


def test_wheels_are_chosen_by_the_platforms_tags():
    target = WheelTarget("3.11", "2.36", MADE_UP)
    assert target.uv_platform == "uname-manylinux_2_36"
    tags = {tag.platform for tag in supported_tags("3.11", "2.31", MADE_UP)}
    assert tags == {"manylinux_2_31_uname", "manylinux_2_30_uname", "linux_uname", "any"}
    wheels = [f"a-1-cp311-cp311-manylinux_2_30_{machine}.whl" for machine in ("uname", "x86_64", "aarch64")]
    assert target.best(wheels) == wheels[0]
    assert target_of(BaseSpec(suite="bookworm"), "3.11").best(wheels) == wheels[1]
    check_tags(wheels[0], "3.11", "2.31", MADE_UP)
    with refused(BuildError, "is not for this image: Python 3.11 on a title Linux with glibc 2.31"):
        check_tags(wheels[1], "3.11", "2.31", MADE_UP)
    assert markers("3.11", MADE_UP)["platform_machine"] == "uname"


def test_a_recipe_names_the_platform_of_its_base_and_says_nothing_of_the_default_one(tmp_path):
    base = BaseSpec(suite="bookworm")
    assert base.runs_on is target_of(base, "3.11").platform is AMD64
    assert b"platform" not in msgspec.json.encode(base), "the digest of what was asked for would change"
    assert target_of(BaseSpec(suite="bookworm", platform="linux/arm64"), "3.11").platform is ARM64
    text = (ROOT / "recipes/pyg.toml").read_text(encoding="utf-8")
    first = re.search(r"^base = \{", text, re.MULTILINE)[0]
    named = text.replace(first, first + ' platform = "linux/amd64",', 1)
    recipe = tmp_path / "pyg.toml"
    recipe.write_text(named, encoding="utf-8")
    assert recipes.load(recipe).variants[0].base.runs_on is AMD64
    recipe.write_text(named.replace("linux/amd64", "linux/arm64"), encoding="utf-8")
    assert recipes.load(recipe).variants[0].base.runs_on is ARM64
    recipe.write_text(named.replace("linux/amd64", "linux/riscv64"), encoding="utf-8")
    with refused(RecipeError, "images are made for linux/amd64 and linux/arm64, not for 'linux/riscv64'"):
        recipes.load(recipe)


@pytest.mark.parametrize(("platform", "oldest"), [(AMD64, "manylinux1_x86_64"), (ARM64, "manylinux2014_aarch64")])
def test_the_oldest_manylinux_is_the_platforms(platform, oldest):
    tags = [tag.platform for tag in supported_tags("3.11", "2.36", platform) if tag.platform.startswith("many")]
    assert tags[-1] == oldest


def test_images_and_layouts_name_the_platform(tmp_path):
    image = make_image((), EMPTY, 0, platform=ARM64)
    assert msgspec.json.decode(image.documents.config, type=spec.ImageConfig).architecture == "arm64"
    written = write_layout(tmp_path / "oci", image, lambda _: tmp_path, "1.0")
    assert written.descriptor.platform == spec.DescriptorPlatform(architecture="arm64", os="linux")
    assert read_layout(tmp_path / "oci").config.architecture == "arm64"


def test_a_lock_has_the_platform_of_its_base():
    file = LockedFile(name="a.deb", size=1, sha256=SHA256)
    package = DebianPackage(name="a", version="1", architecture="all", file=file)
    debian = DebianBase(suite="bookworm", packages=(package,))
    assert platform_of(debian) is platform_of(None) is DEFAULT
    arm = msgspec.structs.replace(debian, packages=(package, msgspec.structs.replace(package, architecture="arm64")))
    assert platform_of(arm) is ARM64
    base = RegistryBase(reference="a.example/b", digest=f"sha256:{SHA256}", interpreter="/usr/bin/python3.11")
    assert platform_of(base) is AMD64
    lock = (ROOT / "images/glt/cu121/pypi.lock.json").read_bytes()
    assert decode_lock(lock).platform is AMD64
    assert _root(decode_lock(lock), SimpleNamespace(name="a", tag="b", digest="c", sha256=SHA256)).purl.qualifiers == {
        "arch": "amd64"
    }


@pytest.mark.parametrize("platform", ["linux/riscv64", "windows/amd64", ""])
def test_a_lock_for_a_platform_that_no_image_is_made_for_is_refused(platform):
    base = {"reference": "a.example/b", "digest": f"sha256:{SHA256}", "interpreter": "/p", "platform": platform}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"provider": "registry", **base}, RegistryBase)


def test_system_folders_and_loadable_elf_are_those_of_the_platform():
    assert system_folders(MADE_UP.triplet)[:2] == ("/lib/uname-linux-gnu", "/usr/lib/uname-linux-gnu")
    assert system_folders(MADE_UP.triplet)[-1] == "/usr/local/lib/uname-linux-gnu"
    binary = Binary(machine="EM_MADE_UP", size=1)
    assert (loadable(binary, MADE_UP.elf), loadable(binary, AMD64.elf)) == (True, False)
    wheels = Contents(name="a", form="wheels", binaries={}, base=False, platform=MADE_UP)
    loader = Loader(wheels, Packages(wheels))
    assert [loader.is_assumed(name) for name in ("ld-made-up.so.3", "ld-linux-x86-64.so.2")] == [True, False]
    assert "/usr/lib/uname-linux-gnu" in over(wheels, wheels).folders


def test_the_c_library_is_found_on_each_platform():
    for row in PLATFORMS:
        glibc = {f"/usr/lib/{row.triplet}/libc.so.6": SimpleNamespace(kind="file")}
        read = b"GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36."
        assert _c_library(glibc, lambda _, read=read: read).version == "2.36", row.name
        assert _c_library({row.musl: SimpleNamespace(kind="file")}, lambda _: None).name == "musl", row.name


def test_debians_lists_and_index_are_those_of_the_platform():
    index = b"usr/lib/%s/libx.so.1  libs/other\n"
    for triplet, platform in ((b"uname-linux-gnu", MADE_UP), (b"x86_64-linux-gnu", AMD64)):
        assert libraries([index % triplet], platform.triplet) == {"libx.so.1": ("other",)}
    assert libraries([index % b"uname-linux-gnu"], AMD64.triplet) == {}
    with refused(HostError, "a base for a title cannot be made on "):
        install.install([], ROOT, "bookworm", print, MADE_UP)


def test_the_hosts_driver_is_looked_for_where_its_platform_has_it():
    assert "/usr/lib/uname-linux-gnu/nvidia/current" in gpu.folders_of(MADE_UP)
    ldconfig = "\tlibcuda.so.1 (libc6,x86-64) => /x/libcuda.so.1\n\tlibcuda.so.1 (libc6,MadeUp) => /m/libcuda.so.1\n"
    for platform, path in ((MADE_UP, "/m/libcuda.so.1"), (AMD64, "/x/libcuda.so.1")):
        assert gpu.choose(["nvidia0"], ldconfig, {}, {}, platform).libraries == {"libcuda.so.1": path}


def test_each_platform_has_a_filter_of_calls():
    assert {row.machine for row in PLATFORMS} == set(MACHINES)


def test_sif_files_can_be_of_each_platform():
    numbers = {sif.front((), 1, row.architecture, SimpleNamespace(bytes=b""), 0)[45:48] for row in SUPPORTED}
    assert len(numbers) == len(SUPPORTED)


def test_each_supported_platform_has_a_wheel_of_uv():
    assert set(UV["sha256"]) >= {row.name for row in SUPPORTED}


def test_a_second_supported_platform_is_taken_by_contracts_and_the_audit():
    settings = Settings(platform=ARM64.name)
    assert contracts.platform.judge(msgspec.structs.replace(GOOD, settings=settings), HOST).status == "pass"
    assert supported(ARM64.name) is ARM64
    opened = OpenedTree(name="a", form="folder", entries={}, read=lambda path: b"", settings=None)
    tools = SimpleNamespace(ctx=place(None))
    assert of_opened("a", opened, tools, settings=settings).platform is ARM64


# -- no other module

#: of all that `Platform` has: what another module may not write
NAMES = ("architecture", "machine", "title", "elf", "triplet", "loader_name", "musl", "qemu", "wheel_tag")
#: that have some all the same
EXCEPTIONS = {"graphcrate/model/platform.py"}


def strings(path):
    """A module's strings but its docstrings, which may give examples."""
    tree = tree_of_file(path)
    bodies = (node.body for node in nodes_of(tree, ast.Module, ast.ClassDef, ast.FunctionDef))
    docs = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in nodes_of(tree, ast.Constant):
        if isinstance(node.value, str | bytes) and id(node) not in docs:
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def test_no_other_module_has_names_of_a_platform():
    ours = {getattr(row, name) for row in PLATFORMS for name in NAMES}
    name = re.compile("|".join(re.escape(one) for one in sorted(ours, key=len, reverse=True)))
    found = {
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}"
        for path in modules_of_house()
        if str(path.relative_to(ROOT)) not in EXCEPTIONS
        for line, text in strings(path)
        if name.search(text)
    }
    assert sorted(found) == [], "take it from the row: graphcrate.model.platform"
