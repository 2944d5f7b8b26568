"""Conversions of a small, tricky layout, read by the real programs: squashfs-tools, squashfuse, Apptainer, Docker, …"""

import json
import os
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphcrate.artifacts.conversion import squashed
from graphcrate.artifacts.conversion.job import ConvertRequest
from graphcrate.artifacts.conversion.run import convert
from graphcrate.artifacts.formats import runtime_files
from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.artifacts.tree import opening
from graphcrate.artifacts.tree.compare import ALLOWANCES
from graphcrate.host.net import Client
from graphcrate.host.progress import Progress
from graphcrate.model.errors import DiskFullError
from graphcrate.oci.layout import read_layout
from graphcrate.oci.reference import parse
from graphcrate.oci.registry import Repository
from graphcrate.oci.validate import Validation, validate
from graphcrate.publish.destinations import oras
from ociregistry import push
from sifsquash import sif
from sifsquash.values import Compression
from tests.engines import tricky
from tests.engines.conftest import as_user
from tests.engines.pushing import LOGIN
from tests.engines.workplace import call, tree, without_rights

pytestmark = pytest.mark.engine("unsquashfs", "root")

NAMES = ("APPTAINER_CONTAINER", "APPTAINER_NAME", "SINGULARITY_CONTAINER", "SINGULARITY_NAME", "APPTAINER_BIND")


@pytest.fixture(scope="module")
def place(ground, cache):
    """A workplace with a folder of its own."""
    (folder := ground / "conversion").mkdir()
    return SimpleNamespace(folder=folder, cache=cache, progress=Progress(), environment=dict(os.environ))


@pytest.fixture(scope="module")
def layout(place):
    return tricky.layout(place.folder / "tricky" / "1.0" / "oci", place.cache)


@pytest.fixture(scope="module")
def plain(place):
    """The same without what Docker and podman cannot unpack."""
    return tricky.layout(place.folder / "plain" / "1.0" / "oci", place.cache, plain=True)


@pytest.fixture(scope="module")
def savable(place):
    """The same without what engines cannot save."""
    return tricky.layout(place.folder / "savable" / "1.0" / "oci", place.cache, plain=True, saved=True)


@pytest.fixture(scope="module")
def made(place, layout):
    """Makes a form once; its path."""
    known = {}

    def make(to, source=layout, **more):
        key = (to, source.digest, *sorted(more.items()))
        if key not in known:
            output = place.folder / f"{len(known)}.{to}"
            request = ConvertRequest(ref=str(source.path), to=to, output=output, **more)
            known[key] = convert(request, place)
        return Path(known[key].path)

    return make


@pytest.fixture(scope="module")
def reference(plain, apptainer, place):
    """The SIF that `apptainer build` makes of the same layout."""
    path = place.folder / "reference.sif"
    call("apptainer", "build", path, f"oci:{plain.path}", environment=apptainer)
    return path


@pytest.fixture(scope="module")
def files(layout, place):
    """The tree that `artifacts.formats.rootfs` unpacks, which gives no one rights."""
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
        additions = runtime_files.singularity_additions(layout.config, "", layout.digest)
    else:
        additions = runtime_files.enroot_additions(layout.config, "")
    return {addition.path for addition in additions}


def check_files(seen, files, layout):
    """A SIF's tree has the layout's files as they are, and what Singularity needs."""
    assert set(seen) - set(files) - {"var"} <= added(layout, "sif")
    kept = without(files, "etc/hosts", "etc/resolv.conf")
    assert without_rights({name: seen[name] for name in kept}) == kept


@pytest.mark.parametrize("compression", list(Compression))
def test_unsquashfs_finds_the_files_as_they_are(made, layout, files, scratch, compression):
    path = made("sif", compression=compression)
    call("unsquashfs", "-no-progress", "-offset", sif.root_offset(path), "-dest", scratch / "root", path)
    seen = tree(scratch / "root")
    check_files(seen, files, layout)
    assert seen["opt/bin/ping"][6] == {"security.capability": tricky.CAPABILITY}
    assert seen["opt/bin/su"][0] == "-rwsr-xr-x"
    root, told = (scratch / "root").stat(), (scratch.parent / "conversion" / "files").stat()
    assert (root.st_mode, root.st_uid, int(root.st_mtime)) == (told.st_mode, told.st_uid, int(told.st_mtime))


