"""Recipes and repositories of strangers, with the real git: nothing starts, nothing outside of the folder is read."""

import os
import subprocess
import sys

import pytest

from graphcrate.host import git, settings
from graphcrate.host.sandbox import beneath
from graphcrate.inputs.commits import GitSource, write_tree
from graphcrate.model.errors import IntegrityError
from tests import ROOT
from tests.made import refused

pytestmark = pytest.mark.engine("git")

IDENTITY = ("-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "protocol.file.allow=always")


def call(*words, cwd):
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", *IDENTITY, *map(str, words)]
    return subprocess.check_output(command, cwd=cwd, text=True, env=environment).strip()


def committed(folder, files):
    """A repository with these files (path → content; a link's target after `->`)."""
    folder.mkdir(parents=True, exist_ok=True)
    call("init", "-q", "-b", "main", cwd=folder)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("->"):
            path.symlink_to(content[2:])
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    call("add", "-A", cwd=folder)
    call("commit", "-qm", "first", cwd=folder)
    return folder


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A home whose settings of git have every program that it may start leave a file; whether one did."""
    mark, home = tmp_path / "ran", tmp_path / "home"
    home.mkdir()
    program = home / "program"
    program.write_text(f"#!/bin/sh\necho $0 $@ >> {mark}\ncat\n")
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for key in (
        *("core.fsmonitor", "diff.external", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process"),
        *("core.pager", "core.editor", "sequence.editor", "gpg.program", "credential.helper"),
    ):
        subprocess.run(["git", "config", "--global", key, str(program)], check=True)
    hooks = home / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc", "post-merge"):
        (hooks / hook).symlink_to(program)
    subprocess.run(["git", "config", "--global", "core.hooksPath", str(hooks)], check=True)
    return mark


def fetched(repository, tmp_path, note=print):
    source = GitSource(f"file://{repository}", settings.child_environment(*git.VARIABLES))
    empty = tmp_path / "empty"
    empty.mkdir(exist_ok=True)
    write_tree(source, source.commit("", empty), tmp_path / "tree", note)
    return tmp_path / "tree"


def test_files_of_a_commit_are_those_of_its_objects(tmp_path, canary):
    crlf = b"a\r\nb\n"
    attributes = "*.txt eol=crlf ident\nhidden.py export-ignore\nsubst.txt export-subst\n*.c filter=evil\n"
    attributes += "[attr]x export-ignore\n"
    more = {"w/.gitattributes": "* x export-ignore working-tree-encoding=ISO-8859-1\n", "w/a.py": "1\n"}
    files = {"pkg/x.c": "int x;\n", "id.txt": "$Id$\n", "hidden.py": "1\n", "subst.txt": "$Format:%H$\n", **more}
    repository = committed(tmp_path / "repository", {**files, ".gitattributes": "", "crlf.bin": crlf})
    (repository / ".gitattributes").write_text(attributes)
    call("commit", "-qam", "attributes", cwd=repository)
    call("tag", "-a", "v1.0", "-m", "v1.0", cwd=repository)
    canary.unlink(missing_ok=True)
    tree = fetched(repository, tmp_path)
    assert not canary.exists(), canary.read_text()
    assert {name: (tree / name).read_text() for name in files} == files
    assert (tree / "crlf.bin").read_bytes() == crlf
    clean = {"HOME": str(tmp_path / "nobody"), "PATH": os.environ["PATH"]}
    described = subprocess.check_output(["git", "describe", "--dirty", "--tags"], cwd=tree, env=clean, text=True)
    assert described == "v1.0\n", "versions are read from git, and nothing is changed for it"


def test_archive_of_a_commit_is_that_of_its_folder(tmp_path):
    """So archives that locks have keep their hashes."""
    from graphcrate.inputs.wheels import project, sdist

    files = {
        "setup.py": "from setuptools import setup\nsetup(name='op', version='0.1', install_requires=[])\n",
        "op.c": "int a;\n", "data/text": "1\n", "link": "->data/text", "folder": "->data", "build/left": "no\n",
    }  # fmt: skip
    repository = committed(tmp_path / "repository", files)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    by_commit = sdist.write_sdist(tree := fetched(repository, tmp_path), project._files(tree), tmp_path / "a")
    by_folder = sdist.write_sdist(repository, project._files(repository), tmp_path / "b")
    assert by_commit.read_bytes() == by_folder.read_bytes()


@pytest.mark.parametrize(
    "target", ["/etc/hostname", "../secret", "a/../../secret", ".git/config", "/proc/self/environ", ".."]
)
def test_link_out_of_a_repository_is_refused(tmp_path, target):
    (tmp_path / "secret").write_text("canary")
    repository = committed(tmp_path / "repository", {"setup.py": "", "a/x.c": "int x;", "data.txt": f"->{target}"})
    with refused(IntegrityError, "data.txt is a link that leads out of its folder, to "):
        list(beneath.files(fetched(repository, tmp_path)))


def test_submodules_are_fetched_by_the_same_rule(tmp_path, canary):
    inner = committed(tmp_path / "inner", {"s.txt": "sub\n"})
    outer = committed(tmp_path / "outer", {"setup.py": ""})
    call("submodule", "--quiet", "add", "../inner", "third", cwd=outer)
    call("commit", "-qm", "submodule", cwd=outer)
    canary.unlink(missing_ok=True)
    assert (fetched(outer, tmp_path) / "third/s.txt").read_text() == "sub\n"
    call("config", "-f", ".gitmodules", "submodule.third.update", f"!touch {canary}", cwd=outer)
    for number, address in enumerate(
        (f"file://{inner}", str(inner), f"--upload-pack=touch {canary}", f"ext::touch {canary}")
    ):
        call("config", "-f", ".gitmodules", "submodule.third.url", address, cwd=outer)
        call("commit", "-qam", str(number), cwd=outer)
        (tmp_path / str(number)).mkdir()
        with refused(IntegrityError, "the address of its submodule third is not fetched"):
            fetched(outer, tmp_path / str(number))
    assert not canary.exists(), canary.read_text()


#: a line of a stranger's recipe → words of the one sentence that it ends with
RECIPES = {
    'pip = ["git+--upload-pack=touch${IFS}CANARY;false://"]': "is not an address that git is given",
    'pip = ["git+ext::sh -c touch% CANARY"]': "is not an address that git is given",
    'pip = ["git+ssh://-oProxyCommand=touch${IFS}CANARY/x"]': "is not an address that git is given",
    'pip = ["git+https://h/x@--upload-pack=touch${IFS}CANARY"]': "is not an address that git is given",
    'pip = ["x @ git+file://PRIVATE"]': "is a repository of this machine, which is not in the recipe's folder",
    'pip = ["PRIVATE"]': "PRIVATE is not in the recipe's folder",
    'pip = ["../private"]': "../private is not in the recipe's folder",
    'pip = ["./linked"]': "./linked is not in the recipe's folder",
    'requirements = "../req.txt"': "req.txt is not in the recipe's folder",
    'requirements = "hostile.txt"': "is not an address that git is given",
    'files = {"/x" = "PRIVATE/setup.py"}': "setup.py is not in the recipe's folder",
    'pip = ["./evil"]': "data.txt is a link that leads out of its folder",
    'pip = ["./fifo"]': "pipe is a FIFO",
    'apt = ["--help"]': "is not a name of a Debian package",
    'env = {"X" = "\\u001b]0;x\\u0007"}': "a control character",
    'pip = ["\\u001b]0;x\\u0007\\u202e"]': "\\x1b]0;x",
    'pip = ["./\\u001b]0;x"]': "\\u001b]0;x",
    'extends = "../x.toml"': "is a file",
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A stranger's clone beside what is a person's own; nothing is written to either by any recipe."""
    folder = tmp_path_factory.mktemp("strangers")
    canary, private = folder / "ran", folder / "private"
    committed(private, {"setup.py": "canary-of-private"})
    (folder / "req.txt").write_text("canary-of-private-file\n")
    call("clone", "-q", private, folder / "theirs", cwd=folder)
    theirs = folder / "theirs"
    (theirs / "linked").symlink_to("../private")
    (theirs / "hostile.txt").write_text(f"git+--upload-pack=touch${{IFS}}{canary};false://\n")
    for name in ("evil", "fifo"):
        (theirs / name).mkdir()
        (theirs / name / "setup.py").write_text(f"import os\nos.system('touch {canary}')\n")
    (theirs / "evil/data.txt").symlink_to(private / "setup.py")
    os.mkfifo(theirs / "fifo/pipe")
    return theirs


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """A cache for all of these recipes: those that come so far read the lists of Debian's packages once."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("line", RECIPES)
@pytest.mark.parametrize("plan", [True, False])
def test_stranger_s_recipe_ends_with_one_sentence_and_starts_nothing(clone, lists, line, plan):
    """In a clone whose origin is a path: there `git ls-remote --upload-pack=COMMAND` runs it."""
    folder, theirs = clone.parent, clone
    canary, private = folder / "ran", folder / "private"
    text = line.replace("CANARY", str(canary)).replace("PRIVATE", str(private))
    extends = "" if line.startswith("extends") else 'extends = "torch"\n'
    (theirs / "theirs.toml").write_text(f'{extends}cuda = "cpu"\n{text}\n')
    before = sorted(str(path) for path in folder.rglob("*") if ".git/" not in str(path))
    command = [
        sys.executable,
        str(ROOT / "build.py"),
        "image",
        "./theirs.toml",
        *(["--plan"] if plan else ["--no-smoke"]),
    ]
    environment = {**os.environ, "HOME": str(folder / "home"), "GRAPHCRATE_CACHE": str(lists)}
    done = subprocess.run(command, cwd=theirs, env=environment, capture_output=True, timeout=300, check=False)
    said = done.stdout.decode() + done.stderr.decode()
    assert 2 <= done.returncode <= 6, said
    assert RECIPES[line].replace("PRIVATE", str(private)) in said
    assert said.count("graphcrate: ") == 1
    assert "Traceback" not in said
    assert "canary-of-private" not in said
    assert "\x1b" not in said
    assert "\u202e" not in said
    next_step = said.partition("next:  ")[2]
    assert str(canary) not in next_step
    assert not canary.exists()
    after = sorted(str(path) for path in folder.rglob("*") if ".git/" not in str(path))
    assert [path for path in after if path not in before] == [], "nothing but the cache is written"
