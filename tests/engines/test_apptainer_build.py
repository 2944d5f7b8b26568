"""The Apptainer builder and runner with the real engine, on a base of a few megabytes."""

import contextlib
import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphcrate.engines.builders import apptainer
from graphcrate.engines.runners import apptainer as runner
from graphcrate.host import settings
from graphcrate.host.cache import Cache
from graphcrate.host.sandbox import Bind, Exec
from graphcrate.model.errors import BuildError, HostError
from tests.engines import tiny

pytestmark = [pytest.mark.slow, pytest.mark.engine("apptainer", "unsquashfs")]

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

%runscript
    exec "$@"
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache on the tests' disk that other users can enter."""
    folder = Path(tmp_path_factory.mktemp("apptainer"))
    for path in (folder, folder.parent, folder.parent.parent):
        with contextlib.suppress(PermissionError):
            path.chmod(0o755)
    cache = Cache(folder / "cache")
    yield cache
    cache.close()


@pytest.fixture
def written(monkeypatch):
    """Let the builder render this text."""

    def write(text):
        monkeypatch.setattr(apptainer, "definition", lambda plan, **_: text)

    return write


@pytest.fixture(scope="module")
def image(cache, tmp_path_factory):
    """A good image, with what the builder said of it."""
    folder = tmp_path_factory.mktemp("good")
    folder.chmod(0o755)
    order = tiny.order(folder, cache, settings.environment())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apptainer, "definition", lambda plan, **_: GOOD)
        return apptainer.build(order), order


