"""C++ names as people read them, with what this machine has: libstdc++'s own demangler, or c++filt."""

import ctypes
import re
import subprocess

MANGLED = re.compile(r"_Z[A-Za-z0-9_.$]+")
#: who has a symbol, by what it begins with; the first that fits
OWNERS = (
    (r"at::|c10::|torch::|caffe2::|at_|_ZN(K?)(2at|3c10|5torch)", "torch"),
    (r"cudnn", "cuDNN"),
    (r"cublas", "cuBLAS"),
    (r"nccl", "NCCL"),
    (r"__nvJitLink|nvJitLink", "nvJitLink"),
    (r"cuda|cusparse|cusolver|cufft|curand|__cuda", "the CUDA runtime"),
    (r"_?Py[A-Z_]", "Python"),
    (r"std::|__cxa|GLIBCXX", "libstdc++"),
    (r"GOMP_|omp_|__kmpc", "OpenMP's runtime"),
)


def demangled(symbol: str) -> str:
    """`at::_ops::zeros::call(…)` of `_ZN2at4_ops5zeros4callE…`; as it is where nothing here can tell."""
    if not MANGLED.match(symbol):
        return symbol
    for library in ("libstdc++.so.6", None):
        try:
            demangle = ctypes.CDLL(library).__cxa_demangle
        except (OSError, AttributeError):
            continue
        demangle.restype = ctypes.c_void_p
        demangle.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
        status = ctypes.c_int(1)
        answer = demangle(symbol.encode(), None, None, ctypes.byref(status))
        if status.value == 0 and answer:
            return (ctypes.cast(answer, ctypes.c_char_p).value or b"").decode("utf-8", "replace")
    try:
        done = subprocess.run(["c++filt", symbol], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=2)
    except (OSError, subprocess.TimeoutExpired):
        return symbol
    return done.stdout.decode("utf-8", "replace").strip() or symbol


def readable(text: str) -> str:
    """A text with its C++ names demangled."""
    return MANGLED.sub(lambda found: demangled(found.group(0)), text)


def owner_of(symbol: str) -> str:
    """Whose symbol it is, so whose version is the wrong one; empty where its name does not tell."""
    name = demangled(symbol)
    for sign, owner in OWNERS:
        if re.match(sign, name) or re.match(sign, symbol):
            return owner
    return ""


def has_old_strings(symbol: str) -> bool:
    """Return whether a torch with the old C++ ABI is needed: names have std::string without __cxx11 (`Ss`, `SsE`)."""
    name = demangled(symbol)
    return "std::string" in name and "__cxx11" not in name


def has_new_strings(symbol: str) -> bool:
    """Return whether the new C++ ABI is needed."""
    return "__cxx11" in symbol
