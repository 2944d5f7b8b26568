"""Recognises pasted errors: each known one that is in a text, with what its own words add to cause and fix."""

import re
from typing import Dict, List, NamedTuple

from doctor.cuda import cuda_of, model_of, oldest_driver
from doctor.facts import GLT_RELEASES, VARIANTS
from doctor.finding import numbers
from doctor.known_gpu import GPU_PATTERNS
from doctor.known_library import LIBRARY_PATTERNS
from doctor.known_runtime import RUNTIME_PATTERNS
from doctor.known_training import TRAINING_PATTERNS
from doctor.pattern import Pattern
from doctor.symbols import demangled, has_new_strings, has_old_strings, owner_of

#: in order: what says most of the cause goes first
PATTERNS = RUNTIME_PATTERNS + GPU_PATTERNS + LIBRARY_PATTERNS + TRAINING_PATTERNS
LONGEST = 400000  #: characters of a log that are looked at: its first half and its last
#: said of many things: only where nothing else was recognised
VAGUE = (
    "permission",
    "segfault",
    "no-module",
    "connection",
    "killed",
    "enroot-hook-failed",
    "plugstack",
    "missing-library",
)
#: what a recognised error makes needless to say
CONTAINS = {
    "enroot-space": ("disk-full",),
    "nccl-shm": ("nccl-system", "shm"),
    "nccl-memlock": ("nccl-system", "out-of-memory"),
    "nccl-interface": ("nccl-system",),
    "nccl-duplicate": ("nccl-system",),
    "docker-clone3": ("out-of-memory",),
    "slurm-oom": ("killed", "out-of-memory"),
    "worker-killed": ("killed",),
    "glibc-nv": ("glibc",),
    "cuda-memory": ("out-of-memory",),
    "cudart": ("torch-library",),
    "glt-symbol": ("undefined-symbol",),
    "nvjitlink": ("undefined-symbol",),
    "mkl-ijit": ("undefined-symbol",),
    "python-symbol": ("undefined-symbol",),
    "no-driver": ("missing-library",),
    "gloo": ("connection", "rendezvous"),
    "pyxis-hub": ("name-resolution", "connection"),
    "pyxis-path": ("enroot-401", "enroot-404", "pyxis-hash"),
    "pyxis-hash": ("enroot-401", "enroot-404"),
    "apptainer-fakeroot": ("apptainer-namespaces",),
    "apptainer-squashfs": ("apptainer-bind",),
    "apptainer-loop": ("apptainer-bind", "permission"),
    "apptainer-401": ("enroot-401",),
    "nccl-remote": ("nccl-system", "connection"),
    "forward-compat": ("no-device",),
    "require-cuda": ("enroot-hook", "docker-gpu"),
}


class Answer(NamedTuple):
    """What is known of an error; `line` is where it was recognised."""

    id: str
    line: str
    cause: str
    fix: str
    source: str


def explain(text: str) -> List[Answer]:
    """The errors that a text holds, the most telling first; none that is the mere consequence of another."""
    if len(text) > LONGEST:
        text = text[: LONGEST // 2] + "\n" + text[-LONGEST // 2 :]
    found: Dict[str, Answer] = {}
    for pattern in PATTERNS:
        match = re.search(pattern.sign, text, re.MULTILINE)
        if match:
            found[pattern.id] = _answer(pattern, match, text)
    needless = {each for name in found for each in CONTAINS.get(name, ())}
    kept = [answer for name, answer in found.items() if name not in needless]
    telling = [answer for answer in kept if answer.id not in VAGUE]
    return telling or kept


def _answer(pattern: Pattern, match: "re.Match[str]", text: str) -> Answer:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    line = " ".join(text[start : end if end >= 0 else None].split())
    words = _words(match, line)
    cause = _filled(pattern.cause, words)
    if "file" in pattern.cause and not match.groupdict().get("file"):
        cause = cause[:1].upper() + cause[1:]
    return Answer(pattern.id, line[:300], cause, _filled(pattern.fix, words), pattern.source)


def _filled(sentence: str, words: Dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda each: words.get(each.group(1), "it"), sentence).replace("  ", "  ").rstrip()


def _words(match: "re.Match[str]", line: str) -> Dict[str, str]:
    """The match's own groups, and what can be worked out of them and of the line."""
    words = {name: value for name, value in match.groupdict().items() if value}
    sm = words.get("sm", "")
    words["architecture"] = sm or "this GPU's architecture"
    words["capability"] = f"{sm[3:-1]}.{sm[-1]}" if sm else "…    (of your GPU)"
    words["gpu"] = (model_of(line.partition(" with CUDA capability")[0]) if sm else "").lower() or sm or "…"
    for version in ("ours", "theirs"):
        words.setdefault(version, "another version")
    words["file"] = "/".join(words.get("file", "the extension").rsplit("/", 2)[-2:])
    if "name" in words and "module" not in words:
        words["module"] = words["name"].replace("-", "_")
    symbol = words.get("symbol", "")
    if symbol:
        words["owner"] = owner_of(symbol) or "a library"
        words["abi"] = _about_strings(symbol)
        words["symbol"] = demangled(symbol)
        words["glt"] = "Releases: " + "; ".join(
            "{} for torch {}".format(version, " ".join(series)) for version, (series, _) in GLT_RELEASES.items()
        )
    found = words.get("found", "")
    if found.isdigit() and int(found) >= 1000:
        words["found"] = cuda_of(int(found))
        words["fitting"] = _fitting(words["found"])
    return words


def _about_strings(symbol: str) -> str:
    if has_new_strings(symbol):
        return (
            "It was built with the new C++ ABI (as wheels of torch are from 2.7 on, PyTorch's own conda and "
            "older wheels are not)."
        )
    if has_old_strings(symbol):
        return "It was built with the old C++ ABI (wheels of torch before 2.7); this torch may have the new one."
    return ""


def _fitting(known: str) -> str:
    """The newest CUDA of ours for a driver that knows `known`; minor versions of one major do, from CUDA 11 on."""
    fits = [
        cuda
        for cuda, _, _ in VARIANTS
        if numbers(cuda) <= numbers(known) or (oldest_driver(cuda) and cuda.split(".")[0] == known.split(".")[0])
    ]
    return max(fits, key=numbers) if fits else "cpu"
