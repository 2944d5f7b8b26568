"""Libraries that the suite `torch` loads for the network between nodes: made-up libraries and a made-up loader."""

from types import SimpleNamespace

import pytest
from proof import verbs
from proof.verdict import Fault, Layer, Proof

from graphcrate.compat.facts import verbs as facts
from graphcrate.model.suite import SUITES

ABSENT = "{}: cannot open shared object file: No such file or directory"
BROKEN = "libnl-3.so.200: cannot open shared object file: No such file or directory"
OTHER = "{}: version `IBVERBS_PRIVATE_33' not found (required by {})"


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Runs the check with these providers, of which some cannot be loaded; returns metrics, or what is at fault."""

    def run(providers=("mlx5", "siw"), faults=None, absent=(), drivers=None):
        faults = faults or {}
        folder = tmp_path / "usr/lib/x86_64-linux-gnu/libibverbs"
        (tmp_path / "etc/libibverbs.d").mkdir(parents=True)
        folder.mkdir(parents=True)
        for name in providers:
            (folder / f"lib{name}-rdmav34.so").touch()
        for name in providers if drivers is None else drivers:
            (tmp_path / f"etc/libibverbs.d/{name}.driver").write_text(f"driver {name}\n")

        def dlopen(path):
            for name, fault in faults.items():
                if name in path:
                    raise OSError(fault.format(path, path))
            return SimpleNamespace(_handle=1)

        asked = []

        def is_defined(library, name, version):
            asked.append((name, version))
            return name not in absent

        monkeypatch.setattr(verbs, "is_defined", is_defined)
        proof = Proof("torch")
        try:
            verbs.load(proof, dlopen, tmp_path)
        except Fault as fault:
            return f"{fault.layer.value}: {fault}"
        assert proof.metrics["verbs"] == "none" or asked == [(name, "IBVERBS_1.1") for name in verbs.SYMBOLS]
        return proof.metrics["verbs"]

    return run


def test_symbols_are_those_that_the_audit_reads_in_nccl():
    needed = facts.needed()
    assert (needed.library, needed.version) == (verbs.LIBRARY, verbs.VERSION)
    assert needed.symbols == verbs.SYMBOLS
    assert SUITES["torch"].version >= 2  # passes of before do not say that it loads


def test_network_libraries_of_an_image_are_loaded(loaded, capsys):
    assert loaded() == "22 symbols, 2 of 2 providers"
    assert "libibverbs.so.1 loads with 22 symbols" in capsys.readouterr().out


def test_image_without_libibverbs_passes_and_says_so(loaded, capsys):
    assert loaded(faults={"libibverbs.so.1": ABSENT}) == "none"
    assert "ranks on several nodes talk TCP" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"faults": {"libibverbs.so.1": BROKEN}}, f"libibverbs.so.1 cannot be loaded: {BROKEN}"),
        ({"absent": ("ibv_query_gid",)}, "does not define ibv_query_gid in IBVERBS_1.1, which NCCL looks up"),
        ({"faults": {"rdmav34": OTHER}}, "no provider of libibverbs.so.1 can be loaded: "),
        ({"providers": (), "drivers": ("mlx5",)}, "can be loaded: there is no library of it"),
    ],
)
def test_libibverbs_that_nccl_cannot_use_is_a_fault_of_the_network(loaded, how, why):
    fault = loaded(**how)
    assert fault.startswith(f"{Layer.NETWORK.value}: ")
    assert why in fault


def test_provider_of_another_rdma_core_is_named_and_leaves_the_others(loaded, capsys):
    assert loaded(faults={"libsiw": OTHER}) == "22 symbols, 1 of 2 providers"
    assert "the provider siw of libibverbs.so.1 cannot be loaded: " in capsys.readouterr().out


def test_symbol_of_the_c_library_is_found_in_its_version_alone():
    """The real loader, with a library that every process has."""
    libc = verbs.ctypes.CDLL(None)
    assert verbs.is_defined(libc, "memcpy", "GLIBC_2.14")
    assert not verbs.is_defined(libc, "memcpy", "GLIBC_2.99")
    assert not verbs.is_defined(libc, "ibv_open_device", "IBVERBS_1.1")
