"""The machine: disks that fill, caches on file servers or with rot, many builders, clocks, secrets."""

import base64
import contextlib
import dataclasses
import gzip
import json
import os
import random
import sys
import threading
from pathlib import Path

import pytest

from graphcrate.host.disk.trees import discard, remove_tree
from graphcrate.model.errors import CacheError, DiskFullError, HostError, NetworkError
from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import validate
from tests.conftest import ROOT
from tests.engines.workplace import finish
from tests.faults import project, refusing
from tests.faults.rows import ALL, Ended, Watch, row, rows
from tests.faults.test_network import changed
from tests.faults.ways import pretending, small_disk

MIB = 1 << 20


@rows(
    "Host",
    "`image` with room for a part of it, the disk was said to have more",
    {
        "size": ("a disk that fills at any write", "size"),
        "inodes": ("a disk that has no inodes left at any file", "nr_inodes"),
    },
)
@pytest.mark.engine("mount", "root")
def test_full_disk(origin, scratch, case):
    """Temporary files come on top of what stays: none of these limits is enough."""
    number, slowest = 100 if ALL else 5, 0.0
    with small_disk(scratch / "disk", size="1g", nr_inodes=30000) as resize:

        def used():
            now = os.statvfs(scratch / "disk")
            return (now.f_blocks - now.f_bfree) * now.f_frsize if case == "size" else now.f_files - now.f_ffree

        place = project.copy(origin.place, scratch / "disk")
        before = used()
        project.goes_on(place, origin.digest)
        written = used() - before
        for part in range(number):
            remove_tree(place.cache)
            remove_tree(place.folder / "dist")
            resize(**{case: used() + written * (2 * part + 1) // (2 * number)})
            done = pretending(place, "free").run(*project.IMAGE, "--json")
            said = project.failed(place, done, DiskFullError.exit_code)
            assert "full" in said or "are free" in said or "No space" in said
            resize(size="1g", nr_inodes=30000)
            for layout in place.folder.glob("dist/torch/*/oci"):  # written before there was no room to test it
                assert validate(read_layout(layout)).faults == ()
            slowest = max(slowest, project.goes_on(place, origin.digest))
    how = f"{number} of {number}: exit code 8 and a sentence, nothing half-written; with room the same command went on"
    return Ended(how, slowest)


@row("Host", "a cache that nobody may write to", "`image`, the cache on a read-only mount")
@pytest.mark.engine("mount", "unshare", "root")
def test_read_only_cache(origin, cold):
    cold.cache.mkdir()
    script = f'mount -t tmpfs -o ro tmpfs "{cold.cache}" && exec "$@"'
    read_only = dataclasses.replace(cold, prefix=("unshare", "-m", "sh", "-c", script, "sh"))
    said = project.failed(cold, read_only.run(*project.IMAGE), CacheError.exit_code)
    assert str(cold.cache) in said
    return Ended("exit code 11, which names the cache and GRAPHCRATE_CACHE", project.goes_on(cold, origin.digest))


@row("Host", "no network", "`image`, from an empty cache in a namespace without one")
@pytest.mark.engine("unshare", "root")
def test_no_network(origin, cold):
    apart = dataclasses.replace(cold, prefix=("unshare", "--net"))
    project.failed(cold, apart.run(*project.IMAGE), NetworkError.exit_code)
    assert not list(cold.folder.glob("dist/*/*/oci"))
    return Ended("exit code 5; with a network the same command went on", project.goes_on(cold, origin.digest))


BUILDERS = 32 if ALL else 12


@row("Host", f"{BUILDERS} builders at once on one cache", "`image`, from an empty cache, each with its own folder")
def test_many_builders(origin, cold):
    watch = Watch()
    started = [cold.start(*project.IMAGE, "--json", "--output", f"dist/{number}") for number in range(BUILDERS)]
    ended = [finish(process, 1500) for process in started]
    assert [(one.code, one.err) for one in ended if one.code] == []
    assert {json.loads(one.out)["digest"] for one in ended} == {origin.digest}
    assert project.left_behind(cold) == []
    return Ended(f"{BUILDERS} times the same digest", watch.seconds)


def refused(place, *names):
    """The place, where these system calls fail."""
    prefix = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.faults.refusing", ",".join(names))
    return dataclasses.replace(place, prefix=prefix)


@row(
    "Host",
    "a file server without O_TMPFILE, exchanging names, copying ranges, fallocate",
    "`image` from an empty cache, these system calls refused by seccomp",
)
@pytest.mark.engine("root")
def test_poor_file_system(origin, cold):
    return Ended("the same digest", project.goes_on(refused(cold, *refusing.NFS), origin.digest))


@rows(
    "Host",
    "`image` from an empty cache, the system call refused by seccomp, then without that",
    {
        "stale": ("a stale handle (ESTALE) when a file is synced", ("sync", HostError)),
        "renamed": ("a stale handle when a file gets its name", ("rename", HostError)),
        "quota": ("a quota that NFS tells of only when a file is synced (EDQUOT)", ("quota", DiskFullError)),
        "quota-file": ("a quota that ends at the next file", ("create", DiskFullError)),
        "quota-folder": ("a quota that ends at the next folder", ("folder", DiskFullError)),
        "quota-write": ("a quota that ends at the next write", ("write", DiskFullError)),
        "disk": ("a disk that fails (EIO) when a file is synced", ("broken", HostError)),
        "locks": ("a file server without locks (ENOLCK)", ("flock", HostError, CacheError)),
    },
)
@pytest.mark.engine("root")
def test_failing_file_system(origin, cold, case):
    call, *kinds = case
    done = refused(cold, call).run(*project.IMAGE)
    project.failed(cold, done, *(kind.exit_code for kind in kinds))
    how = f"exit code {done.code} and a sentence; then the same command went on"
    return Ended(how, project.goes_on(cold, origin.digest))


def flipped(path, random_):
    """Flip a bit of a file, whose date and size stay."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[random_.randrange(len(content))] ^= 1 << random_.randrange(8)
    path.unlink()  # it may be a link to a whole one
    path.write_bytes(content)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@row("Host", "a flipped bit anywhere in the cache", "`image`, files of each folder of the cache; layers there or not")
def test_flipped_bit(origin, warm, scratch):
    random_, ends, slowest = random.Random(1), [], 0.0
    whole = scratch / "whole"
    warm.cache.rename(whole)
    for kinds in (set(), {"layers", "built"}):  # without layers what they are made of is read
        for folder in kinds:
            discard(whole / folder, print)
        for path in chosen(whole, random_):
            discard(warm.cache, print)
            project.copy_cache(whole, warm.cache)
            discard(warm.folder / "dist", print)
            flipped(warm.cache / path, random_)
            done = warm.run(*project.IMAGE, "--json")
            ends.append(done.code)
            assert done.code >= 0, f"{path} ended it with signal {-done.code}"
            if not done.code:
                made = project.report(warm, done)
                assert made["digest"] == origin.digest, path
                assert validate(read_layout(warm.layout(made))).faults == ()
                continue
            project.failed(warm, done, 6, 9, 12)
            slowest = max(slowest, project.goes_on(warm, origin.digest))
    told = sum(map(bool, ends))
    how = f"{len(ends) - told} of {len(ends)} did not show or were made good at once, {told} ended with a sentence; "
    return Ended(how + "the same command again made the same digest", slowest)


def chosen(cache, random_):
    """Some files of each kind; not of unpacked trees, which are what the machine reads like its own programs."""
    left_out, kinds = {"tmp", "locks", "rootfs", "uv"}, {}
    for path in sorted(cache.rglob("*")):
        name = path.relative_to(cache)
        whole = path.is_file() and not path.is_symlink() and path.stat().st_size
        if whole and not left_out & set(name.parts):
            kinds.setdefault((name.parts[0], name.suffix), []).append(name)
    most = 1000 if ALL else 1
    return [path for paths in kinds.values() for path in random_.sample(paths, min(most, len(paths)))]


SECRETS = {"index": "canary-index", "registry": "canary-registry", "key": "canary-key", "other": "canary-other"}


@row(
    "Host",
    "secrets in addresses, the environment and docker's login",
    "`lock`, `image`, `keys`, `publish --key`, `convert`",
)
def test_secrets(origin, cold):
    host, index = origin.door.address, origin.index.url("/simple").replace("//", f"//user:{SECRETS['index']}@")
    place = cold.having(UV_DEFAULT_INDEX=index, COSIGN_PASSWORD=SECRETS["key"], WANDB_API_KEY=SECRETS["other"])
    (cold.cache.parent / ".docker").mkdir()
    auth = base64.b64encode(f"user:{SECRETS['registry']}".encode()).decode()
    login = cold.cache.parent / ".docker/config.json"
    login.write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    commands = [
        ("lock", "torch", "--cuda", "cpu"),
        project.IMAGE,
        ("keys",),
        ("publish", f"torch:{origin.tag}", "--to", f"{host}/secrets", "--allow-cpu-only", "--key", "cosign.key"),
        ("convert", f"torch:{origin.tag}", "--to", "sif"),
    ]
    said = b""
    with changed(origin.registry, login="basic", user="user", password=SECRETS["registry"]), watching() as seen:
        for command in commands:
            done = place.run(*command).ok()
            said += f"{done.out}{done.err}".encode()
    assert f"secrets/torch/manifests/{origin.tag}" in origin.registry.documents
    files = [path for path in cold.cache.parent.rglob("*") if path.is_file() and path != login]
    documents = [data for _, data in origin.registry.documents.values()]
    places = [("output", said), ("processes", b" ".join(seen)), *(("registry", data) for data in documents)]
    for where, data in [*places, *((str(path), content(path)) for path in files)]:
        for secret in (*SECRETS.values(), auth):
            assert secret.encode() not in data, (secret, where)
    return Ended(f"in none of {len(files)} files, no layer, document, output or command line of {len(seen)} processes")


def content(path):
    """A file's bytes, and those that are compressed in it."""
    data = path.read_bytes()
    return data + (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else b"")


@contextlib.contextmanager
def watching():
    """Command lines of processes that run meanwhile, as anybody may read them."""
    seen, over = set(), threading.Event()

    def look():
        while not over.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.add(path.read_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
