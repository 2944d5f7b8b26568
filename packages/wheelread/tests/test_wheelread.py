"""Wheels are opened only when file name, archive, metadata and RECORD agree; nothing hostile gets through."""

import stat
import struct
import warnings
import zipfile

import pytest

from layertar.errors import ArchiveError
from tests.unit.wheelmaker import at, entry, make_wheel, record_row
from wheelread.archive import WheelArchive
from wheelread.errors import WheelError
from wheelread.wheel import checked, open_wheel

LARGE = bytes(range(256)) * 9000


def test_open_wheel_reads_name_version_and_members(tmp_path):
    files = {"pkg/__init__.py": b"x = 1\n", "pkg/data,1.bin": LARGE, "pkg/empty": b"", "pkg/ü.txt": "ü".encode()}
    path = make_wheel(tmp_path, files=files, executable=("pkg/data,1.bin",), version="2.0+cu118", tag="cp311-cp311-any")
    with open_wheel(path) as wheel:
        assert (wheel.name, wheel.version, wheel.root_is_purelib) == ("pkg", "2.0+cu118", True)
        members = {member.name: member for member in wheel.members}
        assert {name: wheel.read(members[name]) for name in files} == files
        assert members["pkg/data,1.bin"].executable
        assert not members["pkg/__init__.py"].executable


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_wheel_member_is_checked_against_record_while_read(tmp_path, algorithm, method):
    other = {"pkg/a.py": b"abc"}
    path = make_wheel(tmp_path, files=other, algorithm=algorithm, method=method)
    with open_wheel(path) as wheel:
        assert wheel.read(wheel.members[0]) == b"abc"
    changed = make_wheel(
        tmp_path, files=other, method=method,
        record=lambda text: text.replace(record_row("pkg/a.py", b"abc"), record_row("pkg/a.py", b"abd")),
    )  # fmt: skip
    with open_wheel(changed) as wheel, pytest.raises(WheelError, match=r"pkg/a.py: its content is not what RECORD"):
        wheel.read(wheel.members[0])


def test_wheel_folders_and_signatures_need_no_row_in_record(tmp_path):
    signatures = {"pkg-1.0.dist-info/RECORD.jws": b"{}", "pkg-1.0.dist-info/RECORD.p7s": b"1"}
    folder = entry("pkg/sub/", stat.S_IFDIR | 0o755)
    with open_wheel(make_wheel(tmp_path, entries=[(folder, b"")], unrecorded=signatures)) as wheel:
        names = {member.name for member in wheel.members}
    assert signatures.keys() <= names
    assert "pkg/sub/" not in names


def test_wheel_with_folders_in_record_is_opened_without_them(tmp_path):
    """As those of cmake 3.27: auditwheel wrote folders as entries, with the hash of nothing."""
    rows = "".join(f"{record_row(folder, b'')}\n" for folder in ("pkg/", "pkg/sub/", "pkg-1.0.dist-info/"))
    folder = entry("pkg/sub/", stat.S_IFDIR | 0o755)
    changed = make_wheel(tmp_path, entries=[(folder, b"")], record=lambda text: rows + text)
    with open_wheel(changed) as wheel:
        assert not [member.name for member in wheel.members if member.name.endswith("/")]
        assert wheel.read(wheel.members[0]) is not None


def refused(path, words):
    with pytest.raises(WheelError, match=words) as caught, open_wheel(path):
        pass
    assert str(caught.value).startswith(path.name)


def test_wheel_with_hostile_member_names_is_refused(tmp_path):
    for name in ("../evil", "a/../../evil", "/etc/passwd", "C:/evil", "a\\b", "a/b\n", "a//b", "./x", "x/.", "x/.."):
        refused(make_wheel(tmp_path, entries=[(entry(name), b"evil")]), "not a plain relative path")


