"""`llms.txt`: the pages for a program that reads them, by the index, with the first sentence of each."""

import re
from pathlib import Path

_LINK = re.compile(r"\]\(([^)#\s:]+\.md)")
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_NO_SENTENCE = re.compile(r"[#|\[<`!-]")


def text(root: Path) -> str:
    """Return the file's text: of each page of the index its title, its path and its first sentence."""
    readme, index = root / "README.md", root / "docs" / "README.md"
    lines, seen = ["# graphcrate", "", f"> {_first(readme)}"], set[Path]()
    for part in re.split(r"^## ", index.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        lines += ["", f"## {part.splitlines()[0]}", ""]
        for target in _LINK.findall(part):
            path = (index.parent / target).resolve().relative_to(root.resolve())
            if path not in seen:
                seen.add(path)
                said = _first(root / path)
                lines.append(f"- [{_title(root / path)}]({path.as_posix()}){f': {said}' if said else ''}")
    return "\n".join(lines) + "\n"


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def _first(path: Path) -> str:
    """Return the first sentence that is no heading, table, list or code, without its links; empty where none is."""
    prose = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    line = next((line for line in prose.split("\n")[1:] if line.strip() and not _NO_SENTENCE.match(line)), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
    return re.split(r"(?<=[.?!]) ", plain)[0].rstrip(":")
