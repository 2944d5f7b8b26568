"""The machine: disks that fill, caches that lie on file servers or rot, many builders, clocks, secrets."""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys

import pytest

from graphcrate.model.errors import CacheError, DiskFullError, HostError, NetworkError
from tests.conftest import ROOT
from tests.engines.workplace import finish
from tests.faults import project, refusing
from tests.faults.rows import ALL, Ended, Watch, row, rows

MIB = 1 << 20


@contextlib.contextmanager
def small_disk(folder, **options):
    """A file system of a few megabytes; sets its limits anew when called."""
    folder.mkdir(exist_ok=True)

    def words(given):
        return ",".join(f"{name}={value}" for name, value in given.items())

    subprocess.run(["mount", "-t", "tmpfs", "-o", words(options), "tmpfs", folder], check=True)
    try:
        yield lambda **new: subprocess.run(["mount", "-o", f"remount,{words(new)}", folder], check=True)
    finally:
        subprocess.run(["umount", folder], check=True)


def filled(origin, scratch, limits, plenty, number):
    """Build on disks of these limits, each time followed by the same command with room; how that went."""
    ended_full, slowest, places = 0, 0.0, set()
    for limit in limits:
        with small_disk(scratch / "disk", **{**plenty, **limit}) as resize:
            resize(**plenty)
            place = project.copy(origin.place, scratch / "disk")
            resize(**{**plenty, **limit})
            done = place.run(*project.IMAGE, "--json")
            if done.code:
                ended_full += 1
                places.add(done.err.splitlines()[-2])
                said = project.failed(place, done, DiskFullError.exit_code)
                assert "full" in said or "are free" in said
                assert not list(place.folder.glob("dist/*/*/oci"))
            resize(**plenty)
            watch = Watch()
            project.goes_on(place, origin.digest)
            slowest = max(slowest, watch.seconds)
            shutil.rmtree(scratch / "disk/project")
    assert ended_full >= number
    how = (
        f"{ended_full} of {len(limits)} limits stopped it, each with exit code 8 and a sentence, nothing half-written; "
    )
    return Ended(how + "with room the same command went on", slowest)


