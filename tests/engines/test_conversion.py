"""Conversions of a small, tricky layout, read by the real programs: squashfs-tools, squashfuse, Apptainer, Docker, …"""

import itertools
import json
import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphcrate.artifacts import convert
from graphcrate.artifacts.convert import Request
from graphcrate.artifacts.formats import packed, sif, squashfs_writer
from graphcrate.artifacts.formats.packed import Compression
from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.artifacts.tree import opening
from graphcrate.artifacts.tree.allowances import ALLOWANCES
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Silent
from graphcrate.model.errors import DiskFullError
from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import validate
from tests.conftest import program
from tests.engines import tricky

pytestmark = pytest.mark.engine("unsquashfs", "root")

NAMES = ("APPTAINER_CONTAINER", "APPTAINER_NAME", "SINGULARITY_CONTAINER", "SINGULARITY_NAME", "APPTAINER_BIND")


@pytest.fixture(scope="module")
def place(ground):
    """A workplace with a cache of its own."""
    folder = ground / "conversion"
    folder.mkdir()
    cache = Cache(folder / "cache")
    yield SimpleNamespace(folder=folder, cache=cache, progress=Silent(), environment=dict(os.environ))
    cache.close()


@pytest.fixture(scope="module")
def layout(place):
    return tricky.layout(place.folder / "tricky" / "1.0" / "oci", place.cache)


@pytest.fixture(scope="module")
def plain(place):
    """The same without what Docker and podman cannot unpack."""
    return tricky.layout(place.folder / "plain" / "1.0" / "oci", place.cache, plain=True)


@pytest.fixture(scope="module")
def made(place, layout):
    """Makes a form once; its path."""
    known = {}

    def make(to, source=layout, **more):
        key = (to, source.digest, *sorted(more.items()))
        if key not in known:
            output = place.folder / f"{len(known)}.{to}"
            request = Request(ref=str(source.path), to=to, output=output, **more)
            known[key] = convert.convert(request, place)
        return Path(known[key].path)

    return make


@pytest.fixture(scope="module")
def reference(plain, apptainer, place):
    """What `apptainer build` makes of the same layout."""
    path = place.folder / "reference.sif"
    call("apptainer", "build", path, f"oci:{plain.path}", environment=apptainer)
    return path


def call(*command, environment=None, code=0, **more):
    done = subprocess.run(
        [program(command[0]), *map(str, command[1:])],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=600,
        check=False,
        **more,
    )
    assert done.returncode == code, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def tree(root):
    """path → kind and mode, owner, time, content or target, first path of the same file, attributes."""
    first, seen = {}, {}
    for path in sorted(os.fsencode(found) for found in root.rglob("*")):
        status = os.lstat(path)
        name, kind = os.fsdecode(path).removeprefix(f"{root}/"), stat.S_IFMT(status.st_mode)
        content = os.readlink(path) if kind == stat.S_IFLNK else None  # noqa: PTH115 (names that are no text)
        if kind == stat.S_IFREG:
            content = hash(Path(os.fsdecode(path)).read_bytes())
        same = None if kind == stat.S_IFDIR else first.setdefault(status.st_ino, name)
        attributes = {
            key: os.getxattr(path, key, follow_symlinks=False) for key in os.listxattr(path, follow_symlinks=False)
        }
        seen[name] = (
            stat.filemode(status.st_mode),
            status.st_uid,
            status.st_gid,
            int(status.st_mtime),
            content,
            same,
            attributes,
        )
    return seen


@pytest.fixture(scope="module")
def files(layout, place):
    """The tree that `artifacts.formats.rootfs` unpacks."""
    unpack(layout.layer_blobs, place.folder / "files")
    seen = tree(place.folder / "files")
    assert seen["opt/third"][5] == "opt/second"
    assert seen["opt/hardlink-to-link"][5] == "opt/hardlink-to-link"
    assert "opt/opaque/below" not in seen
    return seen


def without(seen, *paths):
    return {
        name: entry for name, entry in seen.items() if not any(name == p or name.startswith(f"{p}/") for p in paths)
    }


def added(layout, to):
    """Paths that the conversion adds or replaces."""
    if to == "sif":
        additions = convert.singularity.additions(layout.config, "")
    else:
        additions = convert.enroot.additions(layout.config, "")
    return {addition.path for addition in additions}


