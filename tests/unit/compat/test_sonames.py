"""The CUDA that the libraries of a wheel are for."""

import pytest

from graphcrate.compat.facts import sonames
from graphcrate.compat.facts.sonames import Misfit, cuda_of, is_tied, misfits, wheel_of, wheel_with


@pytest.mark.parametrize(
    ("soname", "cuda"),
    [
        ("libcudart.so.11.0", ("11",)),
        ("libcudart.so.12", ("12",)),
        ("libcudart.so.14", ("14",)),
        ("libnvrtc.so.11.2", ("11",)),
        ("libnppicc.so.13", ("13",)),
        ("libcufft.so.11", ("12",)),  # numbers of its own
        ("libcusolver.so.11", ("11", "12")),
        ("libcusparse.so.12", ("12", "13")),
        ("libcufft.so.9", ()),  # not known
        ("libcudart.so", ()),
        ("libcudart.7ec1eba6.so.12", ()),  # a wheel's own copy
        ("libcudart-3eda8113.so.13", ()),
        ("libcudnn.so.9", ()),
        ("libcuda.so.1", ()),  # the driver's
        ("libtorch.so", ()),
    ],
)
def test_cuda_of_a_soname(soname, cuda):
    assert cuda_of(soname) == cuda


@pytest.mark.parametrize(
    ("soname", "cuda", "project"),
    [
        ("libcusolver.so.11", "11.8.89", "nvidia-cusolver-cu11"),
        ("libcusolver.so.11", "12.4.131", "nvidia-cusolver-cu12"),
        ("libcusolver.so.12", "13.0.88", "nvidia-cusolver"),
        ("libnppicc.so.11", "", "nvidia-npp-cu11"),
        ("libcudnn_ops_infer.so.8", "11.8", "nvidia-cudnn-cu11"),
        ("libnccl.so.2", "13.0", "nvidia-nccl-cu13"),
        ("libnccl.so.2", "", ""),  # nobody knows for which
        ("libnvJitLink.so.12", "11.8", ""),
        ("libcuda.so.1", "11.8", ""),  # the driver's
        ("libopenblas.so.0", "11.8", ""),
    ],
)
def test_wheel_of_a_library_of_cuda(soname, cuda, project):
    assert wheel_of(soname, cuda) == project


def test_every_library_of_cuda_has_a_wheel():
    names = sonames._libraries()
    assert [name for name in names if not wheel_of(f"{name}.so.11", "12.4")] == []


@pytest.mark.parametrize(
    ("name", "file", "tied"),
    [
        ("torchaudio", "torchaudio-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("torchvision", "torchvision-0.29.2-py3-none-manylinux_2_28_x86_64.whl", True),
        ("torch-scatter", "torch_scatter-2.1.2+pt20cu118-cp311-cp311-linux_x86_64.whl", True),
        ("graphlearn-torch", "graphlearn_torch-0.2.4-cp311-cp311-manylinux2014_x86_64.whl", True),
        ("intel-extension-for-pytorch", "intel_extension_for_pytorch-2.6.0-cp311-cp311-linux_x86_64.whl", True),
        ("torch", "torch-2.10.0-cp311-cp311-manylinux_2_28_x86_64.whl", False),
        ("torchmetrics", "torchmetrics-1.5.2-py3-none-any.whl", False),
        ("torch-scatter", "torch_scatter-2.1.2.tar.gz", False),
        ("nvidia-cublas-cu12", "nvidia_cublas_cu12-12.8.4.1-py3-none-manylinux_2_27_x86_64.whl", False),
        ("storchastic", "storchastic-1.0-cp311-cp311-linux_x86_64.whl", False),
    ],
)
def test_wheel_name_tells_whether_it_is_compiled_for_a_torch(name, file, tied):
    assert is_tied(name, file) == tied


AUDIO = "torchaudio/lib/libtorchaudio.so"
CODEC = tuple(f"torchcodec/libtorchcodec_core{number}.so" for number in (4, 5))
OPS = "torchcodec/libtorchcodec_custom_ops4.so"
ADDON = "torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch{}-cuda.so"
CUDA_13 = ("libcudart.so.13", "libcurand.so.10")


@pytest.mark.parametrize(
    ("package", "needed", "cuda", "files"),
    [
        ("torchaudio", {AUDIO: CUDA_13}, "13.2", ()),
        ("torchaudio", {AUDIO: CUDA_13}, "12.8", (AUDIO,)),
        ("torchaudio", {AUDIO: ("libcurand.so.10",)}, "12.8", ()),
        ("torchaudio", {AUDIO: ("libcurand.so.10",)}, "cpu", (AUDIO,)),
        ("torchaudio", {AUDIO: ("libc10.so", "libcuda.so.1")}, "cpu", ()),
        ("torchaudio", {AUDIO: CUDA_13, "torchaudio.libs/libcudart.so.13": ()}, "12.8", ()),
        ("torchaudio", {AUDIO: (), "torio/lib/libtorio_ffmpeg4.so": CUDA_13}, "12.8", ()),
        ("torchcodec", dict.fromkeys(CODEC, CUDA_13), "12.8", CODEC),  # it takes one of them
        ("torchcodec", {CODEC[0]: CUDA_13, CODEC[1]: ()}, "12.8", ()),
        ("torchcodec", {CODEC[0]: CUDA_13, OPS: ("libtorchcodec_core4.so",)}, "12.8", CODEC[:1]),
        ("torch-c-dlpack-ext", {ADDON.format("24"): CUDA_13, ADDON.format("210"): ()}, "12.8", ()),
        ("torch-c-dlpack-ext", {ADDON.format("210"): CUDA_13}, "12.8", (ADDON.format("210"),)),
    ],
)
def test_libraries_of_another_cuda_or_torch_are_misfits(package, needed, cuda, files):
    found = misfits(package, needed, "2.10.0", cuda)
    assert tuple(one.file for one in found) == files


def test_misfit_of_several_sonames_names_libcudart():
    (found,) = misfits("torchaudio", {AUDIO: ("libcusolver.so.11", "libcufft.so.11", "libcudart.so.12")}, "2", "13.0")
    assert found == Misfit(file=AUDIO, soname="libcudart.so.12", cuda=("12",))


@pytest.mark.parametrize(
    ("header", "cuda", "project"),
    [
        ("nvtx3/nvToolsExt.h", "11.8.89", "nvidia-nvtx-cu11"),
        ("cudnn.h", "12.4.131", "nvidia-cudnn-cu12"),
        ("cufftXt.h", "13.0.88", "nvidia-cufft"),
        ("nvtx3/nvToolsExt.h", "13.0.88", ""),
        ("cublas_v2.h", "11.8.89", ""),  # which the toolkit has
    ],
)
def test_header_of_cuda_that_no_toolkit_has_is_in_a_wheel(header, cuda, project):
    assert wheel_with(header, cuda) == project