@row("Host", "a disk that fills, in steps", "`image` on file systems of 10 MB and up, temporary files on them too")
@pytest.mark.engine("mount", "root")
def test_full_disk(origin, scratch):
    step = 2 if ALL else 16
    limits = [{"size": f"{size}m"} for size in range(10, 140, step)]
    return filled(origin, scratch, limits, {"size": "1g"}, len(limits) // 2)


@row("Host", "a disk without inodes left, in steps", "`image` on file systems for so many files")
@pytest.mark.engine("mount", "root")
def test_full_inodes(origin, scratch):
    limits = [{"nr_inodes": number} for number in range(400, 4000, 100 if ALL else 700)]
    return filled(origin, scratch, limits, {"size": "1g", "nr_inodes": 20000}, 2)


@row("Host", "a cache that nobody may write to", "`image`, the cache on a read-only mount")
@pytest.mark.engine("mount", "unshare", "root")
def test_read_only_cache(origin, cold):
    cold.cache.mkdir()
    script = f'mount -t tmpfs -o ro tmpfs "{cold.cache}" && exec "$@"'
    read_only = dataclasses.replace(cold, prefix=("unshare", "-m", "sh", "-c", script, "sh"))
    said = project.failed(cold, read_only.run(*project.IMAGE), CacheError.exit_code)
    assert str(cold.cache) in said
    watch = Watch()
    project.goes_on(cold, origin.digest)
    return Ended("exit code 11, which names the cache and GRAPHCRATE_CACHE", watch.seconds)


@row("Host", "no network", "`image`, from an empty cache in a namespace without one")
@pytest.mark.engine("unshare", "root")
def test_no_network(origin, cold):
    apart = dataclasses.replace(cold, prefix=("unshare", "--net"))
    project.failed(cold, apart.run(*project.IMAGE), NetworkError.exit_code)
    assert not list(cold.folder.glob("dist/*/*/oci"))
    watch = Watch()
    project.goes_on(cold, origin.digest)
    return Ended("exit code 5; with a network the same command went on", watch.seconds)


@row("Host", "32 builders at once on one cache", "`image`, from an empty cache, each with a folder of its own")
def test_many_builders(origin, cold):
    watch = Watch()
    started = [cold.start(*project.IMAGE, "--json", "--output", f"dist/{number}") for number in range(32)]
    ended = [finish(process, 500) for process in started]
    assert [(one.code, one.err) for one in ended if one.code] == []
    assert {json.loads(one.out)["digest"] for one in ended} == {origin.digest}
    assert project.left_behind(cold) == []
    return Ended("32 times the same digest", watch.seconds)


def refused(place, *names):
    """The place, where these system calls fail."""
    prefix = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.faults.refusing", ",".join(names))
    return dataclasses.replace(place, prefix=prefix)


@rows(
    "Host",
    "`image` from an empty cache, these system calls refused by seccomp",
    {
        "nfs": ("a file server without O_TMPFILE, exchanging names, copying ranges, fallocate", refusing.NFS),
        "links": ("a file system without hard links", ("link", "oldlink")),
    },
)
@pytest.mark.engine("root")
def test_poor_file_system(origin, cold, case):
    watch = Watch()
    project.goes_on(refused(cold, *case), origin.digest)
    return Ended("the same digest", watch.seconds)


@rows(
    "Host",
    "`image` from an empty cache, the system call refused by seccomp, then without that",
    {
        "stale": ("a stale handle (ESTALE) when a file is synced", ("sync", HostError)),
        "quota": ("a quota that NFS tells of only when a file is synced (EDQUOT)", ("quota", DiskFullError)),
        "disk": ("a disk that fails (EIO) when a file is synced", ("broken", HostError)),
        "locks": ("a file server without locks (ENOLCK)", ("flock", HostError, CacheError)),
    },
)
@pytest.mark.engine("root")
def test_failing_file_system(origin, cold, case):
    call, *kinds = case
    done = refused(cold, call).run(*project.IMAGE)
    project.failed(cold, done, *(kind.exit_code for kind in kinds))
    watch = Watch()
    project.goes_on(cold, origin.digest)
    return Ended(f"exit code {done.code} and a sentence; then the same command went on", watch.seconds)


def flipped(path, random_):
    """Flip a bit of a file, whose date and size stay."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[random_.randrange(len(content))] ^= 1 << random_.randrange(8)
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@row(
    "Host", "a flipped bit anywhere in the cache", "`image`, one file of each folder of the cache, then the same again"
)
def test_flipped_bit(origin, warm, scratch):
    random_, healed, told, slowest = random.Random(1), 0, 0, 0.0
    whole = scratch / "whole"
    warm.cache.rename(whole)
    left_out = {"tmp", "locks", "rootfs", "trees", "uv"}
    files = {}
    for path in sorted(whole.rglob("*")):
        kind = path.relative_to(whole).parts[0]
        if path.is_file() and not path.is_symlink() and path.stat().st_size and kind not in left_out:
            if "rootfs" not in path.parts:
                files.setdefault((kind, path.suffix), []).append(path.relative_to(whole))
    for paths in files.values():
        for path in paths if ALL else random_.sample(paths, min(3, len(paths))):
            shutil.rmtree(warm.cache, ignore_errors=True)
            shutil.copytree(whole, warm.cache, symlinks=True)
            shutil.rmtree(warm.folder / "dist", ignore_errors=True)
            flipped(warm.cache / path, random_)
            done = warm.run(*project.IMAGE, "--json")
            assert "Traceback" not in done.err, (path, done.err)
            if done.code:
                told += 1
                project.failed(warm, done, 6, 12)
            else:
                healed += 1
                assert json.loads(done.out)["digest"] == origin.digest, path
            watch = Watch()
            project.goes_on(warm, origin.digest)
            slowest = max(slowest, watch.seconds)
    how = f"of {healed + told}: {healed} did not show or were mended at once, {told} ended with exit code 6 or 12; "
    return Ended(how + "the same command again made the same digest", slowest)
