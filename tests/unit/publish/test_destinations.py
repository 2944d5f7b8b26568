"""Forms that `--to` takes or refuses, and the files of a shared folder of images."""

import concurrent.futures
import contextlib
import dataclasses
import errno
import io
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.host import process
from graphcrate.host.disk import space
from graphcrate.host.process import Completed
from graphcrate.model.errors import DiskFullError, HostError, NetworkError, UsageError
from graphcrate.oci import reference
from graphcrate.publish import publication
from graphcrate.publish.destinations import bundle
from graphcrate.publish.destinations import folder as destination
from graphcrate.publish.destinations.destination import Destination, Published
from graphcrate.publish.destinations.folder import SharedFolder
from graphcrate.publish.destinations.oras import OrasRegistry
from graphcrate.publish.destinations.parse import vpc_reference
from graphcrate.publish.destinations.registry import Registry
from graphcrate.publish.policy import PublishRequest
from graphcrate.publish.publication import DESTINATIONS, OPTIONS, parse_destination
from tests import ROOT
from tests.made import refused
from tests.unit import small_layouts, tars

HOME = {"HOME": "/home/me"}
ACR = "registry.cn-hangzhou.aliyuncs.com"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("registry.example/team", "registry.example/team/pyg:2.0"),
        ("registry.example", "registry.example/pyg:2.0"),
        ("localhost/a", "localhost/a/pyg:2.0"),
        ("localhost:5000", "localhost:5000/pyg:2.0"),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b/pyg:2.0"),
        ("registry.example/team/mine:v1", "registry.example/team/mine:v1"),
        ("docker://registry.example/team", "registry.example/team/pyg:2.0"),
        ("index.docker.io/me", "docker.io/me/pyg:2.0"),
        ("oras://registry.example/team", "oras registry.example/team/pyg:2.0"),
        ("oras://localhost:5000/a/pyg:1", "oras localhost:5000/a/pyg:1"),
        ("acr:cn-hangzhou/ns", f"{ACR}/ns/pyg:2.0"),
        ("acr:cn-hangzhou/ns/pyg:1.2", f"{ACR}/ns/pyg:1.2"),
        ("acr:lab@us-west-1/ns/deep", "lab-registry.us-west-1.cr.aliyuncs.com/ns/deep/pyg:2.0"),
        ("/shared/images", Path("/shared/images")),
        ("../images.d/x", Path("../images.d/x")),
        (".", Path()),
        ("~/images", Path("/home/me/images")),
        ("~", Path("/home/me")),
        ("file:images", Path("images")),
        ("file:/shared/images", Path("/shared/images")),
        ("file:///shared/images", Path("/shared/images")),
    ],
)
def test_destination_text_gives_folder_or_reference(text, wanted):
    found = parse_destination(text, HOME)
    if isinstance(found, SharedFolder):
        assert found.path == wanted
    else:
        assert f"{'oras ' if type(found) is OrasRegistry else ''}{found.reference('pyg', '2.0')}" == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no host"),
        ("images", "./images"),
        ("team/pyg", "docker.io/team/pyg"),
        ("pyg.sif", "looks like a file"),
        ("/shared/pyg.sif", "a folder is wanted"),
        ("bundle:pyg", "not a port"),
        ("file:", "path is missing"),
        ("~other/images", "other users"),
        ("docker.io", "docker.io/USER"),
        ("docker.io/pyg:1.2", "docker.io/USER"),
        ("https://registry.example/team", "registry.example/team"),
        ("oras:registry.example/team", "two slashes"),
        ("oras://team/pyg", "host of a registry: 'team'"),
        ("registry.example/team:", "tag is missing"),
        ("registry.example/Team", "not a repository"),
        ("registry.example/team/pyg:a b", "not a tag"),
        ("registry.example/team@sha256:" + 64 * "0", "a digest says"),
        ("registry.example:port/team", "not a port"),
        *((f"acr:{text}", "REGION/NAMESPACE") for text in ("hangzhou/ns", "cn-hangzhou", "@cn-hangzhou/ns")),
        ("acr:cn-hangzhou/ns:1", "a tag belongs to a repository"),
        ("acr:cn-hangzhou/ns/deep", "Personal Edition"),
        ("acr:crpi-a1@cn-hangzhou/ns/deep", "Personal Edition"),
        ("acr:cn-hangzhou/ns/deep/pyg:1", "Personal Edition"),
        ("acr:cn-hangzhou/NS", "not a repository"),
    ],
)
def test_invalid_destination_is_refused_with_the_forms(text, why):
    with refused(UsageError, why, "acr:cn-hangzhou/NAMESPACE"):
        parse_destination(text, HOME)


