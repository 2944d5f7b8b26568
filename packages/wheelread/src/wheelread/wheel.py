"""Wheels (PEP 427): opened only when name, metadata, RECORD and archive agree with each other."""

import contextlib
import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from installer.records import InvalidRecordEntry, parse_record_file
from installer.utils import parse_metadata_file
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from layertar.errors import ArchiveError
from wheelread.archive import HASHES, Member, WheelArchive, parse_hash
from wheelread.errors import WheelError

METADATA = 64 << 20  #: bytes of RECORD, METADATA and their like, which are read whole; torch's RECORD has 1 MB
#: RECORD cannot hold its own hash, nor those of the signatures over it.
_UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True)
class Wheel:
    """An open wheel. `records` has RECORD's hash ("sha256=…") of every member but RECORD and its signatures."""

    archive: WheelArchive
    members: tuple[Member, ...]
    name: str  #: normalised
    version: str
    tags: frozenset[Tag]
    dist_info: str  #: name of the folder
    root_is_purelib: bool
    records: Mapping[str, str]

    def read(self, member: Member) -> bytes:
        """Read the member's whole content, checked."""
        return self.archive.read(member, self.records.get(member.name, ""))


@contextlib.contextmanager
def open_wheel(path: Path) -> Iterator[Wheel]:
    """Open a wheel as `checked` does. Raises WheelError naming the wheel, the member and what is wrong."""
    with WheelArchive(path) as archive:
        yield checked(archive)


def checked(archive: WheelArchive) -> Wheel:
    """Return the wheel of an archive after checking all but the members' content, which is checked while it is read.

    Raises the archive's error.
    """
    name, version, tags = parse_name(archive.path.name, archive.error)
    members = {member.name: member for member in archive.checked_members()}
    dist_info = _dist_info(archive, members, name, version)
    metadata = _message(archive, members, f"{dist_info}/METADATA")
    if canonicalize_name(str(metadata["Name"])) != name or not _same_version(str(metadata["Version"]), version):
        archive.fail(f"{dist_info}/METADATA", f"is of {metadata['Name']} {metadata['Version']}")
    about = _message(archive, members, f"{dist_info}/WHEEL")
    if not str(about["Wheel-Version"]).startswith("1."):
        archive.fail(f"{dist_info}/WHEEL", f"Wheel-Version {about['Wheel-Version']}; only 1.x is known")
    if about["Root-Is-Purelib"] not in ("true", "false"):
        archive.fail(f"{dist_info}/WHEEL", f"Root-Is-Purelib is {about['Root-Is-Purelib']}")
    return Wheel(
        archive=archive,
        members=tuple(members.values()),
        name=name,
        version=version,
        tags=tags,
        dist_info=dist_info,
        root_is_purelib=about["Root-Is-Purelib"] == "true",
        records=_records(archive, members, dist_info),
    )


def parse_name(filename: str, error: type[ArchiveError] = WheelError) -> tuple[str, str, frozenset[Tag]]:
    """Return normalised name, version and tags of a wheel's file name. Raises `error`."""
    try:
        name, version, _, tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion) as invalid:
        raise error(
            f"{filename} is not a wheel's file name: {invalid}",
            cause="Wheels must keep the name they were published as.",
        ) from invalid
    return name, str(version), tags


def _dist_info(archive: WheelArchive, members: Mapping[str, Member], name: str, version: str) -> str:
    tops = {member.partition("/")[0] for member in members}
    folders = sorted(top for top in tops if top.endswith(".dist-info"))
    if len(folders) != 1:
        archive.fail("", f"has {len(folders)} .dist-info folders: {', '.join(folders) or 'none'}")
    its_name, _, its_version = folders[0].removesuffix(".dist-info").partition("-")
    if canonicalize_name(its_name) != name or not _same_version(its_version, version):
        archive.fail(folders[0], "is not named as the wheel")
    return folders[0]


def _same_version(text: str, version: str) -> bool:
    try:
        # Installers write "_" where a version has "-".
        return Version(text.replace("_", "-")) == Version(version)
    except InvalidVersion:
        return False


def _text(archive: WheelArchive, members: Mapping[str, Member], name: str) -> str:
    if name not in members:
        archive.fail(name, "is missing")
    if members[name].size > METADATA:
        archive.fail(name, f"has {members[name].size} bytes, which is absurd")
    try:
        return archive.read(members[name]).decode()
    except UnicodeDecodeError as error:
        archive.fail(name, f"is not UTF-8: {error}")


def _message(archive: WheelArchive, members: Mapping[str, Member], name: str) -> Message:
    return parse_metadata_file(_text(archive, members, name))


def _records(archive: WheelArchive, members: Mapping[str, Member], dist_info: str) -> Mapping[str, str]:
    """Read RECORD, when it has each file once with a good hash and its size, and nothing else."""
    record = f"{dist_info}/RECORD"
    exempt = {f"{dist_info}/{name}" for name in _UNRECORDED}
    rows: dict[str, tuple[str, str]] = {}
    try:
        for path, checksum, size in parse_record_file(io.StringIO(_text(archive, members, record), "")):
            if path.endswith("/"):  # a folder, as auditwheel before 6 lists them: nothing is installed for it
                continue
            if rows.setdefault(path, (checksum, size)) != (checksum, size):
                archive.fail(record, f"has {path} twice, with different hashes")
    except (InvalidRecordEntry, csv.Error) as error:
        archive.fail(record, f"cannot be read: {error}")
    if strangers := sorted(rows.keys() - members.keys()):
        archive.fail(record, f"lists {strangers[0]}, which the wheel does not have")
    if unlisted := sorted(members.keys() - rows.keys() - exempt):
        archive.fail(unlisted[0], "is not in RECORD")
    records: dict[str, str] = {}
    for path, (checksum, size) in rows.items():
        if size and size != str(members[path].size):
            archive.fail(path, f"has {members[path].size} bytes and RECORD says {size}")
        if path in exempt:
            continue
        if checksum.partition("=")[0] not in HASHES:
            archive.fail(path, f"RECORD has {checksum or 'no hash'!r} for it; it must have one of {', '.join(HASHES)}")
        if not parse_hash(checksum)[0]:
            archive.fail(path, f"RECORD has a malformed hash for it: {checksum}")
        records[path] = checksum.rstrip("=")
    return records
