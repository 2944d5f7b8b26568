"""Debian's archives, and the addresses at which a package may be. Names of mirrors are made up."""

import dataclasses

import pytest

from debroot import mirrors
from debroot.distributions import DEBIAN, SUITES, Layout
from debroot.mirrors import FURTHER, Archives, DebianMirror, addresses, is_path, is_time
from graphcrate.compat.facts import suites
from graphcrate.inputs.bases.mirrors import archives, own_mirror


def test_mirror_from_the_environment_wins(tmp_path):
    mirror = {"DEBIAN_MIRROR": "http://mirror.example/debian/"}
    assert own_mirror(mirror) == DebianMirror("http://mirror.example/debian", "http://mirror.example/debian-security")
    assert own_mirror({"DEBIAN_MIRROR": "http://mirror.example/snap/1"}).security == ""
    assert own_mirror({**mirror, "DEBIAN_SECURITY_MIRROR": "http://b.example/s"}).security == "http://b.example/s"
    assert own_mirror({}, tmp_path) is None


ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb https://download.example/linux/debian bookworm stable
deb [signed-by=/k.gpg arch=amd64] http://mirror.example/debian/ bookworm main
deb http://mirror.example/debian bookworm-updates main
deb http://safe.example/debian-security bookworm-security main
"""
DEB822 = """\
Types: deb
# http://snapshot.example/debian
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates

