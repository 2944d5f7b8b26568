"""Wheels with false contents: each is added to the image by the command line, and does not get in."""

import io
import stat
import struct
import warnings
import zipfile
import zlib

from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import validate
from tests.faults import project
from tests.faults.rows import Ended, Watch, row, rows
from tests.unit.wheelmaker import at, entry, record_row, wheel_bytes

NAME = "pkg-1.0-py3-none-any.whl"
LARGE = bytes(range(256)) * 4000


def wheel(files=None, **options):
    return wheel_bytes("pkg", "1.0", files, **options)


def member(name, content=b"escaped", mode=stat.S_IFREG | 0o644):
    return wheel(entries=[(entry(name, mode), content)])


def twice():
    stream = io.BytesIO(wheel())
    with zipfile.ZipFile(stream, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about what is meant
        archive.writestr(entry("pkg/é.py"), b"1")
        archive.writestr(entry("pkg/é.py"), b"2")
    return stream.getvalue()


def second_end():
    """An archive behind the archive: readers that take the first end record and the last see other files."""
    return wheel() + b"PK\5\6" + bytes(16) + struct.pack("<H", 4) + b"more"


def with_stream(stream, content):
    """A wheel whose member pkg/x.bin is said to be this content, with this deflate stream."""

    def of_content(record):
        return record.replace(record_row("pkg/x.bin", stream), record_row("pkg/x.bin", content))

    data = bytearray(wheel({"pkg/x.bin": stream}, method=zipfile.ZIP_STORED, record=of_content))
    for magic, method, checksum in ((b"PK\3\4", 8, 14), (b"PK\1\2", 10, 16)):  # of the member and in the directory
        at = data.index(magic)
        struct.pack_into("<H", data, at + method, zipfile.ZIP_DEFLATED)
        struct.pack_into("<I", data, at + checksum, zlib.crc32(content))
        struct.pack_into("<I", data, at + checksum + 8, len(content))
    return bytes(data)


def deflated(*pieces):
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"".join(map(squeeze.compress, pieces)) + squeeze.flush()


def zeros(mebibytes):
    """Return a deflate stream of so many, of which one is squeezed: the dictionary is empty again behind it."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    one = squeeze.compress(bytes(1 << 20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return one * mebibytes + squeeze.flush()


SCRIPT = {"pkg/__init__.py": b"", "pkg-1.0.data/scripts/../../../x": b"#!python\n"}
ENTRY = "[console_scripts]\n../../x = pkg:main\n"
OTHER = record_row("pkg/__init__.py", b"value = 2\n")
REFUSED = {
    "parent": ("a member `../x`", lambda: member("../x")),
    "absolute": ("a member with an absolute path", lambda: member("/tmp/x")),
    "scripts": ("`.data/scripts` that leads out", lambda: wheel(SCRIPT)),
    "entry-point": ("an entry point named `../../x`", lambda: wheel(entry_points=ENTRY)),
    "header": (
        "a local header that contradicts the central one",
        lambda: at(b"\3\4", 14, b"\1\2\3\4")(wheel()),
    ),
    "twice": ("a member twice, with other bytes", twice),
    "second-end": ("a second end record behind the first", second_end),
    "trailing": ("data behind the end record", lambda: wheel() + b"trailing" * 100),
    "no-record": ("RECORD is missing", lambda: wheel().replace(b"/RECORD", b"/RECORE")),
    "record-extra": (
        "RECORD lists what is not there",
        lambda: wheel(record=lambda text: text + "pkg/x.py,sha256=x,1\n"),
    ),
    "unrecorded": ("a file that RECORD does not list", lambda: wheel(unrecorded={"pkg/stowaway.py": b""})),
    "record-wrong": (
        "RECORD has another hash",
        lambda: wheel(record=lambda text: text.replace(record_row("pkg/__init__.py", b"value = 1\n"), OTHER)),
    ),
    "size": (
        "a member that is larger than its headers say: 2 GB in 2 MB",
        lambda: with_stream(zeros(2000), b"0123456789"),
    ),
    "cut": ("an archive that is cut off", lambda: wheel({"pkg/a.bin": LARGE})[:-900]),
    "truncated": ("a deflate stream that ends too early", lambda: with_stream(deflated(LARGE)[:-100], LARGE)),
    "tail": ("bytes behind the final block of a member", lambda: with_stream(deflated(LARGE) + b"tail" * 9, LARGE)),
    "python": (
        "a wheel for another Python",
        lambda: wheel(tag="cp38-cp38-linux_x86_64"),
        "pkg-1.0-cp38-cp38-linux_x86_64.whl",
    ),
    "arch": ("a wheel for another processor", lambda: wheel(), "pkg-1.0-py3-none-manylinux_2_17_aarch64.whl"),
    "glibc": ("a wheel for a newer glibc", lambda: wheel(), "pkg-1.0-py3-none-manylinux_2_99_x86_64.whl"),
    "name": ("a wheel under another's file name", lambda: wheel(), "other-1.0-py3-none-any.whl"),
    "symlink": ("a symbolic link", lambda: member("pkg/link", b"/etc/passwd", stat.S_IFLNK | 0o777)),
    "pipe": ("a named pipe", lambda: member("pkg/pipe", b"", stat.S_IFIFO | 0o644)),
    "owned": (
        "two wheels that own one path, with other bytes",
        lambda: wheel({"torch/__init__.py": b"mine\n", "pkg/__init__.py": b""}),
    ),
    "forms": (
        "two names that differ in their Unicode form (NFC, NFD)",
        lambda: wheel({"pkg/é.py": b"1", "pkg/e\u0301.py": b"2"}),
    ),
}
DONE = "`image --with ./pkg.whl`, then `--with pkg` from an index, then without it"


def bytes_outside(place):
    """Files that are nowhere but where they belong: all beside the project, the cache and temporary files."""
    home = place.cache.parent
    return sorted(str(path) for path in home.iterdir() if path.name not in ("project", "cache", "tmp", ".cache"))


@rows("Wheels", DONE, {name: (one[0], (one[1], *one[2:])) for name, one in REFUSED.items()})
def test_refused(origin, warm, case):
    make, *name = case
    given = warm.folder / (name[0] if name else NAME)
    given.write_bytes(make())
    package = given.name.partition("-")[0]
    origin.index.simple(package, {given.name: given.read_bytes()})  # uv reads no more than the metadata there
    before, told = bytes_outside(warm), []
    for word in (f"./{given.name}", package):
        done = warm.run(*project.IMAGE, "--with", word)
        project.failed(warm, done, 2, 4, 6, 9)
        assert bytes_outside(warm) == before
        told.append(f"exit code {done.code}: {project.said(done)}")
    return Ended("; then ".join(dict.fromkeys(told)), project.goes_on(warm, origin.digest))


@rows(
    "Wheels",
    "`image --with ./pkg.whl`",
    {
        "case": ("names that differ in case alone", {"pkg/a.py": b"1", "pkg/A.py": b"2"}),
        "setuid": ("a file with setuid and setgid bits", None),
        "bomb": ("a bomb: a member of 300 MB in 300 kB, as its headers say", {"pkg/x.bin": bytes(300 << 20)}),
    },
)
def test_taken(origin, warm, case):
    mode = stat.S_IFREG | 0o6755
    content = wheel(case) if case else wheel(entries=[(entry("pkg/program", mode), b"#!/bin/sh\n")])
    (warm.folder / NAME).write_bytes(content)
    watch = Watch()
    made = project.report(warm, warm.run(*project.IMAGE, "--with", f"./{NAME}", "--json"))
    seconds = watch.seconds
    assert validate(read_layout(warm.layout(made))).faults == ()
    modes = {name: mode for layer in made["layers"] for name, mode in members(warm.cache, layer["digest"])}
    wanted = case or {"pkg/program": b""}
    for name in wanted:
        found = next(path for path in modes if path.endswith(f"site-packages/{name}"))
        assert modes[found] in (0o644, 0o755)
    return Ended("all is in the image" if case else "in the image, without these bits", seconds)


def members(cache, digest):
    """Name and mode of a layer's files."""
    import gzip
    import tarfile

    blob = cache / "blobs/sha256" / digest.removeprefix("sha256:")
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob.read_bytes()))) as archive:
        return [(one.name, one.mode) for one in archive if one.isfile()]


@row("Wheels", "a yanked file", "`lock` again where the index has yanked the locked release and has no other")
def test_yanked(origin, cold):
    page = origin.index.pages["/simple/numpy/"]
    name = next(iter(page.files))
    origin.index.pages["/simple/numpy/"] = type(page)(page.base, page.files, yanked=(name,))
    try:
        seconds = project.goes_on(cold, origin.digest)
    finally:
        origin.index.pages["/simple/numpy/"] = page
    return Ended("a lock still gets the file that it names by hash; the same digest", seconds)
