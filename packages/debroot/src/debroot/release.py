"""Release files of suites, and what has to hold of one before anything that it lists counts.

One of the distribution's own keys signed it (files beside this one), it is of the suite that was asked for, and its
dates allow today.
"""

import datetime
import email.utils
import re
from pathlib import Path
from typing import NamedTuple

from debroot.distributions import Distribution
from debroot.errors import ListError, ListTimeError
from debroot.mirrors import SNAPSHOT_TIME, is_time
from debroot.words import printable, redacted

KEYS = Path(__file__).parent  #: has the files of keys
LARGEST = 512 << 20  #: bytes of a list, which is read whole
_PACKINGS = (".xz", ".gz", ".bz2", "")
_AHEAD = 86_400.0  #: seconds that a list may be ahead of this machine's clock
#: an address of the snapshot service, or of a mirror laid out like it, which asks for lists of a day
_OF_A_DAY = re.compile(r"/(\d{8}T\d{6}Z)(?:/|\Z)")


def day(time: str) -> str:
    """ "2026-11-24" of "20261124T021215Z", as the snapshot service writes times."""
    return f"{time[:4]}-{time[4:6]}-{time[6:8]}"


def seconds(time: str) -> float:
    """A time as the snapshot service writes it, in Unix seconds. Raises ValueError."""
    return datetime.datetime.strptime(time, SNAPSHOT_TIME).replace(tzinfo=datetime.UTC).timestamp()


class SuiteSource(NamedTuple):
    """A suite at an archive. `is_retired`: no Valid-Until of its lists counts, as they are not signed again."""

    archive: str
    suite: str
    is_retired: bool = False

    @property
    def url(self) -> str:
        return f"{self.archive}/dists/{self.suite}"

    @property
    def as_of(self) -> float | None:
        """The time that an address of snapshots names, in Unix seconds; None of other addresses."""
        times = [time for time in _OF_A_DAY.findall(self.archive) if is_time(time)]
        return seconds(times[-1]) if times else None


class Listed(NamedTuple):
    """A file that a Release file names. `packing`: one of `reading.PACKINGS`; `size` in bytes."""

    name: str
    packing: str
    sha256: str
    size: int
    address: str


class SignedRelease(NamedTuple):
    """A distribution's signed statement about a suite: the hashes of all its lists."""

    url: str  #: of the suite
    text: str

    @classmethod
    def checked(cls, document: bytes, source: SuiteSource, now: float, distribution: Distribution) -> "SignedRelease":
        """The InRelease file of a source, of which all holds at `now`, in Unix seconds. Raises ListError."""
        text = verified(document, source.url, distribution)
        check_suite(text, source)
        check_dates(text, source, now)
        return cls(source.url, text)

    @property
    def date(self) -> float:
        """The time at which it was made, in Unix seconds."""
        moment = moment_of(self.text, "Date")
        assert moment is not None, "it was looked at before"
        return moment

    @property
    def time(self) -> str:
        """The same as the snapshot service writes it ("20261125T021215Z")."""
        return datetime.datetime.fromtimestamp(self.date, datetime.UTC).strftime(SNAPSHOT_TIME)

    def file(self, stem: str) -> Listed | None:
        """The file of this name, packed or plain; None where there is none. Raises ListError for one too large."""
        lines = re.findall(r"^ ([0-9a-f]{64}) +(\d+) (\S+)$", self.text.partition("\nSHA256:")[2], re.MULTILINE)
        by_name = {name: (sha256, int(size)) for sha256, size, name in lines}
        packing = next((packing for packing in _PACKINGS if f"{stem}{packing}" in by_name), None)
        if packing is None:
            return None
        sha256, size = by_name[f"{stem}{packing}"]
        # By its hash where the mirror has that: under its name there may be a newer list by now.
        by_hash = "\nAcquire-By-Hash: yes" in self.text
        name = f"{stem.rpartition('/')[0]}/by-hash/SHA256/{sha256}" if by_hash else f"{stem}{packing}"
        if size > LARGEST:
            raise ListError(f"{redacted(self.url)} lists {stem}{packing} of {size} bytes: more than is read")
        return Listed(name, packing, sha256, size, f"{self.url}/{name}")