@pytest.mark.engine("loop mount", "squashfuse")
@pytest.mark.parametrize("compression", list(Compression))
def test_the_kernel_and_squashfuse_mount_the_partition(made, layout, files, scratch, compression):
    path = made("sif", compression=compression)
    offset = f"ro,offset={sif.root_offset(path)}"
    for name in ("kernel", "fuse"):
        (scratch / name).mkdir()
    call("mount", "-t", "squashfs", "-o", f"loop,{offset}", path, scratch / "kernel")
    call("squashfuse", "-o", offset, path, scratch / "fuse")
    kernel, fuse = tree(scratch / "kernel"), tree(scratch / "fuse")
    check_files(kernel, files, layout)
    assert {name: fuse[name][4] for name in files} == {name: kernel[name][4] for name in files}


def test_a_disk_that_fills_up_is_said_and_nothing_stays(layout, place, monkeypatch, scratch):
    call("mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", scratch)
    request = ConvertRequest(ref=str(layout.path), to="sif", output=scratch / "small.sif")
    with pytest.raises(DiskFullError, match=r"needs .* are free"):
        convert(request, place)
    monkeypatch.setattr(squashed, "require_room", lambda *_: None)
    with pytest.raises(DiskFullError, match=f"the disk that holds {scratch}.* is full"):
        convert(request, place)
    assert list(scratch.iterdir()) == []


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


def test_rootfs_folder_has_the_files_of_the_layers(made, files):
    assert tree(made("rootfs")) == files


@pytest.mark.engine("apptainer build")
def test_apptainer_lists_inspects_signs_and_verifies_it(made, layout, apptainer, scratch):
    """A signature takes one of the free descriptors, and covers ours."""
    copy = scratch / "copy.sif"
    copy.write_bytes(made("sif").read_bytes())
    environment = {**apptainer, "APPTAINER_KEYSDIR": str(scratch / "keys"), "HOME": str(scratch)}
    listed = call("apptainer", "sif", "list", copy, environment=environment)
    assert "Def.FILE" in listed
    assert "FS (Squashfs/*System/amd64)" in listed
    assert "2023-11-14 22:13:20" in call("apptainer", "sif", "header", copy, environment=environment)
    told = json.loads(call("apptainer", "inspect", "--all", copy, environment=environment))["data"]["attributes"]
    assert told["labels"]["some.label"] == "it's a label"
    assert f"From: tricky:1.0@{layout.digest}" in told["deffile"]
    assert 'exec "$@"' in told["runscript"]
    assert "10-docker2singularity" in json.dumps(told["environment"])
    assert call("apptainer", "run-help", copy, environment=environment).startswith("files of all kinds\n")
    call("apptainer", "verify", copy, environment=environment, code=255)
    pair = ("--name", "test", "--email", "test@example.com", "--comment", "test", "--password", "", "--push=false")
    call("apptainer", "key", "newpair", *pair, environment=environment)
    call("apptainer", "sign", copy, environment=environment)
    call("apptainer", "verify", "--local", copy, environment=environment)
    call("apptainer", "exec", copy, "hello", environment=environment)


@pytest.mark.engine("apptainer build")
@pytest.mark.parametrize("compression", list(Compression))
def test_sif_keeps_command_entrypoint_and_environment_in_apptainer(made, apptainer, compression):
    path = made("sif", compression=compression)
    assert call("apptainer", "run", path, environment=apptainer).strip() == "the command"
    assert call("singularity", "run", path, "hello", "there", environment=apptainer).strip() == "hello there"
    assert call("apptainer", "exec", path, "hello", environment=apptainer).strip() == "hello"
    call("apptainer", "test", path, environment=apptainer)
    said = call("apptainer", "--silent", "exec", "--cleanenv", path, "env", "-0", environment=apptainer)
    assert f"TRICKY={tricky.ENVIRONMENT['TRICKY']}" in said.split("\0")  # with its quotes


@pytest.mark.engine("apptainer build")
def test_our_sif_has_the_files_of_apptainers_own(made, plain, reference, place):
    told = opening.compare(str(reference), str(made("sif", plain)), place, ALLOWANCES)
    assert told.unexpected == ()


def variables(path, options, environment):
    """The variables of a program in a SIF, but for the names of the SIF itself."""
    said = call("apptainer", "--silent", "exec", *options, path, "env", "-0", environment=environment)
    pairs = (line.partition("=") for line in said.split("\0") if line)
    return {name: value for name, _, value in pairs if name not in NAMES}


