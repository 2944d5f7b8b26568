"""Symbols that NCCL gets of an image when it opens the network: made-up libraries, none of which is loaded."""

import json

import msgspec
import pytest

from graphcrate.artifacts.conversion.job import ConvertRequest
from graphcrate.artifacts.conversion.run import convert
from graphcrate.checks.audit import verbs
from graphcrate.compat.facts import verbs as facts
from tests.unit import small_layouts, tars
from tests.unit.audited import SITE, SYSTEM, contents, found, package
from tests.unit.elfmaker import make_elf

NEEDED = facts.needed().symbols
FURTHER = {"ibv_reg_dmabuf_mr": "IBVERBS_1.12", "ibv_reg_mr_iova2": "IBVERBS_1.8"}
NCCL = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
LIBRARY = f"{SYSTEM}/libibverbs.so.1.14.44.0"
C_LIBRARY = {f"{SYSTEM}/libc.so.6": {"versions": ("GLIBC_2.2.5",), "defined": ("memcpy@GLIBC_2.2.5",)}}
LINKS = {
    f"{SYSTEM}/libibverbs.so.1": "libibverbs.so.1.14.44.0",
    f"{SYSTEM}/libibverbs/libmlx5-rdmav34.so": "../libmlx5.so.1.24.44.0",
}
PACKAGES = (package("nvidia-nccl-cu12", "2.20.5", [NCCL]),)


def nccl(*names):
    """Bytes of a libnccl that looks these symbols up."""
    return make_elf(soname="libnccl.so.2", rodata=b"\0IBVERBS_1.1\0" + b"".join(b"%b\0" % n.encode() for n in names))


def library(absent=(), abi=34, further=FURTHER, **fields):
    """libibverbs, with all that NCCL needs but for what is absent; `further` in other versions."""
    versions = ("IBVERBS_1.1", "IBVERBS_1.8", "IBVERBS_1.12", *([f"IBVERBS_PRIVATE_{abi}"] if abi else []))
    defined = [f"{name}@IBVERBS_1.1" for name in NEEDED if name not in absent]
    defined += [f"{name}@{version}" for name, version in further.items()]
    return {"soname": "libibverbs.so.1", "versions": versions, "defined": defined, "needed": ("libc.so.6",), **fields}


def provider(abi=34, **fields):
    wants = {"libibverbs.so.1": (f"IBVERBS_PRIVATE_{abi}",)}
    return {"needed": ("libibverbs.so.1", "libc.so.6"), "needs": wants, **fields}


def image(asked=(*NEEDED, *FURTHER), verbs=None, links=LINKS, drivers=("mlx5",), without=(), **more):
    """An image with NCCL, libibverbs and a provider; `more`: files by their name in the system's folder."""
    files = {NCCL: nccl(*asked), LIBRARY: verbs or library(), f"{SYSTEM}/libmlx5.so.1.24.44.0": provider(), **C_LIBRARY}
    files |= {f"{SYSTEM}/{name.replace('__', '/')}": what for name, what in more.items()}
    files = {path: what for path, what in files.items() if path not in without}
    texts = {f"/etc/libibverbs.d/{name}.driver": f"driver {name}\n".encode() for name in drivers}
    return contents(files, *PACKAGES, links=links, texts=texts)


def test_nccl_gets_a_library_with_all_that_it_needs_and_a_provider():
    seen = verbs.look(image())
    assert (seen.nccl, seen.needed, seen.library) == ((NCCL,), 22, LIBRARY)
    assert (seen.fault, seen.absent, seen.lost, seen.providers) == ("", (), {}, {"mlx5": ""})
    assert found(image()) == []


def test_image_without_libibverbs_or_without_nccl_has_none():
    bare = image(without=(LIBRARY, f"{SYSTEM}/libmlx5.so.1.24.44.0"), links={})
    assert (verbs.look(bare).library, verbs.look(bare).needed) == ("", 22)
    (note,) = found(bare)
    assert note[:3] == ("note", "libraries", "nvidia-nccl-cu12")
    assert "opens libibverbs.so.1 by name" in note[4]
    assert found(msgspec.structs.replace(bare, base=False)) == []  # a wheel of NCCL alone
    alone = image(without=(NCCL,))
    assert (verbs.look(alone).library, verbs.look(alone).needed, found(alone)) == (LIBRARY, 0, [])


