"""Web pages in place of a registry's answer: of a network's portal, a login, a proxy, another server at that port."""

import html
import re

#: by its beginning: some servers call any file text/html, and registries their JSON text/plain
_PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+html|html|head)\b", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_LOOKED_AT = 8 << 10  #: bytes in which a page names itself
_LONGEST_TITLE = 80


def found(body: bytes) -> str:
    """Return what a body is, as "a web page, 'Please log in'"; empty for anything but a web page."""
    begin = body[:_LOOKED_AT]
    if not _PAGE.match(begin):
        return ""
    title = _TITLE.search(begin)
    words = html.unescape(title[1].decode(errors="replace")) if title else ""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in words).split())[:_LONGEST_TITLE]
    return f"a web page, '{words}'" if words else "a web page"
