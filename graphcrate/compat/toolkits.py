"""CUDA toolkits to compile with: which fit a torch, what each nvcc takes and makes, how one is put together. Pure.

torch's build helper refuses another major version of CUDA than its own, and warns of another minor one.
"""

import functools
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.compat import facts
from graphcrate.compat.facts import numbers, table
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import DebianToolkit, WheelToolkit
from graphcrate.model.plan import CUDA_HOME, LAYER_MTIME

#: Providers in order of preference: first what needs no registry of images. `graphcrate.inputs.toolkits` has them.
PROVIDERS = ("debian", "pypi", "image")
#: Sections of Debian's archive that a toolkit is in, besides `main`.
COMPONENTS = ("contrib", "non-free")
PACKAGES = "/opt/toolkit"  #: where a toolkit is put together: holds `debs/*.deb` and `wheels/*.whl`


class Nvcc(msgspec.Struct, frozen=True, kw_only=True):
    """An nvcc: the newest gcc it takes, and the compute capabilities it makes code for, ascending."""

    cuda: str  #: "11.8"
    newest_gcc: int
    sm: tuple[str, ...]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A way to come by a toolkit. `version` is nvcc's, exact for `debian` and `pypi`, else "11.8"."""

    provider: str
    version: str
    cuda: str = ""  #: major version of CUDA of what it compiles for
    suite: str = ""  #: of `debian`
    packages: tuple[str, ...] = ()  #: of that suite, from `COMPONENTS`
    wheels: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    reference: str = ""  #: of `image`, with its tag


class _Data(msgspec.Struct, frozen=True):
    nvcc: tuple[Nvcc, ...]
    source: tuple[Option, ...]
    images: dict[str, str]  #: by CUDA version: NVIDIA's with a toolkit (`…-devel-…`), of each a late patch release


_data = functools.cache(functools.partial(table, "toolkits", _Data))


def options(torch_cuda: str) -> tuple[Option, ...]:
    """Toolkits for a torch built with this CUDA ("11.7"), the preferred one first; none where nobody knows any."""
    fitting = [option for option in _data().source if option.cuda == torch_cuda.partition(".")[0]]
    if not fitting:
        return ()
    if reference := _data().images.get(torch_cuda):
        fitting.append(Option(provider="image", version=torch_cuda, reference=reference))
    return tuple(sorted(fitting, key=lambda option: PROVIDERS.index(option.provider)))


def requirements(option: Option, locked: Mapping[str, str]) -> tuple[str, ...]:
    """Pins of all wheels of an option, sorted, libraries in the version that the lock has (`locked`: by name)."""
    libraries = (pin.split("==") for pin in option.libraries)
    return tuple(sorted([*option.wheels, *(f"{name}=={locked.get(name, version)}" for name, version in libraries)]))


def nvcc(version: str) -> Nvcc:
    """The nvcc of a CUDA version ("11.8", "11.8.89"), or the nearest older one that is known."""
    older = [one for one in _data().nvcc if numbers(one.cuda) <= numbers(version)[:2]]
    return max(older, key=lambda one: numbers(one.cuda))


