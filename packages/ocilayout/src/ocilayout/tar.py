"""Tar headers with fixed bytes: POSIX ustar, with a pax extended header only where ustar cannot say it.

Written here rather than by `tarfile`, because that module's bytes have changed between Python releases and a
layer's digest must not depend on the host's Python. The owner is a number without a name, root unless told; times are
given by the caller.
"""

from enum import Enum

BLOCK = 512
END_OF_ARCHIVE = bytes(2 * BLOCK)
_MAX_OCTAL_SIZE = 0o77777777777  #: 8 GiB - 1: what ustar's 11 octal digits can say


class EntryType(Enum):
    """Type flags of POSIX.1-2001."""

    FILE = b"0"
    HARD_LINK = b"1"
    SYMBOLIC_LINK = b"2"
    FOLDER = b"5"
    PAX = b"x"


def padding(size: int) -> bytes:
    """The zero bytes that fill up the last block of `size` bytes of content."""
    return bytes(-size % BLOCK)


def header(
    path: str, kind: EntryType, *, mode: int, mtime: int, size: int = 0, link: str = "", uid: int = 0, gid: int = 0
) -> bytes:
    """The header block(s) of one entry. `path` relative, without a final slash; `mtime` in Unix seconds.

    Names that are not ASCII or too long for ustar, and sizes of 8 GiB or more, get a pax header before.
    """
    name = path + "/" if kind is EntryType.FOLDER else path
    records: dict[str, str] = {}
    prefix, short = _split(name)
    if short is None:
        records["path"] = name
        prefix, short = b"", name.encode("ascii", "replace")[:100]
    target = link.encode("ascii", "replace")
    if not link.isascii() or len(target) > 100:
        records["linkpath"] = link
        target = target[:100]
    octal_size = size
    if size > _MAX_OCTAL_SIZE:
        records["size"] = str(size)
        octal_size = 0
    extended = b""
    if records:
        content = b"".join(_record(key, records[key]) for key in sorted(records))
        extended = (
            _block(b"", b"././@PaxHeader", EntryType.PAX, 0o644, mtime, len(content)) + content + padding(len(content))
        )
    return extended + _block(prefix, short, kind, mode, mtime, octal_size, target, uid, gid)


def _split(name: str) -> tuple[bytes, bytes | None]:
    """ustar's (prefix, name), the name None where they cannot hold it."""
    if not name.isascii():
        return b"", None
    raw = name.encode()
    if len(raw) <= 100:
        return b"", raw
    cut = raw.rfind(b"/", 0, min(156, len(raw) - 1))
    if cut > 0 and len(raw) - cut - 1 <= 100:
        return raw[:cut], raw[cut + 1 :]
    return b"", None


def _record(key: str, value: str) -> bytes:
    """One pax record: its own length in decimal, a space, key=value, newline."""
    body = f" {key}={value}\n".encode()
    length = len(body)
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


def _block(
    prefix: bytes,
    name: bytes,
    kind: EntryType,
    mode: int,
    mtime: int,
    size: int,
    link: bytes = b"",
    uid: int = 0,
    gid: int = 0,
) -> bytes:
    block = b"".join(
        (
            name.ljust(100, b"\0"),
            b"%07o\0" % mode,
            b"%07o\0" % uid,
            b"%07o\0" % gid,
            b"%011o\0" % size,
            b"%011o\0" % mtime,
            b" " * 8,  # the checksum counts itself as blanks
            kind.value,
            link.ljust(100, b"\0"),
            b"ustar\x0000",
            bytes(32),  # no user name, so that a reader uses the number
            bytes(32),
            b"0000000\0",  # device numbers
            b"0000000\0",
            prefix.ljust(155, b"\0"),
            bytes(12),
        )
    )
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
