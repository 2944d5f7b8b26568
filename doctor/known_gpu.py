"""Errors of drivers, GPUs, CUDA's libraries and NCCL, the most telling first."""

from doctor.pattern import Pattern

GPU_PATTERNS = (
    Pattern(
        "driver-too-old",
        r"NVIDIA driver on your system is too old \(found version (?P<found>\d+)\)",
        "The node's driver knows CUDA {found} at most, and this torch was built for a newer one.",
        "make image CUDA={fitting}    (the newest of ours that such a driver runs); or a newer driver",
        "SeqNet #36, Fooocus #1313",
    ),
    Pattern(
        "driver-insufficient",
        r"CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver",
        "The node's driver is older than the CUDA that the program was built with; or a container without libcuda.",
        "doctor    says which CUDA the driver runs; then: make image CUDA=…; singularity exec --nv …",
        "cuda.h (error 35); cog #505",
    ),
    Pattern(
        "require-cuda",
        r"requirement error: unsatisfied condition: cuda ?>= ?(?P<wanted>[\d.]+)",
        "nvidia-container-cli refuses to start the image: it asks for CUDA {wanted}, and the driver knows an "
        "older one.",
        "an image for an older CUDA (`doctor` says which the driver runs); NVIDIA_DISABLE_REQUIRE=1 where the "
        "driver is of "
        "the same major version",
        "nvidia-container-toolkit #152, nvidia-docker #1442",
    ),
    Pattern(
        "forward-compat",
        r"forward compatibility was attempted on non supported HW|Error 804\b|CUDA_ERROR_COMPAT_NOT_SUPPORTED",
        "A libcuda of the image (cuda-compat) was loaded instead of the driver's own: such a GPU (GeForce) may "
        "not use it, or the "
        "driver was updated and the module not loaded anew.",
        "LD_LIBRARY_PATH without /usr/local/cuda/compat; remove the package cuda-compat-*; or reboot the node",
        "TensorRT-LLM #1806, TorchPod #43",
    ),
    Pattern(
        "fabric-manager",
        r"Error 802\b|system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        "The NVSwitches of the machine (DGX-2, A100, H100) are not set up: NVIDIA's fabric manager does not run, "
        "or is of another "
        "version than the driver.",
        "the administrator: systemctl restart nvidia-fabricmanager; another node until then",
        "gpustack #1254, pytorch #35710",
    ),
    Pattern(
        "driver-mismatch",
        r"Driver/library version mismatch|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|Error 803\b",
        "libcuda or libnvidia-ml is of another version than the loaded kernel module: an update without a "
        "reboot, or an image that "
        "brings libraries of a driver.",
        "cat /proc/driver/nvidia/version; reboot the node; take libcuda* and libnvidia-* out of the image",
        "nvidia-docker #825",
    ),
    Pattern(
        "no-kernel-image",
        r"(with CUDA capability (?P<sm>sm_\d{2,3}) )?is not compatible with the current PyTorch installation"
        r"|no kernel image is available for execution|CUDA error 209\b|cudaErrorNoKernelImageForDevice",
        "torch, or an extension, has no machine code for {architecture}, and no PTX that the driver could compile.",
        "make image GPU={gpu}    (your GPU: it names the CUDA that suits); an extension of your own: "
        "TORCH_CUDA_ARCH_LIST={capability}",
        "PyG #5850, #3822, #1106",
    ),
    Pattern(
        "invalid-device-function",
        r"invalid device function|cudaErrorInvalidDeviceFunction",
        "A kernel of an extension is not there for this GPU: it was compiled on a node with another one, or for "
        "another CUDA or torch than it meets.",
        "install it for exactly this torch and CUDA, or compile it with TORCH_CUDA_ARCH_LIST=…    (of your GPU); "
        "make image GPU=…    does",
        "PyG #951, #863; scatter #199, #204; pytorch #1557",
    ),
    Pattern(
        "cuda-of-extension",
        r"Detected that PyTorch and (?P<name>\w{1,80}) were compiled with different CUDA (major )?versions"
        r"(\. PyTorch has CUDA [Vv]ersion[ =](?P<ours>[\d.]+\d) and \w{1,80} has CUDA [Vv]ersion[ =]"
        r"(?P<theirs>[\d.]+\d))?",
        "torch is a build for CUDA {ours}, and {name} one for CUDA {theirs}: it came from another index or page, or a "
        "compiler of another CUDA made it.",
        "pip install --force-reinstall --no-cache-dir {name}    from the page for that torch and CUDA; or make image "
        "CUDA=…, where they go together",
        "sparse #86, #122; scatter #187, #503",
    ),
    Pattern(
        "nvcc-mismatch",
        r"detected CUDA version \((?P<nvcc>[\d.]+)\) mismatches the version that was used to compile\s+PyTorch "
        r"\((?P<built>[\d.]+)\)",
        "The nvcc that was found is of CUDA {nvcc}, and torch was built with {built}: extensions would have parts of "
        "both.",
        "export CUDA_HOME=/usr/local/cuda-{built}, or module load cuda/{built}; make image CUDA=… FLAVOUR=devel    has "
        "the nvcc that suits",
        "sparse #189, DiffDock #176",
    ),
    Pattern(
        "nvml-unknown",
        r"Failed to initialize NVML: Unknown Error",
        "The container has lost its GPUs: systemd set the rules for its devices anew (a daemon-reload, an update) and "
        "left them out. On the host all is well.",
        "start the container anew; docker run --device /dev/nvidia0 --device /dev/nvidiactl --device "
        "/dev/nvidia-uvm …; as root: nvidia-ctk system create-dev-char-symlinks --create-all",
        "nvidia-docker #1730, nvidia-container-toolkit #48",
    ),
    Pattern(
        "ptx-toolchain",
        r"PTX was compiled with an unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "There is no machine code for this GPU, so the driver compiles PTX; the PTX is of a newer CUDA than the "
        "driver knows.",
        "a driver as new as the toolkit that built it; or GPU=… when building, which makes machine code",
        "GeneFacePlusPlus #192, pytorch #146056",
    ),
    Pattern(
        "no-driver",
        r"Found no NVIDIA driver on your system|libcuda\.so(\.1)?: cannot open shared object",
        "No libcuda: there is no driver, or the container was started without it.",
        "singularity exec --nv …; docker run --gpus all …; enroot: NVIDIA_VISIBLE_DEVICES=all "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "seen here (torch for CUDA on a machine without a GPU)",
    ),
    Pattern(
        "nvidia-smi-failed",
        r"couldn't communicate with the NVIDIA driver",
        "The kernel's module is not loaded: not installed, not built for the running kernel, or nouveau has the GPU.",
        "as root: modprobe nvidia; dmesg | grep -i nvidia; after an update of the kernel: dkms autoinstall",
        "nvidia-smi",
    ),
    Pattern(
        "cuda-unknown",
        r"CUDA unknown error|Error 999\b|CUDA_ERROR_UNKNOWN|cudaErrorUnknown",
        "CUDA could not start, and does not say why: most often nvidia_uvm is not loaded, /dev/nvidia-uvm is "
        "missing, or the "
        "machine was suspended; also a CUDA_VISIBLE_DEVICES that was changed after the start.",
        "on the host as root: modprobe nvidia_uvm && nvidia-modprobe -u -c=0; ls -l /dev/nvidia*; start the "
        "container anew",
        "torch.cuda; cuda.h (error 999)",
    ),
    Pattern(
        "not-available",
        r"is_available\(\)[^\n]{0,40}\bFalse\b|AssertionError: .{0,40}CUDA is not available|No GPU (was )?found",
        "torch does not use the GPU, for one of seven reasons: only the node itself can tell which.",
        "doctor    where the program runs: the same job, the same container",
        "docs/doctor.md",
    ),
    Pattern(
        "cpu-torch",
        r"Torch not compiled with CUDA enabled|[Nn]ot compiled with (CUDA|GPU) support",
        "torch, or the extension, is a build for the CPU: pip took it from another index, or it was built where "
        "no GPU was seen.",
        "an image for CUDA: make image CUDA=…; building an extension: FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=…",
        "seen here; scatter #216, #194",
    ),
    Pattern(
        "no-device",
        r"no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|No CUDA GPUs are available",
        "The driver is there and shows this process no GPU: the job asked for none, or CUDA_VISIBLE_DEVICES "
        "hides them.",
        "echo $CUDA_VISIBLE_DEVICES; srun --gres=gpu:1 …; ls -l /dev/nvidia*",
        "cuda.h (error 100)",
    ),
    Pattern(
        "invalid-device",
        r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE",
        "The program asks for a GPU by a number that it does not have: there are fewer than it thinks, or "
        "several ranks take "
        "numbers of the whole node where each sees its own alone.",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()); ask Slurm for as many "
        "as there are processes",
        "cuda.h (error 101)",
    ),
    Pattern(
        "fork-after-cuda",
        r"Cannot re-initialize CUDA in forked subprocess",
        "CUDA was started, then the process was forked: a DataLoader worker or a process of "
        "torch.multiprocessing touches the GPU.",
        'torch.multiprocessing.set_start_method("spawn"); or keep tensors of the dataset on the CPU',
        "torch's notes on multiprocessing",
    ),
    Pattern(
        "cuda-memory",
        r"CUDA out of memory|CUDA error: out of memory|Cuda failure '?out of memory|torch\.(cuda\.)?OutOfMemoryError",
        "The GPU's memory is full: by this program, or by another that is still there.",
        "nvidia-smi    shows who has it; smaller batches or fan-outs; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "torch's documentation on memory management",
    ),
    Pattern(
        "device-assert",
        r"device-side assert triggered",
        "An index was out of range on the GPU: a node number beyond num_nodes, or a class beyond num_classes. "
        "All later calls fail too.",
        "run once on the CPU, or with CUDA_LAUNCH_BLOCKING=1: then the line is the right one; check "
        "edge_index.max() < num_nodes",
        "torch's documentation on CUDA semantics",
    ),
    Pattern(
        "nvjitlink",
        r"undefined symbol: __nvJitLink\w+",
        "libcusparse met a libnvJitLink of another CUDA: one of the host's, by LD_LIBRARY_PATH or a loaded module.",
        "unset LD_LIBRARY_PATH; module purge; singularity exec --cleanenv …",
        "pytorch #111469, #134929, #140797",
    ),
    Pattern(
        "cudnn-mismatch",
        r"cuDNN version (incompatibility|mismatch): PyTorch was compiled\s+against (?P<built>\([\d, ]+\)|\d+) but "
        r"(found runtime version|linked against) (?P<found>\([\d, ]+\)|\d+)",
        "A cuDNN {found} of the host was loaded before the {built} that torch brings: by LD_LIBRARY_PATH.",
        "unset LD_LIBRARY_PATH; module unload cudnn; singularity exec --cleanenv …",
        "kohya_ss #1096, pytorch #80637",
    ),
    Pattern(
        "cudnn-init",
        r"CUDNN_STATUS_(NOT_INITIALIZED|INTERNAL_ERROR|EXECUTION_FAILED)|CUBLAS_STATUS_(NOT_INITIALIZED|ALLOC_FAILED)",
        "Most often the GPU's memory is full when cuDNN or cuBLAS wants its part; else a second cuDNN in "
        "LD_LIBRARY_PATH.",
        "nvidia-smi; smaller batches; unset LD_LIBRARY_PATH; if only that: CUDA_LAUNCH_BLOCKING=1 shows the true place",
        "NVIDIA's documentation of cuDNN and cuBLAS",
    ),
    Pattern(
        "nccl-shm",
        r"Error while (creating|attaching to) shared memory segment|Call to "
        r"(posix_fallocate|shm_open|ftruncate) failed",
        "NCCL found no room, or no right, in /dev/shm.",
        "docker run --shm-size=8g …; df -h /dev/shm; ls -ld /dev/shm    (must be drwxrwxrwt); rm /dev/shm/nccl-*",
        "nccl #328, #1683, nccl-tests #166",
    ),
    Pattern(
        "nccl-memlock",
        r"Call to ibv_(reg_mr\w*|create_cq|create_qp) failed|ibv_reg_mr\w* failed",
        "InfiniBand has to pin memory, and `ulimit -l` is too small.",
        "ulimit -l unlimited; docker run --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK, "
        "slurmd restarted",
        "nccl-tests #206, ucx #6264",
    ),
    Pattern(
        "nccl-interface",
        r"[Nn]o socket interface found|Bootstrap : no socket interface|[Uu]nable to find (address for|interface)",
        "NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that this machine does not have, or the "
        "host's name has no address.",
        "ip -brief address; export NCCL_SOCKET_IFNAME=… GLOO_SOCKET_IFNAME=…    of those",
        "NCCL's documentation of environment variables; gloo's tcp transport",
    ),
    Pattern(
        "nccl-timeout",
        r"Watchdog caught collective operation timeout|collective operation timeout: WorkNCCL",
        "A rank never came to a collective operation: it died, works longer (uneven batches), hangs in its "
        "loader, or the network "
        "between nodes is closed to NCCL.",
        "look at the log of every rank for the first error; NCCL_DEBUG=INFO TORCH_NCCL_TRACE_BUFFER_SIZE=2000; "
        "examples/torch_check.py",
        "pytorch #118369, Megatron-LM #1207",
    ),
    Pattern(
        "nccl-remote",
        r"remote process exited or there was a network error|ncclRemoteError",
        "Another rank is gone, or the network to it broke: this one only noticed. What ended that one stands in its "
        "own log.",
        "the log of the rank that failed first (`srun --label`); where none failed: NCCL_DEBUG=WARN, "
        "NCCL_SOCKET_IFNAME=…, or NCCL_IB_DISABLE=1 to rule InfiniBand out",
        "nccl #2076, #934, #1928",
    ),
    Pattern(
        "nccl-system",
        r"unhandled system error|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|unhandled cuda "
        r"error",
        "NCCL failed and keeps the reason to itself: /dev/shm, an interface, locked memory, a dead rank, or a "
        "GPU that two ranks share.",
        "NCCL_DEBUG=WARN    again, and give the lines with `NCCL WARN` to doctor --explain",
        "vllm #10626, nccl #425",
    ),
    Pattern(
        "nccl-duplicate",
        r"Duplicate GPU detected : rank (?P<one>\d+) and rank (?P<other>\d+)",
        "Ranks {one} and {other} took the same GPU.",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))    before init_process_group; as many GPUs as processes",
        "nccl (init.cc)",
    ),
    Pattern(
        "xid",
        r"NVRM: Xid.{0,200}?: (?P<number>\d+)|GPU has fallen off the bus|Unable to determine the device handle for GPU",
        "The GPU, or its link, has failed: it is not the program.",
        "another node; tell the administrator, with `dmesg | grep -i xid`",
        "NVIDIA's list of Xid errors",
    ),
)
