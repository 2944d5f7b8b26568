"""Files of Singularity and enroot in an image: made of its configuration, read back by a shell's own rules."""

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.artifacts.formats import runtime_files
from graphcrate.artifacts.formats.merged import with_additions
from graphcrate.artifacts.formats.packed import read_packed
from graphcrate.artifacts.formats.runtime_files import words
from ocilayout.spec import ImageConfig, RootFS, RunConfig
from sifsquash.values import Compression
from tests.unit.small_layouts import layout
from tests.unit.tars import entry, file, folder

DIGEST = f"sha256:{'5' * 64}"


def config(**run):
    rootfs, created = RootFS(diff_ids=()), "2023-11-14T22:13:20Z"
    return ImageConfig(architecture="amd64", os="linux", rootfs=rootfs, created=created, config=RunConfig(**run))


def by_path(additions):
    return {addition.path: addition for addition in additions}


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)


@given(st.lists(texts, max_size=4))
def test_quoted_words_are_read_back_by_shlex(arguments):
    assert shlex.split(words(arguments)) == arguments


def test_environment_script_sets_unset_variables_and_skips_invalid_names():
    odd = ("D.E=2", "1F=3", "=j", "Ä=k")
    text = runtime_files.environment_script(RunConfig(env=("PATH=/opt/venv/bin:/bin", "A=it's=${X}", "B", *odd)))
    assert text == (
        "#!/bin/sh\nexport PATH='/opt/venv/bin:/bin'\n"
        "[ -n \"${A:-}\" ] || A='it'\"'\"'s=${X}'\nexport A\n"
        "[ -n \"${B:-}\" ] || B=''\nexport B\n"
    )


@pytest.mark.parametrize(
    ("run", "command", "start"),
    [
        ({}, "'/bin/sh'", "exec"),
        ({"cmd": ("bash", "-l")}, "'bash' '-l'", "exec"),
        ({"entrypoint": ("e", "-u")}, "", "exec 'e' '-u'"),
        ({"entrypoint": ("e",), "cmd": ("a b", "c")}, "'a b' 'c'", "exec 'e'"),
    ],
)
def test_run_script_starts_entrypoint_with_arguments_or_cmd(run, command, start):
    default = f"if [ $# -eq 0 ]; then\n    set -- {command}\nfi\n" if command else ""
    assert runtime_files.run_script(RunConfig(**run)) == f'#!/bin/sh\n{default}{start} "$@"\n'
    lines = runtime_files.enroot_rc(config(**run), "oci:x").splitlines()
    seen = [line.strip() for line in lines if line.startswith("    exec")]
    assert seen == [f'{start} "$@"', f"{start} {command}".rstrip()]
    assert 'cd "/" && unset OLDPWD || exit 1' in lines


@pytest.mark.parametrize(
    ("run", "begins"),
    [
        ({"cmd": ("a",), "working_dir": "/opt/it's"}, "    cd '/opt/it'\"'\"'s'\n    set -- 'a'\n"),
        ({"entrypoint": ("e",), "working_dir": "-x/"}, "    cd '/-x'\n"),
        ({"cmd": ("a",), "working_dir": "/"}, "    set -- 'a'\n"),
        ({"working_dir": "/opt"}, "    set -- '/bin/sh'\n"),  # a user's shell begins where the user is
    ],
)
def test_command_of_an_image_begins_in_its_working_folder_and_a_users_where_the_user_is(run, begins):
    assert f"if [ $# -eq 0 ]; then\n{begins}fi\nexec" in runtime_files.run_script(RunConfig(**run))


