"""The form of an error that the doctor recognises."""

from typing import NamedTuple


class Pattern(NamedTuple):
    """`sign`: a regular expression; its named groups fill `{name}` in `cause` and `fix`.

    `source`: where it was met: an issue, a document, or "seen here" for what was provoked on a machine of ours.
    """

    id: str
    sign: str
    cause: str
    fix: str
    source: str
