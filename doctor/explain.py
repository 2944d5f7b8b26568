"""From a pasted error to cause and fix, by the table in errors.ini."""

import configparser
import os
import re
from typing import Dict, List, NamedTuple

from doctor.cuda import cuda_of, model_of, oldest_driver
from doctor.facts import GLT_RELEASES, VARIANTS
from doctor.finding import numbers
from doctor.symbols import demangled, has_new_strings, has_old_strings, owner_of

LONGEST = 400000  #: characters of a log that are looked at: its first half and its last


class Pattern(NamedTuple):
    """An error as errors.ini has it; `hides` are the ids of its mere consequences."""

    id: str
    sign: str
    cause: str
    fix: str
    source: str
    hides: List[str]
    vague: bool


def _table() -> str:
    """Return the text of errors.ini, which the one file has within it."""
    if "ERRORS_INI" in globals():
        return str(globals()["ERRORS_INI"])
    with open(os.path.join(os.path.dirname(__file__), "errors.ini"), encoding="utf-8") as stream:  # noqa: PTH118, PTH120, PTH123
        return stream.read()


def read_patterns(table: str) -> List[Pattern]:
    """Return the rows of an errors.ini in its order. Raise configparser.Error; KeyError for a row without a field."""
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=(";",))
    parser.read_string(table)
    found = []
    for name in parser.sections():
        row = parser[name]
        hides = row.get("hides", "").split()
        found.append(Pattern(name, row["sign"], row["cause"], row["fix"], row["seen"], hides, "vague" in row))
    return found


PATTERNS = read_patterns(_table())


class Answer(NamedTuple):
    """A known error; `line` is where it was recognised."""

    id: str
    line: str
    cause: str
    fix: str
    source: str


def explain(text: str) -> List[Answer]:
    """The errors that a text holds, the most telling first; none that is the mere consequence of another."""
    if len(text) > LONGEST:
        text = text[: LONGEST // 2] + "\n" + text[-LONGEST // 2 :]
    matches = [(pattern, re.search(pattern.sign, text, re.MULTILINE)) for pattern in PATTERNS]
    found = [(pattern, _answer(pattern, match, text)) for pattern, match in matches if match]
    hidden = {name for pattern, _ in found for name in pattern.hides}
    shown = [(pattern, answer) for pattern, answer in found if pattern.id not in hidden]
    return [answer for pattern, answer in shown if not pattern.vague] or [answer for _, answer in shown]


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
