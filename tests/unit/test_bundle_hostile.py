"""Bundles that were cut off, altered or made to do harm: none of it gets a name, and the member is named."""

import io
import json
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcrate.destinations import unbundle
from graphcrate.errors import IntegrityError, UsageError
from graphcrate.host.cache import remove_tree
from graphcrate.oci.layout import is_whole
from tests.unit import tars
from tests.unit.bundles import TAG, leftovers, workplaces, write


@pytest.fixture
def there(tmp_path):
    with workplaces(tmp_path) as make:
        yield make


@pytest.fixture
def path(there, tmp_path):
    """A bundle."""
    write(there("first"), tmp_path / "torch.bundle")
    return tmp_path / "torch.bundle"


def refused(path, place):
    """The error that taking it in ends with; nothing of an image is there then."""
    with pytest.raises(IntegrityError) as caught:
        unbundle.take_in(path, place.root / "dist", place)
    assert not (place.root / "dist" / "torch" / TAG).exists()
    assert leftovers(place) == []
    assert not list((place.root / "cache").glob("resolutions/*"))
    assert not (place.root / "cache" / "compiled").exists()
    return str(caught.value)


@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.95])
def test_a_bundle_that_is_cut_off_names_the_member(path, there, part):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part) // 512 * 512 + 100])
    said = refused(path, there("second"))
    assert any(f": {name}: " in said for name in listed_before(data)), said


def listed_before(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getnames()


def test_a_bundle_that_ends_between_two_members_names_the_next(path, there):
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    path.write_bytes(path.read_bytes()[: members[5].offset])
    assert members[5].name in refused(path, there("second"))


def test_one_altered_byte_names_the_member(path, there):
    data = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    for number, member in enumerate(members[1:]):
        altered = bytearray(data)
        altered[member.offset_data + member.size // 2] ^= 1
        path.write_bytes(altered)
        assert f": {member.name}: it has sha256" in refused(path, there(f"place {number}"))


def rebuilt(path, change):
    """The bundle written anew, its list and members as `change(told, members)` leaves them."""
    with tarfile.open(path) as archive:
        members = [(member, archive.extractfile(member).read()) for member in archive.getmembers()]
    told = json.loads(members[0][1])
    told, members = change(told, members[1:])
    data = json.dumps(told).encode() if isinstance(told, dict) else told
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        first = tarfile.TarInfo("bundle.json")
        first.size = len(data)
        archive.addfile(first, io.BytesIO(data))
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))


def renamed(old, new):
    def change(told, members):
        for one in told["members"]:
            if one["path"].startswith(old):
                one["path"] = new
                break
        for member, _ in members:
            if member.name.startswith(old):
                member.name = new
                break
        return told, members

    return change


@pytest.mark.parametrize(
    "name",
    [
        "image/passes/../../../../../escaped",
        "/etc/escaped",
        "image/../escaped",
        "files/" + 64 * "0" + "/x.whl",
        "files/short/x.whl",
        "image/passes/.hidden",
        "image/passes/a/b.json",
        "image/other.json",
        "compiled/" + 64 * "0" + "/run.sh",
        "image/oci/blobs/sha256/" + 64 * "0",
        "blobs/" + 64 * "0",
        "image/passes/",
        "",
    ],
)
def test_names_that_no_bundle_has_are_refused(path, there, tmp_path, name):
    rebuilt(path, renamed("image/passes/", name))
    refused(path, there("second"))
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_member_that_is_no_file_is_refused(path, there, kind):
    def change(told, members):
        member = next(member for member, _ in members if member.name == "image/audit.json")
        member.type, member.linkname = kind, "/etc/passwd"
        return told, members

    rebuilt(path, change)
    assert "image/audit.json" in refused(path, there("second"))


@pytest.mark.parametrize("flag", [b"1", b"2", b"3", b"6"])
def test_a_member_that_says_it_is_a_link_and_has_its_bytes_all_the_same_is_refused(path, there, flag):
    data = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        at = archive.getmember("image/audit.json").offset
    data[at + 156 : at + 157] = flag
    data[at + 148 : at + 156] = b" " * 8
    data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    path.write_bytes(data)
    assert "image/audit.json" in refused(path, there("second"))