def test_singularity_additions_are_its_files_and_links():
    labels = {"graphcrate.torch": "2.0.1"}
    seen = by_path(runtime_files.singularity_additions(config(cmd=("sh",), labels=labels), "Bootstrap: oci\n", DIGEST))
    actions = [f"actions/{name}" for name in ("exec", "run", "shell", "start", "test")]
    for name in (*actions, "runscript", "startscript", "test", "env/10-docker2singularity.sh", "env/99-base.sh"):
        addition = seen[f".singularity.d/{name}"]
        assert (addition.mode, addition.content[:10]) == (0o755, b"#!/bin/sh\n")
    assert seen[".singularity.d/Singularity"].content == b"Bootstrap: oci\n"
    links = {f".{name}": f".singularity.d/actions/{name}" for name in ("exec", "run", "shell", "test")}
    links |= {"singularity": ".singularity.d/runscript", "environment": ".singularity.d/env/90-environment.sh"}
    assert {name: addition.link for name, addition in seen.items() if addition.link} == links
    assert set(links.values()) <= seen.keys(), "no link leads nowhere"
    stated = json.loads(seen[".singularity.d/labels.json"].content)
    assert stated.items() >= {**labels, "org.label-schema.build-date": "2023-11-14T22:13:20Z"}.items()
    assert b"import torch" in seen[".singularity.d/test"].content
    without = by_path(runtime_files.singularity_additions(config(), "", DIGEST))
    assert not {".singularity.d/test", ".singularity.d/runscript.help"} & without.keys()


def test_description_of_an_image_is_what_run_help_prints():
    labels = {"org.opencontainers.image.description": "PyTorch and PyG"}
    seen = by_path(runtime_files.singularity_additions(config(labels=labels), "", DIGEST))
    title, line, _ = seen[".singularity.d/runscript.help"].content.decode().split("\n")
    assert (title, line.partition(": ")[2].split()[:3]) == ("PyTorch and PyG", ["singularity", "run", "--nv"])


def test_definition_has_description_bootstrap_and_reference():
    for description, line in (("CUDA and PyTorch", "# CUDA and PyTorch\n"), ("a\n%post\nrm -rf /", "")):
        told = config(labels={"org.opencontainers.image.description": description})
        assert runtime_files.definition(told, "pyg:1@sha256:0") == f"{line}Bootstrap: oci\nFrom: pyg:1@sha256:0\n"


def test_enroot_additions_are_those_of_enroot_import():
    run = {"env": ("PATH=/bin", "A=b c"), "labels": {"l": "m\nn"}, "working_dir": "/work dir"}
    run |= {"entrypoint": ("/entry",), "cmd": ("it's",), "volumes": {"/data": {}}}
    seen = by_path(runtime_files.enroot_additions(config(**run), "oci:pyg:1"))
    assert seen["work dir"].content is None
    assert seen["etc/environment"].content == b"PATH=/bin\nA=b c\n"
    assert seen["etc/fstab"].content == b"${ENROOT_ROOTFS}/data /data none x-create=dir,bind,rw,nosuid,nodev\n"
    assert seen["etc/rc.local"].content.startswith(b"# This file is sourced by /etc/rc")
    assert seen["etc/rc"].content.decode() == RC


RC = """# enroot-provenance: oci:pyg:1
# l m n

mkdir -p "/work dir" 2> /dev/null
cd "/work dir" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec '/entry' "$@"
else
    exec '/entry' 'it'"'"'s'
fi
"""


def test_enroot_files_are_owned_by_root_and_readable(tmp_path, cache):
    members = [
        folder("closed", mode=0o055, uid=7),
        file("closed/secret", b"s", mode=0o001, uid=7, gid=8),
        file("plain", b"p", mode=0o040, pax_headers={"SCHILY.xattr.user.a": "b"}),
        entry("dev/null", b"3", devmajor=1, devminor=3),
    ]
    image, _ = read_packed(layout(tmp_path, members), Compression.GZIP, cache, lambda _: None)
    paths = runtime_files.enroot_imported(with_additions(image, runtime_files.enroot_additions(config(), "x"), 0))
    assert {(inode.uid, inode.gid) for inode in paths.values()} == {(0, 0)}
    modes = {"closed": 0o755, "closed/secret": 0o501, "plain": 0o440, "etc/rc": 0o644, "dev": 0o755}
    assert {path: paths[path].mode for path in modes} == modes
    assert not paths["plain"].xattrs
    assert "dev/null" not in paths
