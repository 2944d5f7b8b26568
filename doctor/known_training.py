"""Errors of programs that run: memory, processes that do not find each other, files, the most telling first."""

from doctor.pattern import Pattern

TRAINING_PATTERNS = (
    Pattern(
        "shm",
        r"insufficient shared memory|out of shared memory|[Bb]us error|SIGBUS|unable to "
        r"(allocate|mmap|open|write) (shared|.{0,200}?/torch_)",
        "/dev/shm is full: Docker gives 64 MB. Workers of DataLoaders and GLT hand their batches over there.",
        "docker run --shm-size=8g …    (or --ipc=host); PAI: shared memory in the job's settings; df -h "
        "/dev/shm; num_workers=0 to prove it",
        "GLT's FAQ; mmsegmentation #1356, LUPerson #20",
    ),
    Pattern(
        "too-many-files",
        r"Too many open files|received 0 items of ancdata",
        "Each tensor that a worker sends takes an open file, and the limit is small.",
        "ulimit -n 65536; torch.multiprocessing.set_sharing_strategy('file_system')",
        "torch's documentation on multiprocessing",
    ),
    Pattern(
        "address-in-use",
        r"Address already in use|EADDRINUSE|errno: 98",
        "The port of MASTER_PORT is taken: by another job on this node, or by a process of yours that did not end.",
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)); torchrun --standalone; ss -ltnp | grep PORT",
        "seen here",
    ),
    Pattern(
        "rendezvous",
        r"The client socket has (timed out|failed to connect)|Timed out after \d+ seconds waiting for "
        r"clients|RendezvousConnectionError"
        r"|RendezvousTimeoutError|DistStoreError|connect\(\) timed out",
        "The ranks do not reach the first one: MASTER_ADDR or MASTER_PORT is wrong, a firewall closes the port, "
        "or fewer processes came than "
        "WORLD_SIZE says (in PAI DLC it is the number of nodes, not of processes).",
        "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK    in every process; MASTER_ADDR=$(scontrol show "
        "hostnames $SLURM_JOB_NODELIST | head -1)",
        "seen here; pytorch's c10d store",
    ),
    Pattern(
        "ranks-missing",
        r"environment variable (?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected, but not set"
        r"|KeyError: '(?P<key>RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR)'",
        "Nobody told the processes all of it. torchrun does. Under pyxis RANK and LOCAL_RANK are there where the image "
        "has PYTORCH_VERSION, the others where the site has enroot's hook 50-slurm-pytorch.sh too.",
        "torchrun --nproc-per-node=…; ./build.py job REF --runtime … --per-gpu    sets all; under pyxis "
        "PYTORCH_VERSION in the image",
        "seen here; pyxis 0.24, pytorch_setup; enroot's hook 50-slurm-pytorch.sh",
    ),
    Pattern(
        "connection",
        r"Connection (closed|reset) by peer|Connection refused|Broken pipe.{0,200}?(TCPStore|gloo)|Socket closed",
        "The other process is gone, or nobody listens there: another rank failed first.",
        "the log of the rank that failed first (`srun --label`); MASTER_ADDR and MASTER_PORT alike everywhere",
        "seen here; sglang #3226",
    ),
    Pattern(
        "gloo",
        r"[Gg]loo connectFullMesh failed|connectFullMesh|gloo/transport/tcp",
        "The processes do not reach each other by the address that gloo chose: the host's name leads to "
        "127.0.1.1 or to a closed network.",
        "export GLOO_SOCKET_IFNAME=…    (a name of `ip -brief address` that all nodes share); getent hosts $(hostname)",
        "sglang #3226, pytorch #68726",
    ),
    Pattern(
        "rpc",
        r"RPC ran for more than|tensorpipe.{0,200}?(timed? ?out|ETIMEDOUT|ECONN|eof)|In ProcessGroupAgent",
        "A process of GLT or torch.distributed.rpc does not answer: it failed, its port is closed, or it still "
        "loads its partition.",
        "the log of every process; TP_SOCKET_IFNAME=…; a larger rpc_timeout",
        "seen with GLT's distributed loader",
    ),
    Pattern(
        "name-resolution",
        r"Name or service not known|Temporary failure in name resolution|gaierror|nodename nor servname",
        "A host's name has no address here: no network in the job, or MASTER_ADDR is a name that this node does "
        "not know.",
        "getent hosts NAME; MASTER_ADDR=$(hostname -i)    of the first node; data: fetch it on the login node before",
        "seen here",
    ),
    Pattern(
        "worker-killed",
        r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) (is killed by signal: Killed|exited unexpectedly)",
        "A worker was ended from outside: memory (the cgroup's limit), or it crashed.",
        "num_workers=0 shows its true error; sbatch --mem=…; docker run --memory …",
        "torch's documentation on DataLoader",
    ),
    Pattern(
        "killed",
        r"^[ \t]*Killed[ \t\r]*$|\bexit(ed)?( with)?( exit)?( code)?:? 137\b|signal 9|SIGKILL|-9\) local_rank"
        r"|exitcode *: -9",
        "The kernel ended the process: memory is over. Or somebody did (a time limit, scancel).",
        "sbatch --mem=…; docker run --memory …; dmesg | grep -i oom; fewer workers",
        "seen here",
    ),
    Pattern(
        "out-of-memory",
        r"Cannot allocate memory|DefaultCPUAllocator: (not enough|can't allocate) "
        r"memory|\bMemoryError\b|std::bad_alloc",
        "The machine, or the job's share of it, has no memory left.",
        "free -g; sbatch --mem=…; float16 features; a memory-mapped dataset",
        "seen here",
    ),
    Pattern(
        "disk-full",
        r"No space left on device|Disk quota exceeded|Errno 28|Errno 122",
        "A disk is full, or your quota is: often $HOME by caches, or /tmp.",
        "df -h . /tmp $HOME; quota -s; du -sh ~/.cache ~/.apptainer; APPTAINER_CACHEDIR, TMPDIR and "
        "GRAPHCRATE_CACHE on /scratch",
        "seen here; enroot #187",
    ),
    Pattern(
        "segfault",
        r"Segmentation fault|SIGSEGV|signal 11|exitcode *: -11|exited? (with )?(exit )?code 139",
        "A library crashed: mostly an extension that does not fit torch, or two OpenMP or CUDA libraries in one "
        "process.",
        "python -X faulthandler PROGRAM    shows where; doctor --imports; unset LD_LIBRARY_PATH PYTHONPATH",
        "PyG #9636",
    ),
    Pattern(
        "pyg-needs",
        r"\brequires (either "
        r")?'?(?P<name>pyg-lib|torch-sparse|torch-scatter|torch-cluster|torch-spline-conv)'?",
        "PyG wants the extension {name}, which is not installed or could not be loaded.",
        "doctor    says which; make image …    compiles them from source; python -W error -c 'import torch_geometric'",
        "seen here (NeighborLoader without pyg-lib or torch-sparse)",
    ),
    Pattern(
        "weights-only",
        r"Weights only load failed|weights_only",
        "torch 2.6 and newer load tensors alone, and datasets that ogb or an older PyG saved have objects in them.",
        "a newer ogb and PyG; for files that you trust: torch.load(…, weights_only=False), "
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1",
        "torch 2.6's release notes; ogb with torch 2.6",
    ),
    Pattern(
        "permission",
        r"Permission denied|EACCES|Errno 13",
        "In a container you are yourself, not root: folders of the image are closed to you, and files of root in "
        "your working folder too.",
        "ls -ld PATH; id; write below $HOME or /scratch; docker run --user $(id -u):$(id -g)",
        "seen here",
    ),
)