def without(start):
    def change(told, members):
        told["members"] = [one for one in told["members"] if not one["path"].startswith(start)]
        return told, [(member, data) for member, data in members if not member.name.startswith(start)]

    return change


def twice(told, members):
    told["members"].append(told["members"][0])
    return told, [*members, members[0]]


def unlisted(told, members):
    extra = tarfile.TarInfo("image/extra")
    return told, [*members, (extra, b"more")]


def swapped(told, members):
    return told, [members[1], members[0], *members[2:]]


def other_digest(told, members):
    return {**told, "digest": "sha256:" + 64 * "0"}, members


def leaving(told, members):
    return {**told, "name": "../torch"}, members


def negative(told, members):
    told["members"][3]["size"] = -1
    return told, members


@pytest.mark.parametrize(
    "change",
    [
        without("image/lock.json"),
        without("image/report.json"),
        without("image/oci/index.json"),
        without("image/oci/blobs"),
        twice,
        unlisted,
        swapped,
        other_digest,
        leaving,
        negative,
        lambda told, members: (b"{not json", members),
        lambda told, members: (b'{"format": 1, "name": "\x80"}', members),
        lambda told, members: ({"format": 1}, members),
    ],
)
def test_a_list_that_is_wrong_is_refused(path, there, change):
    rebuilt(path, change)
    refused(path, there("second"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A bundle, a workplace to take it in, and where to write another one."""
    folder = tmp_path_factory.mktemp("small")
    with workplaces(folder) as make:
        write(make("first"), folder / "x.bundle")
        yield folder / "x.bundle", make("second"), folder / "altered.bundle"


CHANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1023), st.integers(0, 255)), min_size=1, max_size=3)


@given(changes=CHANGES, cut=st.booleans())
@settings(max_examples=150)
def test_no_altered_bytes_do_anything_but_end_it(small, changes, cut):
    """Numbers in headers, names, the list: whatever is changed is refused, or it was padding."""
    whole, place, path = small
    content = whole.read_bytes()
    altered = bytearray(content)
    headers = [at for at in range(0, len(content), 512) if content[at + 257 : at + 262] == b"ustar"]
    for header, offset, value in changes:
        altered[min(headers[header % len(headers)] + offset, len(content) - 1)] = value
    path.write_bytes(altered[: len(altered) // (2 if cut else 1)])
    try:
        unbundle.take_in(path, place.root / "dist", place)
    except (IntegrityError, UsageError):
        assert not (place.root / "dist" / "torch" / TAG).exists()
    else:
        assert is_whole(place.root / "dist" / "torch" / TAG / "oci", json.loads(told(content))["digest"])
        remove_tree(place.root / "dist")
    remove_tree(place.root / "cache" / "files")
    assert leftovers(place) == []


def told(content):
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return archive.extractfile("bundle.json").read()


def test_a_newer_format_is_named(path, there):
    rebuilt(path, lambda told, members: ({**told, "format": 2}, members))
    with pytest.raises(UsageError, match="format 2"):
        unbundle.take_in(path, there("second").root / "dist", there("second"))


@pytest.mark.parametrize("content", [b"", b"x", b"\x1f\x8b" + bytes(600), bytes(2048)])
def test_other_files_are_no_bundles(there, tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UsageError, match="no bundle"):
        unbundle.take_in(tmp_path / "x", tmp_path / "dist", there("second"))


def test_a_tar_of_something_else_is_no_bundle(there, tmp_path):
    (tmp_path / "x").write_bytes(tars.tar([tars.file("manifest.json")]))
    with pytest.raises(UsageError, match="no bundle"):
        unbundle.take_in(tmp_path / "x", tmp_path / "dist", there("second"))


def test_no_file_at_all_is_said(there, tmp_path):
    with pytest.raises(UsageError, match="there is no file"):
        unbundle.take_in(tmp_path / "none", tmp_path / "dist", there("second"))
