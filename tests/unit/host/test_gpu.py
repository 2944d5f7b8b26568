from graphcrate.host.sandbox import gpu

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


NAMES = ["libcuda.so.1", "libcuda.so.535.104", "libnvidia-gpucomp.so.535.104", "libnvidia-gpucomp.so", "libEGL.so.1"]


def test_host_gpu_has_compute_devices_and_driver_libraries():
    """ldconfig's first answer for the architecture wins; usual folders count where it knows nothing."""
    for ldconfig, folders, place, names in (
        (LDCONFIG, {"/lib64": NAMES[:1]}, "/usr/lib/x86_64-linux-gnu", ["libcuda.so.1", "libnvidia-ml.so.1"]),
        ("", {"/lib64": NAMES}, "/lib64", ["libcuda.so.1", "libnvidia-gpucomp.so.535.104"]),
    ):
        host = gpu.choose(DEV, ldconfig, folders, {})
        assert host.devices == tuple(f"/dev/nvidia{name}" for name in ("-caps", "-uvm", "0", "1", "ctl"))
        assert host.libraries == {name: f"{place}/{name}" for name in names}
        assert gpu.choose(["null", "sda1"], ldconfig, folders, {"nvidia-smi": "/usr/bin/nvidia-smi"}) == gpu.HostGpu()


def test_host_gpu_libraries_are_compute_and_utility_only():
    """As libnvidia-container's "compute" and "utility"; a GPU newer than the code needs what compiles PTX."""
    compute = ("libcuda.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libnvidia-gpucomp.so.550.54")
    others = ("libcudadebugger.so.1", "libnvidia-opencl.so.1", "libnvidia-allocator.so.1")
    utility = ("libnvidia-ml.so.1", "libnvidia-cfg.so.1")
    graphics = ("libGLX_nvidia.so.0", "libnvidia-encode.so.1", "libnvcuvid.so.1")
    names = (*compute, *others, *utility, *graphics)
    listing = "".join(f"\t{name} (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/{name}\n" for name in names)
    assert set(gpu.choose(DEV, listing, {}, {}).libraries) == {*compute, *others, *utility}


def test_driver_libraries_come_last_in_ld_library_path():
    host = gpu.HostGpu(("/dev/nvidia0",), {"libcuda.so.1": "/l/libcuda.so.1"}, {})
    for before in ({}, {"LD_LIBRARY_PATH": ""}):
        assert gpu.extend(before, host)["LD_LIBRARY_PATH"] == gpu.LIBRARIES
        assert gpu.extend(before, gpu.HostGpu()) == before
    assert gpu.extend({"LD_LIBRARY_PATH": "/a:/b"}, host)["LD_LIBRARY_PATH"] == f"/a:/b:{gpu.LIBRARIES}"


def test_driver_version_is_read_from_proc():
    for text, version in (
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6\nGCC version: 11\n", "535.54.03"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build  (dvs)\n", "550.90.07"),
        ("something else", ""),
    ):
        assert gpu.read_driver_version(text) == version