def test_destination_with_tilde_and_no_home_is_a_usage_error():
    with pytest.raises(UsageError, match="HOME is not set"):
        parse_destination("~/images", {})


def test_acr_destination_gives_its_vpc_address():
    for text, inside in (
        ("acr:cn-hangzhou/ns", "registry-vpc.cn-hangzhou.aliyuncs.com"),
        ("acr:lab@cn-hangzhou/ns", "lab-registry-vpc.cn-hangzhou.cr.aliyuncs.com"),
        ("acr:crpi-a1b2@cn-hangzhou/ns", "crpi-a1b2-vpc.cn-hangzhou.personal.cr.aliyuncs.com"),
    ):
        for way in (text, f"{parse_destination(text, HOME).host}/ns"):
            assert str(vpc_reference(parse_destination(way, HOME).reference("pyg", "1"))) == f"{inside}/ns/pyg:1"
    for host in ("registry.example", "registry-vpc.cn-hangzhou.aliyuncs.com", "aliyuncs.com"):
        assert vpc_reference(reference.parse(f"{host}/ns/pyg:1")) is None


@given(st.text(max_size=40) | st.from_regex(r"(acr|oras|file|docker):(//)?[a-z.@:/-]{0,30}", fullmatch=True))
def test_random_destination_text_is_parsed_or_a_usage_error(text):
    try:
        found = parse_destination(text, HOME)
    except UsageError:
        return
    if isinstance(found, Registry):
        assert found.reference("pyg", "1").host == found.host


def test_destination_options_equal_those_of_publish():
    assert {option for kind in DESTINATIONS for option in kind.options} == OPTIONS.keys()
    assert DESTINATIONS[-1] is Registry, "it takes whatever has nobody else's form"


def test_destination_class_with_a_row_is_enough_to_publish(monkeypatch):
    """As S3 would be: nothing else of publish knows which destinations there are."""

    @dataclass(frozen=True)
    class Bucket(Destination):
        name: str
        title = "a bucket"
        forms = "    s3://BUCKET                       an archive in a bucket"
        options = frozenset({"--replace"})
        receiver = "a bucket"

        @classmethod
        def parse(cls, text, environment):
            return cls(text.removeprefix("s3://")) if text.startswith("s3://") else None

        def publish(self, image, request, ctx):
            return Published(name="pyg", tag="1", reference=f"s3://{self.name}/pyg-1", digest="sha256:1")

        def check(self):
            pass

        def require_answer(self, name, tag, request, ctx):
            pass

        def plan(self, image, request, ctx):
            return ()

    monkeypatch.setattr(publication, "DESTINATIONS", (Bucket, *DESTINATIONS))
    assert parse_destination("s3://images", {}) == Bucket("images")
    request = PublishRequest(ref="pyg:1", key=Path("cosign.key"))
    context = SimpleNamespace(environment={})
    with refused(UsageError, "--key does not apply to s3://images", "leave --key out"):
        publication.destination_of(request, context, "s3://images")
    assert publication.destination_of(PublishRequest(ref="pyg:1", replace=True), context, "s3://images").is_own is False


# A shared folder of images: whole files, checksums, the newest by name, and nothing half-written


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "shared" / "images"


