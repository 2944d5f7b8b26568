"""How a toolkit is put together out of packages, in the shell's words. Pure.

The embedded build runs these lines in its sandbox, and the texts for engines have them: the same folder either way.
They need what a Debian with Python has. The folder is what NVIDIA's own installer makes, as far as compiling goes: the
runtime is the one library in it. The others are large, and torch brings them along where they are wanted.
"""

from graphcrate.model.lock import DebianToolkit, WheelToolkit
from graphcrate.model.plan import CUDA_HOME, LAYER_MTIME

PACKAGES = "/opt/toolkit"  #: holds `debs/*.deb` and `wheels/*.whl`
_UNPACKED = f"{PACKAGES}/unpacked"
_DEBIAN = f"{_UNPACKED}/debs/usr"
_NVIDIA = f"{_UNPACKED}/wheels/nvidia"
#: Out of the wheels whose names follow, what matches the pattern: most of the others' bytes are libraries.
_EXTRACT = (
    "import re, sys, zipfile; "
    "[wheel.extractall(sys.argv[1], [name for name in wheel.namelist() if re.search(sys.argv[2], name)])"
    " for path in sys.argv[3:] for wheel in [zipfile.ZipFile(path)]]"
)
_RUNTIME = "/lib/lib(cudart|cudadevrt)"
_PROGRAMS = ("bin2c", "cu++filt", "cudafe++", "cuobjdump", "fatbinary", "nvlink", "nvprune", "ptxas")
#: nvcc's own settings. Debian's name Debian's folders, these the folder that nvcc lies in.
_PROFILE = (
    "TOP = $(_HERE_)/..",
    "NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice",
    "PATH += $(TOP)/nvvm/bin:$(_HERE_):",
    "INCLUDES += -I$(TOP)/include $(_SPACE_)",
    "LIBRARIES =+ $(_SPACE_) -L$(TOP)/lib64",
)


def assembly(toolkit: DebianToolkit | WheelToolkit) -> tuple[str, ...]:
    """Commands, each on one line and wanted to succeed, that make CUDA_HOME out of the packages in PACKAGES."""
    if isinstance(toolkit, DebianToolkit):
        made = (*_unpacked_debs(), *_extracted("/include/", _RUNTIME), *_placed_debs())
    else:
        made = (*_extracted("/(include|bin|nvvm)/", "/License.txt", _RUNTIME), *_placed_programs())
    version = f'{{"cuda": {{"name": "CUDA SDK", "version": "{toolkit.version}"}}}}'
    return (
        f"mkdir -p {CUDA_HOME}/bin {CUDA_HOME}/include {CUDA_HOME}/lib64 {CUDA_HOME}/nvvm/bin",
        *made,
        f"cp -R {_NVIDIA}/*/include/. {CUDA_HOME}/include",
        f"cp {_NVIDIA}/*/lib/lib* {CUDA_HOME}/lib64",
        # What a linker looks for; wheels have no links.
        f'for file in {CUDA_HOME}/lib64/*.so.*; do ln -s "${{file##*/}}" "${{file%%.so.*}}.so" || exit 1; done',
        f"printf '%s\\n' '{version}' > {CUDA_HOME}/version.json",
        f"rm -rf {_UNPACKED}",
        f"find {CUDA_HOME} -name __init__.py -delete",
        *_fixed_attributes(),
        f"{CUDA_HOME}/bin/nvcc --version",
    )


def _unpacked_debs() -> tuple[str, ...]:
    return (
        f"mkdir -p {_UNPACKED}/debs",
        f'for package in {PACKAGES}/debs/*.deb; do dpkg-deb --extract "${{package}}" {_UNPACKED}/debs || exit 1; done',
    )


def _extracted(*patterns: str) -> tuple[str, ...]:
    return (f"python3 -c '{_EXTRACT}' {_UNPACKED}/wheels '{'|'.join(patterns)}' {PACKAGES}/wheels/*.whl",)


def _placed_debs() -> tuple[str, ...]:
    """Debian's programs where nvcc looks for them; not its wrappers of gcc, which choose a compiler themselves."""
    own = f"{_DEBIAN}/lib/nvidia-cuda-toolkit"
    programs = " ".join(f"{_DEBIAN}/bin/{name}" for name in _PROGRAMS)
    profile = " ".join(f'"{line}"' for line in _PROFILE).replace("$", "\\$")
    return (
        f"cp -R {own}/bin/nvcc {own}/bin/crt {programs} {CUDA_HOME}/bin",
        f"cp {own}/bin/cicc {CUDA_HOME}/nvvm/bin",
        f"cp -R {own}/libdevice {CUDA_HOME}/nvvm",
        f"cp {_DEBIAN}/share/doc/nvidia-cuda-toolkit/copyright {CUDA_HOME}/EULA.txt",
        f"printf '%s\\n' {profile} > {CUDA_HOME}/bin/nvcc.profile",
        # These wheels have the runtime as a shared library alone, and nvcc asks for static ones unless told otherwise.
        f"printf '%s\\n' 'INPUT ( -lcudart )' > {CUDA_HOME}/lib64/libcudart_static.a",
        f"printf '%s\\n' '!<arch>' > {CUDA_HOME}/lib64/libcudadevrt.a",
    )


def _placed_programs() -> tuple[str, ...]:
    """The wheels' own: NVIDIA's profile is in them too."""
    return (
        f"cp -R {_NVIDIA}/*/bin/. {CUDA_HOME}/bin",
        f"cp -R {_NVIDIA}/*/nvvm/. {CUDA_HOME}/nvvm",
        f"cp {_UNPACKED}/wheels/nvidia_cuda_nvcc-*/licenses/License.txt {CUDA_HOME}/EULA.txt",
    )


def _fixed_attributes() -> tuple[str, ...]:
    """Modes and times that depend on nothing: zip keeps no modes, and the rest is the clock's or the umask's."""
    return (
        f"find {CUDA_HOME} -type d -exec chmod 755 {{}} +",
        f"find {CUDA_HOME} -type f -exec chmod 644 {{}} +",
        f"find {CUDA_HOME}/bin {CUDA_HOME}/nvvm/bin -type f ! -name '*.*' -exec chmod 755 {{}} +",
        f"find {CUDA_HOME} -exec touch --no-dereference --date=@{LAYER_MTIME} {{}} +",
    )