def to_compile(wanted: Sequence[str], version: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """TORCH_CUDA_ARCH_LIST for these capabilities, and those newer than the nvcc, with PTX alone. Raises UsageError."""
    made = nvcc(version).sm
    newer = tuple(one for one in wanted if one not in made and numbers(one) > numbers(made[-1]))
    chosen = tuple(dict.fromkeys(f"{made[-1]}+PTX" if one in newer else one for one in wanted))
    if newer:
        chosen = tuple(one for one in chosen if one != made[-1])
    refuse_impossible(chosen, version)
    return chosen, newer


def architectures_of(torch: str, cuda: str, version: str) -> tuple[str, ...]:
    """The capabilities that this torch has code for and this nvcc makes, from Volta on; for what is compiled beside it.

    What is compiled for torch's oldest GPUs too takes twice as long, for GPUs that no recipe is for.
    """
    build = facts.torch_build(torch, cuda)
    known = build.sm if build else ()
    return tuple(one for one in nvcc(version).sm if one in known and numbers(one) >= numbers("7.0"))


def refuse_impossible(wanted: Sequence[str], version: str) -> None:
    """Raises UsageError, with the nearest fix, when the nvcc of this version cannot make one of these architectures."""
    able = nvcc(version).sm
    capabilities = {architecture: architecture.removesuffix("+PTX") for architecture in wanted}
    missing = {architecture: needed for architecture, needed in capabilities.items() if needed not in able}
    if not missing:
        return
    fixes = dict.fromkeys(_fix(capability, version) for capability in missing.values())
    same_major = [one for one in _data().nvcc if numbers(one.cuda)[0] == numbers(version)[0]]
    elsewhere = any(set(missing.values()) <= set(one.sm) for one in same_major)
    raise UsageError(
        f"nvcc {version} makes code for {able[0]} to {able[-1]}; {'; '.join(fixes)}",
        cause="nvcc knows the GPUs of its own time, and a new major version drops the oldest.",
        next_step=f"leave {', '.join(missing)} out, or take "
        + ("another toolkit: TOOLKIT=image" if elsewhere else "a variant of another CUDA version"),
    )


def _fix(capability: str, version: str) -> str:
    """ "10.0 needs CUDA 12.8": the nearest version that makes this code, where there is one, newer ones first."""
    able = [one.cuda for one in _data().nvcc if capability in one.sm]
    if newer := [cuda for cuda in able if numbers(cuda) > numbers(version)]:
        return f"{capability} needs CUDA {min(newer, key=numbers)}"
    if able:
        return f"{capability} was dropped after CUDA {max(able, key=numbers)}"
    return f"{capability} is known to no CUDA"


# How a toolkit is put together out of packages, in the shell's words: in the embedded build's sandbox and in the texts
# for engines, on any Debian with Python. The folder is what NVIDIA's own installer makes, as far as compiling goes: the
# runtime is the one library in it. The others are large, and torch brings them along where they are wanted.

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
    version = f'{{"cuda": {{"name": "CUDA SDK", "version": "{toolkit.version}"}}}}'
    return (
        f"mkdir -p {CUDA_HOME}/bin {CUDA_HOME}/include {CUDA_HOME}/lib64 {CUDA_HOME}/nvvm/bin",
        *(_of_debs() if isinstance(toolkit, DebianToolkit) else _OF_WHEELS),
        f"cp -R {_NVIDIA}/*/include/. {CUDA_HOME}/include",
        f"cp {_NVIDIA}/*/lib/lib* {CUDA_HOME}/lib64",
        # What a linker looks for; wheels have no links.
        f'for file in {CUDA_HOME}/lib64/*.so.*; do ln -s "${{file##*/}}" "${{file%%.so.*}}.so" || exit 1; done',
        f"printf '%s\\n' '{version}' > {CUDA_HOME}/version.json",
        f"rm -rf {_UNPACKED}",
        f"find {CUDA_HOME} -name __init__.py -delete",
        # Modes and times that depend on nothing: zip keeps no modes, and the rest is the clock's or the umask's.
        f"find {CUDA_HOME} -type d -exec chmod 755 {{}} +",
        f"find {CUDA_HOME} -type f -exec chmod 644 {{}} +",
        f"find {CUDA_HOME}/bin {CUDA_HOME}/nvvm/bin -type f ! -name '*.*' -exec chmod 755 {{}} +",
        f"find {CUDA_HOME} -exec touch --no-dereference --date=@{LAYER_MTIME} {{}} +",
        f"{CUDA_HOME}/bin/nvcc --version",
    )


def _of_debs() -> tuple[str, ...]:
    """Debian's programs where nvcc looks for them; not its wrappers of gcc, which choose a compiler themselves."""
    own = f"{_DEBIAN}/lib/nvidia-cuda-toolkit"
    programs = " ".join(f"{_DEBIAN}/bin/{name}" for name in _PROGRAMS)
    profile = " ".join(f'"{line}"' for line in _PROFILE).replace("$", "\\$")
    return (
        f"mkdir -p {_UNPACKED}/debs",
        f'for package in {PACKAGES}/debs/*.deb; do dpkg-deb --extract "${{package}}" {_UNPACKED}/debs || exit 1; done',
        _extracted(f"/include/|{_RUNTIME}"),
        f"cp -R {own}/bin/nvcc {own}/bin/crt {programs} {CUDA_HOME}/bin",
        f"cp {own}/bin/cicc {CUDA_HOME}/nvvm/bin",
        f"cp -R {own}/libdevice {CUDA_HOME}/nvvm",
        f"cp {_DEBIAN}/share/doc/nvidia-cuda-toolkit/copyright {CUDA_HOME}/EULA.txt",
        f"printf '%s\\n' {profile} > {CUDA_HOME}/bin/nvcc.profile",
        # These wheels have the runtime as a shared library alone, and nvcc asks for static ones unless told otherwise.
        f"printf '%s\\n' 'INPUT ( -lcudart )' > {CUDA_HOME}/lib64/libcudart_static.a",
        f"printf '%s\\n' '!<arch>' > {CUDA_HOME}/lib64/libcudadevrt.a",
    )


def _extracted(pattern: str) -> str:
    return f"python3 -c '{_EXTRACT}' {_UNPACKED}/wheels '{pattern}' {PACKAGES}/wheels/*.whl"


#: NVIDIA's profile is in the wheels too.
_OF_WHEELS = (
    _extracted(f"/(include|bin|nvvm)/|/License.txt|{_RUNTIME}"),
    f"cp -R {_NVIDIA}/*/bin/. {CUDA_HOME}/bin",
    f"cp -R {_NVIDIA}/*/nvvm/. {CUDA_HOME}/nvvm",
    f"cp {_UNPACKED}/wheels/nvidia_cuda_nvcc-*/licenses/License.txt {CUDA_HOME}/EULA.txt",
)
