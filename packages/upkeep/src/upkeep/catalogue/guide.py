"""The pages of docs/ as one page of HTML whose sections a search filters: it needs no server and no index.

Weighed against MkDocs, whose search fetches an index, which browsers refuse to a page that was opened from a disk.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+\.md)")
_INNER_LINK = re.compile(r'<a href="#([^"]*)">(.*?)</a>', re.DOTALL)
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


class GuideSection(NamedTuple):
    """A section of a page: `id` is what links lead to, `html` what it says below its heading."""

    id: str
    page: str
    heading: str
    html: str


def guides(root: Path, languages: Iterable[str], file_name: Callable[[str, str], str]) -> dict[str, list[GuideSection]]:
    """Return the sections of all pages by language, of those that have pages; `file_name` names a language's page."""
    spoken = {language: parts for language in languages if (parts := list(_sections(root, language)))}
    pages = {part_id: language for language, parts in spoken.items() for part in parts for part_id in ids(part)}

    def link(match: re.Match[str], language: str) -> str:
        target = unquote(match[1])
        if target not in pages:  # a file that is not among them: its name is enough
            return match[2]
        page = "" if pages[target] == language else file_name("docs", pages[target])
        return f'<a href="{page}#{target}">{match[2]}</a>'

    return {
        language: [
            part._replace(html=_INNER_LINK.sub(lambda match: link(match, language), part.html))  # noqa: B023  called at once
            for part in parts
        ]
        for language, parts in spoken.items()
    }


def ids(part: GuideSection) -> list[str]:
    """Return what links can lead to in a section."""
    return [part.id, *re.findall(r' id="([^"]*)"', part.html)]


def _sections(root: Path, language: str) -> list[GuideSection]:
    """Return the sections of all pages in a language: README's, then in the order of the index, then the others."""
    folder = root / "docs" if language == "en" else root / "docs" / language
    first = [root / "README.md"] if language == "en" else []
    index = folder / "README.md"
    if not index.is_file():
        return []
    named = [(index.parent / target).resolve() for target in _LINK.findall(index.read_text(encoding="utf-8"))]
    others = [path for path in sorted(folder.rglob("*.md")) if path.relative_to(root).parts[1] != "zh"]
    paths = dict.fromkeys([*first, *named, *(others if language == "en" else sorted(folder.rglob("*.md")))])
    kept = [path for path in paths if path.is_file() and (path in first or path.is_relative_to(folder))]
    return [section for path in kept for section in _of_page(path, root)]


def _of_page(path: Path, root: Path) -> Iterator[GuideSection]:
    name = path.relative_to(root.resolve() if path.is_relative_to(root.resolve()) else root)
    tokens = _MARKDOWN.parse(_COMMENT.sub("", path.read_text(encoding="utf-8")))
    title, heading, anchor, held = "", "", "", list[Token]()
    for at, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag in ("h1", "h2"):
            if held:
                yield _section(PurePosixPath(name), title, heading, anchor, held)
            text = _plain(tokens[at + 1])
            title, heading, anchor = (text, "", "") if token.tag == "h1" else (title, text, _anchor(text))
            held = []
        elif not (at and tokens[at - 1].type == "heading_open" and tokens[at - 1].tag in ("h1", "h2")) and not (
            token.type == "heading_close" and token.tag in ("h1", "h2")
        ):
            held.append(token)
    if held:
        yield _section(PurePosixPath(name), title, heading, anchor, held)


def _section(name: PurePosixPath, title: str, heading: str, anchor: str, tokens: list[Token]) -> GuideSection:
    for at, token in enumerate(tokens):
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{int(token.tag[1]) - 1}"  # the section's own is its summary
        if token.type == "heading_open":
            token.attrSet("id", _id(name, _anchor(_plain(tokens[at + 1]))))
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", _target(name, str(child.attrGet("href"))))
            elif child.type == "image":  # the page loads nothing
                child.type, child.content = "text", _plain(child)
    html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return GuideSection(_id(name, anchor), title, heading, str(html))


def _target(name: PurePosixPath, href: str) -> str:
    """Return where a link of a page leads from the page of all: to a section, elsewhere on the web, or nowhere."""
    if re.match(r"https?:", href):
        return href
    path, _, anchor = href.partition("#")
    parts = list[str]()
    for part in (*name.parent.parts, *PurePosixPath(path).parts) if path else name.parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return f"#{_id(PurePosixPath(*parts), anchor)}"


def _id(name: PurePosixPath, anchor: str) -> str:
    page = "-".join(name.with_suffix("").parts)
    return f"{page}--{anchor}" if anchor else page


def _anchor(text: str) -> str:
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-").lower()


def _plain(token: Token) -> str:
    return "".join(child.content for child in token.children or ())
