"""Sources that CUDA's toolkit compiles, by what their files are called and what they begin with. Pure."""

import re

#: bytes of a file that are looked at: includes, and the languages of a project, stand at its begin
HEAD = 1 << 14

_KERNELS = (".cu", ".cuh")
_IN_CMAKE = re.compile(
    rb"enable_language\s*\(\s*CUDA\b|^\s*project\s*\(\s*[^\s)]+\s[^)]*\bCUDA\b|find_package\s*\(\s*CUDA(Toolkit)?\b",
    re.IGNORECASE | re.MULTILINE,
)
_IN_MESON = re.compile(rb"\b(project|add_languages|dependency)\s*\([^)]*'cuda'")
_IN_SETUP = re.compile(rb"\bCUDAExtension\s*\(")
_HEADERS = rb"(cuda(_runtime(_api)?|_fp16|_bf16)?|cu(blas|sparse|fft|rand|solver|dnn)\w*|nvrtc|nvToolsExt)\.h"
_FOLDERS = rb"(thrust|cub|ATen/cuda|c10/cuda|torch/csrc/cuda)/"
_IN_C = re.compile(rb"^\s*#\s*include\s*[<\"](" + _HEADERS + rb"[>\"]|" + _FOLDERS + rb")", re.MULTILINE)
_IN_CYTHON = re.compile(rb"\bextern\s+from\s+[<\"']+" + _HEADERS)

_BY_ENDING = {
    **dict.fromkeys((".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp"), _IN_C),
    **dict.fromkeys((".pyx", ".pxd"), _IN_CYTHON),
    ".cmake": _IN_CMAKE,
}
_BY_NAME = {"CMakeLists.txt": _IN_CMAKE, "meson.build": _IN_MESON}


def is_kernel(path: str) -> bool:
    """Return whether a file is for nvcc alone."""
    return path.endswith(_KERNELS)


def to_read(path: str) -> int:
    """The number of bytes of a file that tell; 0: its name is enough."""
    return HEAD if _pattern(path) else 0


def wants(path: str, head: bytes) -> bool:
    """Return whether a file is compiled with the toolkit, or has others compiled with it."""
    pattern = _pattern(path)
    return is_kernel(path) or bool(pattern and pattern.search(head))


def _pattern(path: str) -> re.Pattern[bytes] | None:
    name = path.rpartition("/")[2]
    if path == "setup.py":
        return _IN_SETUP
    return _BY_NAME.get(name) or _BY_ENDING.get(name[name.rfind(".") :] if "." in name else "")
