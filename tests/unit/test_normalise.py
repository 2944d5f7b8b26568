"""From mmdebstrap's tar to a base layer."""

import io
import random
import re
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.inputs.bases.normalise import DPKG_RULES, entries, sources, timeless
from graphcrate.model.errors import BuildError
from graphcrate.oci.tar import END_OF_ARCHIVE

TIME = 315_532_800
ONE_LINE = """\
# See sources.list(5)
deb http://mirror.example/debian bookworm main contrib non-free non-free-firmware
deb http://mirror.example/debian bookworm-updates main contrib non-free non-free-firmware
deb http://mirror.example/debian-security bookworm-security main contrib non-free non-free-firmware

#deb-src http://mirror.example/debian bookworm main
"""

LEFT = """
etc/machine-id etc/hostname etc/resolv.conf etc/hosts etc/passwd- etc/.pwd.lock etc/apt/sources.list
var/log/dpkg.log var/log/apt/term.log var/cache/apt/pkgcache.bin var/cache/ldconfig/aux-cache
var/lib/apt/lists/lock var/lib/dpkg/status-old var/lib/dpkg/lock-frontend var/cache/debconf/templates.dat-old
dev/null tmp/x var/tmp/x run/utmp etc/apt/apt.conf.d/99mmdebstrap etc/dpkg/dpkg.cfg.d/99mmdebstrap
usr/share/man/man1/ls.1.gz usr/share/locale/de/LC_MESSAGES/apt.mo usr/share/info/dir usr/share/doc/apt/README
usr/share/lintian/overrides/apt
"""
KEPT = """
etc/passwd etc/shadow var/log/ usr/share/doc/apt/copyright usr/share/man/man1/ usr/share/locale/locale.alias
var/lib/dpkg/status var/lib/dpkg/info/apt.list run/lock/ dev/ tmp/ var/cache/debconf/templates.dat
usr/share/documentation
"""


def member(name, content=None, kind=tarfile.REGTYPE, *, link="", mode=0o644, uid=0, gid=0, mtime=1_700_000_000):
    info = tarfile.TarInfo(f"./{name}")
    info.type, info.linkname, info.mode, info.uid, info.gid, info.mtime = kind, link, mode, uid, gid, mtime
    info.size = len(content or b"")
    return info, content


def folder(name, mode=0o755, **more):
    return member(name, kind=tarfile.DIRTYPE, mode=mode, **more)


def archive(members, format_=tarfile.PAX_FORMAT):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:", format=format_) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content) if content is not None else None)
    return io.BytesIO(stream.getvalue())


def tidied(members, suite="bookworm"):
    data = b"".join(entries(archive(members), suite, TIME))
    assert len(data) % 512 == 0
    return tarfile.open(fileobj=io.BytesIO(data + END_OF_ARCHIVE), mode="r:")


def names(members):
    with tidied(members) as tar:
        return [item.name for item in tar]


def test_what_differs_between_machines_is_left_out():
    given_ = [
        folder(name.rstrip("/")) if name.endswith("/") else member(name, b"x")
        for name in (*LEFT.split(), *KEPT.split())
    ]
    assert set(names(given_)) == {name.rstrip("/") for name in KEPT.split()} | {"etc/dpkg/dpkg.cfg.d/graphcrate"}


def test_owners_modes_and_links_stay_and_times_go():
    with tidied(
        [
            folder("usr"),
            member("usr/wall", b"program", mode=0o2755, gid=5),
            member("bin", kind=tarfile.SYMTYPE, link="usr/bin", mode=0o777),
            folder("tmp", 0o1777),
            member("usr/café", b"name"),
            member("usr/" + "long/" * 60 + "name", b"long"),
        ]
    ) as tar:
        found = {item.name: item for item in tar}
        assert {item.mtime for item in found.values()} == {TIME}
        assert (found["usr/wall"].mode, found["usr/wall"].gid, found["usr/wall"].uname) == (0o2755, 5, "")
        assert found["bin"].linkname == "usr/bin"
        assert found["tmp"].mode == 0o1777
        assert tar.extractfile("usr/café").read() == b"name"
        assert tar.extractfile("usr/" + "long/" * 60 + "name").read() == b"long"


