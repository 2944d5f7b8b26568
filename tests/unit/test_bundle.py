"""Bundles: what is in them, the same bytes each time, and taking in only what is whole and as it was written."""

import concurrent.futures
import errno
import hashlib
import json
import os
import tarfile

import msgspec
import pytest

from graphcrate import wheelhouse
from graphcrate.bases import pulled
from graphcrate.destinations import bundle, unbundle
from graphcrate.errors import DiskFullError, IntegrityError, UsageError
from graphcrate.host.progress import Silent
from graphcrate.host.workplace import Workplace
from graphcrate.model.lock import DebianBase, RegistryBase, decode_lock, encode
from graphcrate.model.plan import content_id
from graphcrate.model.recipe import Channel
from graphcrate.model.report import BuildReport
from graphcrate.oci import reference
from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import validate
from graphcrate.planning import compile_step
from graphcrate.resolve import store, uv
from graphcrate.resolve.channels import Request as Sources
from tests.unit import tars
from tests.unit.bundles import TAG, deb, leftovers, make_image, workplaces, write
from tests.unit.registry_server import RegistryServer


@pytest.fixture
def there(tmp_path):
    with workplaces(tmp_path) as make:
        yield make


@pytest.fixture
def written(there, tmp_path):
    """A bundle, the folder of its image, and what was said of it."""
    path = tmp_path / "usb" / "torch.bundle"
    return path, *write(there("first"), path)


def listed(path):
    with tarfile.open(path) as archive:
        return archive.getnames()


def contents(path):
    with tarfile.open(path) as archive:
        return json.loads(archive.extractfile("bundle.json").read())


