"""From signed lists to a lock, on the command line; mirrors are folders."""

import hashlib
import json
import lzma
import pickle

import pysequoia
import pytest

from debroot import __main__, web
from debroot.errors import DpkgError, TooDeepError
from debroot.lock import LockError, decode

STANZAS = {
    "bookworm": ["base-files", "base-passwd", "bash"],
    "bookworm-updates": [],
    "bookworm-security": [],
}
DATES = "Date: Sat, 09 Aug 2025 10:00:00 UTC\nValid-Until: Fri, 01 Jan 2100 00:00:00 UTC\n"


def stanza(name):
    fields = f"Package: {name}\nVersion: 1\nArchitecture: amd64\nSize: 4\n"
    return f"{fields}Filename: pool/main/x/{name}_1_amd64.deb\nSHA256: {hashlib.sha256(b'body').hexdigest()}\n\n"


class Mirror:
    """A folder that is a mirror, signed by a key of its own that counts as Debian's."""

    def __init__(self, root, keys):
        self.root, self.signer = root, pysequoia.Tsk.generate("Someone <someone@debian.example>")
        (keys / "debian-archive-keys.asc").write_text(str(self.signer.extract_certificate()))
        for suite, names in STANZAS.items():
            self.put(suite, "".join(map(stanza, names)))

    def put(self, suite, text, dates=DATES, codename=""):
        folder = self.root / ("debian-security" if "security" in suite else "debian") / "dists" / suite
        data = lzma.compress(text.encode())
        (folder / "main/binary-amd64").mkdir(parents=True, exist_ok=True)
        (folder / "main/binary-amd64/Packages.xz").write_bytes(data)
        _, dash, part = suite.partition("-")
        release = f"Suite: stable{dash}{part}\nCodename: {codename or suite}\n{dates}SHA256:\n"
        release += f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-amd64/Packages.xz\n"
        signed = pysequoia.sign(self.signer.signer(), release.encode(), mode=pysequoia.SignatureMode.CLEAR)
        (folder / "InRelease").write_bytes(signed)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    (tmp_path / "keys").mkdir()
    monkeypatch.setattr("debroot.release.KEYS", tmp_path / "keys")
    monkeypatch.setenv("DEBIAN_MIRROR", (tmp_path / "m/debian").as_uri())
    monkeypatch.setenv("DEBIAN_SECURITY_MIRROR", (tmp_path / "m/debian-security").as_uri())
    monkeypatch.setattr("debroot.mirrors.of_machine", lambda *_: None)
    for name in ("FALLBACK", "ARCHIVE", "SNAPSHOT"):
        monkeypatch.setenv(f"DEBIAN_{name}", "none")
    return Mirror(tmp_path / "m", tmp_path / "keys")


def test_lock_of_signed_lists_names_each_package_by_hash_and_no_mirror(mirror, capsys):
    assert __main__.main(["lock", "bookworm", "bash"]) == 0
    text = capsys.readouterr().out
    lock = decode(text)
    assert [package.name for package in lock.packages] == ["base-files", "base-passwd", "bash"]
    assert (lock.suite, lock.listed, lock.encode()) == ("bookworm", "20250809T100000Z", text)
    assert "file:" not in text


def another_suite(mirror):
    mirror.put("bookworm", "", codename="trixie")


def out_of_date(mirror):
    mirror.put("bookworm", "", dates=DATES.replace("2100", "2020"))


def to_come(mirror):
    mirror.put("bookworm", "", dates=DATES.replace("2025", "2099"))


def unsigned(mirror):
    path = mirror.root / "debian/dists/bookworm/InRelease"
    path.write_bytes(path.read_bytes().replace(b"stable", b"stably"))


def without_security(mirror):
    (mirror.root / "debian-security/dists/bookworm-security/InRelease").unlink()


def other_list(mirror):
    path = mirror.root / "debian/dists/bookworm/main/binary-amd64/Packages.xz"
    path.write_bytes(bytes(len(path.read_bytes())))


SPOILT = {
    another_suite: "signed lists of another suite",
    out_of_date: "was valid until",
    to_come: "which is to come",
    unsigned: "not signed by a key of Debian's",
    without_security: "No such file",
    other_list: "another file",
}


@pytest.mark.parametrize("spoil", SPOILT, ids=[spoil.__name__ for spoil in SPOILT])
def test_lists_that_do_not_hold_give_no_lock(mirror, capsys, spoil):
    spoil(mirror)
    assert __main__.main(["lock", "bookworm", "bash"]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert SPOILT[spoil] in error


GOOD = {
    "format": 1,
    "suite": "bookworm",
    "architecture": "amd64",
    "listed": "20250809T100000Z",
    "packages": [
        {
            "name": "bash",
            "version": "1",
            "architecture": "amd64",
            "path": "pool/main/b/bash_1_amd64.deb",
            "size": 4,
            "sha256": "0" * 64,
        }
    ],
}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"suite": "../x"},
        {"listed": "today"},
        {"path": "pool/../../etc/x.deb"},
        {"path": "/etc/x.deb"},
        {"path": "pool/main/x.sh"},
        {"sha256": "0"},
        {"size": "4"},
        {"size": -1},
        {"name": "-rf"},
        {"more": "x"},
        {"packages": {}},
        {"packages": [[]]},
    ],
    ids=str,
)
def test_lock_of_a_stranger_with_odd_values_is_refused(change):
    row = GOOD["packages"][0]
    inner = {key: value for key, value in change.items() if key in (*row, "more")}
    outer = {key: value for key, value in change.items() if key not in inner}
    with pytest.raises(LockError):
        decode(json.dumps({**GOOD, "packages": [{**row, **inner}], **outer}))
    assert decode(json.dumps(GOOD)).packages[0].file == "bash_1_amd64.deb"


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "[" * 100_000, '{"format": 1}'])
def test_what_is_no_lock_is_refused(text):
    with pytest.raises(LockError):
        decode(text)


def test_root_that_is_there_is_left_alone(tmp_path, capsys):
    (tmp_path / "lock").write_text(json.dumps(GOOD))
    (tmp_path / "root").mkdir()
    assert __main__.main(["make", str(tmp_path / "lock"), str(tmp_path / "root")]) == 1
    assert "is there already" in capsys.readouterr().err
    assert list((tmp_path / "root").iterdir()) == []


def test_file_comes_from_the_first_place_that_has_its_bytes(tmp_path):
    wrong, right = tmp_path / "wrong", tmp_path / "right"
    wrong.write_bytes(b"wrong")
    right.write_bytes(b"right")
    urls = [(tmp_path / "absent").as_uri(), wrong.as_uri(), right.as_uri()]
    digest = hashlib.sha256(b"right").hexdigest()
    web.download(urls, tmp_path / "got", 5, digest)
    assert (tmp_path / "got").read_bytes() == b"right"
    with pytest.raises(web.FetchError, match=r"no server gives other: .*another file"):
        web.download(urls[:2], tmp_path / "other", 5, digest)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["got", "right", "wrong"]


def test_make_without_a_server_leaves_nothing(tmp_path, mirror, capsys):
    (tmp_path / "lock").write_text(json.dumps(GOOD))
    before = sorted(tmp_path.iterdir())
    assert __main__.main(["make", str(tmp_path / "lock"), str(tmp_path / "root")]) == 1
    assert "no server gives bash_1_amd64.deb" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("error", [DpkgError(["a"], ["line"]), TooDeepError(__main__.Path("/r"), "/r/x", 3)])
def test_errors_cross_processes_with_their_facts(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
