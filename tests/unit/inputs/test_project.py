"""A person's own projects: what makes another wheel of a folder, and how git is asked."""

import tarfile
from contextlib import nullcontext

import pytest

from graphcrate.compat.requirements import own_packages
from graphcrate.host import git
from graphcrate.host.process import Completed
from graphcrate.inputs.commits import GitSource
from graphcrate.inputs.wheels import project
from graphcrate.model.errors import BuildError, IntegrityError, NetworkError
from tests.made import refused
from tests.unit.gitmaker import COMMIT, Git
from tests.unit.wheelmaker import make_wheel

BACK_END = project.BackEnd(lambda _: (), b"")


@pytest.fixture
def wheels(tmp_path, cache, monkeypatch):
    """Makes the wheel of a folder; how often that was really done."""
    made = []

    def make(source, name, back_end, work, environment, note):
        made.append(name)
        return make_wheel(work / "wheel", "demo")

    monkeypatch.setattr(project, "_make", make)

    def count():
        project.of_folder(tmp_path / "demo", BACK_END, cache, {}, print)
        return len(made)

    return count


def test_project_folder_is_built_again_if_its_wheel_content_changes(tmp_path, wheels):
    folder = tmp_path / "demo"
    folder.mkdir()
    script = folder / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    (folder / "pyproject.toml").write_text("[project]\n")
    assert [wheels(), wheels()] == [1, 1]
    script.chmod(0o640)
    (folder / "build").mkdir()
    (folder / "build" / "lib.py").touch()
    assert wheels() == 1, "who may read it, and what tools leave there, are no part of a wheel"
    script.chmod(0o755)
    assert wheels() == 2, "a wheel has whether a file can be executed"
    script.write_text("#!/bin/bash\n")
    assert wheels() == 3
    script.rename(folder / "start.sh")
    assert wheels() == 4


@pytest.mark.parametrize("by_commit", [False, True])
def test_project_is_built_again_for_another_index_guest_or_variable_that_is_passed(
    tmp_path, cache, monkeypatch, by_commit
):
    """The author of a requirements file with an index chooses the setuptools that runs in the build."""
    Git(monkeypatch, files={"setup.py": ""})
    built = []

    def make(source, name, back_end, work, *_):
        built.append(name)
        return make_wheel(work / "wheel", "demo")

    monkeypatch.setattr(project, "_make", make)
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[project]\n")

    def count(asked=b"", **environment):
        back_end = project.BackEnd(lambda _: (), asked)
        if by_commit:
            project.of_commit(f"git+https://git.example/x@{COMMIT}", back_end, cache, environment, print)
        else:
            project.of_folder(folder, back_end, cache, environment, print)
        return len(built)

    assert [count(), count(PATH="/bin", LD_LIBRARY_PATH="/lib", TOKEN="1")] == [1, 1]
    assert [count(b"https://evil.example"), count(b"https://evil.example"), count()] == [2, 2, 2]
    assert count(SETUPTOOLS_SCM_PRETEND_VERSION="9") == 3
    monkeypatch.setattr(project, "guest", lambda: "another program")
    assert count() == 4


def test_commit_is_built_once_for_each_repository_whose_tags_name_versions(cache, monkeypatch):
    Git(monkeypatch, files={"setup.py": ""})
    monkeypatch.setattr(project, "_make", lambda source, name, back_end, work, *_: make_wheel(work / "wheel", "demo"))
    urls = ["https://git.example/x", "https://git.example/fork", "https://me:token@git.example/x"]
    made = [project.of_commit(f"git+{url}@{COMMIT}", BACK_END, cache, {}, print) for url in urls]
    assert made[0] != made[1]
    assert made[0] == made[2], "a password is no part of a repository"


@pytest.mark.parametrize("mine", [{}, {"GIT_TERMINAL_PROMPT": "1", "GIT_ASKPASS": "/usr/bin/ksshaskpass"}])
def test_git_runs_without_prompts_and_with_a_timeout(cache, monkeypatch, mine):
    """They would not be seen: a build that waits for a password looks like one that is slow."""
    for revision, first in ((COMMIT, "init"), ("main", "ls-remote")):
        asked = Git(monkeypatch, "fatal: could not read Password for 'https://me@git.example'").asked
        address = f"git+https://me@git.example/x.git@{revision}"
        with pytest.raises(NetworkError, match="could not read Password"):
            project.of_commit(address, BACK_END, cache, {"PATH": "", **mine}, print)
        assert first in asked[0][0]
        for _, environment, _, timeout in asked:
            assert environment["GIT_TERMINAL_PROMPT"] == "0"
            assert environment["SSH_ASKPASS_REQUIRE"] == "force"
            assert environment.get("GIT_ASKPASS") == mine.get("GIT_ASKPASS")
            assert 0 < timeout <= 1800