@pytest.mark.parametrize("compression", list(Compression))
def test_unsquashfs_finds_the_files_as_they_are(made, layout, files, scratch, compression):
    path = made("sif", compression=compression)
    offset = sif.root_partition(path).offset
    call("unsquashfs", "-no-progress", "-offset", offset, "-dest", scratch / "root", path)
    seen, more = tree(scratch / "root"), added(layout, "sif")
    assert set(seen) - set(files) - {"var"} <= more
    ours = {name: seen[name] for name in files}
    kept = ("etc/hosts", "etc/resolv.conf")
    assert without(ours, *kept) == without(files, *kept)
    assert seen["opt/bin/ping"][6] == {"security.capability": tricky.CAPABILITY}
    root, told = (scratch / "root").stat(), (scratch.parent / "conversion" / "files").stat()
    assert (root.st_mode, root.st_uid, int(root.st_mtime)) == (told.st_mode, told.st_uid, int(told.st_mtime))


@pytest.mark.engine("loop mount")
@pytest.mark.parametrize("compression", list(Compression))
def test_the_kernel_mounts_the_partition(made, layout, files, scratch, compression):
    path = made("sif", compression=compression)
    offset = sif.root_partition(path).offset
    (scratch / "mnt").mkdir()
    call("mount", "-t", "squashfs", "-o", f"loop,ro,offset={offset}", path, scratch / "mnt")
    kept = ("etc/hosts", "etc/resolv.conf")
    seen = without(tree(scratch / "mnt"), *kept)
    assert set(seen) - set(files) - {"var"} <= added(layout, "sif")
    assert {name: seen[name] for name in without(files, *kept)} == without(files, *kept)


@pytest.mark.engine("squashfuse")
@pytest.mark.parametrize("compression", list(Compression))
def test_squashfuse_mounts_the_partition(made, files, scratch, compression):
    path = made("sif", compression=compression)
    (scratch / "mnt").mkdir()
    offset = sif.root_partition(path).offset
    call("squashfuse", "-o", f"offset={offset},ro", path, scratch / "mnt")
    assert (scratch / "mnt" / "opt" / "replaced").read_bytes() == b"now a file"
    assert (scratch / "mnt" / "opt" / "second").read_bytes() == b"shared" * 30_000
    assert (scratch / "mnt" / "opt" / "sparse").stat().st_size == 3_000_004
    assert set(files) - {"opt"} <= {os.fspath(p.relative_to(scratch / "mnt")) for p in (scratch / "mnt").rglob("*")}


def test_a_disk_that_fills_up_is_said_and_nothing_stays(layout, place, monkeypatch, scratch):
    call("mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", scratch)
    request = Request(ref=str(layout.path), to="sif", output=scratch / "small.sif")
    with pytest.raises(DiskFullError, match=r"needs .* are free"):
        convert.convert(request, place)
    monkeypatch.setattr(convert, "require_room", lambda *_: None)
    with pytest.raises(DiskFullError, match=f"the disk that holds {scratch}.* is full"):
        convert.convert(request, place)
    assert list(scratch.iterdir()) == []


def test_a_cache_that_fills_up_is_said_and_nothing_stays(layout, place, scratch):
    call("mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", scratch)
    small = SimpleNamespace(cache=Cache(scratch / "cache"), progress=Silent(), environment=place.environment)
    output = place.folder / "never.sif"
    with pytest.raises(DiskFullError, match="full"):
        convert.convert(Request(ref=str(layout.path), to="sif", output=output), small)
    assert not output.exists()
    whole = {path.name for path in (scratch / "cache" / "squashed").glob("*/index.json")}
    assert len(whole) < len(layout.layers)
    assert not list((scratch / "cache" / "tmp").glob("run-*/*"))
    small.cache.close()


@pytest.mark.parametrize(("module", "name"), [(packed.Packer, "finish"), (squashfs_writer, "_copy_run")])
def test_an_interrupt_leaves_nothing(layout, monkeypatch, scratch, module, name):
    def stop(*_):
        raise KeyboardInterrupt

    cache = Cache(scratch / "cache")
    place = SimpleNamespace(cache=cache, progress=Silent(), environment={})
    monkeypatch.setattr(module, name, stop)
    with pytest.raises(KeyboardInterrupt):
        convert.convert(Request(ref=str(layout.path), to="sqsh", output=scratch / "x.sqsh"), place)
    assert [path.name for path in scratch.iterdir()] == ["cache"]
    cache.close()