@pytest.fixture
def put(tmp_path, folder, progress):
    """A function that publishes these bytes as pyg:TAG."""

    def run(data, tag="1", suffix=".sif", **more):
        source = tmp_path / f"any{hash(data)}"
        source.write_bytes(data)
        target, latest, sha256 = folder / f"pyg-{tag}{suffix}", folder / f"pyg{suffix}", tars.sha256(data)[7:]
        return destination.publish(source, sha256, target, latest, progress=progress, **more)

    return run


ONE, TWO = b"1" * 100_000, b"2" * 100_000


def holds(folder, tags, newest):
    """Return whether files of these tags and bytes are there, with their checksums and the link, and nothing else."""
    wanted = {"pyg.sif": tags[newest]} | {f"pyg-{tag}.sif": data for tag, data in tags.items()}
    for tag, data in tags.items():
        wanted[f"pyg-{tag}.sif.sha256"] = f"{tars.sha256(data)[7:]}  pyg-{tag}.sif\n".encode()
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return found == wanted and str((folder / "pyg.sif").readlink()) == f"pyg-{newest}.sif"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_shared_folder_gets_file_checksum_and_link_once(put, folder):
    assert put(ONE, "2.3-cu118")
    assert holds(folder, {"2.3-cu118": ONE}, "2.3-cu118")
    file = folder / "pyg-2.3-cu118.sif"
    before = file.stat()
    file.with_name(f"{file.name}.sha256").write_text("wrong")
    put(TWO, "new")
    put(ONE, "2.3-cu118")  # the newest is what was published last
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert holds(folder, {"2.3-cu118": ONE, "new": TWO}, "2.3-cu118")


def test_file_that_was_made_in_the_shared_folder_is_not_copied(folder, progress):
    (made := folder / ".made").parent.mkdir(parents=True)
    made.write_bytes(ONE)
    inode, sha256 = made.stat().st_ino, tars.sha256(ONE)[7:]
    destination.publish(made, sha256, folder / "pyg-1.sif", folder / "pyg.sif", progress=progress)
    made.unlink(missing_ok=True)
    assert holds(folder, {"1": ONE}, "1")
    assert (folder / "pyg-1.sif").stat().st_ino == inode


@pytest.mark.parametrize(
    ("umask", "sif", "sqsh", "notes"), [(0o022, 0o755, 0o644, 0), (0o027, 0o750, 0o640, 0), (0o077, 0o700, 0o600, 2)]
)
def test_shared_folder_obeys_umask_and_notes_private_files(put, folder, progress, umask, sif, sqsh, notes):
    before = os.umask(umask)
    try:
        put(ONE)
        put(TWO, suffix=".sqsh")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir() if not path.is_symlink()}
    assert modes == {"pyg-1.sif": sif, "pyg-1.sqsh": sqsh, "pyg-1.sif.sha256": sqsh, "pyg-1.sqsh.sha256": sqsh}
    assert [(f"chmod -R g+rX {folder} " in note) for note in progress.lines] == [True] * notes


@pytest.mark.parametrize(
    ("points", "is_named"),
    [
        ({"/": "ext4", "{shared}": "lustre"}, True),
        ({"/": "lustre"}, True),
        ({"/": "lustre", "{shared}": "nfs4"}, False),
        ({"/": "ext4", "{shared}/imag": "lustre"}, False),
        ({}, False),
    ],
)
def test_folder_on_lustre_is_named_with_the_stripes_for_it(tmp_path, ctx, progress, monkeypatch, points, is_named):
    seen = {point.format(shared=tmp_path): kind for point, kind in points.items()}
    monkeypatch.setattr(space.namespaces, "mount_points", lambda: seen)
    (tmp_path / "images").mkdir()
    SharedFolder(path=tmp_path / "images" / "our own")._note_place(ctx)
    assert [f"-S 4M '{tmp_path}/images/our own' spreads" in line for line in progress.lines[1:]] == [True] * is_named


