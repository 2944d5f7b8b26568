"""`llms.txt`: the pages for a program that reads them, as the index lists them, with what each is for."""

import re
from pathlib import Path

_ROW = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s:]+\.md)")


def text(root: Path) -> str:
    """Return the file's text: of each page of the index its title, its path and what is wanted where it is named."""
    index = root / "docs" / "README.md"
    first = next(
        line for line in (root / "README.md").read_text(encoding="utf-8").split("\n")[1:] if line[:1].isalpha()
    )
    lines, seen = ["# graphcrate", "", f"> {first}"], set[Path]()
    for part in re.split(r"^## ", index.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        lines += ["", f"## {part.splitlines()[0]}", ""]
        for wanted, cell in _ROW.findall(part):
            for target in _LINK.findall(cell):
                path = (index.parent / target).resolve().relative_to(root.resolve())
                if path not in seen:
                    seen.add(path)
                    title = (root / path).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
                    lines.append(f"- [{title}]({path.as_posix()}): {wanted}")
    return "\n".join(lines) + "\n"