def test_enroots_squashfs_has_its_files_and_its_script_starts_the_command(made, layout, files, scratch):
    call("unsquashfs", "-no-progress", "-dest", scratch / "root", made("sqsh"))
    seen = tree(scratch / "root")
    assert {entry[1:3] for entry in seen.values()} == {(0, 0)}
    assert set(seen) - set(files) <= added(layout, "sqsh")
    contents = {name: entry[4] for name, entry in files.items()}
    assert {name: seen[name][4] for name in files if name in seen} == contents
    for arguments, wanted in ((("hello", "there"), "hello there"), ((), "the command")):
        said = call("chroot", scratch / "root", "/bin/sh", "/etc/rc", *arguments, environment=tricky.ENVIRONMENT)
        assert said.strip() == wanted


def test_a_folder_has_the_files_as_they_are(made, files):
    assert tree(made("rootfs")) == files


@pytest.mark.engine("apptainer build")
def test_apptainer_lists_and_inspects_it(made, layout, apptainer):
    path = made("sif")
    listed = call("apptainer", "sif", "list", path, environment=apptainer)
    assert "Def.FILE" in listed
    assert "FS (Squashfs/*System/amd64)" in listed
    header = call("apptainer", "sif", "header", path, environment=apptainer)
    assert "2023-11-14 22:13:20" in header
    told = json.loads(call("apptainer", "inspect", "--all", path, environment=apptainer))["data"]["attributes"]
    assert told["labels"]["some.label"] == "it's a label"
    assert f"From: tricky:1.0@{layout.digest}" in told["deffile"]
    assert 'exec "$@"' in told["runscript"]
    assert "10-docker2singularity" in json.dumps(told["environment"])


