"""Errors of runtimes, schedulers and running programs, as they are printed.

(what the doctor should call it, where it was met, the text).
"provoked": made to happen on the machine that the doctor was written on; the others as users reported them, with paths
and names made plain.
"""

TEXTS = [
    # runtimes
    (
        "enroot-no-nvidia-cli",
        "pyxis #101",
        "slurmstepd: error: pyxis: container start failed with error code: 1\nslurmstepd: error: pyxis: printing "
        "enroot log file:\n"
        "slurmstepd: error: pyxis:     [ERROR] Command not found: nvidia-container-cli, see "
        "https://github.com/NVIDIA/libnvidia-container\n"
        "slurmstepd: error: pyxis:     [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1\n"
        "slurmstepd: error: pyxis: couldn't start container\n"
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1",
    ),
    (
        "enroot-mellanox",
        "provoked on a node without InfiniBand",
        "slurmstepd: error: pyxis:     enroot-mount: failed to mount: tmpfs at "
        "/scratch/enroot-data/pyxis_4.0/sys/class/infiniband: No such file or directory\n"
        "slurmstepd: error: pyxis:     [ERROR] /etc/enroot/hooks.d/99-mellanox.sh exited with return code 1",
    ),
    (
        "enroot-basic",
        "provoked with docker-registry 2.8 and htpasswd",
        "pyxis: importing docker image: registry.example.com#team/pyg:1\n"
        "slurmstepd: error: pyxis: failed to import docker image: registry.example.com#team/pyg:1\n"
        "slurmstepd: error: pyxis: printing enroot log file:\n"
        "slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant\n"
        "slurmstepd: error: pyxis:     [INFO] Authenticating with user: <anonymous>\n"
        "slurmstepd: error: pyxis: couldn't start container",
    ),
    (
        "pyxis-name",
        "pyxis 0.24",
        'slurmstepd: error: pyxis: error: a container with name "pyxis_gnn-12" does not exist, and --container-image '
        "is not set\nslurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1\n"
        "slurmstepd: error: Failed to invoke spank plugin stack",
    ),
    (
        "pyxis-workdir",
        "pyxis 0.24",
        "slurmstepd: error: pyxis: couldn't chdir to /home/alice/work: No such file or directory",
    ),
    (
        "pyxis-no-file",
        "pyxis 0.24",
        "slurmstepd: error: pyxis: child 5886 failed with error code: 1\n"
        "slurmstepd: error: pyxis: failed to create container filesystem for image: ./pyg.sqsh\n"
        "slurmstepd: error: pyxis: printing enroot log file:\n"
        "slurmstepd: error: pyxis:     [ERROR] No such file or directory: /home/alice/pyg.sqsh",
    ),
    (
        "pyxis-hub",
        "pyxis 0.24",
        "pyxis: importing docker image: pyg.sqsh\n"
        "slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant\n"
        "slurmstepd: error: pyxis:     curl: (6) Could not resolve host: registry-1.docker.io",
    ),
    (
        "enroot-namespaces",
        "pyxis #93",
        "slurmstepd: error: pyxis:     enroot-nsenter: failed to create user namespace: No space left on device\n"
        "slurmstepd: error: pyxis: couldn't start container",
    ),
    (
        "enroot-space",
        "pyxis #41",
        "slurmstepd: error: pyxis:     Write failed because No space left on device\n"
        "slurmstepd: error: pyxis:     FATAL ERROR:Failed to write to output filesystem",
    ),
    (
        "enroot-compression",
        "provoked",
        "slurmstepd: error: pyxis:     [INFO] Extracting squashfs filesystem...\n"
        "slurmstepd: error: pyxis:     Filesystem uses zstd compression, this is unsupported by this version\n"
        "slurmstepd: error: pyxis:     Decompressors available:\n"
        "slurmstepd: error: pyxis: \tgzip\n",
    ),
    (
        "pyxis-hash",
        "pyxis #39",
        "slurmstepd: error: pyxis:     [ERROR] URL "
        "https://registry-1.docker.io/v2/nvcr.io/nvidia/pytorch/manifests/20.12-py3 returned "
        "error code: 401 Unauthorized",
    ),
    (
        "pyxis-path",
        "pyxis #127",
        "slurmstepd: error: pyxis:     [ERROR] URL "
        "https://registry-1.docker.io/v2/library/foo.sqsh/manifests/latest returned error "
        "code: 401 Unauthorized",
    ),
    ("enroot-401", "enroot #161", "[ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 Unauthorized"),
    ("enroot-401", "skopeo", "unauthorized: authentication required"),
    (
        "apptainer-401",
        "Apptainer 1.3",
        "FATAL:   While making image from oci registry: error fetching image to cache: failed to get checksum for "
        "docker://registry.example.com/team/pyg:1: reading manifest 1 in registry.example.com/team/pyg: unauthorized: "
        "authentication required",
    ),
    (
        "apptainer-401",
        "cuda-quantum #1643",
        "FATAL:   While performing build: conveyor failed to get: while converting reference: reading manifest 0.7.0 "
        "in nvcr.io/nvidia/quantum/cuda-quantum: requested access to the resource is denied",
    ),
    ("kernel-too-old", "glibc", "FATAL: kernel too old"),
    ("registry-unknown", "Docker", "Error response from daemon: manifest unknown"),
    ("max-depth", "docker/for-linux #414", "failed to register layer: max depth exceeded"),
    (
        "enroot-404",
        "docker-registry 2.8 with an OCI manifest",
        "[ERROR] URL http://registry.example.com:5000/v2/team/pyg/manifests/latest returned error code: 404 Not Found",
    ),
    (
        "enroot-hook",
        "enroot #128",
        "nvidia-container-cli: ldcache error: process /usr/sbin/ldconfig failed with error code: 1\n"
        "[ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1",
    ),
    ("enroot-hook-failed", "enroot #39", "[ERROR] /etc/enroot/hooks.d/10-shadow.sh exited with return code 4"),
    ("pyxis-absent", "Slurm without pyxis", "srun: unrecognized option '--container-image=pyg'"),
    (
        "plugstack",
        "pyxis #101",
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1",
    ),
    ("apptainer-namespaces", "megSAP #538", "ERROR  : Failed to create user namespace: Permission denied"),
    (
        "apptainer-namespaces",
        "apptainer #1582",
        "FATAL:   Building with encryption unprivileged requires unprivileged user namespaces",
    ),
    (
        "apptainer-fakeroot",
        "Apptainer 1.4",
        "FATAL:   could not use fakeroot: no mapping entry found in /etc/subuid for alice",
    ),
    (
        "apptainer-squashfuse",
        "apptainer #592",
        "INFO:    squashfuse not found, will not be able to mount SIF\nINFO:    fuse2fs not found, will not be "
        "able to mount EXT3 "
        "filesystems\nINFO:    Converting SIF file to temporary sandbox...",
    ),
    (
        "apptainer-squashfs",
        "CentOS 7",
        'SQUASHFS error: Filesystem uses "zstd" compression. This is not supported',
    ),
    (
        "apptainer-open",
        "provoked (Apptainer 1.4.5)",
        "FATAL:   While checking container encryption: could not open image /nowhere.sif: failed to retrieve "
        "path for /nowhere.sif: "
        "lstat /nowhere.sif: no such file or directory",
    ),
    (
        "apptainer-open",
        "provoked (Apptainer 1.4.5)",
        "FATAL:   While checking container encryption: could not open image /data/junk.sif: image format not "
        "recognized",
    ),
    (
        "apptainer-bind",
        "apptainer #760",
        "WARNING: Skipping mount /etc/hosts [binds]: /etc/hosts doesn't exist in container",
    ),
    (
        "apptainer-loop",
        "sylabs/singularity #67",
        "FATAL:   container creation failed: mount /proc/self/fd/3->/var/singularity/mnt/session/rootfs error: while "
        "mounting image /proc/self/fd/3: failed to find loop device: could not attach image file to loop device: no "
        "loop devices available",
    ),
    ("apptainer-nv", "apptainer/singularity #6356", "INFO:    Could not find any nv files on this host!"),
    (
        "docker-gpu",
        "nvidia-docker #1352",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    ),
    (
        "docker-daemon",
        "provoked",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    ),
    (
        "docker-permission",
        "Docker",
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
    ),
    ("docker-clone3", "moby #42680", "RuntimeError: can't start new thread"),
    ("kubernetes-gpu", "Kubernetes", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
    (
        "slurm-oom",
        "ArjunaUsers #52",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup. Some of your processes may "
        "have been killed by the "
        "cgroup out-of-memory handler.",
    ),
    (
        "slurm-oom",
        "nextflow #5932",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been "
        "OOM Killed.",
    ),
    (
        "slurm-node-configuration",
        "Slurm",
        "srun: error: Unable to allocate resources: Requested node configuration is not available",
    ),
    (
        "slurm-partition",
        "Slurm",
        "sbatch: error: invalid partition specified: dgx3\nsbatch: error: Batch job submission failed: Invalid "
        "partition name specified",
    ),
    (
        "slurm-time",
        "Slurm",
        "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***",
    ),
    ("slurm-connect", "provoked (Slurm 22.05)", "srun: fatal: Could not establish a configuration source"),
    # programs
    (
        "shm",
        "mmsegmentation #1356",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
        "(shm).\nRuntimeError: "
        "DataLoader worker (pid 7579) is killed by signal: Bus error. It is possible that dataloader's workers "
        "are out of shared memory.",
    ),
    ("shm", "GLT's FAQ", "bash: line 1: 15036 Bus error               python dist_train.py"),
    ("too-many-files", "torch's notes on multiprocessing", "RuntimeError: received 0 items of ancdata"),
    ("too-many-files", "torch's notes on multiprocessing", "OSError: [Errno 24] Too many open files"),
    ("address-in-use", "provoked", "OSError: [Errno 98] Address already in use"),
    (
        "rendezvous",
        "provoked (torch 2.3.1)",
        "torch.distributed.DistStoreError: Timed out after 3 seconds waiting for clients. 1/2 clients joined.",
    ),
    (
        "rendezvous",
        "provoked (torch 2.3.1)",
        "torch.distributed.DistNetworkError: The client socket has timed out after 2s while trying to connect to "
        "(127.0.0.1, 9).",
    ),
    (
        "ranks-missing",
        "provoked (torch 2.3.1)",
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
        "expected, but not set",
    ),
    (
        "connection",
        "sglang #3226",
        "RuntimeError: [../third_party/gloo/gloo/x.cc:589] Connection closed by peer [10.0.0.2]:12345",
    ),
    (
        "gloo",
        "sglang #3226",
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
    ),
    (
        "rpc",
        "torch.distributed.rpc",
        "RuntimeError: RPC ran for more than set timeout (60000 ms) and will now be marked with an error",
    ),
    ("name-resolution", "provoked", "socket.gaierror: [Errno -2] Name or service not known"),
    ("worker-killed", "provoked (torch 2.3.1)", "RuntimeError: DataLoader worker (pid(s) 15226) exited unexpectedly"),
    ("worker-killed", "torch", "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed."),
    ("killed", "provoked", "Killed"),
    (
        "out-of-memory",
        "provoked (torch 2.3.1)",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate "
        "140737488355328 bytes. Error code 12 (Cannot allocate memory)",
    ),
    ("disk-full", "Python", "OSError: [Errno 28] No space left on device: '/home/alice/.cache/x'"),
    ("disk-full", "quota", "cp: error writing 'x': Disk quota exceeded"),
    ("segfault", "PyG #9636", "Segmentation fault (core dumped)"),
    ("pyg-needs", "provoked (PyG 2.5.3)", "ImportError: 'NeighborSampler' requires either 'pyg-lib' or 'torch-sparse'"),
    ("pyg-needs", "provoked (PyG 2.5.3)", "ImportError: 'radius_graph' requires 'torch-cluster'"),
    (
        "weights-only",
        "ogb with torch 2.6",
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have "
        "two options",
    ),
    ("permission", "Python", "PermissionError: [Errno 13] Permission denied: '/root/.cache'"),
]