def verified(document: bytes, url: str, distribution: Distribution) -> str:
    """The text of an InRelease file, which one of the distribution's keys has to have signed. Raises ListError."""
    import pysequoia

    def keys(_: object) -> list[pysequoia.Cert]:
        return [key for name in distribution.keys for key in pysequoia.Cert.split_file(str(KEYS / name))]

    try:
        signed = pysequoia.verify(bytes=document, store=keys)
        return bytes(signed.bytes or b"").decode()
    except Exception as error:  # the library raises its own and RuntimeError
        raise ListError(
            f"the Release file of {redacted(url)} is not signed by a key of {distribution.title}'s that is known here",
            cause=str(error).partition("\n")[0],
        ) from error


def check_suite(release: str, source: SuiteSource) -> None:
    """Raises ListError for a Release file of another suite than the source's, or of another part of it.

    The part is "security", "updates", … or none. Debian has it in Codename and in Suite ("bookworm-updates",
    "oldstable-updates"), Ubuntu in Suite alone, and Debian before bullseye in the Label of security. Suite's own word
    is no help: "stable" becomes "oldstable" on the day of the next release.
    """
    suite, _, part = source.suite.partition("-")
    codename, has_suite, label = (field_of(release, name) for name in ("Codename", "Suite", "Label"))
    parts = [codename.partition("-")[2], has_suite.partition("-")[2]]
    named = {name.lower() for name in (*parts, label.partition("-")[2]) if name}
    if codename.partition("-")[0] == suite and named <= {part} and (not part or part in parts):
        return
    shown = ", ".join(f"{name} {printable(value)!r}" for name, value in (("Codename", codename), ("Suite", has_suite)))
    raise ListError(
        f"{redacted(source.url)} has the signed lists of another suite: {shown}, not {source.suite}",
        cause="A mirror that mixes its folders up, or somebody on the way who hides what is new.",
    )


def check_dates(release: str, source: SuiteSource, now: float) -> None:
    """Raises ListTimeError for a Release file without a date, of the future, or that was valid until an earlier time.

    `now`: Unix seconds; in its place counts the time that the source's address names.
    """
    date, until = moment_of(release, "Date"), moment_of(release, "Valid-Until")
    now = now if source.as_of is None else source.as_of
    if date is None:
        what, cause = "says no date", "What has no date may be of any time."
    elif date > now + _AHEAD:
        what = f"is of {field_of(release, 'Date')}, which is to come"
        cause = "This machine's clock is wrong, or that of whoever signed it."
    elif until is not None and until < now and not source.is_retired:
        what = f"was valid until {field_of(release, 'Valid-Until')}"
        cause = "The mirror is no longer kept up to date, or this machine's clock is wrong."
    elif until is None and field_of(release, "Valid-Until"):
        what, cause = "says no time until which it is valid that can be read", "The file is damaged."
    else:
        return
    raise ListTimeError(
        f"the Release file of {redacted(source.url)} {what}",
        cause=cause,
        next_step="check `date`; or take another mirror",
    )


def field_of(release: str, name: str) -> str:
    """The value of a field of the first paragraph; empty without it."""
    match = re.search(rf"^{name}:[ \t]*(.*?)[ \t]*$", release.partition("\nSHA256:")[0], re.MULTILINE)
    return match[1] if match else ""


def moment_of(release: str, name: str) -> float | None:
    """The time of a field, in Unix seconds; None without one that can be read."""
    try:
        return email.utils.parsedate_to_datetime(field_of(release, name)).timestamp()
    except (ValueError, OverflowError):
        return None
