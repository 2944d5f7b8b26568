"""Squashfs files that we write, read by unsquashfs: trees of all shapes come back as the layers say."""

import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.host.disk.trees import remove_tree
from sifsquash.values import Compression
from tests.engines.workplace import call, tree, without_rights
from tests.unit.artifacts.test_early import LOAD, RX, elf
from tests.unit.artifacts.test_merged import squash
from tests.unit.small_layouts import layout
from tests.unit.tars import entry, file, folder, hardlink, symlink

pytestmark = pytest.mark.engine("unsquashfs", "root")

names = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=60).filter(
    lambda name: name not in (".", "..") and not name.startswith(".wh.") and len(name.encode()) <= 255
) | st.sampled_from(["x" * 255, "n\udcff", "a.pyc", "b.pyc", "c.so"])
owners = st.fixed_dictionaries({"uid": st.sampled_from([0, 1, 65534, 1 << 31]), "gid": st.integers(0, 70_000)})
contents = st.sampled_from([0, 1, 100, 4095, 262_143, 262_144, 262_145, 600_000]).flatmap(
    lambda size: st.sampled_from(
        [bytes(size), (b"text " * (size // 5 + 1))[:size], (bytes(range(256)) * (size // 256 + 1))[:size]]
    )
) | st.just(elf((LOAD, RX, 0, 300_000), size=600_000))  # whose first blocks are not compressed
attributes = st.dictionaries(
    st.sampled_from(["user.a", "user.bb", "trusted.c"]), st.text("ab", max_size=300), max_size=2
)


@st.composite
def trees(draw):
    """Entries of one layer: folders, and below them everything else."""
    made, paths, files = [folder("./", mode=0o755)], [""], []
    for number, name in enumerate(draw(st.lists(names, min_size=1, max_size=20, unique=True))):
        kind = draw(st.sampled_from(["folder", "file", "file", "link", "hard", "device", "pipe"]))
        path = draw(st.sampled_from(paths)) + name
        more = {"mode": draw(st.sampled_from([0o644, 0o4755, 0o1777, 0])), "mtime": number, **draw(owners)}
        pax = {f"SCHILY.xattr.{key}": value for key, value in draw(attributes).items()}
        if kind == "folder":
            pax = {key: value for key, value in pax.items() if "user" not in key}
            made.append(folder(path, **more, pax_headers=pax))
            paths.append(f"{path}/")
        elif kind == "link":
            made.append(symlink(path, draw(names) * draw(st.integers(1, 15)), **more))
        elif kind == "hard" and files:
            made.append(hardlink(path, draw(st.sampled_from(files))))
        elif kind == "device":
            device = {"devmajor": draw(st.integers(6, 4095)), "devminor": draw(st.integers(0, 1 << 19))}
            made.append(entry(path, draw(st.sampled_from([tarfile.CHRTYPE, tarfile.BLKTYPE])), **device, **more))
        elif kind == "pipe":
            made.append(entry(path, tarfile.FIFOTYPE, **more))
        else:
            made.append(file(path, draw(contents), **more, pax_headers=pax))
            files.append(path)
    return made


def compared(place, layers, compression):
    """The tree that unsquashfs unpacks is that of the layers."""
    written = layout(place, *layers)
    path, _ = squash(place, written, compression)
    unpack(written.layer_blobs, place / "wanted")
    call("unsquashfs", "-no-progress", "-quiet", "-offset", "99", "-dest", place / "found", path)
    assert without_rights(tree(place / "found")) == tree(place / "wanted")
    remove_tree(place)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(), st.sampled_from(list(Compression)))
def test_unsquashfs_finds_what_was_written(tmp_path_factory, entries, compression):
    compared(tmp_path_factory.mktemp("tree"), [entries], compression)


@pytest.mark.slow
def test_more_files_than_16_bits_count_in_one_folder(tmp_path):
    """Of pipes, which have an inode each and no content, and a file after each hundred of them."""
    names = [f"many/{number:05}-{'n' * (number % 60)}" for number in range(66_000)]
    many = [entry(name, tarfile.FIFOTYPE) if number % 100 else file(name, b"%d" % number)
            for number, name in enumerate(names)]  # fmt: skip
    compared(tmp_path / "image", [many], Compression.GZIP)


@pytest.mark.slow
def test_a_file_of_five_gigabytes_that_is_nearly_all_hole(tmp_path):
    size = 5 * 10**9
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "large"}
    sparse["GNU.sparse.realsize"] = str(size)
    data = f"2\n0\n5\n{size - 5}\n5\n".encode().ljust(512, b"\0") + b"beginend.."
    written = layout(tmp_path, [file("large", data, pax_headers=sparse)])
    path, _ = squash(tmp_path, written, Compression.ZSTD)
    assert path.stat().st_size < 1 << 20
    call("unsquashfs", "-no-progress", "-quiet", "-offset", "99", "-dest", tmp_path / "found", path)
    large = tmp_path / "found" / "large"
    assert (large.stat().st_size, large.stat().st_blocks < 1 << 13) == (size, True)
    with large.open("rb") as stream:
        assert stream.read(6) == b"begin\0"
        stream.seek(size - 6)
        assert stream.read() == b"\0end.."
