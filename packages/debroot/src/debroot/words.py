"""Text from elsewhere, for people."""

import urllib.parse


def printable(text: str) -> str:
    """Escape what would speak to a terminal or break a line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def redacted(url: str) -> str:
    """The address without user, password, query and fragment."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return "a malformed address"
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
