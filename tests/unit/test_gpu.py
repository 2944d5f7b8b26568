import pytest

from graphcrate.host import gpu

DEV = ["null", "sda1", "nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia-nvswitch0"]
LDCONFIG = """\
905 libs found in cache `/etc/ld.so.cache'
\tlibnvidia-ml.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6,x86-64) => /opt/cuda-compat/libcuda.so.1
\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1
\tlibcuda.so (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so
\tlibc.so.6 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/x86_64-linux-gnu/libc.so.6
"""


def test_machine_without_gpu_gives_nothing_although_libraries_are_installed():
    assert gpu.choose(["null", "sda1"], LDCONFIG, {}, {"nvidia-smi": "/usr/bin/nvidia-smi"}) == gpu.HostGpu()


def test_devices_of_compute_work_are_taken():
    host = gpu.choose(DEV, "", {}, {})
    assert host.devices == ("/dev/nvidia-caps", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")


def test_ldconfigs_first_answer_for_the_architecture_wins():
    host = gpu.choose(DEV, LDCONFIG, {"/usr/lib64/nvidia": ["libcuda.so.1"]}, {})
    assert host.libraries == {
        "libcuda.so.1": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "libnvidia-ml.so.1": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    }


def test_usual_folders_serve_where_ldconfig_knows_nothing():
    names = [
        "libcuda.so.1",
        "libcuda.so.535.104",
        "libnvidia-gpucomp.so.535.104",
        "libnvidia-gpucomp.so",
        "libEGL.so.1",
    ]
    host = gpu.choose(DEV, "", {"/usr/local/nvidia/lib64": names}, {})
    assert host.libraries == {
        "libcuda.so.1": "/usr/local/nvidia/lib64/libcuda.so.1",
        "libnvidia-gpucomp.so.535.104": "/usr/local/nvidia/lib64/libnvidia-gpucomp.so.535.104",
    }


def test_a_container_gets_of_the_driver_what_compute_work_takes():
    """As libnvidia-container's "compute" and "utility"; a GPU newer than the code needs what compiles PTX."""
    compute = ("libcuda.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libnvidia-gpucomp.so.550.54")
    others = ("libcudadebugger.so.1", "libnvidia-opencl.so.1", "libnvidia-allocator.so.1")
    utility = ("libnvidia-ml.so.1", "libnvidia-cfg.so.1")
    graphics = ("libGLX_nvidia.so.0", "libnvidia-encode.so.1", "libnvcuvid.so.1")
    listing = "".join(
        f"\t{name} (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/{name}\n"
        for name in (*compute, *others, *utility, *graphics)
    )
    assert set(gpu.choose(DEV, listing, {}, {}).libraries) == {*compute, *others, *utility}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, gpu.LIBRARIES),
        ({"LD_LIBRARY_PATH": "/a:/b"}, f"/a:/b:{gpu.LIBRARIES}"),
        ({"LD_LIBRARY_PATH": ""}, gpu.LIBRARIES),
    ],
)
def test_driver_comes_last_in_the_search_path(before, after):
    host = gpu.HostGpu(("/dev/nvidia0",), {"libcuda.so.1": "/l/libcuda.so.1"}, {})
    assert gpu.extend(before, host)["LD_LIBRARY_PATH"] == after


def test_environment_is_untouched_without_gpu():
    assert gpu.extend({"A": "1"}, gpu.HostGpu()) == {"A": "1"}