def test_library_that_the_loader_does_not_look_for_is_none():
    moved = {"/opt/ofed/lib/libibverbs.so.1": library()}
    files = {NCCL: nccl(*NEEDED), **C_LIBRARY, **moved}
    assert verbs.look(contents(files, *PACKAGES)).library == ""
    assert verbs.look(contents(files, *PACKAGES, preferred=("/opt/ofed/lib",))).library == next(iter(moved))
    conda = {"/opt/conda/lib/libnccl.so.2": nccl(*NEEDED), "/opt/conda/lib/libibverbs.so.1": library()}
    assert verbs.look(contents({**C_LIBRARY, **conda})).library == ""
    conda["/opt/conda/lib/libnccl.so.2"] = make_elf(runpath="$ORIGIN", rodata=b"\0IBVERBS_1.1\0ibv_open_device\0")
    assert verbs.look(contents({**C_LIBRARY, **conda})).library == "/opt/conda/lib/libibverbs.so.1"


def test_symbol_that_nccl_needs_and_the_library_has_in_another_version_is_absent():
    old = library(absent=("ibv_open_device",), further={"ibv_open_device": "IBVERBS_1.8"})
    seen = verbs.look(image(NEEDED, old))
    assert (seen.absent, seen.lost) == (("ibv_open_device@IBVERBS_1.1",), {})
    ((severity, check, _, file, what),) = found(image(NEEDED, old))
    assert (severity, check, file) == ("warn", "symbols", LIBRARY)
    assert what == "does not define ibv_open_device@IBVERBS_1.1, which NCCL looks up"
    assert verbs.look(image(("ibv_query_gid",), old)).absent == ()  # another NCCL does not ask for it


def test_symbol_that_nccl_does_without_is_no_fault():
    old = library(further={"ibv_reg_mr_iova2": "IBVERBS_1.8"})
    seen = verbs.look(image(verbs=old))
    feature = "GPUDirect by dma-buf (nvidia_peermem is the other way)"
    assert (seen.absent, seen.lost) == ((), {feature: ("ibv_reg_dmabuf_mr@IBVERBS_1.12",)})
    data_direct = verbs.look(image((*NEEDED, "mlx5dv_is_supported", "mlx5dv_reg_dmabuf_mr"))).lost
    assert list(data_direct.values()) == [("mlx5dv_is_supported@MLX5_1.8", "mlx5dv_reg_dmabuf_mr@MLX5_1.25")]
    links = {**LINKS, f"{SYSTEM}/libmlx5.so.1": "libmlx5.so.1.24.44.0"}
    given = provider(versions=("MLX5_1.8",), defined=("mlx5dv_is_supported@MLX5_1.8",))
    there = image((*NEEDED, "mlx5dv_is_supported"), links=links, **{"libmlx5.so.1.24.44.0": given})
    assert verbs.look(there).lost == {}
    yet_to_come = verbs.look(image((*NEEDED, "ibv_of_2030"))).lost
    assert yet_to_come == {"what it looks up besides": ("ibv_of_2030",)}
    severities = {one[0] for one in found(image((*NEEDED, "ibv_of_2030"), old))}
    assert severities == {"note"}


def test_library_or_provider_that_cannot_be_loaded_says_why():
    seen = verbs.look(image(verbs=library(needed=("libnl-3.so.200", "libc.so.6"))))
    why = "libibverbs.so.1.14.44.0 needs libnl-3.so.200, which nothing in the image has"
    assert (seen.fault, seen.providers) == (why, {"mlx5": why})
    lacking = image(**{"libmlx5.so.1.24.44.0": provider(needed=("libibverbs.so.1", "libof_a_card.so.1"))})
    assert "libof_a_card.so.1" in verbs.look(lacking).providers["mlx5"]
    damaged = image(**{"libmlx5.so.1.24.44.0": b"\x7fELF and no more"})
    why = "libmlx5-rdmav34.so is damaged, for another machine, or a link that leads nowhere"
    assert verbs.look(damaged).providers == {"mlx5": why}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"links": {f"{SYSTEM}/libibverbs.so.1": "libibverbs.so.1.14.44.0"}}, "there is no libmlx5-rdmav34.so"),
        ({"verbs": library(abi=57)}, "no libmlx5-rdmav57.so, but libmlx5-rdmav34.so, of another rdma-core"),
        ({"libmlx5.so.1.24.44.0": provider(33)}, "needs IBVERBS_PRIVATE_33 of libibverbs.so.1; the image's goes up to"),
        ({"verbs": library(abi=0), "libmlx5.so.1.24.44.0": {}}, ""),
    ],
)
def test_provider_is_that_of_the_private_abi_of_its_libibverbs(changes, why):
    """Providers that enroot's hook binds from the host, or of a second rdma-core, have another one."""
    fault = verbs.look(image(**changes)).providers["mlx5"]
    assert (why in fault) if why else fault == "", fault
    notes = [one for one in found(image(**changes)) if "the provider mlx5 of libibverbs" in one[4]]
    assert [note[0] for note in notes] == (["note"] if why else [])


