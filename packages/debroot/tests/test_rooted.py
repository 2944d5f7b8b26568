"""Paths of a tree as a process inside sees them; the kernel itself is asked where it can be."""

import os
import stat

import pytest

from debroot import rooted


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "place" / "root"
    for folder in ("etc", "usr/bin"):
        (root / folder).mkdir(parents=True)
    (root / "usr/bin/python3").write_bytes(b"program")
    for link, target in {
        "bin": "usr/bin",
        "usr/bin/python": "python3",
        "etc/absolute": "/usr/bin",
        "etc/above": "../../../../usr",
        "circle": "circle",
        "usr/nowhere": "absent/x",
        "usr/slash": "bin/",
    }.items():
        (root / link).symlink_to(target)
    return root


@pytest.mark.parametrize(
    ("path", "follow", "reached"),
    [
        ("usr/bin/python3", False, "usr/bin/python3"),
        ("/usr//./bin/../bin/python3", False, "usr/bin/python3"),
        ("bin/python3", False, "usr/bin/python3"),
        ("bin/python", False, "usr/bin/python"),
        ("bin/python", True, "usr/bin/python3"),
        ("bin", False, "bin"),
        ("etc/absolute/python3", False, "usr/bin/python3"),
        ("etc/above/bin", False, "usr/bin"),  # above the root is the root
        ("../../etc", False, "etc"),
        ("usr/slash/python3", False, "usr/bin/python3"),
        ("usr/bin/absent/deep", False, "usr/bin/absent/deep"),
        ("usr/nowhere", True, "usr/absent/x"),
        ("usr/bin/python3/below", False, None),  # a file where a folder is needed
        ("bin/python/below", False, None),
        ("circle/x", False, None),
        ("circle", True, None),
    ],
)
def test_path_is_where_a_process_inside_the_tree_finds_it(root, path, follow, reached):
    assert rooted.host_path(root, path, follow=follow) == (None if reached is None else root / reached)


@pytest.mark.parametrize("links", [1, 39, 40, 41, 60])
def test_as_many_links_are_followed_as_the_kernel_follows(tmp_path, links):
    (tmp_path / "0").write_bytes(b"end")
    for number in range(1, links + 1):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    try:
        of_kernel = (tmp_path / str(links)).read_bytes()
    except OSError:
        of_kernel = None
    assert rooted.read_bytes(tmp_path, str(links)) == of_kernel
    assert (of_kernel is None) == (links > 40)


def test_plain_files_alone_are_read(root):
    os.mkfifo(root / "pipe")
    assert rooted.read_bytes(root, "bin/python") == b"program"
    for path in ("usr/bin", "pipe", "absent", "usr/bin/python3/below", "circle"):
        assert rooted.read_bytes(root, path) is None


def test_written_file_takes_the_place_of_a_link_and_its_folders_can_be_read_by_all(root, tmp_path):
    (tmp_path / "shadow").write_text("secret")
    (root / "etc/fstab").symlink_to(tmp_path / "shadow")
    before = os.umask(0o077)
    rooted.write_text(root, "etc/fstab", "none")
    rooted.write_text(root, "etc/absolute/new/deep/x", "new", mode=0o755)
    os.umask(before)
    assert ((root / "etc/fstab").read_text(), (tmp_path / "shadow").read_text()) == ("none", "secret")
    modes = [stat.S_IMODE((root / path).stat().st_mode) for path in ("etc/fstab", "usr/bin/new", "usr/bin/new/deep/x")]
    assert modes == [0o644, 0o755, 0o755]
    with pytest.raises(NotADirectoryError, match="a file where a folder is needed"):
        rooted.write_text(root, "usr/bin/python3/x", "new")
