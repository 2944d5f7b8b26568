"""Where Debian's archives are, and at which addresses a package may be. Names of mirrors are made up."""

import pytest

from graphcrate.inputs.bases.mirrors import Mirror, own_mirror


def test_mirror_from_the_environment_wins(tmp_path):
    mirror = {"DEBIAN_MIRROR": "http://mirror.example/debian/"}
    assert own_mirror(mirror) == Mirror("http://mirror.example/debian", "http://mirror.example/debian-security")
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
def test_mirror_of_a_debian_host(tmp_path, name, text, known):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    mirror = Mirror("http://mirror.example/debian", "http://safe.example/debian-security")
    assert own_mirror({}, tmp_path) == (mirror if known else None)