def test_providers_are_those_that_configuration_names_and_its_lines_may_be_anything():
    texts = {
        "/etc/libibverbs.d/a.driver": b"# driver no\n\xff\xfe\n driver  mlx5 \ndriver\ndriver a b\n" + b"driver x" * 99,
        "/etc/libibverbs.d/b.driver": b"driver /opt/site/libcard\n",
    }
    files = {"/opt/site/libcard-rdmav34.so": provider(), f"{SYSTEM}/libsiw-rdmav34.so": provider()}
    seen = verbs.look(msgspec.structs.replace(image(), texts=texts))
    assert seen.providers == {"mlx5": "", "libcard": "there is no /opt/site/libcard-rdmav34.so"}
    everything = image()
    both = contents(files)
    whole = msgspec.structs.replace(everything, binaries={**everything.binaries, **both.binaries}, texts=texts)
    assert verbs.look(whole).providers == {"mlx5": "", "libcard": ""}
    assert verbs.look(image(drivers=())).providers == {}
    assert verbs.look(image(drivers=("siw",), **{"libsiw-rdmav34.so": provider()})).providers == {"siw": ""}


def layers(**changes):
    """The same image as layers of tar."""
    seen = {"asked": (*NEEDED, *FURTHER, "ibv_query_ece"), "verbs": library(), "links": LINKS, **changes}
    files = {NCCL: nccl(*seen["asked"]), LIBRARY: make_elf(**seen["verbs"]), **C_LIBRARY}
    files[f"{SYSTEM}/libmlx5.so.1.24.44.0"] = make_elf(**provider())
    files["/etc/libibverbs.d/mlx5.driver"] = b"driver mlx5\n"
    files["/usr/bin/other"] = make_elf(needed=("libabsent.so.1",))
    files[f"{SITE}/torch/version.py"] = b"__version__ = '2.3.1+cu121'\ncuda: Optional[str] = '12.1'\n"
    made = {path: what if isinstance(what, bytes) else make_elf(**what) for path, what in files.items()}
    return [
        [tars.file(path[1:], data) for path, data in made.items()],
        [tars.symlink(path[1:], target) for path, target in seen["links"].items()],
    ]


@pytest.mark.parametrize("form", ["layout", "sif", "sqsh", "docker", "rootfs"])
def test_check_of_the_network_says_the_same_of_every_form(form, context, typed, tmp_path):
    """A SIF and a squashfs are read without the rest of their libraries, a layout with a build's audit in one go."""
    (tmp_path / "site.toml").write_text('gpus = ["V100"]\n[fabric]\nkind = "infiniband"\n')
    expected = {
        "pass": "InfiniBand: libibverbs.so.1 with all 22 symbols that NCCL needs, mlx5; "
        "NCCL does without enhanced connection establishment",
        "fail": "InfiniBand: libibverbs.so.1 does not define ibv_query_gid@IBVERBS_1.1, which NCCL looks up: "
        "ranks on several nodes talk TCP",
    }
    for status, changes in {"pass": {}, "fail": {"verbs": library(absent=("ibv_query_gid",))}}.items():
        small_layouts.layout(tmp_path / "dist" / status / "1.0", *layers(**changes))
        ref = f"{status}:1.0"
        if form != "layout":
            ref = str(convert(ConvertRequest(ref=ref, to=form, images=tmp_path / "dist"), context).path)
        for only in (("--only", "fabric"), ("--only", "fabric", "--only", "binaries")):
            code, out, err = typed("check", ref, "--target", "site.toml", *only, "--json")
            assert out, err
            (finding,) = json.loads(out)["runtimes"]["findings"]
            assert (finding["status"], finding["seen"]) == (status, expected[status])
            assert code == {"pass": 0, "fail": 14}[status], err
