"""What of `inputs.bases.apt` and `inputs.bases.mmdebstrap` needs no process. Names of mirrors are made up."""

import shlex
from pathlib import Path

import pytest

from graphcrate.host.process import Completed
from graphcrate.inputs.bases import apt, mmdebstrap
from graphcrate.inputs.bases.apt import Mirror
from graphcrate.model.errors import HostError
from graphcrate.model.lock import DebianBase, DebianPackage, LockedFile

STANZAS = """\
Package: libc6
Source: glibc
Version: 2.36-9+deb12u14
Installed-Size: 12988
Depends: libgcc-s1,
 libcrypt1 (>= 1:4.4.10-10~)
Architecture: amd64
Description: GNU C Library: Shared libraries
 Contains the standard libraries.
 .
 Size: of no matter here
Filename: pool/main/g/glibc/libc6_2.36-9+deb12u14_amd64.deb
Size: 2759320
SHA256: BA4F88F73DBC3AE9055F3C20F4523BFDBAF1AD13FF95E258924F77D20B4FBEDF

Package: virtual-without-a-file
Version: 1

Package: libcap2
Version: 1:2.66-4
Architecture: amd64
Filename: pool/main/libc/libcap2/libcap2_2.66-4_amd64.deb
Size: 28000
SHA256: 0000000000000000000000000000000000000000000000000000000000000001
"""


def package(name, version, sha256="0" * 64):
    file = LockedFile(name=f"{name}_{version.rpartition(':')[2]}_amd64.deb", size=1, sha256=sha256)
    return DebianPackage(name=name, version=version, architecture="amd64", file=file)


def test_stanzas_give_packages_with_their_pools_file_names():
    found = list(apt.parse_packages(STANZAS.splitlines()))
    assert [(package.name, package.version, package.file.size) for package in found] == [
        ("libc6", "2.36-9+deb12u14", 2759320),
        ("libcap2", "1:2.66-4", 28000),
    ]
    assert found[0].file.sha256.startswith("ba4f88f7")
    assert found[1].file.name == "libcap2_2.66-4_amd64.deb"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Inst libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64]) []", ("libc6", "2.36-9+deb12u14")),
        ("Inst tzdata [2024a-1] (2026f-0 Debian:12/stable, Debian-Security:12/stable [all])", ("tzdata", "2026f-0")),
        ("Inst libc6:amd64 (2.36 Debian:12/stable [amd64])", ("libc6", "2.36")),
        ("Conf libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])", None),
    ],
)
def test_lines_of_a_simulation(line, expected):
    assert apt.installed(line) == expected


def test_mirror_from_the_environment_wins():
    assert apt.find_mirror("bookworm", {"DEBIAN_MIRROR": "http://mirror.example/debian/"}) == Mirror(
        "http://mirror.example/debian", "http://mirror.example/debian-security"
    )
    assert apt.find_mirror("bookworm", {"DEBIAN_MIRROR": "http://mirror.example/snap/1"}).security == ""
    both = {"DEBIAN_MIRROR": "http://a.example/debian", "DEBIAN_SECURITY_MIRROR": "http://b.example/s"}
    assert apt.find_mirror("bookworm", both).security == "http://b.example/s"


def test_mirror_of_a_debian_host():
    lines = [
        "'https://cloud.example/apt/dists/cloud-sdk-bookworm/InRelease' x 0 ",
        "'https://download.example/linux/debian/dists/bookworm/InRelease' x 0 ",
        "'http://mirror.example/debian/dists/bookworm/InRelease' x 0 ",
        "'http://mirror.example/debian/dists/bookworm-updates/InRelease' x 0 ",
        "'http://safe.example/debian-security/dists/bookworm-security/InRelease' x 0 ",
        "'http://mirror.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' x 0 ",
    ]
    mirror = Mirror("http://mirror.example/debian", "http://safe.example/debian-security")
    assert apt.mirror_of(lines) == mirror
    one_line = [
        "I: running --setup-hook",
        "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main",
        "deb http://safe.example/debian-security bookworm-security main",
    ]
    assert apt.mirror_of(one_line) == mirror, "what mmdebstrap would take"
    assert apt.mirror_of(["'http://ubuntu.example/ubuntu/dists/noble/InRelease' x 0 "]) is None


def test_sources_of_a_suite_are_signed_by_debian():
    mirror = Mirror("http://m.example/debian", "http://s.example/d")
    assert apt.source_lines("trixie", mirror, Path("/k.gpg"), ("contrib",)).splitlines() == [
        "deb [signed-by=/k.gpg arch=amd64] http://m.example/debian trixie main contrib",
        "deb [signed-by=/k.gpg arch=amd64] http://m.example/debian trixie-updates main contrib",
        "deb [signed-by=/k.gpg arch=amd64] http://s.example/d trixie-security main contrib",
    ]


def test_keys_that_are_older_than_a_suite(tmp_path, monkeypatch):
    monkeypatch.setattr(apt, "keyring", lambda: Path("/k.gpg"))
    monkeypatch.setattr(apt.process, "find", lambda name: name)
    lines = ("W: GPG error: http://u:secret@m.example/debian trixie InRelease: NO_PUBKEY 6ED0E7B82643E131",)
    monkeypatch.setattr(apt.process, "run", lambda *_, **__: Completed(100, lines))
    with pytest.raises(HostError, match="archive keys on this machine do not know trixie") as caught:
        apt.Apt(tmp_path, "trixie", Mirror("http://m.example/debian"), {}).update()
    assert "debian-archive-keyring" in caught.value.next_step
    assert "secret" not in str(caught.value)


def test_lists_of_two_mirrors_do_not_meet():
    one, other = Mirror("http://m.example/debian", ""), Mirror("http://n.example/debian", "")
    wanted = [("trixie", one), ("trixie", other), ("sid", one), ("trixie", one, ("contrib",))]
    names = {apt.folder_name(*arguments) for arguments in wanted}
    assert len(names) == len(wanted)
    assert "example" not in "".join(names)


@pytest.mark.parametrize(
    ("text", "enough"),
    [
        ("someone:100000:65536\n", True),
        ("# comment\nother:1:65536\n1000:100000:131072\n", True),
        ("someone:100000:1000\nsomeone2:100000:65536\nsomeone:100000\n", False),
    ],
)
def test_ranges_of_subordinate_ids(text, enough):
    assert mmdebstrap.has_range(text, "someone", 1000) is enough


@pytest.mark.parametrize(
    ("suite", "hooks"),
    [("bullseye", ["--setup-hook", "--customize-hook"]), ("bookworm", ["--setup-hook"]), ("trixie", [])],
)
def test_exactly_the_locked_packages_from_one_folder(suite, hooks):
    """/usr is merged here until a package does it, and bytecode of Python 3.9 compiled with a fixed seed."""
    lock = DebianBase(suite=suite, packages=(package("libc6", "2.36"), package("dash", "1:0.5")))
    argv = mmdebstrap.command(lock, Path("/r/debs"), Path("/out.tar"))
    assert "--include=libc6,dash" in argv
    assert argv[-3:] == ["", "/out.tar", "deb [trusted=yes] copy:///r/debs ./"]
    given = [option.partition("=") for option in argv if "-hook=" in option]
    assert [name for name, _, _ in given] == hooks
    for name, _, hook in given:
        if name == "--customize-hook":
            assert shlex.split(hook)[2:5] == ["env", "-i", "PYTHONHASHSEED=0"]
            compile(shlex.split(hook)[-1], "hook", "exec")