@pytest.mark.engine("apptainer build")
@pytest.mark.parametrize("options", [(), ("--cleanenv",), ("--contain",), ("--env", "TRICKY=mine"), ("--nv",)])
@pytest.mark.parametrize("host", [{}, {"TRICKY": "the host's", "LD_LIBRARY_PATH": "/host", "EMPTY": "x"}])
def test_programs_see_the_variables_of_apptainers_own_image(made, plain, reference, apptainer, options, host):
    environment = {**apptainer, **host, "SINGULARITYENV_APPEND_PATH": "/appended"}
    ours, theirs = (variables(path, options, environment) for path in (made("sif", plain), reference))
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
    seen = variables(made("sif", plain, compression=Compression.ZSTD), options, environment)
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
    os.chown(scratch, plain_user.pw_uid, plain_user.pw_gid)
    path = made("sif", plain, compression=Compression.ZSTD)
    script = """exec 2> /dev/null
        cp /bin/sh /opt/bin/mine && echo /opt/bin
        for folder in /tmp /var/tmp "$HOME"; do cp /large "$folder/large" && echo "$folder"; done
        exit 0"""
    said = call(
        *as_user(plain_user, "apptainer", "--silent", "exec", "--bind", f"{scratch / 'large'}:/large"),
        *(option.format(folder=scratch) for option in options),
        *(path, "sh", "-c", script),
        environment={"PATH": os.environ["PATH"], "HOME": plain_user.pw_dir, "TMPDIR": str(scratch)},
    )
    assert said.split() == fits.split()


ACTIONS = {"exec": ("hello", "a b"), "run": ("hello", "a b"), "test": (), "shell": ("-c", "hello a b")}


@pytest.mark.parametrize("action", ACTIONS)
def test_scripts_for_engines_before_3_6_do_the_same(made, scratch, action):
    """Those run the image's own actions; there is none for this system, so a chroot stands for it."""
    path = made("sif")
    call("unsquashfs", "-no-progress", "-offset", sif.root_offset(path), "-dest", scratch / "root", path)
    command = ["chroot", scratch / "root", f"/.singularity.d/actions/{action}", *ACTIONS[action]]
    said = call(*command, environment={"PATH": "/usr/bin:/bin", "EMPTY": "x"})
    assert said.strip() == ("this image has no test" if action == "test" else "hello a b")
    script = "for s in /.singularity.d/env/*.sh; do . $s; done; env -0"
    variables = call("chroot", scratch / "root", "/bin/sh", "-c", script, environment={"PATH": "/bin", "EMPTY": "x"})
    seen = dict(line.split("=", 1) for line in variables.split("\0") if line)
    assert {name: seen[name] for name in tricky.ENVIRONMENT} == {**tricky.ENVIRONMENT, "EMPTY": "x"}
    assert seen["LD_LIBRARY_PATH"] == "/.singularity.d/libs"


def pushed(address, sif, name, login=None):
    """Push it as `publish` does."""
    where = parse(f"{address}/{name}")
    target = Repository(Client({}), where, lambda: login, writes=True)
    done = oras.push_sif(sif, sha256(sif.read_bytes()).hexdigest(), where, target, Progress(), {})
    push.put_manifest(target, where.tag, target.manifest(done.digest).data, done.media_type)
    return done


@pytest.mark.slow
@pytest.mark.engine("docker-registry", "apptainer build")
@pytest.mark.parametrize("login", [None, LOGIN], ids=["open", "login"])
def test_apptainer_pulls_the_very_file_from_a_registry_and_runs_it(request, made, apptainer, scratch, login):
    sif = made("sif")
    address = request.getfixturevalue("basic_registry" if login else "registry")
    pushed(address, sif, "team/tricky:1.0", login)
    told = {"APPTAINER_DOCKER_USERNAME": login.user, "APPTAINER_DOCKER_PASSWORD": login.password} if login else {}
    url, pulled = f"oras://{address}/team/tricky:1.0", scratch / "pulled.sif"
    call("apptainer", "pull", "--no-https", pulled, url, environment={**apptainer, **told})
    assert pulled.read_bytes() == sif.read_bytes()
    assert call("apptainer", "exec", "--no-https", url, "hello", environment={**apptainer, **told}).strip() == "hello"


@pytest.mark.slow
@pytest.mark.engine("docker-registry", "apptainer build")
def test_what_apptainer_pushes_itself_is_there_already(registry, made, apptainer):
    """Its own push has the same layer and config: nothing is left to send but the manifest."""
    sif = made("sif")
    call("apptainer", "push", "--no-https", sif, f"oras://{registry}/team/theirs:1", environment=apptainer)
    found = pushed(registry, sif, "team/theirs:2")
    assert found.bytes_there == sif.stat().st_size + 2
    assert found.bytes_sent < 1000


