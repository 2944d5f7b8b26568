"""The Apptainer builder and runner with the real engine, on a base of a few megabytes."""

import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.engines import apptainer
from graphcrate.host import settings
from graphcrate.host.engines import apptainer_client
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.report import Artifact
from nsbox.box import Bind
from sifsquash import sif
from tests.conftest import ROOT
from tests.engines import tiny
from tests.engines.workplace import call, running, until

pytestmark = [pytest.mark.slow, pytest.mark.engine("apptainer", "unsquashfs")]

ENGINE = apptainer.ApptainerEngine("apptainer")
HEADER = "Bootstrap: oci\nFrom: base\nStage: %s\n"
BUILD = HEADER % "build"
FINAL = HEADER % "final"
GOOD = f"""{BUILD}
%post
    umask 022
    mkdir -p /opt/made
    cp /usr/bin/env /opt/made/env
    echo text > /opt/made/text

{FINAL}
%files from build
    /opt/made

%environment
    export TINY_WORD="a word"
    export PATH="/opt/made:$PATH"

%labels
    org.opencontainers.image.title graphcrate-test
    org.opencontainers.image.version 1.0

%runscript
    exec "$@"
"""
LABELS = {"org.opencontainers.image.title": "graphcrate-test", "org.opencontainers.image.version": "1.0"}


@pytest.fixture
def written(monkeypatch):
    """Let the builder render this text."""

    def write(text):
        monkeypatch.setattr(apptainer, "definition", lambda plan, **_: text)

    return write


def labelled(order, **labels):
    """The order for an image with these labels."""
    config = msgspec.structs.replace(order.plan.config, labels=LABELS | labels)
    plan = msgspec.structs.replace(order.plan, steps=(*order.plan.steps[:-1], config))
    return dataclasses.replace(order, plan=plan)