@pytest.mark.engine("apptainer build")
def test_apptainer_signs_and_verifies_it(made, apptainer, scratch):
    """A signature takes one of the free descriptors, and covers ours."""
    copy = scratch / "copy.sif"
    copy.write_bytes(made("sif").read_bytes())
    environment = {**apptainer, "APPTAINER_KEYSDIR": str(scratch / "keys"), "HOME": str(scratch)}
    said = subprocess.run(
        [program("apptainer"), "verify", copy], env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert "signature not found" in said.stderr
    pair = ("--name", "test", "--email", "test@example.com", "--comment", "test", "--password", "", "--push=false")
    call("apptainer", "key", "newpair", *pair, environment=environment)
    call("apptainer", "sign", copy, environment=environment)
    call("apptainer", "verify", "--local", copy, environment=environment)
    call("apptainer", "exec", copy, "hello", environment=environment)


@pytest.mark.engine("apptainer build")
@pytest.mark.parametrize("compression", list(Compression))
def test_apptainer_runs_it(made, apptainer, compression):
    path = made("sif", compression=compression)
    assert call("apptainer", "run", path, environment=apptainer).strip() == "the command"
    assert call("singularity", "run", path, "hello", "there", environment=apptainer).strip() == "hello there"
    assert call("apptainer", "exec", path, "hello", environment=apptainer).strip() == "hello"
    call("apptainer", "test", path, environment=apptainer)


@pytest.mark.engine("apptainer build")
def test_it_is_a_program_itself(made, apptainer, scratch):
    """Through `run-singularity`, which engines bring along; the one that tests install is left out there."""
    starter = scratch / "run-singularity"
    starter.write_text(f'#!/bin/sh\nexec {program("singularity")} run "$@"\n')
    starter.chmod(0o755)
    environment = {**apptainer, "PATH": f"{scratch}:{os.environ['PATH']}"}
    done = subprocess.run(
        [made("sif"), "hello", "itself"], env=environment, capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == "hello itself"


@pytest.mark.engine("apptainer build")
def test_apptainer_builds_the_same_files(made, plain, reference, place):
    told = opening.compare(str(reference), str(made("sif", plain)), place, ALLOWANCES)
    assert told.unexpected == ()


@pytest.mark.engine("apptainer build")
@pytest.mark.parametrize("options", [(), ("--cleanenv",), ("--contain",), ("--env", "TRICKY=mine"), ("--nv",)])
@pytest.mark.parametrize("host", [{}, {"TRICKY": "the host's", "LD_LIBRARY_PATH": "/host", "EMPTY": "x"}])
def test_programs_see_the_variables_of_apptainers_own_image(made, plain, reference, apptainer, options, host):
    environment = {**apptainer, **host, "SINGULARITYENV_APPEND_PATH": "/appended"}
    ours, theirs = (
        {
            name: value
            for name, _, value in (
                line.partition("=")
                for line in call(
                    "apptainer", "--silent", "exec", *options, path, "env", "-0", environment=environment
                ).split("\0")
            )
            if name not in NAMES
        }
        for path in (made("sif", plain), reference)
    )
    assert ours == theirs
    assert ours["PATH"].startswith("/opt/bin:/usr/bin:/bin")
    assert ours["TRICKY"] == ("mine" if options[:1] == ("--env",) else "two words")


#: what an image promises, and a host that would break it
PROMISED = {
    "PATH": "/opt/bin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin",
    "PYTHONNOUSERSITE": "1",
    "LD_LIBRARY_PATH": "/.singularity.d/libs",
}
BREAKING = {"PATH": f"/host:{os.environ['PATH']}", "PYTHONNOUSERSITE": "", "LD_LIBRARY_PATH": "/host"}
OF_A_JOB = {"RANK": "3", "SLURM_PROCID": "3", "CUDA_VISIBLE_DEVICES": "1", "PYTHONPATH": "/host"}


@pytest.mark.engine("apptainer build")
@pytest.mark.parametrize(
    ("options", "host", "changed"),
    [
        *((options, {}, OF_A_JOB) for options in ((), ("--nv",), ("--contain",), ("--writable-tmpfs",))),
        *((options, {}, {}) for options in (("--cleanenv",), ("--containall",))),
        *(((), {f"{engine}_CLEANENV": "1"}, {}) for engine in ("APPTAINER", "SINGULARITY")),
        (("--cleanenv", "--env", "RANK=5"), {}, {"RANK": "5"}),
        *(
            (("--cleanenv",), {f"{engine}ENV_{name}": value}, changed)
            for engine in ("APPTAINER", "SINGULARITY")
            for name, value, changed in (
                ("RANK", "5", {"RANK": "5"}),
                ("PYTHONNOUSERSITE", "", {"PYTHONNOUSERSITE": ""}),
                ("LD_LIBRARY_PATH", "/sw", {"LD_LIBRARY_PATH": "/sw:/.singularity.d/libs"}),
                ("PREPEND_PATH", "/sw", {"PATH": f"/sw:{PROMISED['PATH']}"}),
                ("PATH", "/sw:/usr/bin", {"PATH": "/sw:/usr/bin"}),
            )
        ),
    ],
)
def test_switches_do_what_the_page_on_runtimes_says(made, plain, apptainer, options, host, changed):
    environment = {**apptainer, **OF_A_JOB, **BREAKING, **host}
    path = made("sif", plain, compression=Compression.ZSTD)
    said = call("apptainer", "--silent", "exec", *options, path, "env", "-0", environment=environment)
    seen = dict(line.split("=", 1) for line in said.split("\0") if line)
    assert {name: value for name, value in seen.items() if name in {*PROMISED, *OF_A_JOB}} == {**PROMISED, **changed}


@pytest.mark.engine("apptainer build", "useradd", "squashfuse", "setpriv")
@pytest.mark.parametrize(
    ("options", "fits"),
    [
        (("--contain",), ""),
        (("--contain", "--writable-tmpfs"), ""),
        (("--contain", "--workdir", "{folder}"), "/tmp /var/tmp /home/graphcrate-test"),
    ],
)
def test_a_plain_user_may_write_where_the_page_on_runtimes_says(made, plain, plain_user, scratch, options, fits):
    (scratch / "large").write_bytes(bytes(100_000_000))
    os.chown(scratch, *plain_user)
    path = made("sif", plain, compression=Compression.ZSTD)
    script = """exec 2> /dev/null
        cp /bin/sh /opt/bin/mine && echo /opt/bin
        for folder in /tmp /var/tmp "$HOME"; do cp /large "$folder/large" && echo "$folder"; done
        exit 0"""
    said = call(
        *("setpriv", f"--reuid={plain_user[0]}", f"--regid={plain_user[1]}", "--clear-groups", program("apptainer")),
        *("--silent", "exec", "--bind", f"{scratch / 'large'}:/large"),
        *(option.format(folder=scratch) for option in options),
        *(path, "sh", "-c", script),
        environment={"PATH": os.environ["PATH"], "HOME": "/home/graphcrate-test", "TMPDIR": str(scratch)},
    )
    assert said.split() == fits.split()


@pytest.mark.engine("apptainer build")
def test_quotes_in_variables_are_kept(made, apptainer):
    said = call("apptainer", "--silent", "exec", "--cleanenv", made("sif"), "env", "-0", environment=apptainer)
    assert f"TRICKY={tricky.ENVIRONMENT['TRICKY']}" in said.split("\0")


ACTIONS = {"exec": ("hello", "a b"), "run": ("hello", "a b"), "test": (), "shell": ("-c", "hello a b")}


@pytest.mark.parametrize("action", ACTIONS)
def test_scripts_for_engines_before_3_6_do_the_same(made, scratch, action):
    """Those run the image's own actions; there is none for this system, so a chroot stands for it."""
    path = made("sif")
    call(
        *("unsquashfs", "-no-progress", "-offset", sif.root_partition(path).offset),
        *("-dest", scratch / "root", path),
    )
    command = ["chroot", scratch / "root", f"/.singularity.d/actions/{action}", *ACTIONS[action]]
    said = call(*command, environment={"PATH": "/usr/bin:/bin", "EMPTY": "x"})
    assert said.strip() == ("this image has no test" if action == "test" else "hello a b")
    script = "for s in /.singularity.d/env/*.sh; do . $s; done; env -0"
    variables = call("chroot", scratch / "root", "/bin/sh", "-c", script, environment={"PATH": "/bin", "EMPTY": "x"})
    seen = dict(line.split("=", 1) for line in variables.split("\0") if line)
    assert {name: seen[name] for name in tricky.ENVIRONMENT} == {**tricky.ENVIRONMENT, "EMPTY": "x"}
    assert seen["LD_LIBRARY_PATH"] == "/.singularity.d/libs"


@pytest.mark.engine("docker daemon")
def test_docker_loads_and_runs_the_archive(made, plain, docker):
    environment = {**os.environ, "DOCKER_HOST": docker}
    assert "Loaded image: tricky:1.0" in call(
        "docker", "load", "--input", made("docker", plain), environment=environment
    )
    ident = call("docker", "image", "inspect", "--format", "{{.Id}}", "tricky:1.0", environment=environment)
    assert ident.strip() == plain.manifest.config.digest
    run = ("docker", "run", "--rm", "--network", "none", "tricky:1.0")
    assert call(*run, environment=environment).strip() == "the command"
    assert call(*run, "cat", "/opt/replaced", environment=environment) == "now a file"


@pytest.mark.engine("podman", "runc")
@pytest.mark.parametrize("to", ["docker", "oci-archive"])
def test_podman_loads_both_archives(made, plain, podman, to):
    name = call("podman", "load", "--quiet", "--input", made(to, plain), environment=podman).strip().rpartition(" ")[2]
    told = json.loads(call("podman", "image", "inspect", name, environment=podman))[0]
    assert f"sha256:{told['Id'].removeprefix('sha256:')}" == plain.manifest.config.digest
    assert "TRICKY=two words" in told["Config"]["Env"]


@pytest.mark.engine("skopeo", "umoci")
def test_skopeo_and_umoci_take_the_archives(made, layout, files, scratch):
    copy = ["skopeo", "copy", "--insecure-policy"]
    call(*copy, f"oci-archive:{made('oci-archive')}", f"oci:{scratch / 'one'}:1.0")
    again = read_layout(scratch / "one", "1.0")
    assert validate(again) == ()
    assert again.digest == layout.digest
    call(*copy, f"docker-archive:{made('docker')}", f"oci:{scratch / 'two'}:1.0")
    assert read_layout(scratch / "two").config.rootfs == layout.config.rootfs
    (scratch / "three").mkdir()
    call("tar", "--extract", "--file", made("oci-archive"), "--directory", scratch / "three")
    call("umoci", "unpack", "--image", f"{scratch / 'three'}:1.0", scratch / "bundle")
    theirs = tree(scratch / "bundle" / "rootfs")
    # umoci gives a folder that has no entry the time of its own work
    times = {name for name in files if theirs[name][3] != files[name][3]}
    assert {name: entry for name, entry in theirs.items() if name not in times} == {
        name: entry for name, entry in files.items() if name not in times
    }
    assert all(entry[0].startswith("d") for name, entry in files.items() if name in times)


def test_archives_have_the_same_bytes_again(layout, place, scratch):
    for to, number in itertools.product(("docker", "oci-archive", "sqsh"), range(2)):
        convert.convert(Request(ref=str(layout.path), to=to, output=scratch / f"{to}{number}"), place)
    for to in ("docker", "oci-archive", "sqsh"):
        assert (scratch / f"{to}0").read_bytes() == (scratch / f"{to}1").read_bytes()
