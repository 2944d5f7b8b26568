"""Errors of enroot, pyxis, Apptainer, Singularity, Docker and Slurm, the most telling first."""

from doctor.pattern import Pattern

RUNTIME_PATTERNS = (
    # enroot and pyxis
    Pattern(
        "enroot-no-nvidia-cli",
        r"Command not found: nvidia-container-cli",
        "The image asks for GPUs (NVIDIA_VISIBLE_DEVICES), and the node has no NVIDIA container tools: a node "
        "without GPUs, or "
        "one where they were forgotten.",
        "NVIDIA_VISIBLE_DEVICES=void srun …    (`none` does not help); a node with GPUs: libnvidia-container-tools",
        "pyxis #101; seen with enroot 4.1.2",
    ),
    Pattern(
        "enroot-mellanox",
        r"99-mellanox\.sh exited with return code|Unknown MELLANOX device id: (?P<id>\S{1,40})",
        "MELLANOX_VISIBLE_DEVICES asks for InfiniBand, and this node has none, or not as much of it.",
        "unset MELLANOX_VISIBLE_DEVICES    (or =void, where the image sets it); on the node: ls /sys/class/infiniband",
        "enroot 4.1.2, hook 99-mellanox.sh; seen on a node without InfiniBand",
    ),
    Pattern(
        "enroot-namespaces",
        r"enroot-nsenter: failed to create user namespace|enroot-\w+: failed to (create|unshare)",
        "The kernel gives no (more) user namespaces: switched off, or user.max_user_namespaces is used up.",
        "as root: sysctl user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1; lsns -t user",
        "pyxis #93",
    ),
    Pattern(
        "enroot-space",
        r"(pyxis|enroot|mksquashfs|unsquashfs|Write failed because|FATAL ERROR).{0,200}?No space left on device"
        r"|No space left on device.{0,200}?(enroot|pyxis|squashfs)",
        "The image is unpacked, or packed as a squashfs, in a folder that is too small: often a tmpfs "
        "(/run/pyxis, /run/user, /tmp), "
        "that is memory.",
        "srun --container-image=./pyg.sqsh    made once by ./build.py convert REF --to sqsh; the administrator: "
        "runtime_path of pyxis, "
        "ENROOT_DATA_PATH, ENROOT_CACHE_PATH and ENROOT_TEMP_PATH on a disk",
        "pyxis #41, #53; enroot #39, #83, #187",
    ),
    Pattern(
        "enroot-compression",
        r"Filesystem uses (?P<kind>\w{1,20}) compression, this is unsupported by this version",
        "The node's unsquashfs is older than the file, or built without {kind}: zstd is read from squashfs-tools 4.4 "
        "(2019) on.",
        "./build.py convert REF --to sqsh --compression gzip    (of a SIF: --to sif); the administrator: newer "
        "squashfs-tools",
        "squashfs-tools 4.5.1, unsquashfs; seen here",
    ),
    Pattern(
        "enroot-basic",
        r"Authenticating with user: <anonymous>"
        r"(?![\s\S]{0,4000}?(Authentication succeeded|Fetching image manifest|returned error code|curl: \(\d))",
        "The registry wants a user and a password (basic authentication), and enroot has none for it: the import ends "
        "without a word.",
        "echo 'machine HOST login USER password TOKEN' >> ~/.config/enroot/.credentials    (HOST without its port); "
        "chmod 600 ~/.config/enroot/.credentials",
        "enroot 4.1.2, docker::_authenticate; seen with docker-registry 2.8",
    ),
    Pattern(
        "pyxis-name",
        r'a container with name "(?P<name>pyxis_[^"]{1,200})" does not exist, and --container-image is not set',
        "Nothing stands under {name} on this node: it was removed, made on other nodes or by another user, or by "
        "another job where the site has container_scope=job.",
        "srun --ntasks-per-node=1 --container-image=IMAGE --container-name=NAME true    in this job, on all its nodes",
        "pyxis 0.24, pyxis_slurmstepd.c",
    ),
    Pattern(
        "pyxis-workdir",
        r"pyxis: couldn't chdir to (container cwd )?(?P<folder>[^\n]{1,300}?): ",
        "{folder} is not there in the container, or closed to you: pyxis brings no folder of the host in by itself.",
        'srun --container-mounts="$PWD" --container-workdir="$PWD" …',
        "pyxis 0.24, pyxis_slurmstepd.c",
    ),
    Pattern(
        "pyxis-no-file",
        r"\[ERROR\] No such file or directory: (?P<path>/[^\n]{0,300}\.(sqsh|squashfs|sqfs))\b",
        "{path} is not there on the node: a relative path counts from where srun was typed, and the folder has to be "
        "one that all nodes share.",
        "srun ls -l PATH; realpath pyg.sqsh",
        "enroot 4.1.2, runtime::create",
    ),
    Pattern(
        "pyxis-hub",
        r"Could not resolve host: registry-1\.docker\.io",
        "enroot looked for the image on Docker Hub, which this node does not reach: a file's path begins with `.` or "
        "`/`, and a registry's name ends with `#`.",
        "srun --container-image=./pyg.sqsh; srun --container-image='registry.example.com#team/pyg:tag'",
        "seen with pyxis 0.24",
    ),
    Pattern(
        "pyxis-hash",
        r"registry-1\.docker\.io/v2/(?P<host>[\w-]+\.[\w.-]+(?::\d+)?)/\S{0,200} returned error code",
        "pyxis took the registry {host} for a folder of Docker Hub: between registry and image it wants a `#`.",
        "srun --container-image='{host}#team/image:tag'",
        "pyxis #39, enroot #8",
    ),
    Pattern(
        "pyxis-path",
        r"registry-1\.docker\.io/v2/\S{0,200}\.sqsh\S{0,200} returned error code|library/\S{1,200}\.sqsh",
        "pyxis took the file for an image on Docker Hub: a path has to begin with `.` or `/`.",
        "srun --container-image=./pyg.sqsh",
        "pyxis #127",
    ),
    Pattern(
        "apptainer-401",
        r"While (making image from|performing build|pulling)[^\n]{0,600}?(unauthorized|authentication required"
        r"|requested access to the resource is denied|status code from registry 40[13])",
        "The registry refuses Apptainer: it is not logged in there, or the image's name is wrong (a registry says the "
        "same of both).",
        "apptainer registry login --username USER docker://HOST    (before 1.3 and in Singularity 3: remote login); or "
        "APPTAINER_DOCKER_USERNAME=… APPTAINER_DOCKER_PASSWORD=…    (SINGULARITY_… for Singularity)",
        "apptainer #2230, cuda-quantum #1643",
    ),
    Pattern(
        "enroot-401",
        r"URL (?P<url>\S{1,200}) returned error code: 40[13]|401 Unauthorized|unauthorized: authentication required",
        "The registry refuses: no credentials, old ones, or two entries for one machine in "
        "~/.config/enroot/.credentials.",
        "one line `machine HOST login USER password TOKEN` for each host (NGC: nvcr.io and authn.nvidia.com); "
        "rm -r ~/.cache/enroot/.tokens-*",
        "enroot #161, #241, #14; pyxis #71",
    ),
    Pattern(
        "enroot-404",
        r"URL (?P<url>\S{1,200}/manifests/\S{1,200}) returned error code: 404",
        "The registry has no such tag, or does not give enroot an OCI manifest (docker-registry 2.8).",
        "skopeo copy --format v2s2 oci:… docker://…; skopeo inspect docker://…",
        "seen with enroot 4.1.2 and docker-registry 2.8",
    ),
    Pattern(
        "enroot-hook",
        r"nvidia-container-cli: (?P<what>(ldcache|mount|container|initialization|detection|permission) "
        r"error[^\n]{0,200})",
        "NVIDIA's container tools could not put the driver in: {what}",
        "nvidia-container-cli -k -d /dev/stderr info    on the node; a version that fits the driver; "
        "NVIDIA_VISIBLE_DEVICES=void without GPUs",
        "enroot #111, #128, #234; libnvidia-container #313",
    ),
    Pattern(
        "enroot-hook-failed",
        r"\[ERROR\] (?P<hook>/\S{0,200}hooks\.d/(?P<name>\S{1,200})) exited with return code (?P<code>\d+)",
        "enroot's hook {name} failed, and with it the start. The line above says why.",
        "bash -x {hook}    on the node; an /etc of the image that can be written (./build.py check REF "
        "--runtime pyxis)",
        "enroot #39, pyxis #101",
    ),
    Pattern(
        "pyxis-absent",
        r"unrecognized option '--container-(image|mounts|workdir|name)",
        "This Slurm has no pyxis (or slurm.conf's plugstack.conf does not name it).",
        "srun --help | grep container-image; ./build.py job REF --runtime singularity …",
        "getopt's words in a Slurm without pyxis",
    ),
    Pattern(
        "plugstack",
        r"(spank|plugstack|Failed to load plugin|required plugin).{0,200}?(spank_pyxis\.so|plugstack\.conf)",
        "Slurm could not load pyxis, or pyxis could not start the container: where the log of enroot is printed "
        "above, that is the cause.",
        "the lines with `pyxis:` above; a pyxis that was built for this very Slurm",
        "pyxis #101, #78",
    ),
    # Apptainer and Singularity
    Pattern(
        "apptainer-namespaces",
        r"Failed to create (user namespace|container process)|[Uu]ser namespace not supported|user namespaces? "
        r"(is|are) (not|disabled)"
        r"|requires unprivileged user namespaces|newuidmap was not found|apptainer-suid",
        "Apptainer is there without its set-uid part, and the kernel gives users no namespaces (or AppArmor of "
        "Ubuntu 24.04 does not).",
        "as root: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000 "
        "kernel.apparmor_restrict_unprivileged_userns=0; or "
        "install apptainer-suid",
        "apptainer #2370, #1582; megSAP #538",
    ),
    Pattern(
        "apptainer-fakeroot",
        r"could not use fakeroot|no mapping entry found in /etc/sub[ug]id|not listed in /etc/sub[ug]id",
        "--fakeroot wants ranges of subordinate ids for you.",
        "as root: usermod --add-subuids 200000-265535 --add-subgids 200000-265535 $USER; or convert without any: "
        "./build.py convert REF --to sif",
        "apptainer #1863",
    ),
    Pattern(
        "apptainer-squashfuse",
        r"squashfuse(_ll)? not found|Converting SIF file to temporary sandbox|gocryptfs not found",
        "Without set-uid a SIF is mounted by squashfuse; that is missing, so the whole image is unpacked at "
        "each start.",
        "as root: apt-get install squashfuse; ls -l /dev/fuse; APPTAINER_TMPDIR=/scratch/$USER until then",
        "apptainer #592, #737, #760",
    ),
    Pattern(
        "apptainer-squashfs",
        r"(unknown|unsupported|not supported).{0,40}compress|Filesystem uses \"?\w+\"? compression|squashfs "
        r"image.{0,200}?(xz|zstd|lzo)"
        r"|kernel reported a bad superblock for squashfs",
        "The kernel cannot mount this squashfs: zstd from 4.14 on, el7's 3.10 gzip alone.",
        "make sif CUDA=…    without KERNEL=: gzip",
        "Linux 4.14 fs/squashfs/Kconfig; Singularity on CentOS 7",
    ),
    Pattern(
        "apptainer-open",
        r"could not open image (?P<file>\S{1,200}?): (?P<why>[^\n]{1,200})|image format not recognized",
        "The file is not there, is closed to you, or is no SIF (a transfer that was cut short, a .sqsh of enroot).",
        "ls -l FILE; file FILE; apptainer sif list FILE; sha256sum on both sides",
        "seen here",
    ),
    Pattern(
        "apptainer-loop",
        r"failed to find loop device|could not attach image file to loop device|[Nn]o (more available )?loop devices",
        "A SIF is mounted by a loop device, and none can be had: all are in use (max loop devices in the "
        "configuration), or this is a container without /dev/loop*.",
        "losetup -a; as root: modprobe loop max_loop=256; shared loop devices = yes in apptainer.conf or "
        "singularity.conf; without any: apptainer exec --userns, or a folder: ./build.py convert REF --to rootfs",
        "sylabs/singularity #67, #2144; apptainer #344, #321",
    ),
    Pattern(
        "apptainer-bind",
        r"mount \S{1,200}->\S{1,200} error(?!: while mounting image)"
        r"|destination \S{1,200} doesn't exist in container|no such file or "
        r"directory.{0,200}?(bind|mount)|Skipping mount",
        "A folder that is bound has no place in the image, and none can be made there (no overlay or underlay).",
        "--bind /data:/mnt; enable underlay = yes in apptainer.conf",
        "apptainer #760, #2492",
    ),
    Pattern(
        "apptainer-nv",
        r"[Cc]ould not find any nv (files|libraries) on this host",
        "--nv found no driver: a login node without GPUs, or ldconfig does not know the driver's libraries.",
        "srun --gres=gpu:1 … on a node with GPUs; as root: ldconfig; /sbin in PATH",
        "apptainer/singularity #6356; sylabs/singularity #2805",
    ),
    Pattern(
        "kernel-too-old",
        r"FATAL: kernel too old",
        "The image's C library needs a newer kernel than the host has: an image of a new distribution on an "
        "old system.",
        "uname -r; ./build.py check REF --kernel VERSION; an image on an older base (Debian bullseye)",
        "glibc's start-up code",
    ),
    # Docker, registries and Kubernetes
    Pattern(
        "registry-unknown",
        r"manifest unknown|manifest for \S{1,200} not found|repository does not exist or may require",
        "The registry has no such image or tag, or does not show it to you.",
        "skopeo list-tags docker://REGISTRY/TEAM/IMAGE; docker login REGISTRY; check the name letter by letter",
        "OCI distribution specification (MANIFEST_UNKNOWN)",
    ),
    Pattern(
        "max-depth",
        r"max depth exceeded",
        "The image has more layers than Docker takes (125).",
        "./build.py check REF    counts them; squash it, or build it with fewer RUN lines",
        "docker/for-linux #414, moby/buildkit #3067",
    ),
    Pattern(
        "docker-gpu",
        r"could not select device driver \"?(nvidia)?\"? ?with capabilities: \[\[gpu\]\]|unknown or invalid "
        r"runtime name: nvidia",
        "Docker has no NVIDIA container toolkit (or is the snap, which cannot use it).",
        "as root: apt-get install nvidia-container-toolkit; nvidia-ctk runtime configure --runtime=docker; "
        "systemctl restart docker",
        "nvidia-docker #1352, #1642",
    ),
    Pattern(
        "docker-daemon",
        r"Cannot connect to the Docker daemon",
        "No Docker daemon runs here, or DOCKER_HOST names another.",
        "as root: systemctl start docker; unset DOCKER_HOST; without Docker: ./build.py run REF -- …",
        "seen here",
    ),
    Pattern(
        "docker-permission",
        r"permission denied while trying to connect to the Docker",
        "The daemon's socket is for root and the group docker.",
        "as root: usermod -aG docker $USER, then log in anew; or podman",
        "Docker's post-installation steps",
    ),
    Pattern(
        "docker-clone3",
        r"can't start new thread|pthread_create failed.{0,200}?(EPERM|Operation not permitted)|pthread_create failed: "
        r"Resource temporarily",
        "Threads cannot be started: Docker before 20.10.10 forbids clone3, which glibc 2.34 and newer use; or "
        "the limit of processes is reached.",
        "docker version; docker run --security-opt seccomp=unconfined …; ulimit -u; --pids-limit",
        "moby #42680",
    ),
    Pattern(
        "kubernetes-gpu",
        r"Insufficient nvidia\.com/gpu|UnexpectedAdmissionError.{0,200}?nvidia",
        "No node of the cluster has a free GPU of the kind that the pod asks for.",
        "kubectl describe node | grep nvidia.com/gpu; in PAI another instance type",
        "Kubernetes' documentation on scheduling GPUs",
    ),
    # Slurm
    Pattern(
        "slurm-oom",
        r"[Dd]etected \d+ oom[-_]kill|Out Of Memory|OUT_OF_MEMORY|oom-kill",
        "The job used more memory than it asked for, and the kernel ended it.",
        "sbatch --mem=64G    (or --mem-per-gpu); fewer DataLoader workers; sacct -j JOB -o MaxRSS,ReqMem",
        "nextflow #5932, ArjunaUsers #52",
    ),
    Pattern(
        "slurm-node-configuration",
        r"Requested node configuration is not available|Invalid generic resource \(gres\) specification",
        "No node of that partition has what the job asks for: GPUs, cores or memory of one node.",
        "sinfo -o '%P %D %c %m %G'; srun -p PARTITION --gres=gpu:1",
        "Slurm's documentation",
    ),
    Pattern(
        "slurm-partition",
        r"invalid partition specified|Invalid account or account/partition combination",
        "There is no such partition, or your account may not use it.",
        "sinfo -s; sacctmgr show assoc user=$USER format=account,partition,qos",
        "Slurm's documentation",
    ),
    Pattern(
        "slurm-time",
        r"CANCELLED AT \S{1,200} DUE TO TIME LIMIT|PartitionTimeLimit",
        "The job took longer than its --time, or asks for longer than the partition gives.",
        "sbatch --time=…; scontrol show partition; write checkpoints (dna.py --checkpoint)",
        "Slurm's documentation",
    ),
    Pattern(
        "slurm-connect",
        r"Unable to contact slurm controller|Could not establish a configuration source|slurm_load_\w+ "
        r"error|Unable to allocate resources: "
        r"(Socket|Zero|Unable to contact)",
        "slurmctld does not answer, or this machine has another slurm.conf.",
        "scontrol ping; echo $SLURM_CONF",
        "seen here",
    ),
)
