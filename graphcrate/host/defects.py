"""The last line of defence: an unhandled error becomes a sentence, a file to send, and an exit code.

The standard library alone, loaded when it is needed: this has to work where nothing else does.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

#: as in model/errors.py: DefectError, HostError; as in `cli.exit`
DEFECT, LACKING, INTERRUPTED = 19, 7, 130
#: shows the traceback on stderr, too
TRACEBACK = "GRAPHCRATE_TRACEBACK"
_SECRET = r"[\w.-]*(?:token|passw|secret|credential|api_?key|authorization)[\w.-]*"
#: the part of an address before @, its query, values of options and variables that are called a secret
_SECRETS = (
    (re.compile(r"(?<=://)[^\s/@'\"]+@"), "…@"),
    (re.compile(r"(?<=[?&])([\w.~-]+=)[^&\s'\"#]+"), r"\1…"),
    (re.compile(rf"(--{_SECRET}[= ])\S+", re.IGNORECASE), r"\1…"),
    (
        re.compile(rf"(\b{_SECRET}['\"]?\s*[=:]\s*['\"]?)(?:(?:basic|bearer)\s+)?[^\s,;)}}\]'\"]+", re.IGNORECASE),
        r"\1…",
    ),
)


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """End the program with a sentence and an exit code for any error that gets here, without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        _end("interrupted; the same command goes on where this one stopped", code=INTERRUPTED)
    except MemoryError:
        _end(
            "too little memory for this program",
            "The machine, this job's limit or `ulimit -v` has no more of it.",
            "free -h; ulimit -v    show how much there is; then the same command again, with more",
            LACKING,
        )
    except RuntimeError as error:
        if "start new thread" not in str(error):
            _defect(error)
        _end(
            "this program can start no further thread",
            "This user's limit of processes, that of the job or container, or one of memory is reached.",
            "ulimit -u; ulimit -v    show two of them; cat /sys/fs/cgroup/pids.max a third",
            LACKING,
        )
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        if name in ("", "graphcrate", "doctor"):
            _defect(error)
        _end(
            f"{name}, which this program needs, cannot be loaded: {error}",
            "Its environment is incomplete, or was made by another Python.",
            "rm -r .venv    in a clone (the next command makes it again); else install graphcrate again",
            LACKING,
        )
    except Exception as error:
        _defect(error)


def redacted(text: str) -> str:
    """A text without passwords in addresses, queries, and values that are called a secret."""
    for pattern, without in _SECRETS:
        text = pattern.sub(without, text)
    return text


def _defect(error: Exception) -> NoReturn:
    """Say that it is one of ours, and where all of it was written."""
    import traceback

    whole = redacted("".join(traceback.format_exception(error)))
    path = _written(whole)
    if path is None or os.environ.get(TRACEBACK):
        sys.stderr.write(whole)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_ours(frame.filename)]
    where = f" ({frames[-1].filename.rpartition('/graphcrate/')[2]}, line {frames[-1].lineno})" if frames else ""
    message = redacted("".join(traceback.format_exception_only(error)).strip().splitlines()[-1])[:300]
    _end(
        f"a defect of graphcrate: {message}{where}",
        "It did not expect what it met. Nothing that was typed need be wrong; what was finished before is kept.",
        f"less {path}    shows what to send to whoever maintains it: the version, the command as it was typed, what "
        "happened; without the passwords that it knows"
        if path
        else "send the lines above to whoever maintains it, with the command that was typed",
        DEFECT,
    )


def _is_ours(name: str) -> bool:
    return "/graphcrate/" in name and "/site-packages/" not in name.rpartition("/graphcrate/")[2]


def _written(whole: str) -> Path | None:
    """Write what a maintainer needs among temporary files; None where no file can be written."""
    import shlex
    import tempfile
    import time

    from graphcrate import __version__

    root = Path(__file__).resolve().parents[2]
    lines = [
        f"graphcrate {__version__}, commit {_commit(root) or 'unknown'}, {root}",
        f"Python {sys.version.partition(' ')[0]} ({sys.executable}), {' '.join(os.uname()[::2])}",
        f"at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}, in {Path.cwd()}",
        f"typed: {redacted(shlex.join(sys.argv))}",
    ]
    try:
        handle, name = tempfile.mkstemp(prefix="graphcrate-defect-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join([*lines, "", whole]))
    except OSError:
        return None
    return Path(name)


def _commit(root: Path) -> str:
    """The commit that is checked out, without starting git; empty where that is not known."""
    with contextlib.suppress(OSError, ValueError):
        git = root / ".git"
        if git.is_file():  # of a further worktree
            git = (root / git.read_text().partition("gitdir:")[2].strip()).resolve()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        shared = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
        if (shared / name).is_file():
            return (shared / name).read_text().strip()
        packed = (shared / "packed-refs").read_text().splitlines()
        return next((line.partition(" ")[0] for line in packed if line.endswith(f" {name}")), "")
    return ""


def _end(what: str, cause: str = "", step: str = "", code: int = DEFECT) -> NoReturn:
    parts = {"graphcrate: ": what, "cause: ": cause, "next:  ": step}
    with contextlib.suppress(OSError):
        sys.stderr.write("".join(f"{label}{text}\n" for label, text in parts.items() if text))
    sys.exit(code)