@pytest.fixture(scope="module")
def image(cache, tmp_path_factory):
    """A good image, with what the builder said of it."""
    folder = tmp_path_factory.mktemp("good")
    folder.chmod(0o755)
    order = labelled(tiny.order(folder, cache, settings.environment()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apptainer, "definition", lambda plan, **_: GOOD)
        return ENGINE.build(order).artifact, order


def unpacked(path, folder):
    """The files of a SIF."""
    offset = sif.root_offset(Path(path))
    call("unsquashfs", "-quiet", "-no-progress", "-offset", offset, "-dest", folder / "root", path)
    return folder / "root"


def left_over(cache, folder):
    """Leftovers that no ended build may leave."""
    return [*(cache.root / "apptainer" / "build").glob("*"), *folder.glob(".*.part-*"), *folder.glob(".*.sif*")]


def test_built_sif_has_the_definitions_files_modes_and_digest(image, cache, tmp_path):
    artifact, order = image
    made = order.folder / "graphcrate-test.sif"
    assert (artifact.kind, artifact.reference, artifact.bytes) == ("sif", str(made), made.stat().st_size)
    assert artifact.digest == f"sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}"
    root = unpacked(made, tmp_path)
    assert (root / "opt/made/text").read_text() == "text\n"
    assert (root / "opt/made").stat().st_mode & 0o777 == 0o755
    assert left_over(cache, order.folder) == []
    assert "apptainer cp /usr/bin/env /opt/made/env" in order.progress.notes
    assert "+ cp /usr/bin/env" in Path(artifact.log).read_text()


def test_labels_of_the_image_are_read_and_those_of_another_refused(image, cache, tmp_path, written):
    found = apptainer_client.find(settings.environment()).labels(Path(image[0].reference))
    assert found.items() >= LABELS.items()
    assert not any("not compared" in note for note in image[1].progress.notes)
    written(GOOD)
    order = labelled(tiny.order(tmp_path, cache, settings.environment()), **{"org.opencontainers.image.version": "2"})
    with pytest.raises(BuildError, match=r"built another image than .*: org.opencontainers.image.version is '1.0'"):
        ENGINE.build(order)
    assert left_over(cache, tmp_path) == []


def test_damaged_sif_is_a_host_error_that_says_so(cache, tmp_path):
    (tmp_path / "a.sif").write_text("junk")
    artifact = Artifact(engine="apptainer", kind="sif", reference=str(tmp_path / "a.sif"), digest="", bytes=4)
    with pytest.raises(HostError, match="it is damaged") as caught:
        with ENGINE.opened(artifact, cache=cache, progress=tiny.Told()):
            raise AssertionError("it was opened")
    assert "image format not recognized" in caught.value.cause


def test_a_step_that_fails_is_shown_and_leaves_the_earlier_image(cache, tmp_path, written):
    (tmp_path / "graphcrate-test.sif").write_text("the one before")
    written(f"{BUILD}\n%post\n    echo begun\n    ls /no/such/folder\n    echo never\n")
    with pytest.raises(BuildError) as caught:
        ENGINE.build(tiny.order(tmp_path, cache, settings.environment()))
    error = caught.value
    assert "failed at step ls /no/such/folder" in error.what
    assert "No such file or directory" in error.what
    assert str(tmp_path / "build.log") in error.next_step
    assert "never" not in (tmp_path / "build.log").read_text()
    assert (tmp_path / "graphcrate-test.sif").read_text() == "the one before"
    assert left_over(cache, tmp_path) == []


def test_nothing_of_proxies_certificates_and_mirrors_stays(cache, tmp_path, written):
    authorities = tmp_path / "authorities.pem"
    authorities.write_text("an authority for the build alone\n")
    written(f"""{BUILD}
%setup
    if [ -f ca.crt ]; then cp ca.crt "${{SINGULARITY_ROOTFS}}/ca.crt"; fi

%post
    cat /ca.crt
    echo "proxy: $https_proxy $HTTPS_PROXY"
    echo "mirror: $PACKAGE_INDEX"
    umask 022
    mkdir -p /opt/made

{FINAL}
%files from build
    /opt/made
""")
    secret = "wonder-word"
    environment = settings.environment() | {"https_proxy": f"http://user:{secret}@127.0.0.1:9"}
    mirror = f"http://someone:{secret}@127.0.0.1:9/simple"
    folder = tmp_path / "out"
    folder.mkdir()
    order = tiny.order(
        folder, cache, environment, arguments={"PACKAGE_INDEX": mirror}, certificates=authorities, name="pyg"
    )
    artifact = ENGINE.build(order).artifact
    log = Path(artifact.log).read_text()
    assert "an authority for the build alone" in log
    assert "proxy: http://***@127.0.0.1:9 http://***@127.0.0.1:9" in log
    assert "mirror: http://***@127.0.0.1:9/simple" in log
    assert secret not in log
    root = unpacked(artifact.reference, tmp_path)
    texts = [path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    texts.append(call("apptainer", "inspect", "--all", artifact.reference).encode())
    for word in (b"127.0.0.1:9", secret.encode(), b"an authority", str(cache.root).encode()):
        assert not any(word in text for text in texts), word


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_that_the_next_does_not_remove(number, cache, tmp_path, written):
    marker = f"4000{number:02d}{os.getpid() % 100_000:05d}"
    text = f"{BUILD}\n%post\n    mkdir -p /opt\n    echo here > /opt/here\n    sleep {marker}\n"
    command = [sys.executable, "-m", "tests.engines.tiny", "apptainer", tmp_path, cache.root, text]
    with subprocess.Popen(command, cwd=ROOT) as build:
        try:
            until(lambda: running("sleep", marker), process=build)
            build.send_signal(number)
            build.wait(120)
        finally:
            build.kill()
    if number == signal.SIGKILL:  # it gives nobody the time to clean up
        for left in running("sleep", marker):
            os.killpg(os.getpgid(left), signal.SIGKILL)
        until(lambda: not running("sleep", marker))
    else:
        assert not running("sleep", marker)
        assert left_over(cache, tmp_path) == []
    assert not (tmp_path / "graphcrate-test.sif").exists()
    written(f"{BUILD}\n%post\n    umask 022\n")
    ENGINE.build(tiny.order(tmp_path, cache, settings.environment()))
    assert left_over(cache, tmp_path) == []


def test_a_command_runs_with_the_images_variables_and_ours(image, cache, monkeypatch):
    monkeypatch.setenv("APPTAINERENV_STRAY", "from the host")
    monkeypatch.setenv("STRAY", "from the host")
    with ENGINE.opened(image[0], cache=cache, progress=tiny.Told()) as inside:
        done = inside.run(Exec(["env"], {"ODD": "a $HOME `ls`", "TINY_WORD": "ours"}))
        assert done.returncode == 0
        assert {"ODD=a $HOME `ls`", "TINY_WORD=ours"} <= {*done.lines}
        assert any(line.startswith("PATH=/opt/made:") for line in done.lines)
        assert not any("STRAY" in line for line in done.lines)
        assert inside.run(Exec(["env"])).lines.count("TINY_WORD=a word") == 1
        assert inside.run(Exec(["sh", "-c", "echo a; echo b >&2; exit 7"])).returncode == 7
        marker = f"5000{os.getpid() % 100_000:05d}"
        with pytest.raises(BuildError, match="did not finish"):
            inside.run(Exec(["sh", "-c", f"sleep {marker} & sleep {marker}"], timeout=2))
        until(lambda: not running("sleep", marker))


def test_the_host_is_out_of_reach_but_for_binds(image, cache, tmp_path):
    (tmp_path / "in").write_text("given\n")
    with ENGINE.opened(image[0], cache=cache, progress=tiny.Told()) as inside:
        binds = [Bind(tmp_path / "in", "/in"), Bind(tmp_path, "/out", read_only=False)]
        done = inside.run(Exec(["sh", "-c", "cat /in; echo written > /out/file; ls /tmp; echo no > /in"], binds=binds))
        assert done.returncode != 0
        assert done.lines[0] == "given"
        assert len(done.lines) == 2, "the host's /tmp is seen, or /in was written"
        assert (tmp_path / "file").read_text() == "written\n"
        assert inside.run(Exec(["sh", "-c", "echo x > /opt/made/text"])).returncode != 0
        devices = inside.run(Exec(["cat", "/proc/net/dev"])).lines
        assert [line.split(":")[0].strip() for line in devices[2:]] == ["lo"]
        with pytest.raises(HostError, match="does not exist"):
            inside.run(Exec(["env"], binds=[Bind(tmp_path / "nothing", "/x")]))


#: what a plain user runs and builds; the project may lie where they may not look
BY_A_USER = """
import os, sys
from graphcrate.engines import apptainer
from graphcrate.host.engines import apptainer_client
from graphcrate.host import settings
from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.model.report import Artifact
from pathlib import Path
from tests.engines import tiny
user, group, root, given, text = sys.argv[1:]
os.chdir(root)
os.setgroups([]); os.setgid(int(group)); os.setuid(int(user))
cache = Cache(Path(root, "cache"))
artifact = Artifact(engine="apptainer", kind="sif", reference=given, digest="", bytes=0)
engine = apptainer.ApptainerEngine("apptainer")
with engine.opened(artifact, cache=cache, progress=tiny.Told()) as inside:
    done = inside.run(Exec(["sh", "-c", "cat /opt/made/text; cat /proc/self/uid_map; cat /proc/mounts"]))
print(*done.lines[:2], sep="\\n")
apptainer.definition = lambda plan, **_: text
print(engine.build(tiny.order(Path(root), cache, settings.environment())).artifact.reference)
"""


@pytest.mark.engine("root", "useradd", "squashfuse", "newuidmap", "user namespaces")
def test_a_plain_user_runs_and_builds_it_too(image, scratch, plain_user):
    (copy := scratch / "image.sif").write_bytes(Path(image[0].reference).read_bytes())
    os.chown(scratch, plain_user.pw_uid, plain_user.pw_gid)
    text = GOOD.replace("umask 022", "umask 022\n    mkdir -m 700 /opt/others\n    cp /usr/bin/env /opt/others/env", 1)
    ids = (plain_user.pw_uid, plain_user.pw_gid)
    environment = {**os.environ, "HOME": str(scratch), "USER": plain_user.pw_name}
    command = (sys.executable, "-c", BY_A_USER, *ids, scratch, copy, text)
    word, owner, reference = call(*command, folder=ROOT, environment=environment).splitlines()
    assert word == "text"
    assert owner.split()[:2] == [str(plain_user.pw_uid)] * 2
    made = scratch / "graphcrate-test.sif"
    assert reference == str(made)
    assert made.stat().st_uid == (scratch / "cache").stat().st_uid == plain_user.pw_uid
    assert left_over(SimpleNamespace(root=scratch / "cache"), scratch) == []