@pytest.mark.engine("docker daemon")
def test_docker_archive_loads_with_the_same_id_and_runs(made, plain, docker):
    environment = {**os.environ, "DOCKER_HOST": docker}
    said = call("docker", "load", "--input", made("docker", plain), environment=environment)
    assert "Loaded image: tricky:1.0" in said
    ident = call("docker", "image", "inspect", "--format", "{{.Id}}", "tricky:1.0", environment=environment)
    assert ident.strip() == plain.manifest.config.digest
    run = ("docker", "run", "--rm", "--network", "none", "tricky:1.0")
    assert call(*run, environment=environment).strip() == "the command"
    assert call(*run, "cat", "/opt/replaced", environment=environment) == "now a file"


def check_same(ref, other, place, environment, folder):
    """The SIF of an image in a tar or an engine's store has the files of another, and names a layout of its own."""
    there = SimpleNamespace(**{**vars(place), "environment": environment})
    file = folder / "brought.sif"
    told = convert(ConvertRequest(ref=ref, to="sif", output=file, force=True), there)
    assert (told.unchanged, opening.compare(str(file), str(other), place, ALLOWANCES).unexpected) == (False, ())
    assert convert(ConvertRequest(ref=ref, to="sif", output=file), there).unchanged
    return told.layout


@pytest.mark.engine("docker daemon", "apptainer build")
def test_image_of_docker_and_its_saved_tar_convert_to_the_same_sif(made, savable, docker, apptainer, place, scratch):
    environment = {**os.environ, "DOCKER_HOST": docker}
    call("docker", "load", "--input", made("docker", savable), environment=environment)
    call("docker", "save", "--output", scratch / "saved.tar", "tricky:1.0", environment=environment)
    refs = (str(scratch / "saved.tar"), "docker:tricky:1.0")
    assert len({check_same(ref, made("sif", savable), place, environment, scratch) for ref in refs}) == 1
    assert call("apptainer", "run", scratch / "brought.sif", environment=apptainer).strip() == "the command"


@pytest.mark.engine("podman", "runc")
@pytest.mark.parametrize("to", ["docker", "oci-archive"])
def test_podman_loads_oci_and_docker_archives_with_the_same_id(made, plain, podman, to):
    name = call("podman", "load", "--quiet", "--input", made(to, plain), environment=podman).strip().rpartition(" ")[2]
    told = json.loads(call("podman", "image", "inspect", name, environment=podman))[0]
    assert f"sha256:{told['Id'].removeprefix('sha256:')}" == plain.manifest.config.digest
    assert "TRICKY=two words" in told["Config"]["Env"]


@pytest.mark.engine("podman", "runc")
def test_image_of_podman_converts_to_a_sif_with_the_same_files(made, savable, podman, place, scratch):
    call("podman", "load", "--quiet", "--input", made("docker", savable), environment=podman)
    check_same("podman:localhost/tricky:1.0", made("sif", savable), place, podman, scratch)


@pytest.mark.engine("skopeo", "umoci")
def test_archives_keep_their_digest_through_skopeo_and_unpack_in_umoci(made, layout, files, scratch):
    copy = ["skopeo", "copy", "--insecure-policy"]
    seen = json.loads(call("skopeo", "inspect", f"oci:{layout.path}:1.0"))
    assert (seen["Digest"], seen["Created"]) == (layout.digest, "2023-11-14T22:13:20Z")
    assert (seen["Layers"], seen["Labels"]["some.label"]) == ([one.digest for one in layout.layers], "it's a label")
    call(*copy, f"oci-archive:{made('oci-archive')}", f"oci:{scratch / 'one'}:1.0")
    again = read_layout(scratch / "one", "1.0")
    assert validate(again) == Validation()
    assert again.digest == layout.digest
    call(*copy, f"docker-archive:{made('docker')}", f"oci:{scratch / 'two'}:1.0")
    assert read_layout(scratch / "two").config.rootfs == layout.config.rootfs
    (scratch / "three").mkdir()
    call("tar", "--extract", "--file", made("oci-archive"), "--directory", scratch / "three")
    call("umoci", "unpack", "--image", f"{scratch / 'three'}:1.0", scratch / "bundle")
    theirs = without_rights(tree(scratch / "bundle" / "rootfs"))
    assert theirs.keys() == files.keys()
    for name, entry in files.items():
        # umoci gives a folder that has no entry the time of its own work
        assert theirs[name] == entry or (entry[0].startswith("d") and theirs[name][3] != entry[3]), name
    process = json.loads((scratch / "bundle" / "config.json").read_bytes())["process"]
    assert process["args"] == list(layout.config.config.cmd)
    assert f"TRICKY={tricky.ENVIRONMENT['TRICKY']}" in process["env"]