@pytest.mark.parametrize("other", [TWO, TWO + b"2"])
def test_shared_folder_replaces_another_file_only_with_replace(put, folder, other):
    put(ONE)
    with refused(UsageError, "another file", "--replace"):
        put(other)
    assert holds(folder, {"1": ONE}, "1")
    put(other, replace=True)
    assert holds(folder, {"1": other}, "1")


def test_shared_folder_without_space_is_refused_before_copying(put, folder, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(DiskFullError, match=r"1\.0 kB are free"):
        put(ONE)
    assert names(folder) == []
    (folder / "pyg.sif").write_bytes(b"mine")
    with pytest.raises(HostError, match="exists and is not a link"):
        put(ONE)
    assert names(folder) == ["pyg.sif"]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EIO, HostError)])
@pytest.mark.parametrize("replace", [False, True])
def test_shared_folder_error_at_fsync_leaves_nothing(put, folder, monkeypatch, number, kind, replace):
    put(ONE)

    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(kind):
        put(TWO, "1" if replace else "2", replace=replace)
    assert holds(folder, {"1": ONE}, "1")


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EIO, HostError)])
def test_shared_folder_whose_link_cannot_be_made_is_an_error(put, folder, monkeypatch, number, kind):
    """A disk that fails is not a disk without links: the newest would stay the one before, unnoticed."""
    put(ONE)
    monkeypatch.setattr(Path, "symlink_to", mock.Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(kind):
        put(TWO, "2")
    assert str((folder / "pyg.sif").readlink()) == "pyg-1.sif"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_replaced_file_has_no_checksum_rather_than_the_old_ones(put, folder, monkeypatch, number):
    put(ONE)
    monkeypatch.setattr(destination, "write", mock.Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises((HostError, DiskFullError)):
        put(TWO, replace=True)
    assert ((folder / "pyg-1.sif").read_bytes(), names(folder)) == (TWO, ["pyg-1.sif", "pyg.sif"])


def test_checksum_of_a_file_that_another_publisher_replaced_is_not_written(put, folder):
    put(ONE)
    file, checksum = folder / "pyg-1.sif", folder / "pyg-1.sif.sha256"
    there, before = destination._identity(file), checksum.read_text()
    (folder / "new").write_bytes(TWO)
    (folder / "new").replace(file)
    destination._write_beside(checksum, b"of the one before", file, there)
    assert checksum.read_text() == before


def test_link_in_the_place_of_a_shared_file_is_another_file(put, folder, tmp_path):
    """It may be changed behind the checksum, by the owner of its target."""
    (tmp_path / "elsewhere").write_bytes(ONE)
    folder.mkdir(parents=True)
    (folder / "pyg-1.sif").symlink_to(tmp_path / "elsewhere")
    with refused(UsageError, "another file", "--replace"):
        put(ONE)
    put(ONE, replace=True)
    assert holds(folder, {"1": ONE}, "1")
    assert not (folder / "pyg-1.sif").is_symlink()


def test_shared_folder_without_links_gets_file_and_checksum(put, folder, progress, monkeypatch):
    for name in ("link", "symlink"):
        monkeypatch.setattr(os, name, mock.Mock(side_effect=OSError(errno.EPERM, "Operation not permitted")))
    assert not put(ONE)
    assert "takes no links" in progress.lines[0]
    assert names(folder) == ["pyg-1.sif", "pyg-1.sif.sha256"]
    with pytest.raises(UsageError, match="another file"):
        put(TWO)


def test_shared_folder_drops_old_partial_files_only(put, folder):
    folder.mkdir(parents=True)
    old, young, foreign = ".pyg-1.sif.0123456789abcdef.part", ".pyg-1.sif.aaaaaaaaaaaaaaaa.part", ".notes.part"
    for name in (old, young, foreign):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, None if name == young else (1, 1))
    put(ONE)
    assert set(names(folder)) == {young, foreign, "pyg-1.sif", "pyg-1.sif.sha256", "pyg.sif"}


def test_concurrent_publishers_leave_the_first_file_with_its_checksum(put, folder):
    def publish(data):
        with contextlib.suppress(UsageError):
            put(data)
            return data

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = set(pool.map(publish, [letter * 300_000 for letter in (b"a", b"b", b"c", b"d")]))
    data = (folder / "pyg-1.sif").read_bytes()
    assert done == {None, data}
    assert holds(folder, {"1": data}, "1")


# A bundle: an image with the program that runs it


PINNED = """\
# by uv
annotated==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via typer
colorama==0.4 ; sys_platform == 'win32' \\
    --hash=sha256:cc
typing==4 ; python_full_version < '3.13' \\
    --hash=sha256:dd
"""


@pytest.mark.parametrize(("python", "more"), [("3.12", ["typing==4 --hash=sha256:dd"]), ("3.13", [])])
def test_bundle_wants_the_packages_of_a_linux_with_that_python(python, more):
    wanted = bundle.for_python(PINNED, python, "x86_64")
    assert list(wanted) == ["annotated==1.0 --hash=sha256:aa --hash=sha256:bb", *more]


def test_bundle_of_an_installed_package_is_refused():
    with refused(UsageError, "an installed package has none", "--as oci-archive"):
        bundle.require_program(SimpleNamespace(is_checkout=False))


def test_bundle_has_all_that_a_clone_runs_on_and_nothing_that_lies_about():
    ours = bundle._program(ROOT)
    assert {"build.py", "Makefile", "tools/prepare", "graphcrate/cli/start.py", "recipes/pyg.toml"} <= ours.keys()
    assert {name for name in ours if "__pycache__" in name or name.startswith((".", "tests", "dist"))} == set()


@pytest.fixture
def bundled(tmp_path, monkeypatch, ctx):
    """A function that bundles a small image with a small program; `pip` answers with this code."""

    def run(code=0):
        def pip(argv, **options):
            folder = next(word for word in argv if word.startswith("--dest=")).removeprefix("--dest=")
            (Path(folder) / "a-1.whl").touch()
            return Completed(code, ("ERROR: no answer",) if code else ())

        monkeypatch.setattr(process, "run", pip)
        (root := tmp_path / "root").mkdir()
        (root / "requirements.txt").write_text(PINNED)
        (root / "build.py").write_bytes(b"run")
        (root / "build.py").chmod(0o755)
        layout = small_layouts.layout(tmp_path / "image", [tars.file("a")])
        (tmp_path / "image" / "report.json").write_text("{}")
        (tmp_path / "image" / "pyg.sif").write_bytes(b"sif")
        image = SimpleNamespace(layout=layout, report=SimpleNamespace(name="pyg", tag="1"))
        bundle.write(tmp_path / "b.tar", image, tmp_path / "image" / "pyg.sif", dataclasses.replace(ctx, root=root))

    return run


def test_bundle_has_program_wheels_image_and_sif(bundled, tmp_path):
    bundled()
    with tarfile.open(tmp_path / "b.tar") as archive:
        modes = {member.name.removeprefix("graphcrate/"): member.mode for member in archive if member.isfile()}
    assert modes["build.py"] == 0o755
    assert {"tools/wheels/a-1.whl", "dist/pyg/1/report.json", "dist/pyg/1/pyg.sif", "dist/pyg/1/oci/index.json"} <= (
        modes.keys()
    )


def test_bundle_whose_packages_are_not_fetched_is_a_network_error_and_no_file(bundled, tmp_path):
    with refused(NetworkError, "for Python 3.11", "PIP_INDEX_URL"):
        bundled(1)
    assert not (tmp_path / "b.tar").exists()


def test_file_that_becomes_shorter_while_a_bundle_is_written_is_an_error(tmp_path, monkeypatch):
    (path := tmp_path / "a.whl").write_bytes(b"wheel")
    real = bundle.header

    def cutting(*args, **rest):
        path.write_bytes(b"wh")
        return real(*args, **rest)

    monkeypatch.setattr(bundle, "header", cutting)
    with pytest.raises(HostError, match=r"a\.whl became shorter"):
        bundle._file(io.BytesIO(), "graphcrate/a.whl", path, 0)