def test_git_stands_in_an_empty_folder_and_takes_no_program_from_settings(cache, monkeypatch, tmp_path):
    """The folder that the user stands in may be a stranger's repository, with an origin on this machine."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    made = Git(monkeypatch, files={"setup.py": ""})
    monkeypatch.setattr(project, "_make", lambda source, name, back_end, work, *_: make_wheel(work / "wheel", "demo"))
    mine = {"PATH": "", "GIT_DIR": "/mine", "GIT_CONFIG_COUNT": "1", "GIT_EXTERNAL_DIFF": "x", "GIT_SSH": "ssh"}
    project.of_commit("git+https://git.example/x", BACK_END, cache, mine, print)
    for argv, environment, cwd, _ in made.asked:
        assert cwd.is_relative_to(cache.root)
        assert environment["GIT_CEILING_DIRECTORIES"] == str(cwd.parent)
        assert environment["GIT_ALLOW_PROTOCOL"] == "https:ssh:git:file"
        assert environment["GIT_CONFIG_COUNT"] == "0"
        assert not {"GIT_DIR", "GIT_EXTERNAL_DIFF"} & set(environment)
        assert environment["GIT_SSH"] == "ssh", "how the user reaches a server is the user's to say"
        assert {"core.hooksPath=/dev/null", "core.fsmonitor=false", "diff.external="} <= set(argv)
        assert "https://git.example/x" not in argv or argv.index("--") < argv.index("https://git.example/x")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"setup.py": "", "data.txt": "->/etc/passwd"}, "data.txt is a link that leads out of its folder"),
        ({"setup.py": "", "a/": "", "a/b": "->../../x"}, "a/b is a link that leads out of its folder"),
        ({"setup.py": "", "folder": "->/etc"}, "folder is a link that leads out of its folder, to /etc"),
        ({"setup.py": "", "data.txt": "->.git/config"}, "data.txt is a link that leads out of its folder"),
        ({"setup.py": "->/etc/hostname"}, "setup.py is a link that leads out"),
        ({"a": "->/etc", "a/x": "1"}, "a path that no repository needs"),
        ({"a": "->/etc", "a/": ""}, "twice"),
        ({"../x": "1"}, "a path that no repository needs"),
        ({"/x": "1"}, "a path that no repository needs"),
        ({".git/": ""}, "a path that no repository needs"),
        ({".GIT/": "", ".GIT/config": "1"}, "a path that no repository needs"),
        ({"a/": "", "a/.git": "gitdir: /home"}, "a path that no repository needs"),
        ({"/".join("d" * 65): ""}, "a path that no repository needs"),
    ],
)
def test_link_or_path_out_of_a_repository_is_refused_by_its_name(cache, monkeypatch, files, words):
    Git(monkeypatch, files=files)
    with refused(IntegrityError, words):
        project.of_commit(f"git+https://git.example/x@{COMMIT}", BACK_END, cache, {}, print)
    assert not [*cache.path("built").glob("*")]


def test_pointers_of_git_lfs_are_said(cache, monkeypatch):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    Git(monkeypatch, files={"setup.py": "", "a.bin": pointer, "b.bin": pointer})
    monkeypatch.setattr(project, "_make", lambda source, name, back_end, work, *_: make_wheel(work / "wheel", "demo"))
    notes = []
    project.of_commit(f"git+https://git.example/x@{COMMIT}", BACK_END, cache, {}, notes.append)
    assert "2 files of git-lfs, which is not asked: the pointer stands in place of a.bin and others" in notes[0]


@pytest.mark.parametrize(
    ("listed", "taken"),
    [
        (["heads/v1", "tags/v1", "tags/v1^{}"], "tags/v1^{}"),  # what an annotated tag names, as git checks it out
        (["heads/v1", "tags/v1"], "tags/v1"),
        (["heads/v1", "heads/v1.0"], "heads/v1"),
        (["heads/x/v1", "tags/v1.0"], None),
    ],
)
def test_name_of_a_tag_and_a_branch_is_the_tags_commit(monkeypatch, tmp_path, listed, taken):
    lines = [f"{number:040x}\trefs/{name}" for number, name in enumerate(listed)]
    answer = Completed(0, ("warning: redirecting", *lines)), ["warning: redirecting", *lines]
    monkeypatch.setattr(git, "run", lambda *_, **__: answer)
    source = GitSource("https://git.example/x", {})
    if taken is None:
        with pytest.raises(BuildError, match="has no branch or tag 'v1'"):
            source.commit("v1", tmp_path)
    else:
        assert source.commit("v1", tmp_path) == f"{listed.index(taken):040x}"


def test_project_in_a_folder_of_a_repository_is_built_there_with_the_whole_around_it(cache, monkeypatch):
    """As pip does it: a version may be read from the repository, and a licence be a link into it."""
    files = {"LICENSE": "terms", "python/": "", "python/a/": "", "python/a/setup.py": ""}
    Git(monkeypatch, files=files | {"python/a/LICENSE": "->../../LICENSE"})
    built = []

    def make(source, name, back_end, work, environment, *, below, without):
        built.append((name, below))
        assert (source / below / "LICENSE").read_text() == "terms"
        assert back_end == [source / below]
        return make_wheel(work / "wheel", "demo")

    monkeypatch.setattr(project, "make_wheel", make)
    back_end = project.BackEnd(lambda folder: [folder], b"")
    address = f"git+https://me:token@git.example/x@{COMMIT}"
    project.of_commit(f"{address}#subdirectory=python/a", back_end, cache, {}, print)
    assert built == [(f"git+https://git.example/x@{COMMIT}#subdirectory=python/a", "python/a")]
    project.of_commit(f"{address}#subdirectory=python/a&egg=demo", back_end, cache, {}, print)
    assert len(built) == 1, "a name is no part of what is built"
    for folder in ("python", "other", "python/a/b"):
        with refused(BuildError, "has no project there: its folder", "#subdirectory=FOLDER"):
            project.of_commit(f"{address}#subdirectory={folder}", back_end, cache, {}, print)


@pytest.mark.parametrize("target", ["/etc", "..", "python/a", ".git"])
def test_folder_of_a_repository_that_is_a_link_is_refused(cache, monkeypatch, target):
    Git(monkeypatch, files={"python/": "", "python/a/": "", "python/a/setup.py": "", "link": f"->{target}"})
    with pytest.raises((BuildError, IntegrityError), match=r"has no project there|leads out of its folder"):
        project.of_commit(f"git+https://git.example/x@{COMMIT}#subdirectory=link", BACK_END, cache, {}, print)


def test_folder_of_a_repository_with_sources_to_compile_is_packed_alone(cache, monkeypatch):
    setup = "from setuptools import *\nsetup(name='demo', version='1', ext_modules=[Extension('a', ['a.c'])])"
    Git(monkeypatch, files={"b.c": "", "python/": "", "python/setup.py": setup, "python/a.c": "int a;"})
    path = project.of_commit(f"git+https://git.example/x@{COMMIT}#subdirectory=python", BACK_END, cache, {}, print)
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["demo-1/a.c", "demo-1/setup.py", "demo-1/PKG-INFO"]


@pytest.mark.parametrize("has_submodules", [False, True])
def test_submodules_of_a_commit_are_fetched_with_it(cache, monkeypatch, has_submodules):
    more = {".gitmodules": "x", "sub/": "", "url": "../other.git"} if has_submodules else {}
    made = Git(monkeypatch, files={"setup.py": "", **more}, links=f"160000 commit {COMMIT}\tsub\0")
    monkeypatch.setattr(project, "_make", lambda source, name, back_end, work, *_: make_wheel(work / "wheel", "demo"))
    with pytest.raises(IntegrityError, match="submodules in submodules") if has_submodules else nullcontext():
        project.of_commit(f"git+https://git.example/team/x@{COMMIT}", BACK_END, cache, {}, print)
    urls = [argv[argv.index("--") + 1] for argv, *_ in made.asked if "fetch" in argv]
    assert urls[0] == "https://git.example/team/x"
    assert set(urls[1:]) == ({"https://git.example/team/other.git"} if has_submodules else set())


@pytest.mark.parametrize(
    "url",
    [
        "file:///home/me/private",
        "--upload-pack=x",
        "ext::sh -c x",
        "/home/me/private",
        "../../../x",
        "-x",
        "http://h/x",
    ],
)
def test_submodule_of_another_transport_or_folder_is_refused(cache, monkeypatch, url):
    files = {"setup.py": "", ".gitmodules": "x", "sub/": "", "url": url}
    made = Git(monkeypatch, files=files, links=f"160000 commit {COMMIT}\tsub\0")
    with refused(IntegrityError, "the address of its submodule sub is not fetched"):
        project.of_commit(f"git+https://git.example/x@{COMMIT}", BACK_END, cache, {}, print)
    assert sum("fetch" in argv for argv, *_ in made.asked) == 1


@pytest.mark.parametrize(
    ("address", "url", "revision"),
    [
        ("git+ssh://git@git.example/team/repo", "ssh://git@git.example/team/repo", "HEAD"),
        ("git+ssh://git@git.example:2222/team/repo.git@v1.0", "ssh://git@git.example:2222/team/repo.git", "v1.0"),
        (f"git+ssh://git@git.example/team/repo@{COMMIT}#egg=repo", "ssh://git@git.example/team/repo", COMMIT),
        ("git+https://me@git.example/team/repo@feature/x", "https://me@git.example/team/repo", "feature/x"),
        ("git+https://git.example/@team/repo@main", "https://git.example/@team/repo", "main"),
        ("git+file:///srv/repo@main", "file:///srv/repo", "main"),
    ],
)
def test_at_sign_of_an_ssh_user_is_not_a_git_revision(cache, monkeypatch, address, url, revision):
    """The form of private repositories of a group: `git+ssh://git@HOST/…`."""
    asked = Git(monkeypatch, "fatal: Host key verification failed.").asked
    with pytest.raises(NetworkError, match="git cannot fetch") as caught:
        project.of_commit(address, BACK_END, cache, {}, print)
    assert revision == COMMIT or asked[0][0][-2:] == ["--", url]
    assert own_packages.git_address(address)[:2] == (url, "" if revision == "HEAD" else revision)
    if "ssh:" in address:
        assert f"git clone {url} " in caught.value.next_step, "a command that works as typed"
    else:
        assert "me@" not in str(caught.value)