def unpacked(sif, folder):
    """The files of a SIF, written with its own engine's tools."""
    listed = subprocess.check_output(["apptainer", "sif", "list", sif], encoding="utf-8")
    number = next(line.split("|")[0].strip() for line in listed.splitlines() if "Squashfs" in line)
    with (folder / "squashfs").open("wb") as stream:
        subprocess.run(["apptainer", "sif", "dump", number, sif], stdout=stream, check=True)
    command = ["unsquashfs", "-quiet", "-no-progress", "-dest", folder / "root", folder / "squashfs"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "root"


def left_over(cache, folder):
    """What a build that ended must not leave."""
    return [*(cache.root / "apptainer" / "build").glob("*"), *folder.glob("*.part"), *folder.glob(".*.sif*")]


def test_it_builds_what_the_definition_says(image, cache, tmp_path):
    artifact, order = image
    sif = order.folder / "graphcrate-test.sif"
    assert (artifact.kind, artifact.reference, artifact.bytes) == ("sif", str(sif), sif.stat().st_size)
    assert artifact.digest == f"sha256:{hashlib.sha256(sif.read_bytes()).hexdigest()}"
    root = unpacked(sif, tmp_path)
    assert (root / "opt/made/text").read_text() == "text\n"
    assert (root / "opt/made").stat().st_mode & 0o777 == 0o755
    assert left_over(cache, order.folder) == []
    assert any("%post of stage build" in note for note in order.progress.notes)
    assert any("%post of stage build: cp /usr/bin/env" in note for note in order.progress.notes)
    assert "+ cp /usr/bin/env" in Path(artifact.log).read_text()


def test_a_step_that_fails_is_shown_and_leaves_the_earlier_image(cache, tmp_path, written):
    (tmp_path / "graphcrate-test.sif").write_text("the one before")
    written(f"{BUILD}\n%post\n    echo begun\n    ls /no/such/folder\n    echo never\n")
    with pytest.raises(BuildError) as caught:
        apptainer.build(tiny.order(tmp_path, cache, settings.environment()))
    error = caught.value
    assert "failed at step %post of stage build: ls /no/such/folder" in error.what
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
    artifact = apptainer.build(order)
    log = Path(artifact.log).read_text()
    assert "an authority for the build alone" in log
    assert "proxy: http://***@127.0.0.1:9 http://***@127.0.0.1:9" in log
    assert "mirror: http://***@127.0.0.1:9/simple" in log
    assert secret not in log
    root = unpacked(artifact.reference, tmp_path)
    texts = [path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    texts.append(subprocess.check_output(["apptainer", "inspect", "--all", artifact.reference]))
    for word in (b"127.0.0.1:9", secret.encode(), b"an authority", str(cache.root).encode()):
        assert not any(word in text for text in texts), word


BUILDING = """
import sys
from pathlib import Path
from graphcrate.engines.builders import apptainer
from graphcrate.host import process, settings
from graphcrate.host.cache import Cache
from tests.engines import tiny
text, folder, root = sys.argv[1:]
apptainer.definition = lambda plan, **_: text
process.interrupt_on_terminate()
apptainer.build(tiny.order(Path(folder), Cache(Path(root)), settings.environment()))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_that_the_next_does_not_remove(number, project, cache, tmp_path, written):
    marker = f"4000{number:02d}{os.getpid() % 100_000:05d}"
    text = f"{BUILD}\n%post\n    mkdir -p /opt\n    echo here > /opt/here\n    sleep {marker}\n"
    command = [sys.executable, "-c", BUILDING, text, tmp_path, cache.root]
    with (tmp_path / "said").open("w") as said, subprocess.Popen(command, cwd=project, stderr=said) as build:
        try:
            await_that(lambda: running(marker) or build.poll() is not None)
            assert build.poll() is None, (tmp_path / "said").read_text()
            build.send_signal(number)
            build.wait(120)
        finally:
            build.kill()
    if number == signal.SIGKILL:
        end(marker)
    else:
        assert not running(marker)
        assert left_over(cache, tmp_path) == []
    assert not (tmp_path / "graphcrate-test.sif").exists()
    written(f"{BUILD}\n%post\n    umask 022\n")
    apptainer.build(tiny.order(tmp_path, cache, settings.environment()))
    assert left_over(cache, tmp_path) == []


def running(marker):
    """Processes `sleep <marker>`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", marker.encode()]:
                found.append(int(path.parent.name))
    return found


def end(marker):
    """End what a killed build left running: kill -9 gives nobody the time to."""
    for process in running(marker):
        os.killpg(os.getpgid(process), signal.SIGKILL)
    await_that(lambda: not running(marker))


def await_that(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come about within two minutes")


def test_a_base_that_cannot_be_pulled_is_named(cache, tmp_path, written):
    written("Bootstrap: docker\nFrom: 127.0.0.1:9/no/such:image\nStage: build\n\n%post\n    true\n")
    with pytest.raises(BuildError, match=r"the base image .*/no/such:image is not available") as caught:
        apptainer.build(tiny.order(tmp_path, cache, settings.environment(), base=None))
    assert "pull docker://127.0.0.1:9/no/such:image" in caught.value.next_step
    assert left_over(cache, tmp_path) == []


def test_a_command_runs_with_the_images_variables_and_ours(image, cache, monkeypatch):
    monkeypatch.setenv("APPTAINERENV_STRAY", "from the host")
    monkeypatch.setenv("STRAY", "from the host")
    with runner.opened(image[0], cache=cache, progress=tiny.Told()) as inside:
        done = inside.run(Exec(["env"], {"ODD": "a $HOME `ls`", "TINY_WORD": "ours"}))
        assert done.returncode == 0
        assert {"ODD=a $HOME `ls`", "TINY_WORD=ours"} <= {*done.lines}
        assert any(line.startswith("PATH=/opt/made:") for line in done.lines)
        assert not any("STRAY" in line for line in done.lines)
        assert inside.run(Exec(["env"])).lines.count("TINY_WORD=a word") == 1


def test_the_host_is_out_of_reach_but_for_binds(image, cache, tmp_path):
    (tmp_path / "in").write_text("given\n")
    with runner.opened(image[0], cache=cache, progress=tiny.Told()) as inside:
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


def test_it_ends_as_the_command_ends(image, cache):
    with runner.opened(image[0], cache=cache, progress=tiny.Told()) as inside:
        assert inside.run(Exec(["sh", "-c", "echo a; echo b >&2; exit 7"])).returncode == 7
        assert inside.run(Exec(["sh", "-c", "kill -SEGV $$"])).returncode in (-signal.SIGSEGV, 128 + signal.SIGSEGV)
        marker = f"5000{os.getpid() % 100_000:05d}"
        with pytest.raises(BuildError, match="did not finish"):
            inside.run(Exec(["sh", "-c", f"sleep {marker} & sleep {marker}"], timeout=2))
        await_that(lambda: not running(marker))


BECOME = """
import os, sys
from graphcrate.engines.builders import apptainer as builder
from graphcrate.host import settings
from graphcrate.host.cache import Cache
from graphcrate.host.sandbox import Exec
from graphcrate.model.report import Artifact
from graphcrate.engines.runners import apptainer
from pathlib import Path
from tests.engines import tiny
user, group, root, given = sys.argv[1:]
os.chdir(Path(root).parent)  # the project may lie where a plain user may not look
os.setgroups([]); os.setgid(int(group)); os.setuid(int(user))
cache = Cache(Path(root))
"""
RUNNING = """
artifact = Artifact(engine="apptainer", kind="sif", reference=given, digest="", bytes=0)
with apptainer.opened(artifact, cache=cache, progress=tiny.Told()) as inside:
    done = inside.run(Exec(["sh", "-c", "cat /opt/made/text; cat /proc/self/uid_map; cat /proc/mounts"]))
print("\\n".join(done.lines))
"""
OWN_BUILD = """
text, folder = given.split("|")
builder.definition = lambda plan, **_: text
print(builder.build(tiny.order(Path(folder), cache, settings.environment())).reference)
"""


def as_user(program, uid, gid, given, project, folder):
    """Run this program as a plain user who owns the folder."""
    os.chown(folder, uid, gid)
    command = [sys.executable, "-c", BECOME + program, str(uid), str(gid), folder / "cache", given]
    environment = {**os.environ, "HOME": str(folder), "USER": "graphcrate-test"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.engine("root", "useradd", "squashfuse")
def test_a_plain_user_runs_it_too(image, project, scratch, plain_user):
    uid, gid = plain_user
    copy = scratch / "image.sif"
    copy.write_bytes(Path(image[0].reference).read_bytes())
    done = as_user(RUNNING, uid, gid, str(copy), project, scratch)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "text"
    assert lines[1].split()[:2] == [str(uid), str(uid)]
    assert (scratch / "cache").stat().st_uid == uid


@pytest.fixture
def home(plain_user):
    """The plain user's home folder: the engine insists on one for a build."""
    folder = Path(pwd.getpwuid(plain_user[0]).pw_dir)
    folder.mkdir()
    os.chown(folder, *plain_user)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.engine("root", "useradd", "newuidmap", "user namespaces")
def test_a_plain_user_builds_it_too(project, scratch, plain_user, home):
    text = GOOD.replace("umask 022", "umask 022\n    mkdir -m 700 /opt/others\n    cp /usr/bin/env /opt/others/env", 1)
    done = as_user(OWN_BUILD, *plain_user, f"{text}|{scratch}", project, scratch)
    assert done.returncode == 0, done.stderr
    sif = scratch / "graphcrate-test.sif"
    assert done.stdout.strip() == str(sif)
    assert sif.stat().st_uid == plain_user[0]
    assert left_over(Cache(scratch / "cache"), scratch) == []