def test_hard_links_follow_the_name_that_comes_first():
    hard = member("usr/a", kind=tarfile.LNKTYPE, link="./usr/perl")
    with tidied(
        [member("usr/perl", b"program"), hard, member("usr/z", kind=tarfile.LNKTYPE, link="./usr/perl")]
    ) as tar:
        kinds = [(item.name, item.islnk(), item.linkname) for item in tar if item.name.startswith("usr/")]
        assert kinds == [("usr/a", False, ""), ("usr/perl", True, "usr/a"), ("usr/z", True, "usr/a")]
        assert tar.extractfile("usr/a").read() == b"program"


def test_a_file_whose_other_name_is_left_out_keeps_its_content():
    members = [member("var/log/x", b"text"), member("var/y", kind=tarfile.LNKTYPE, link="./var/log/x")]
    with tidied(members) as tar:
        assert tar.extractfile("var/y").read() == b"text"


def test_entries_that_no_layer_can_have_are_refused():
    with pytest.raises(BuildError, match="a base layer cannot have: var/pipe"):
        names([member("var/pipe", kind=tarfile.FIFOTYPE)])


@given(st.randoms(use_true_random=False), st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
def test_order_time_and_format_of_the_tar_do_not_matter(shuffler: random.Random, format_: int):
    content = [(f"usr/share/{name}", name.encode() * 300) for name in ("b", "a", "b-c", "b.d", "é", "n" * 120)]
    first = [member(name, data) for name, data in content]
    second = [member(name, data, mtime=shuffler.randrange(2**31)) for name, data in content]
    shuffler.shuffle(second)
    one = b"".join(entries(archive(first), "bookworm", TIME))
    assert one == b"".join(entries(archive(second, format_), "bookworm", TIME))


def test_bytecode_holds_whatever_the_time_of_its_source():
    code = b"\xa7\x0d\x0d\x0a" + bytes(4) + b"\x11\x22\x33\x44\x55\x66\x77\x88" + b"marshalled"
    with tidied([member("usr/lib/python3.11/__pycache__/os.cpython-311.pyc", code)]) as tar:
        written = tar.extractfile("usr/lib/python3.11/__pycache__/os.cpython-311.pyc").read()
    assert written == b"\xa7\x0d\x0d\x0a" + b"\1\0\0\0" + bytes(8) + b"marshalled"
    assert timeless(written[:16]) == written[:16]
    assert timeless(b"short") == b"short"


def test_sources_and_rules_are_written_for_the_image():
    example = member("usr/share/doc/apt/examples/sources.list", ONE_LINE.encode())
    with tidied([example, member("etc/apt/sources.list", b"deb [trusted=yes] copy:///tmp/x ./\n")]) as tar:
        assert tar.extractfile("etc/apt/sources.list").read().decode() == sources(ONE_LINE, "bookworm")
        assert tar.extractfile("etc/dpkg/dpkg.cfg.d/graphcrate").read().decode() == DPKG_RULES


NEWER = """\
## Debian
Types: deb
URIs: http://m.example/debian
Suites: trixie trixie-updates
Components: main contrib non-free non-free-firmware
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: http://m.example/debian-security
Suites: trixie-security
Components: main contrib
Signed-By: /usr/share/keyrings/k.gpg
"""


@pytest.mark.parametrize(
    ("suite", "example", "written"),
    [
        (
            "bookworm",
            ONE_LINE,
            "deb http://mirror.example/debian bookworm main\n"
            "deb http://mirror.example/debian bookworm-updates main\n"
            "deb http://mirror.example/debian-security bookworm-security main\n",
        ),
        (  # completed: bullseye's own lacks the updates
            "bullseye",
            "deb http://m.example/debian bullseye main contrib\ndeb http://s.example bullseye-security main contrib\n",
            "deb http://m.example/debian bullseye main\n"
            "deb http://m.example/debian bullseye-updates main\n"
            "deb http://s.example/debian-security bullseye-security main\n",
        ),
        ("trixie", NEWER, re.sub(r"main contrib.*", "main", NEWER.removeprefix("## Debian\n"))),
    ],
)
def test_sources_of_a_suite(suite, example, written):
    assert sources(example, suite) == written


def test_sources_of_another_suite_are_refused():
    with pytest.raises(BuildError, match="not for trixie"):
        sources(ONE_LINE, "trixie")
