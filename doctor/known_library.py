"""Errors of importing and loading: symbols, C libraries, Python packages, the most telling first."""

from doctor.pattern import Pattern

LIBRARY_PATTERNS = (
    Pattern(
        "mkl-ijit",
        r"undefined symbol: iJIT_\w+",
        "A torch that links MKL (conda's) met MKL 2024.1, which no longer has this symbol.",
        "conda install 'mkl<2024.1'; or the image, whose torch has MKL built in",
        "pytorch #123097",
    ),
    Pattern(
        "python-symbol",
        r"undefined symbol: (?P<symbol>_?Py[A-Z_]\w*)",
        "The extension was built for another version of Python than the one that runs ({symbol}): the host's "
        "packages in the image, or "
        "a wrong wheel.",
        "python --version; unset PYTHONPATH; export PYTHONNOUSERSITE=1; install it for this Python",
        "seen with packages of the host's ~/.local",
    ),
    Pattern(
        "glt-symbol",
        r"py_graphlearn_torch\S{0,200}: undefined symbol: (?P<symbol>[\w.$@]+)",
        "graphlearn-torch was built for another torch: it has not {symbol}. {glt}",
        "pip install graphlearn-torch==0.2.2    for torch 1.13, ==0.2.4    for torch 2.3 to 2.6; or an image of "
        "the recipe glt",
        "seen here; the symbols of its wheels and of torch's compared",
    ),
    Pattern(
        "undefined-symbol",
        r"(?:(?<![\w.+/-])(?P<file>[\w.+/-]{1,400}\.so[\w.]{0,40}): )?undefined symbol: (?P<symbol>[\w.$@]+)",
        "{file} was built for another version of {owner} than there is: it lacks {symbol}. {abi}",
        "python -c 'import torch; print(torch.__version__, torch.__file__)'; install {file}'s package for "
        "exactly that torch and CUDA; unset "
        "PYTHONPATH, export PYTHONNOUSERSITE=1",
        "PyG #4355, #3836, #3486; scatter #234, #248; sparse #350",
    ),
    Pattern(
        "glibc-nv",
        r"version `(?P<version>GLIBC_[\w.]+)' not found \(required by (?P<file>/\.singularity\.d/libs/[^)]+)\)",
        "--nv (or --fakeroot) brought {file} of the host into the container, and the container's C library is "
        "older than the host's.",
        "strike that library from nvliblist.conf (the GL ones are not needed for CUDA); or an image with a newer "
        "base; --nvccli",
        "apptainer #945, #2421, #598, #2103",
    ),
    Pattern(
        "glibc",
        r"(?:version `)?(?P<version>GLIBC_[\w.]+)'? not found(?: \(required by (?P<file>[^)]+)\))?",
        "{file} was built on a newer system: it wants {version}, which this C library does not have.",
        "run it in an image with a newer base (Debian bookworm has 2.36); or compile it in this one; ldd --version",
        "pyg-lib #363, PyG #8217",
    ),
    Pattern(
        "libstdcxx",
        r"(?:version `)?(?P<version>(?:GLIBCXX|CXXABI)_[\d.]+)'? not found(?: \(required by (?P<file>[^)]+)\))?",
        "An older libstdc++ than {file} wants ({version}) was loaded: by conda, a compiler module or LD_LIBRARY_PATH.",
        "unset LD_LIBRARY_PATH; module purge; conda install 'libstdcxx-ng>=12'; strings libstdc++.so.6 | grep "
        "{version}",
        "common with conda beside system compilers",
    ),
    Pattern(
        "pyg-disabling",
        r"An issue occurred while importing '(?P<name>[\w-]+)'\. Disabling its usage",
        "{name} could not be loaded, and PyG goes on without it: slower, or a crash later. The true error is "
        "what stands behind `Stacktrace:`.",
        "python -c 'import {module}'    shows it; install {name} for this torch and CUDA",
        "PyG #9636, pyg-lib #363",
    ),
    Pattern(
        "cudart",
        r"(?P<library>lib(?:cudart|cublas\w*|cusparse\w*|cusolver|cufft|curand|nvrtc)\.so\.(?P<major>\d+)[\d.]*): "
        r"cannot open shared object",
        "It was built for CUDA {major}, and the torch that is here brings the libraries of another.",
        "install it for the CUDA of torch.version.cuda: pip install --force-reinstall … -f the page of PyG for "
        "that torch+cu; import torch first",
        "PyG #9636, seen here",
    ),
    Pattern(
        "torch-library",
        r"(?P<library>lib(?:torch\w*|c10\w*)\.so): cannot open shared object",
        "The extension was loaded before torch, or torch is a build for the CPU that has no {library}.",
        "import torch    before it; for libtorch_cuda and libc10_cuda: a torch for CUDA",
        "extensions that are imported before torch",
    ),
    Pattern(
        "libgl",
        r"libGL\.so\.1: cannot open shared object|libgthread-2\.0\.so\.0: cannot open",
        "opencv-python wants libraries of a desktop.",
        "pip install opencv-python-headless    instead of it",
        "opencv-python's README",
    ),
    Pattern(
        "missing-library",
        r"(?<![\w+.-])(?P<library>lib[\w+.-]{1,80}\.so[\w.]{0,20}): cannot open shared object file",
        "{library} is not in the image, nor where the linker looks.",
        "ldd FILE | grep 'not found'; apt-file search {library}; build the image with its package",
        "seen here",
    ),
    Pattern(
        "numpy-abi",
        r"compiled using NumPy 1\.x cannot be run in\s+NumPy 2|numpy\.(dtype|ndarray|ufunc) size "
        r"changed|_ARRAY_API not found"
        r"|Numpy is not available",
        "A package was built for NumPy 1 and NumPy 2 is installed (or the other way round).",
        "pip install 'numpy<2'; torch before 2.3 needs it",
        "pytorch-frame #525, tensorflow #98406",
    ),
    Pattern(
        "illegal-instruction",
        r"[Ii]llegal instruction|SIGILL",
        "A library was compiled for a newer processor than this one (AVX2, AVX-512): it was built with "
        "-march=native elsewhere.",
        "grep -o -m1 'avx2\\|avx512f' /proc/cpuinfo; EXTENSIONS=source make image …",
        "seen here",
    ),
    Pattern(
        "externally-managed",
        r"externally-managed-environment",
        "pip of the distribution's Python may not install (PEP 668).",
        "python3 -m venv ~/venv && ~/venv/bin/pip install …; in the image: /opt/venv/bin/pip",
        "PEP 668; seen here",
    ),
    Pattern(
        "read-only",
        r"Read-only file system",
        "A SIF, and an image under pyxis, cannot be written to.",
        "pip install --target /scratch/$USER/site … with PYTHONPATH; srun --container-writable; singularity exec "
        "--overlay; or put it into the recipe",
        "seen here",
    ),
    Pattern(
        "exec-format",
        r"[Ee]xec format error|cannot execute binary file",
        "A program for another processor (aarch64 and x86_64), or a script without #!.",
        "uname -m; file PROGRAM; docker build --platform linux/amd64",
        "seen here",
    ),
    Pattern(
        "preload",
        r"object '(?P<file>[^']+)' from LD_PRELOAD cannot be preloaded",
        "The host's LD_PRELOAD names {file}, which is not in the container. It is a warning; what it should do "
        "is not done.",
        "unset LD_PRELOAD; singularity exec --cleanenv …",
        "seen here",
    ),
    Pattern(
        "python-missing",
        r"python3?: (command )?not found|exec:? \"?python3?\"?:? (executable file )?not found|python3?: No such file",
        "PATH is not the image's: a login shell set it anew (enroot), or Slurm's own --container takes the host's.",
        "/opt/venv/bin/python …; export PATH=/opt/venv/bin:$PATH; ENROOT_LOGIN_SHELL=n",
        "seen with pyxis 0.24 and enroot 4.1.2 on Debian images",
    ),
    Pattern(
        "pyg-version",
        r"cannot import name '(?P<name>\w+)' from "
        r"'(?P<module>(?:torch|torch_geometric|torch_sparse|torch_scatter|ogb)[\w.]*)'",
        "{name} is not in this version of {module}: the program was written for another one, or two of them do "
        "not go together.",
        "python -m pip list | grep -i torch; the versions of an image go together: ./build.py list",
        "PyG's changelog",
    ),
    Pattern(
        "no-module",
        r"No module named '(?P<name>[\w.]+)'",
        "{name} is not installed for the Python that runs: another Python than the image's, or it is not in the image.",
        "which python; python -m pip list | grep -i {name}; in the image /opt/venv/bin/python",
        "seen here",
    ),
)
