"""Packages to a tree and to a tar, with a dpkg that is played: what only Python does. graphcrate tests the real one."""

import io
import lzma
import os
import stat
import tarfile

import pytest

from debroot.deb import FileOwner, extract, inflate_member
from debroot.distributions import DEBIAN, Layout
from debroot.errors import BrokenFileError, DpkgError, LinkInTheWayError, NotAPackageError, TooDeepError, TreeError
from debroot.install import Ended, Hands, install
from debroot.normalise import DPKG_RULES, entries, private_keys, write_tar, written_files
from debroot.reading import inflated

EPOCH = 1_760_000_000


def entry(name, kind=tarfile.REGTYPE, content=b"", **more):
    member = tarfile.TarInfo(name)
    member.type, member.size, member.mode = kind, len(content), 0o755 if kind == tarfile.DIRTYPE else 0o644
    for field, value in more.items():
        setattr(member, field, value)
    return member, content


def link(name, target, kind=tarfile.SYMTYPE):
    return entry(name, kind, linkname=target)


def member(name, content):
    head = f"{name:16}{'0':12}{'0':6}{'0':6}{'100644':8}{len(content):<10}`\n".encode()
    return head + content + b"\n" * (len(content) % 2)


def deb(folder, name, files, pack=lzma.compress, kind=".xz"):
    """A package of these entries."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for header, content in files:
            tar.addfile(header, io.BytesIO(content))
    path = folder / f"{name}_1_all.deb"
    path.write_bytes(
        b"!<arch>\n" + member("debian-binary", b"2.0\n") + member(f"data.tar{kind}", pack(stream.getvalue()))
    )
    return path


def extracted(package, root):
    root.mkdir(exist_ok=True)
    plain = root.parent / "plain"
    return extract(plain, inflate_member(package, plain), root)


def test_extracted_package_gives_files_and_owners_and_no_set_user_id_bits(tmp_path):
    files = [entry("./usr", tarfile.DIRTYPE), entry("./usr/wall", content=b"x" * 70_001, gid=5, mode=0o2755)]
    assert extracted(deb(tmp_path, "some", files), tmp_path / "root") == {"usr/wall": FileOwner(0, 5)}
    made = tmp_path / "root/usr/wall"
    assert (made.read_bytes(), stat.S_IMODE(made.stat().st_mode)) == (b"x" * 70_001, 0o755)


ATTACKS = {
    "absolute name": [entry("OUT/new")],
    "dots": [entry("./../canary/new")],
    "through a link": [link("./lib", "OUT"), entry("./lib/new")],
    "over a link": [link("./shadow", "OUT/shadow"), entry("./shadow", content=b"new")],
    "mode through a link": [link("./lib", "OUT"), entry("./lib", tarfile.DIRTYPE, mode=0o777)],
    "hard link": [link("./a", "OUT/shadow", tarfile.LNKTYPE), entry("./a", content=b"new")],
    "hard link through a link": [link("./lib", "OUT"), link("./a", "./lib/shadow", tarfile.LNKTYPE)],
    "device": [entry("./null", tarfile.CHRTYPE, devmajor=1, devminor=3), entry("./pipe", tarfile.FIFOTYPE)],
    "circle of links": [link("./a", "b"), link("./b", "a"), entry("./a/x")],
}


@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_package_writes_nothing_outside_its_root(tmp_path, name):
    (canary := tmp_path / "canary").mkdir(mode=0o700)
    (canary / "shadow").write_text("secret")
    before = [(path, path.lstat()[:4]) for path in (canary, canary / "shadow")]
    for header, _ in ATTACKS[name]:
        header.name, header.linkname = (text.replace("OUT", str(canary)) for text in (header.name, header.linkname))
    extracted(deb(tmp_path, "bad", ATTACKS[name]), tmp_path / "root")
    assert [(path, path.lstat()[:4]) for path in (canary, *canary.iterdir())] == before
    assert (canary / "shadow").read_text() == "secret"
    assert all(
        stat.S_IFMT(path.lstat().st_mode) in (stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK)
        for path in (tmp_path / "root").rglob("*")
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"MZ" + data,
        lambda data: data[:30],
        lambda data: data[:8],
        lambda data: data[:-60] + b"x" * 60,
        lambda data: b"!<arch>\n" + member("data.tar", b"x" * 600),
        lambda data: b"!<arch>\n" + member("data.tar.zst", b"x" * 600),
    ],
    ids=["no archive", "cut in a header", "no data", "broken xz", "no tar inside", "unknown packing"],
)
def test_damaged_package_is_refused(tmp_path, damage):
    package = deb(tmp_path, "some", [entry("./usr/x", content=b"x" * 70_001)])
    package.write_bytes(damage(package.read_bytes()))
    with pytest.raises((NotAPackageError, BrokenFileError), match=r"some_1_all\.deb|plain"):
        extracted(package, tmp_path / "root")


def test_package_of_zeros_is_refused_before_it_fills_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("debroot.reading._FREE", 1 << 20)
    with pytest.raises(BrokenFileError, match="200 times"):
        list(inflated("bomb", ".xz", io.BytesIO(packed := lzma.compress(bytes(8 << 20))), len(packed)))


def made(tmp_path, script=lambda root: None, returncode=0, lines=()):
    """A system of one package, whose dpkg does what `script` does."""

    def run(program):
        made.program = program
        for line in ("Unpacking some (1) ...", "Setting up some (1) ...", "Unpacking some (1) over ..."):
            program.on_line(line)
        script(program.root)
        return Ended(returncode, lines)

    package = deb(tmp_path, "some", [entry("./bin", tarfile.DIRTYPE), entry("./bin/sh", content=b"sh")])
    (tmp_path / "work").mkdir()
    counted = []
    hands, after = Hands(run), ["rm -f /etc/ssh/key"]
    owners = install(
        [package],
        tmp_path / "root",
        tmp_path / "work",
        hands,
        layout=Layout(links_usr=True),
        epoch=EPOCH,
        after=after,
        advance=counted.append,
    )
    assert counted == [package.stat().st_size // 2] * 2 + [0]
    return owners


def test_system_of_packages_has_links_into_usr_and_owners_of_scripts(tmp_path):
    def script(root):
        (root / "etc").mkdir()
        (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
        (root / "etc/group").write_text("shadow:x:42:\n")
        (tmp_path / "work/calls/calls").write_bytes(
            b"\0".join([b"chown", b"/", b"root:shadow", b"/bin/sh"]) + b"\0\0\0"
        )

    assert made(tmp_path, script) == {"usr/bin/sh": FileOwner(0, 42)}
    assert (tmp_path / "root/usr/bin/sh").read_bytes() == b"sh"
    assert (tmp_path / "root/bin").readlink().name == "bin"
    text = made.program.argv[2]
    assert text.index("--configure --pending") < text.index("rm -f /etc/ssh/key")
    assert made.program.environment["SOURCE_DATE_EPOCH"] == str(EPOCH)
    assert {target: read_only for _, target, read_only in made.program.binds}["/tmp/calls"] is False


def test_failing_dpkg_is_an_error_with_the_package_and_its_lines(tmp_path):
    with pytest.raises(DpkgError, match=r"cannot install bad:amd64\n    \| dpkg: error") as caught:
        made(tmp_path, returncode=1, lines=("dpkg: error processing package bad:amd64 (--configure):", "\x1b[31mred"))
    assert caught.value.packages == ("bad:amd64",)
    assert "\x1b" not in str(caught.value)


def test_file_in_the_place_of_a_folder_is_an_error(tmp_path):
    with pytest.raises(LinkInTheWayError, match="/etc/fstab of the Debian system cannot be written"):
        made(tmp_path, lambda root: (root / "etc").write_text(""))


# -- the tar


def tree(root, files):
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


def tar_of(root, owners=(), epoch=EPOCH):
    stream = io.BytesIO()
    write_tar(entries(root, dict(owners), written_files(root, "bookworm", DEBIAN)), stream, epoch)
    return stream.getvalue()


def test_tar_has_one_time_given_owners_and_nothing_of_the_machine(tmp_path):
    tree(tmp_path, {"usr/wall": b"w", "etc/hostname": b"h", "var/log/x": b"l", "usr/share/man/man1/ls.1": b"m"})
    os.link(tmp_path / "usr/wall", tmp_path / "usr/zall")
    (tmp_path / "bin").symlink_to("usr/bin")
    with tarfile.open(fileobj=io.BytesIO(tar_of(tmp_path, {"usr/wall": FileOwner(0, 5)}))) as tar:
        found = {item.name: item for item in tar}
        assert {item.mtime for item in found.values()} == {EPOCH}
        assert {item.uname for item in found.values()} == {""}
        assert not {"etc/hostname", "var/log/x", "usr/share/man/man1/ls.1"} & set(found)
        assert (found["usr/wall"].gid, found["usr/zall"].linkname, found["bin"].linkname) == (5, "usr/wall", "usr/bin")
        assert tar.extractfile("etc/dpkg/dpkg.cfg.d/debroot").read().decode() == DPKG_RULES


def test_tar_does_not_depend_on_the_order_or_times_of_files(tmp_path):
    files = {f"usr/{number}": bytes(number) for number in range(20)}
    tree(tmp_path / "a", files)
    tree(tmp_path / "b", dict(reversed(files.items())))
    os.utime(tmp_path / "b/usr/3", (1, 1))
    assert tar_of(tmp_path / "a") == tar_of(tmp_path / "b")


@pytest.mark.parametrize(
    ("spoil", "kind", "message"),
    [
        (lambda root: os.mkfifo(root / "pipe"), TreeError, "cannot have: /pipe"),
        (lambda root: (root / os.fsdecode(b"\xff")).touch(), TreeError, "not UTF-8"),
        (lambda root: os.truncate(root / "usr/x", 3 << 40), TreeError, "more than 64 GiB"),
        (lambda root: root.joinpath(*"d" * 300).mkdir(parents=True), TooDeepError, "256 folders deep"),
    ],
    ids=["fifo", "name", "sparse", "deep"],
)
def test_tree_that_no_archive_can_have_is_refused(tmp_path, spoil, kind, message):
    tree(tmp_path, {"usr/x": b""})
    spoil(tmp_path)
    with pytest.raises(kind, match=message):
        tar_of(tmp_path)


def test_private_keys_that_no_package_brings_are_found(tmp_path):
    key = b"-----BEGIN RSA PRIVATE KEY-----\n"
    tree(tmp_path, {"etc/made.key": key, "etc/theirs.key": key, "etc/known.key": key})
    tree(tmp_path, {"var/lib/dpkg/info/some.list": b"/.\n/etc/theirs.key\n"})
    (tmp_path / "srv").symlink_to("/etc")
    assert private_keys(tmp_path, "etc/known.key".__eq__) == ["etc/made.key"]