Types: deb
URIs: http://safe.example/debian-security
Suites: bookworm-security
"""


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("sources.list", ONE_LINE, True),
        ("sources.list.d/debian.sources", DEB822, True),
        ("sources.list", "deb http://ubuntu.example/ubuntu noble main\n", False),
        ("sources.list", "deb mirror+file:/etc/mirrors bookworm main\n", False),
    ],
)
def test_mirror_is_read_from_apt_sources(tmp_path, name, text, known):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    mirror = DebianMirror("http://mirror.example/debian", "http://safe.example/debian-security")
    assert own_mirror({}, tmp_path) == (mirror if known else None)


# -- all places


def mirror(root, security="-security"):
    return DebianMirror(f"{root}/debian", f"{root}/debian{security}" if security else "")


A, B, C = (f"http://{name}.example" for name in "abc")
PUBLIC = {
    "retired": mirror(mirrors.RETIRED),
    "snapshot": mirrors.SNAPSHOT,
    "distribution": suites.distribution_of("bookworm"),
}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, Archives(listing=FURTHER, **PUBLIC)),
        ({"DEBIAN_MIRROR": f"{A}/debian/ {B}/debian"}, {"listing": (mirror(A), mirror(B)), "others": FURTHER}),
        (
            {"DEBIAN_MIRROR": f"{A}/debian {B}/debian", "DEBIAN_SECURITY_MIRROR": f"{C}/s"},
            {"listing": (DebianMirror(f"{A}/debian", f"{C}/s"), DebianMirror(f"{B}/debian")), "others": FURTHER},
        ),
        (  # more of the second kind: each is asked for what it has
            {"DEBIAN_MIRROR": f"{A}/snap/1", "DEBIAN_SECURITY_MIRROR": f"{B}/s {C}/s"},
            {"listing": (DebianMirror(f"{A}/snap/1", f"{B}/s"), DebianMirror("", f"{C}/s")), "others": FURTHER},
        ),
        ({"DEBIAN_MIRROR": f"{A}/snap/1"}, {"listing": (DebianMirror(f"{A}/snap/1"),), "others": FURTHER}),
        ({"DEBIAN_FALLBACK": f"{A}/debian {B}/debian"}, {"listing": (mirror(A), mirror(B))}),
        ({"DEBIAN_FALLBACK": "none"}, {"listing": ()}),
        ({"DEBIAN_MIRROR": f"{A}/debian", "DEBIAN_FALLBACK": "none"}, {"listing": (mirror(A),)}),
        ({"DEBIAN_ARCHIVE": f"{A}/"}, {"listing": FURTHER, "retired": mirror(A)}),
        ({"DEBIAN_ARCHIVE": "none"}, {"listing": FURTHER, "retired": DebianMirror("")}),
        ({"DEBIAN_SNAPSHOT": f"{A}/"}, {"listing": FURTHER, "snapshot": A}),
        ({"DEBIAN_SNAPSHOT": "none"}, {"listing": FURTHER, "snapshot": ""}),
        (
            {"DEBIAN_MIRROR": " ", "DEBIAN_ARCHIVE": " ", "DEBIAN_SNAPSHOT": "", "DEBIAN_FALLBACK": ""},
            {"listing": FURTHER},
        ),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) and "listing" not in value else "",
)
def test_debian_variables_give_the_archives(tmp_path, variables, expected):
    """On a machine that is no Debian. What a variable leaves unsaid, or empty, stays as it is."""
    expected = expected if isinstance(expected, Archives) else Archives(**{**PUBLIC, **expected})
    assert archives(variables, tmp_path) == expected


def test_apt_sources_precede_public_mirrors(tmp_path):
    (tmp_path / "sources.list").write_text(ONE_LINE)
    machine = DebianMirror("http://mirror.example/debian", "http://safe.example/debian-security")
    assert archives({}, tmp_path).mirrors == (machine, *FURTHER)
    assert archives({"DEBIAN_FALLBACK": "none"}, tmp_path).mirrors == (machine,)
    found = archives({"DEBIAN_MIRROR": f"{A}/debian"}, tmp_path)
    assert (found.listing, found.others) == ((mirror(A),), (machine, *FURTHER))


# -- addresses of a file

BASH = "pool/main/b/bash/bash_5.2_amd64.deb"
BASH_SECURITY = "pool/updates/main/b/bash/bash_5.2_amd64.deb"


def test_addresses_of_a_deb_are_mirrors_then_archive_then_snapshots():
    known = Archives(listing=(mirror(A),), others=(mirror(B),), retired=mirror(C), snapshot="http://s.example")
    roots = [
        *(f"{place}/debian" for place in (A, B, C)),
        "http://s.example/archive/debian/20261231T021215Z",
        "http://s.example/archive/debian/20270101T021215Z",
    ]
    main = [f"{root}/{BASH}" for root in roots]
    security = [f"{root.replace('/debian', '/debian-security')}/{BASH_SECURITY}" for root in roots]
    pairs = zip(main, security, strict=True)
    assert list(addresses(BASH, "20261231T021215Z", known)) == [url for pair in pairs for url in pair]
    pairs = zip(security, main, strict=True)
    assert list(addresses(BASH_SECURITY, "20261231T021215Z", known)) == [url for pair in pairs for url in pair]
    assert not [url for url in addresses(BASH, "", known) if "s.example" in url], "a time is needed there"
    assert list(addresses("", "20261231T021215Z", known)) == []


def test_addresses_of_a_deb_are_unique():
    """A machine whose own mirror is the one that the person names, and one address for both archives."""
    twice = Archives(listing=(mirror(A), DebianMirror("", f"{B}/s")), others=(mirror(A), DebianMirror(f"{B}/s")))
    expected = [f"{A}/debian/{BASH}", f"{A}/debian-security/{BASH_SECURITY}"]
    assert list(addresses(BASH, "", twice)) == [*expected, f"{B}/s/{BASH_SECURITY}", f"{B}/s/{BASH}"]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "pool",
        "pool/",
        "pool/bash.txt",
        "/pool/main/b/bash.deb",
        "dists/main/b/bash.deb",
        "pool/../../etc/bash.deb",
        "pool/main/..",
        "pool/main/../x.deb",
        "pool/./x.deb",
        "pool//x.deb",
        "pool/x.deb?y=.deb",
        "pool/x.deb#.deb",
        "pool/%2e%2e/x.deb",
        "pool/a b.deb",
        "pool/a\\b.deb",
        "pool/a\nb.deb",
        "pool/a.deb\n",
        "pool/\x1b[31m.deb",
        "pool/user@host.deb",
        "http://evil.example/pool/x.deb",
        "pool/é.deb",
    ],
)
def test_unsafe_or_foreign_pool_path_is_refused(path):
    assert not is_path(path)


def test_pool_paths_and_snapshot_times_are_recognised():
    for name in ("g/gcc-12/libstdc++6_12.2.0-14+deb12u1_amd64.deb", "libz/a~b_1.0~rc1_all.deb", "3/3d_1_amd64.deb"):
        assert is_path(f"pool/main/{name}")
        assert is_path(f"pool/updates/non-free-firmware/{name}")
    assert is_time("20261125T021215Z")
    for text in ("", "now", "20261125", "20261325T021215Z", "20261125T021215Z ", "../../x", "99991231T000000Z", "2"):
        assert not is_time(text)


def test_rows_of_the_library_are_those_of_the_project():
    known = dataclasses.asdict(suites.distribution_of("bookworm"))
    assert dataclasses.asdict(DEBIAN) == {name: value for name, value in known.items() if name != "image"}
    rows = {name: Layout(base.links_usr, base.compiles_again) for name, base in suites.bases().items()}
    assert rows == SUITES
