"""Errors of drivers, GPUs and libraries, as they are printed.

(what the doctor should call it, where it was met, the text).
"provoked": made to happen on the machine that the doctor was written on; the others as users reported them, with paths
and names made plain.
"""

TEXTS = [
    # drivers and GPUs
    (
        "driver-too-old",
        "Fooocus #1313",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
        "driver by "
        "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
        "Alternatively, go to: "
        "https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver.",
    ),
    (
        "driver-insufficient",
        "CUDA runtime API, cudaErrorInsufficientDriver",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
    ),
    (
        "require-cuda",
        "nvidia-docker #1442",
        "docker: Error response from daemon: OCI runtime create failed: error running hook: exit status 1, "
        "stdout: , stderr: "
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=11.0, please update your driver "
        "to a newer version, "
        "or use an earlier cuda container: unknown.",
    ),
    (
        "forward-compat",
        "TensorRT-LLM #1806",
        "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda "
        "functions before "
        "calling NumCudaDevices() that might have already set an error? Error 804: forward compatibility was "
        "attempted on non "
        "supported HW (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)",
    ),
    (
        "fabric-manager",
        "gpustack #1254",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized",
    ),
    (
        "driver-mismatch",
        "nvidia-docker #825",
        "Failed to initialize NVML: Driver/library version mismatch",
    ),
    (
        "no-kernel-image",
        "PyG #5850",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors "
        "might be "
        "asynchronously reported at some other API call,so the stacktrace below might be incorrect.",
    ),
    (
        "no-kernel-image",
        "torch.cuda's own warning",
        "UserWarning:\nNVIDIA H100 PCIe with CUDA capability sm_90 is not compatible with the current PyTorch "
        "installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86.",
    ),
    (
        "ptx-toolchain",
        "GeneFacePlusPlus #192",
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ),
    (
        "no-driver",
        "provoked (torch 2.3.1+cu121)",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
        "installed a driver from "
        "http://www.nvidia.com/Download/index.aspx",
    ),
    (
        "no-driver",
        "provoked",
        "OSError: libcuda.so.1: cannot open shared object file: No such file or directory",
    ),
    (
        "nvidia-smi-failed",
        "nvidia-smi",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
        "latest NVIDIA "
        "driver is installed and running.",
    ),
    (
        "cuda-unknown",
        "torch.cuda",
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing "
        "env variable "
        "CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
    ),
    ("not-available", "a question", "torch.cuda.is_available() returns False"),
    ("pyg-version", "PyG", "ImportError: cannot import name 'container_abcs' from 'torch._six' (unknown location)"),
    ("undefined-symbol", "a fragment", "undefined symbol: _ZN3c106detail12infer_schema20make_function_schemaE"),
    ("glibc", "a fragment", "GLIBC_2.34 not found"),
    ("libstdcxx", "a fragment", "GLIBCXX_3.4.30 not found"),
    ("cuda-memory", "NCCL", "enqueue.cc:123 NCCL WARN Cuda failure 'out of memory'"),
    ("cpu-torch", "provoked (torch 2.13.0+cpu)", "AssertionError: Torch not compiled with CUDA enabled"),
    ("cpu-torch", "scatter #216", "RuntimeError: Not compiled with CUDA support"),
    ("cpu-torch", "a question", "RuntimeError: torch_scatter was not compiled with CUDA support"),
    (
        "cuda-of-extension",
        "sparse #86",
        "RuntimeError: Detected that PyTorch and torch_sparse were compiled with different CUDA versions. PyTorch has "
        "CUDA version 11.7 and torch_sparse has CUDA version 11.3. Please reinstall the torch_sparse that matches your "
        "PyTorch install.",
    ),
    (
        "cuda-of-extension",
        "torchvision",
        "RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA major versions. PyTorch "
        "has CUDA Version=12.1 and torchvision has CUDA Version=11.8. Please reinstall the torchvision that matches "
        "your PyTorch install.",
    ),
    (
        "nvcc-mismatch",
        "sparse #189",
        "RuntimeError:\n    The detected CUDA version (12.1) mismatches the version that was used to compile\n    "
        "PyTorch (11.8). Please make sure to use the same CUDA versions.",
    ),
    ("invalid-device-function", "PyG #951", "RuntimeError: CUDA error: invalid device function"),
    ("nvml-unknown", "nvidia-docker #1730", "Failed to initialize NVML: Unknown Error"),
    (
        "nccl-remote",
        "nccl #2076",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
        "remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed "
        "possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgressOpt: "
        "Call to recv from 10.0.0.2<33759> failed : Connection reset by peer",
    ),
    ("no-device", "torch.cuda", "RuntimeError: No CUDA GPUs are available"),
    ("invalid-device", "torch.cuda", "RuntimeError: CUDA error: invalid device ordinal"),
    (
        "fork-after-cuda",
        "torch.cuda",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
        "must use the 'spawn' "
        "start method",
    ),
    (
        "cuda-memory",
        "torch.cuda",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total "
        "capacity)",
    ),
    ("device-assert", "torch.cuda", "RuntimeError: CUDA error: device-side assert triggered"),
    (
        "nvjitlink",
        "pytorch #134929",
        "ImportError: /venv/lib/python3.11/site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: "
        "undefined symbol: "
        "__nvJitLinkComplete_12_4, version libnvJitLink.so.12",
    ),
    (
        "cudnn-mismatch",
        "pytorch #80637",
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 7, 0) but found runtime "
        "version (8, 2, 4). "
        "PyTorch already comes bundled with cuDNN. One option to resolving this error is to ensure PyTorch can "
        "find the bundled cuDNN.",
    ),
    (
        "cudnn-mismatch",
        "DA_Detection #19",
        "RuntimeError: cuDNN version mismatch: PyTorch was compiled against 7102 but linked against 7600",
    ),
    ("cudnn-init", "torch", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    (
        "nccl-shm",
        "vllm #14537",
        "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled system error (run with "
        "NCCL_DEBUG=INFO for details), "
        "NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed "
        "or device error.\n"
        "Last error:\nError while creating shared memory segment /dev/shm/nccl-EoOvZr (size 7340384)",
    ),
    (
        "nccl-memlock",
        "nccl-tests #206",
        "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    ),
    (
        "nccl-interface",
        "NCCL (bootstrap.cc)",
        "node1:81:81 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
    ),
    (
        "nccl-interface",
        "provoked (torch 2.3.1, GLOO_SOCKET_IFNAME=nope0)",
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != nullptr. "
        "Unable to find address "
        "for: nope0",
    ),
    (
        "nccl-timeout",
        "LlamaFactory #7396",
        "[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective "
        "operation timeout: "
        "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran "
        "for 600060 "
        "milliseconds before timing out.",
    ),
    (
        "nccl-system",
        "pytorch #37004",
        "RuntimeError: NCCL error in ProcessGroupNCCL.cpp:290, unhandled system error",
    ),
    (
        "nccl-duplicate",
        "NCCL (init.cc)",
        "init.cc:521 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000",
    ),
    ("xid", "NVIDIA's Xid documentation", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."),
    # libraries
    (
        "undefined-symbol",
        "PyG #4355",
        "OSError: /venv/lib/python3.8/site-packages/torch_sparse/_convert_cpu.so: undefined symbol: "
        "_ZN3c106detail12infer_schema20make_function_schemaENS_8ArrayRefINS1_11ArgumentDefEEES4_",
    ),
    (
        "undefined-symbol",
        "sparse #350",
        "OSError: /opt/conda/lib/python3.10/site-packages/torch_scatter/_version_cuda.so: undefined symbol: "
        "_ZN5torch3jit17parseSchemaOrNameERKSs",
    ),
    (
        "glt-symbol",
        "the tutorial of PAI with graphlearn-torch 0.2.4 on torch 1.13",
        "ImportError: "
        "/opt/conda/lib/python3.8/site-packages/graphlearn_torch/py_graphlearn_torch.cpython-38-x86_64-linux-gnu.so: "
        "undefined symbol: _ZN3c104cuda14ExchangeDeviceEa",
    ),
    (
        "mkl-ijit",
        "pytorch #123097",
        "ImportError: /opt/conda/envs/x/lib/python3.8/site-packages/torch/lib/libtorch_cpu.so: undefined symbol: "
        "iJIT_NotifyEvent",
    ),
    ("python-symbol", "provoked", "ImportError: /x/build/libpkg.so: undefined symbol: _Py_ZeroStruct"),
    (
        "glibc-nv",
        "apptainer #2421",
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by "
        "/.singularity.d/libs/libGLdispatch.so.0)",
    ),
    (
        "glibc",
        "pyg-lib #363",
        "UserWarning: An issue occurred while importing 'pyg-lib'. Disabling its usage. Stacktrace: "
        "/lib64/libm.so.6: version "
        "`GLIBC_2.27' not found (required by /venv/lib/python3.10/site-packages/libpyg.so)",
    ),
    (
        "libstdcxx",
        "common under conda",
        "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by "
        "/venv/lib/python3.9/site-packages/torch_cluster/_knn_cpu.so)",
    ),
    (
        "libstdcxx",
        "common under conda",
        "ImportError: /opt/conda/lib/libstdc++.so.6: version `CXXABI_1.3.15' not found (required by "
        "/x/libtorch_python.so)",
    ),
    (
        "pyg-disabling",
        "PyG #9636",
        "UserWarning: An issue occurred while importing 'pyg-lib'. Disabling its usage. Stacktrace: "
        "libcudart.so.11.0: cannot open "
        'shared object file: No such file or directory\n  warnings.warn(f"An issue occurred while importing '
        "'pyg-lib'. \"\n"
        "Segmentation fault (core dumped)",
    ),
    ("cudart", "provoked", "OSError: libcudart.so.11.0: cannot open shared object file: No such file or directory"),
    (
        "torch-library",
        "an extension before torch",
        "ImportError: libc10.so: cannot open shared object file: No such file or directory",
    ),
    ("libgl", "opencv-python", "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"),
    (
        "missing-library",
        "provoked",
        "OSError: libnowhere.so.3: cannot open shared object file: No such file or directory",
    ),
    (
        "numpy-abi",
        "pytorch-frame #525",
        "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0.2 as it may crash. To support "
        "both 1.x and 2.x\n"
        "versions of NumPy, modules must be compiled with NumPy 2.0.",
    ),
    (
        "numpy-abi",
        "tensorflow #98406",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, "
        "got 88 from PyObject",
    ),
    ("illegal-instruction", "provoked", "bash: line 1: 15037 Illegal instruction     python train.py"),
    (
        "externally-managed",
        "provoked",
        "error: externally-managed-environment\n\nx This environment is externally managed",
    ),
    (
        "read-only",
        "pip in a SIF",
        "ERROR: Could not install packages due to an OSError: [Errno 30] Read-only file system: '/opt/venv/x'",
    ),
    ("exec-format", "provoked", "bash: line 64: ./arm: cannot execute binary file: Exec format error"),
    (
        "preload",
        "provoked",
        "ERROR: ld.so: object '/nowhere/libx.so' from LD_PRELOAD cannot be preloaded (cannot open shared object "
        "file): ignored.",
    ),
    ("python-missing", "pyxis 0.24 on Debian images", "/bin/sh: 1: exec: python: not found"),
    ("no-module", "provoked", "ModuleNotFoundError: No module named 'torch_geometric'"),
]