def everything(folder):
    """Every file below a folder: path → content, or where a link leads."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if not path.name.endswith(".lock") and (path.is_symlink() or path.is_file())
    }


def test_bundle_json_comes_first_and_lists_what_follows(written):
    path, folder, done = written
    names, told = listed(path), contents(path)
    assert names[0] == "bundle.json"
    assert names[1:] == [member["path"] for member in told["members"]]
    assert (told["name"], told["tag"], told["digest"]) == ("torch", TAG, read_layout(folder / "oci").digest)
    assert told["aliases"] == ["newest"]
    with tarfile.open(path) as archive:
        for member in told["members"]:
            data = archive.extractfile(member["path"]).read()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (member["size"], member["sha256"])
            info = archive.getmember(member["path"])
            assert (info.mode, info.uid, info.gid, info.mtime) == (0o644, 0, 0, 1_700_000_000)
    assert done.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (done.size, done.members) == (path.stat().st_size, len(names))


def test_every_file_of_the_lock_is_in_it(written):
    path, folder, done = written
    lock = decode_lock((folder / "lock.json").read_bytes())
    files = [item.file for package in lock.packages for item in (package, *package.build)]
    files += [package.file for package in lock.base.packages] + list(lock.compilation.files)
    names = set(listed(path))
    assert {f"files/{file.sha256}/{file.name}" for file in files} <= names
    assert any(name.startswith("compiled/") for name in names)
    assert {f"image/{name}" for name in ("lock.json", "report.json", "audit.json", "recipe.toml")} <= names
    assert {"image/passes/torch-0123.json", "image/proofs/sbom.json", "image/oci/index.json"} <= names
    assert done.files == len({file.sha256 for file in files}) + 1


def test_the_same_image_gives_the_same_bytes_from_any_place(there, tmp_path):
    place = there("first")
    folder = make_image(place)
    first = bundle.write(folder, tmp_path / "a.bundle", place)
    again = bundle.write(folder, tmp_path / "a.bundle", place)
    moved = bundle.write(folder, tmp_path / "b.bundle", place)
    assert first.sha256 == again.sha256 == moved.sha256
    assert (first.unchanged, again.unchanged) == (False, True)
    assert sorted(path.name for path in tmp_path.glob("*.bundle")) == ["a.bundle", "b.bundle"]
    assert list(tmp_path.glob(".*")) == []


def test_taking_in_gives_the_same_image_and_all_files(written, there):
    path, folder, _ = written
    place = there("second")
    output = place.root / "dist"
    done = unbundle.take_in(path, output, place)
    taken = output / "torch" / TAG
    assert (done.folder, done.unchanged, done.digest) == (str(taken), False, read_layout(taken / "oci").digest)
    before, after = everything(folder), everything(taken)
    assert after.pop("recipe.toml") == b"# the recipe\n"
    assert after.pop("proofs/sbom.json") == b"{}"
    report = msgspec.json.decode(after.pop("report.json"), type=BuildReport)
    assert report.layout == report.artifact.reference == str(taken / "oci")
    before.pop("report.json")
    assert after == before
    assert (output / "torch" / "newest").resolve() == taken.resolve()
    lock = decode_lock((folder / "lock.json").read_bytes())
    for file in lock.compilation.files:
        assert store.is_stored(file, place.cache)
    step = compile_step(lock)
    assert [wheel.read_bytes() for wheel in wheelhouse.cached(step, place.cache).values()] == [b"compiled"]
    kept = place.cache.path("resolutions", f"{lock.request_sha256}.json")
    assert decode_lock(kept.read_bytes()) == lock
    assert (taken / "oci" / "index.json").stat().st_mode & 0o777 == 0o644
    assert leftovers(place) == []


def test_a_second_time_does_nothing(written, there):
    path, _, _ = written
    place = there("second")
    unbundle.take_in(path, place.root / "dist", place)
    before = {p: p.lstat().st_mtime_ns for p in place.root.rglob("*") if p.is_file()}
    again = unbundle.take_in(path, place.root / "dist", place)
    assert again.unchanged
    assert before == {p: p.lstat().st_mtime_ns for p in place.root.rglob("*") if p.is_file()}


def test_what_the_cache_has_lost_comes_back(written, there):
    path, folder, _ = written
    place = there("second")
    unbundle.take_in(path, place.root / "dist", place)
    file = decode_lock((folder / "lock.json").read_bytes()).packages[0].file
    place.cache.file(file.sha256, file.name).unlink()
    again = unbundle.take_in(path, place.root / "dist", place)
    assert (again.unchanged, again.files) == (False, 1)
    assert store.is_stored(file, place.cache)


def test_records_of_bases_that_stand_in_go_along(there, tmp_path):
    """The committed lock names an older base; where the image was built, another stood in for it."""
    place, second = there("first"), there("second")
    folder = make_image(place)
    lock = decode_lock((folder / "lock.json").read_bytes())
    older = DebianBase(suite="bookworm", packages=(deb(place, "old"),))
    oldest = DebianBase(suite="bookworm", packages=(deb(place, "oldest"),))
    other = DebianBase(suite="trixie", packages=(deb(place, "other"),))
    for key, value in ((older, lock.base), (oldest, older), (lock.base, other)):
        place.cache.write(place.cache.path("bases", "replaced", f"{content_id(key)}.json"), encode(value))
    bundle.write(folder, tmp_path / "x.bundle", place)
    unbundle.take_in(tmp_path / "x.bundle", second.root / "dist", second)
    names = sorted(path.stem for path in second.cache.path("bases", "replaced").glob("*"))
    assert set(names) >= {content_id(older), content_id(oldest)}


def test_a_base_from_a_registry_goes_along(there, tmp_path):
    """Its layers are pulled into the bundle, and the base is made of them where there is no registry."""
    place, second = there("first"), there("second")
    folder = make_image(place)
    lock = decode_lock((folder / "lock.json").read_bytes())
    with RegistryServer() as server:
        image = server.image("team/base", [[tars.file("etc/os-release")], [tars.file("usr/bin/x")]], "v1")
        base = RegistryBase(reference=f"{server.host}/team/base", digest=image["digest"], interpreter="/usr/bin/x")
        (folder / "lock.json").write_bytes(encode(msgspec.structs.replace(lock, base=base)))
        bundle.write(folder, tmp_path / "x.bundle", place)
    unbundle.take_in(tmp_path / "x.bundle", second.root / "dist", second)
    nobody = pulled.repository(reference.parse(f"{base.reference}@{base.digest}"), {})
    layers, rootfs = pulled.pull(nobody, base.reference, base.digest, second.cache, Silent())
    assert len(layers) == 2
    assert (rootfs / "usr/bin/x").read_bytes() == b"content"


def test_what_the_cache_lacks_is_fetched_for_it(there, tmp_path, monkeypatch):
    monkeypatch.setattr(uv, "emitted_indexes", lambda environment: "")
    place = there("first")
    folder = make_image(place)
    package = decode_lock((folder / "lock.json").read_bytes()).packages[0]
    local = msgspec.structs.replace(package, channel=Channel.LOCAL)
    lock = decode_lock((folder / "lock.json").read_bytes())
    (folder / "lock.json").write_bytes(encode(msgspec.structs.replace(lock, packages=(local, *lock.packages[1:]))))
    stored = place.cache.file(package.file.sha256, package.file.name)
    (tmp_path / "wheels").mkdir()
    stored.rename(tmp_path / "wheels" / package.file.name)
    bundle.write(folder, tmp_path / "x.bundle", place, sources=Sources(wheels=tmp_path / "wheels"))
    assert f"files/{package.file.sha256}/{package.file.name}" in listed(tmp_path / "x.bundle")


def test_imports_at_once_end_with_one_whole_image(written, there):
    path, folder, _ = written
    place = there("second")

    def take():
        own = Workplace(root=place.root, environment=place.environment)
        try:
            return unbundle.take_in(path, place.root / "dist", own)
        finally:
            own.cache.close()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = [future.result() for future in [pool.submit(take) for _ in range(4)]]
    assert {one.digest for one in done} == {read_layout(folder / "oci").digest}
    validate(read_layout(place.root / "dist" / "torch" / TAG / "oci"))
    assert leftovers(place) == []


def test_another_image_in_the_place_is_left_alone(written, there):
    path, _, _ = written
    place = there("second")
    folder = make_image(place, seed=2)
    before = everything(folder)
    with pytest.raises(UsageError, match="is there already, and it is not the image"):
        unbundle.take_in(path, place.root / "dist", place)
    assert everything(folder) == before


def test_an_image_without_its_lock_is_refused(there, tmp_path):
    place = there("first")
    folder = make_image(place)
    (folder / "lock.json").unlink()
    with pytest.raises(UsageError, match="no image with its report and lock"):
        bundle.write(folder, tmp_path / "x.bundle", place)
    assert not (tmp_path / "x.bundle").exists()


def test_a_file_of_the_cache_that_was_altered_is_found_while_writing(there, tmp_path):
    place = there("first")
    folder = make_image(place)
    file = decode_lock((folder / "lock.json").read_bytes()).packages[0].file
    path = place.cache.file(file.sha256, file.name)
    path.write_bytes(bytes(file.size))
    with pytest.raises(IntegrityError, match="are wanted"):
        bundle.write(folder, tmp_path / "x.bundle", place)
    assert list(tmp_path.glob("*x.bundle*")) == []


def test_a_folder_is_no_file_to_write_to(there, tmp_path):
    place = there("first")
    with pytest.raises(UsageError, match="is a folder"):
        bundle.write(make_image(place), tmp_path, place)


def test_too_little_room_is_said_first(written, there, monkeypatch):
    path, _, _ = written
    place = there("second")
    monkeypatch.setattr(unbundle.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10})())
    with pytest.raises(DiskFullError):
        unbundle.take_in(path, place.root / "dist", place)
    assert not (place.root / "dist").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_all_the_same_leaves_nothing(written, there, tmp_path, monkeypatch, number):
    path, folder, _ = written
    second = there("second")
    assert second.cache

    def fail(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskFullError):
        bundle.write(folder, tmp_path / "other" / "x.bundle", there("first"))
    assert list((tmp_path / "other").iterdir()) == []
    with pytest.raises(DiskFullError):
        unbundle.take_in(path, second.root / "dist", second)
    assert not (second.root / "dist" / "torch" / TAG).exists()
    assert not list((second.root / "cache" / "files").glob("*/*"))
    assert leftovers(second) == []


def test_an_interrupt_leaves_nothing_but_whole_files(written, there, monkeypatch):
    path, folder, _ = written
    second = there("second")
    real, count = unbundle._Tar.take, []

    def take(tar, member, target, advance):
        if len(count) == 12:
            raise KeyboardInterrupt
        count.append(member)
        real(tar, member, target, advance)

    monkeypatch.setattr(unbundle._Tar, "take", take)
    with pytest.raises(KeyboardInterrupt):
        unbundle.take_in(path, second.root / "dist", second)
    assert not (second.root / "dist" / "torch" / TAG).exists()
    assert leftovers(second) == []
    monkeypatch.undo()
    assert unbundle.take_in(path, second.root / "dist", second).digest == read_layout(folder / "oci").digest