@pytest.mark.parametrize("second", ["pkg/\u00e9.py", "pkg/e\u0301.py", "pkg/\u00e9.py/below.py"])
def test_wheel_with_a_duplicate_name_in_any_unicode_form_is_refused(tmp_path, second):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile's, about the duplicate
        path = make_wheel(tmp_path, files={"pkg/\u00e9.py": b"1"}, entries=[(entry(second), b"1")])
    refused(path, r"twice|same name in another form|is below pkg")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"record": lambda text: text + "pkg/ghost.py,sha256=x,1\n"}, "lists pkg/ghost.py, which"),
        ({"unrecorded": {"pkg/stowaway.py": b""}}, "pkg/stowaway.py: is not in RECORD"),
        ({"record": lambda text: text.replace("sha256=", "md5=")}, "must have one of sha256"),
        ({"record": lambda text: text.replace("sha256=", "")}, "must have one of sha256"),
        ({"record": lambda text: text.replace("sha256=", "sha256=AA")}, "malformed hash"),
        ({"record": lambda text: text.replace(",10\n", ",11\n")}, "has 10 bytes and RECORD says 11"),
        ({"record": lambda text: text.replace("sha256", '"sha256')}, "cannot be read|must have one of|lists"),
        ({"record": lambda text: text + "one,two\n"}, "RECORD: cannot be read"),
        ({"record": lambda text: text + record_row("pkg/__init__.py", b"x") + "\n"}, "twice, with different hashes"),
        ({"wheel": b"Wheel-Version: 2.0\nRoot-Is-Purelib: true\n"}, "only 1.x is known"),
        ({"wheel": b"Wheel-Version: 1.0\n"}, "Root-Is-Purelib is None"),
        ({"wheel": b"\xff\xfe"}, "is not UTF-8"),
        ({"metadata": b"Metadata-Version: 2.1\nName: other\nVersion: 1.0\n"}, "is of other 1.0"),
        ({"metadata": b"Metadata-Version: 2.1\nName: pkg\nVersion: 1.1\n"}, "is of pkg 1.1"),
        ({"entries": [(entry("other-1.0.dist-info/x"), b"")]}, "has 2 .dist-info folders"),
        ({"file_name": "other-1.0-py3-none-any.whl"}, "is not named as the wheel"),
        ({"file_name": "pkg-1.1-py3-none-any.whl"}, "is not named as the wheel"),
        ({"file_name": "pkg.whl"}, "is not a wheel's file name"),
        ({"entries": [(entry("pkg/link", stat.S_IFLNK | 0o777), b"/etc/passwd")]}, "symbolic link"),
        ({"entries": [(entry("pkg/pipe", stat.S_IFIFO | 0o644), b"")]}, "not a regular file"),
        ({"entries": [(entry("pkg/b", method=zipfile.ZIP_LZMA), b"b" * 100)]}, "stored and deflated members only"),
    ],
)
def test_wheel_whose_name_metadata_or_members_disagree_is_refused(tmp_path, options, words):
    refused(make_wheel(tmp_path, **options), words)


def listed_twice(data):
    """The directory with its first entry once more at the end."""
    first, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    directory = data[first:end] + data[first : data.index(b"PK\1\2", first + 4)]
    count = struct.pack("<H", struct.unpack_from("<H", data, end + 8)[0] + 1)
    return data[:first] + directory + data[end:][:8] + count * 2 + struct.pack("<I", len(directory)) + data[end:][16:]


def overlapping(data):
    """Two members of the directory at one place."""
    first = data.index(b"PK\1\2")
    second = data.index(b"PK\1\2", first + 4)
    return data[: second + 42] + data[first + 42 : first + 46] + data[second + 46 :]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (at(b"\3\4", 6, b"\1\0"), "encrypted"),
        (at(b"\3\4", 6, b"\x40\0"), "flags that no wheel has"),
        (at(b"\3\4", 8, b"\0\0"), "local header says"),
        (at(b"\3\4", 14, b"\1\2\3\4"), "local header says"),
        (at(b"\3\4", 22, b"\1\0\0\0"), "local header says"),
        (at(b"\3\4", 30, b"PKG"), "local header says"),
        (at(b"\3\4", 0, b"XXXX"), "no local header"),
        (at(b"\1\2", 42, b"\xf0\xff\xff\x7f"), "no local header"),
        # that of the directory, which makes zipfile count from before the start
        (at(b"\5\6", 16, b"\xf0\xff\xff\x7f"), "no local header|not a whole zip file"),
        (listed_twice, "reaches into|not a whole zip file"),
        (overlapping, "local header says|reaches into|not a whole zip"),
        (lambda _: b"PK\5\6" + bytes(18), r"has 0 \.dist-info folders"),
        *((lambda data, keep=keep: data[:keep], "zip file") for keep in (0, 1, 21, 100, 500, -1)),
    ],
)
def test_damaged_or_deceiving_zip_archive_is_refused(tmp_path, change, words):
    path = make_wheel(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    refused(path, words)


class OurError(ArchiveError):
    """A program's own."""


def test_wheel_that_is_damaged_is_an_error_of_the_given_class(tmp_path):
    whole, damaged = make_wheel(tmp_path, files={"pkg/a.py": LARGE}), tmp_path / "pkg-1.1-py3-none-any.whl"
    damaged.write_bytes(whole.read_bytes())
    with WheelArchive(damaged, error=OurError) as archive, pytest.raises(OurError, match="is not named as the wheel"):
        checked(archive)
    with WheelArchive(whole, error=OurError) as archive:
        member = next(member for member in checked(archive).members if member.name == "pkg/a.py")
    data = bytearray(whole.read_bytes())
    data[member.offset + 20] ^= 1
    whole.write_bytes(data)
    with WheelArchive(whole, error=OurError) as archive, pytest.raises(OurError, match=r"pkg/a\.py"):
        archive.read(member)


def test_directory_beyond_its_limit_is_refused(tmp_path):
    with WheelArchive(make_wheel(tmp_path), directory=99) as archive, pytest.raises(WheelError, match="at most 99 are"):
        archive.checked_members()
