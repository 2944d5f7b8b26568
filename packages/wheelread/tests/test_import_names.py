"""The file of several that Python imports by one name, and the owner of a file's folder."""

import pytest

from wheelread.import_names import ImportNames

STACK = {
    "torch": (
        "torch/__init__.py",
        "torch/part.py",
        "torch/_C.cpython-311-x86_64-linux-gnu.so",
        "torch/lib/libtorch.so",
    ),
    "numpy": ("numpy/__init__.py", "numpy/part/__init__.py", "numpy-1.0.dist-info/METADATA"),
    "six": ("six.py",),
    "protobuf": ("google/protobuf/__init__.py", "google/_upb/_message.abi3.so"),
    "nvidia-cublas": ("nvidia/__init__.py", "nvidia/cublas/__init__.py", "nvidia/cublas/lib/libcublas.so.11"),
    "nvidia-cu13": ("nvidia/cu13/lib/libcublas.so.13",),
}


def with_files(*paths):
    """The stack's files, and these of a stranger."""
    names = ImportNames()
    for owner, files in STACK.items():
        for path in files:
            names.add(owner, path)
    for path in paths:
        names.add("evil", path)
    return names


@pytest.mark.parametrize(
    ("path", "module", "winner"),
    [
        ("torch/part/__init__.py", "torch.part", "evil"),
        ("torch/part.cpython-311-x86_64-linux-gnu.so", "torch.part", "evil"),
        ("torch/part.abi3.so", "torch.part", "evil"),
        ("torch/part.so", "torch.part", "evil"),
        ("torch/part.pyc", "torch.part", "torch"),
        ("torch/__init__.cpython-311-x86_64-linux-gnu.so", "torch", "evil"),
        ("torch/_C/__init__.py", "torch._C", "evil"),
        ("torch/_C.py", "torch._C", "torch"),
        ("torch.py", "torch", "torch"),
        ("torch.so", "torch", "torch"),
        ("numpy/part.py", "numpy.part", "numpy"),
        ("six/__init__.py", "six", "evil"),
        ("google.py", "google", "evil"),
        ("google/protobuf.so", "google.protobuf", "protobuf"),
    ],
)
def test_file_that_python_prefers_to_another_packages_module_is_a_clash(path, module, winner):
    (shadow,) = with_files(path).shadows()
    assert (shadow.module, shadow.owner) == (module, winner)
    assert shadow.sentence.startswith(f"{shadow.owner} and {shadow.other} both own the module {module}: ")


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("torch/_fb.py", "torch"),
        ("torch/lib/libtorch.so.1", "torch"),
        ("torch/lib/libcudart.so.11.0", "torch"),
        ("torch/data.txt", "torch"),
        ("numpy/_distributor_init_local.py", "numpy"),
        ("numpy/part/more/x.py", "numpy"),
        ("google/protobuf/x.py", "protobuf"),
        ("nvidia/cublas/x.py", "nvidia-cublas"),
        ("nvidia/cublas/lib/libcublasLt.so.11", "nvidia-cublas"),
        ("nvidia/cu13/lib/libcublasLt.so.13", "nvidia-cu13"),
        ("Torch/__init__.py", "torch"),
        ("TORCH.py", "torch"),
    ],
)
def test_file_in_another_packages_folder_is_said(path, other):
    names = with_files(path)
    assert list(names.shadows()) == []
    assert [(found.owner, found.path, found.other) for found in names.intrusions()] == [("evil", path, other)]


@pytest.mark.parametrize(
    "paths",
    [
        ("mine/__init__.py", "mine/torch.py", "mine/lib/libtorch.so"),
        ("mine.py", "mine/__init__.py", "mine.cpython-311-x86_64-linux-gnu.so"),  # mypyc leaves the source beside it
        ("google/mine/__init__.py", "nvidia/mine/lib/libmine.so"),
        ("tests/__init__.py", "tests.py"),
        ("torch_mine/__init__.py", "_torch.so", "numpy.libs/libgfortran.so"),
        ("bin.cfg", "mine-1.0.data"),
    ],
)
def test_packages_of_ones_own_and_namespaces_are_neither(paths):
    names = with_files(*paths)
    assert (list(names.shadows()), list(names.intrusions())) == ([], [])


def test_equal_files_of_a_namespace_are_no_clash_and_do_not_open_another_package():
    names = with_files("nvidia/__init__.py", "torch/__init__.py", "torch/extra.py")
    assert list(names.shadows()) == []
    assert [found.path for found in names.intrusions()] == ["torch/__init__.py", "torch/extra.py"]


def test_start_of_a_namespace_that_a_stranger_brings_is_said():
    found = with_files("google/protobuf2/__init__.py", "azure/__init__.py").intrusions()
    assert [one.path for one in found] == []
    names = ImportNames()
    names.add("own", "space/own/__init__.py")
    names.add("evil", "space/__init__.py")
    assert [(one.owner, one.other) for one in names.intrusions()] == [("own", "evil")]
