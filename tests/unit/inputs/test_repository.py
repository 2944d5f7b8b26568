"""Sources of a repository with submodules: what of a folder is taken, the archive's bytes, other files refused."""

import gzip
import hashlib
import io
import tarfile

import msgspec
import pytest

from graphcrate.compat.facts.pyg_lib import Part, listing
from graphcrate.host.process import Completed
from graphcrate.inputs import repository
from graphcrate.inputs.repository import Tree
from graphcrate.inputs.wheels.sdist import read_sdist
from graphcrate.inputs.wheels.sdist_archive import check_sdist
from graphcrate.model.errors import IntegrityError, NetworkError, UsageError
from tests.made import refused
from tests.unit import gitmaker

COMMIT, OTHER = "a" * 40, "b" * 40
FILES = {
    "setup.py": b"setup()\n",
    "lib/a.cpp": b"int a;\n",
    "lib/.hidden": b"",
    "docs/index.md": b"not taken\n",
    "third_party/hash/map.h": b"#pragma once\n",
    "third_party/hash/conf/deep/check.c": b"\n",
    "third_party/hash/test/test.c": b"not taken\n",
    "third_party/hash/LICENSE.txt": b"terms of hash\n",
}
ENVIRONMENT = {"PATH": "/usr/bin"}


def sha256(*names, root=""):
    files = {name.removeprefix(root): hashlib.sha256(FILES[name]).hexdigest() for name in names}
    return hashlib.sha256(listing(files).encode()).hexdigest()


HASH_FILES = ("third_party/hash/map.h", "third_party/hash/conf/deep/check.c", "third_party/hash/LICENSE.txt")
PARTS = (
    Part(
        repository="team/demo",
        commit=COMMIT,
        licence="MIT",
        take=("setup.py", "lib"),
        sha256=sha256("setup.py", "lib/a.cpp", "lib/.hidden"),
    ),
    Part(
        repository="team/hash",
        commit=COMMIT,
        licence="BSD-3-Clause",
        path="third_party/hash",
        take=("*.h", "conf", "LICENSE*"),
        sha256=sha256(*HASH_FILES, root="third_party/hash/"),
    ),
)
TREE = Tree(name="demo", version="1.2", parts=PARTS)


def without_hash(tree=TREE):
    """The tree, with an unknown hash of its submodule."""
    return msgspec.structs.replace(tree, parts=(tree.parts[0], msgspec.structs.replace(tree.parts[1], sha256="")))


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        path = tmp_path / "clone" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "clone"


class Git:
    """Stands for git: answers by its command, and notes what it is asked."""

    def __init__(self, monkeypatch, **answers):
        self.answers, self.asked = answers, []
        monkeypatch.setattr(repository.git.process, "run", self)

    def __call__(self, argv, *, environment, cwd, on_line, timeout):
        if "config" in argv:
            return Completed(1, ())
        self.asked.append(argv)
        self.cwd, self.environment = cwd, environment
        word = next((word for word in argv if word in (*self.answers, "rev-parse", "status")), "")
        answer = self.answers.get(word)
        if callable(answer):
            answer = answer(cwd)
        for line in answer or ():
            on_line(line)
        return Completed(0 if answer is not None or not word else 128, ())


def archived(path):
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(path.read_bytes()))) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_archive_has_what_is_taken_and_is_a_source_archive(folder, cache):
    path = repository.of_folder(TREE, folder, cache, ENVIRONMENT)
    assert path.name == "demo-1.2.tar.gz"
    members = archived(path)
    taken = [name for name in FILES if not FILES[name].startswith(b"not taken")]
    assert members.pop("demo-1.2/LICENSE.hash") == b"terms of hash\n", "setuptools takes it into the wheel"
    assert members.pop("demo-1.2/PKG-INFO") == b"Metadata-Version: 2.1\nName: demo\nVersion: 1.2\n"
    assert members == {f"demo-1.2/{name}": FILES[name] for name in taken}
    assert list(archived(path)) == sorted(archived(path))
    check_sdist(path, path.name)
    assert read_sdist(path, path.name).requires == ()


def test_archive_has_the_same_bytes_whatever_modes_times_and_order(folder, cache, tmp_path):
    first = hashlib.sha256(repository.of_folder(TREE, folder, cache, ENVIRONMENT).read_bytes()).hexdigest()
    assert first == "9438539abb8e59e7a5951d6973604bb7a55f8dd7d2d5a1d2209544818297d253"
    (folder / "setup.py").chmod(0o755)
    (folder / "lib/a.cpp").touch()
    (folder / ".git").write_text("gitdir: elsewhere")
    (folder / "build").mkdir()
    (folder / "build/left.o").touch()
    for path in cache.path("built").iterdir():
        path.rename(tmp_path / path.name)
    again = repository.of_folder(TREE, folder, cache, ENVIRONMENT)
    assert hashlib.sha256(again.read_bytes()).hexdigest() == first


@pytest.mark.parametrize("name", ["lib/a.cpp", "third_party/hash/map.h"])
@pytest.mark.parametrize("change", ["content", "absent", "new", "link"])
def test_folder_with_other_files_is_refused_and_names_the_part(folder, cache, monkeypatch, name, change):
    Git(monkeypatch)
    path = folder / name
    if change == "content":
        path.write_bytes(b"int b;\n")
    elif change == "new":
        path.with_name("new.h").touch()
    else:
        path.unlink()
        if change == "link":
            path.symlink_to(folder / "docs/index.md")
    part = PARTS[1] if name.startswith("third_party") else PARTS[0]
    where = part.path or "it"
    words = (f"demo 1.2: {where} has to be {part.repository} at {COMMIT}, and its files differ from that commit's",)
    with refused(UsageError, *words, "git clone --recursive --shallow-submodules --branch 1.2"):
        repository.of_folder(TREE, folder, cache, ENVIRONMENT)


def test_folder_behind_a_link_is_not_taken(folder, cache, monkeypatch, tmp_path):
    """Its files may be any that the user can read, and their hash is not always known."""
    Git(monkeypatch)
    (folder / "lib").rename(tmp_path / "elsewhere")
    (folder / "lib").symlink_to(tmp_path / "elsewhere")
    with refused(UsageError, f"it has to be team/demo at {COMMIT}"):
        repository.of_folder(TREE, folder, cache, ENVIRONMENT)


def test_folder_without_submodules_is_refused(folder, cache):
    for name in HASH_FILES:
        (folder / name).unlink()
    with refused(UsageError, "third_party/hash has none of the files of team/hash", "without its submodules"):
        repository.of_folder(TREE, folder, cache, ENVIRONMENT)
    with refused(UsageError, "it has none of the files of team/demo"):
        repository.of_folder(TREE, folder / "docs", cache, ENVIRONMENT)


def test_folder_is_looked_at_where_something_is_taken_alone(folder, cache, monkeypatch):
    """It may be any, such as /: that it is the wrong one is to be said at once."""
    walked, walk = [], repository.trees.walk
    monkeypatch.setattr(repository.trees, "walk", lambda path: walked.append(path) or walk(path))
    repository.of_folder(TREE, folder, cache, ENVIRONMENT)
    assert walked == [folder / "lib", folder / "third_party/hash/conf"]


def test_wrong_commit_of_a_clone_is_named(folder, cache, monkeypatch):
    git = Git(monkeypatch, **{"rev-parse": [OTHER]})
    (folder / ".git").mkdir()
    (folder / "setup.py").write_bytes(b"other")
    with refused(UsageError, f"at {COMMIT}, and it is at {OTHER}"):
        repository.of_folder(TREE, folder, cache, ENVIRONMENT)
    (argv,) = git.asked
    assert "core.fsmonitor=false" in argv, "nothing that the folder's own settings name is started"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"rev-parse": [COMMIT], "status": ["!! third_party/notes.txt", " M test/test.c"]}, ""),
        ({"rev-parse": [COMMIT], "status": [" M map.h"]}, "only a clone with nothing changed in it"),
        ({"rev-parse": [COMMIT], "status": ["!! conf/deep/new.c"]}, "only a clone with nothing changed in it"),
        ({"rev-parse": [OTHER], "status": []}, f"; it is at {OTHER}"),
        ({"rev-parse": [COMMIT]}, "only a clone with nothing changed in it"),
        ({}, "git says nothing of this folder"),
    ],
)
def test_part_of_unknown_hash_is_taken_from_an_unchanged_clone_alone(folder, cache, monkeypatch, answers, words):
    Git(monkeypatch, **answers)
    (folder / "third_party/hash/.git").write_text("gitdir: ../../.git/modules/hash")
    if words:
        with refused(UsageError, "is not known to be demo 1.2: third_party/hash", words):
            repository.of_folder(without_hash(), folder, cache, ENVIRONMENT)
    else:
        assert "demo-1.2/third_party/hash/map.h" in archived(
            repository.of_folder(without_hash(), folder, cache, ENVIRONMENT)
        )


def test_exported_part_of_unknown_hash_is_refused_though_a_clone_is_around_it(folder, cache, monkeypatch):
    Git(monkeypatch, **{"rev-parse": [COMMIT], "status": []})
    (folder / ".git").mkdir()
    with refused(UsageError, "git says nothing of this folder"):
        repository.of_folder(without_hash(), folder, cache, ENVIRONMENT)


def of_part(cwd):
    """The files of git's archive of a part, with their folders."""
    start = "third_party/hash/" if cwd.name == "1" else ""
    taken = [name for name in FILES if not FILES[name].startswith(b"not taken")]
    files = {name.removeprefix(start): FILES[name].decode() for name in taken if name.startswith(start)}
    if not start:
        files = {name: content for name, content in files.items() if not name.startswith("third_party/")}
    folders = {f"{parent}/": "" for name in files for parent in list(repository.Path(name).parents)[-2::-1]}
    return folders | files


def test_git_gives_the_same_archive_as_a_folder(folder, cache, tmp_path, monkeypatch):
    expected = repository.of_folder(TREE, folder, cache, ENVIRONMENT).read_bytes()
    for path in cache.path("built").iterdir():
        path.rename(tmp_path / path.name)
    git = gitmaker.Git(monkeypatch, files=of_part)
    assert repository.of_git(TREE, "https://git.example/", cache, ENVIRONMENT).read_bytes() == expected
    commands = [argv for argv, *_ in git.asked]
    fetched = [argv[-2:] for argv in commands if "fetch" in argv]
    by_data = [["https://git.example/team/demo", COMMIT], ["https://git.example/team/hash", COMMIT]]
    assert fetched == by_data, "by the commits of the data, not by .gitmodules"
    assert not [argv for argv in commands if {"checkout", "clone", "submodule"} & {*argv}], "nothing is checked out"
    assert ["--", ":(glob)setup.py", ":(glob)lib"] in [argv[-3:] for argv in commands if "archive" in argv]
    repository.of_git(TREE, "https://git.example/", cache, ENVIRONMENT)
    assert len(git.asked) == len(commands), "the cache has it"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lib/out.h": "->/etc/passwd"}, "lib/out.h is a link that leads out of its folder, to /etc/passwd"),
        ({"lib/git.h": "->../.git/config"}, "lib/git.h is a link that leads out of its folder"),
        ({"lib/../../x": "1"}, "a path that no repository needs"),
        ({".git/": "", ".git/hooks": "1"}, "a path that no repository needs"),
    ],
)
def test_link_or_path_out_of_a_part_is_refused_by_its_name(cache, monkeypatch, more, words):
    gitmaker.Git(monkeypatch, files=lambda cwd: of_part(cwd) | more)
    with refused(IntegrityError, words):
        repository.of_git(without_hash(), "https://git.example", cache, ENVIRONMENT)
    assert not [*cache.path("built").glob("*")]


def test_link_within_a_part_is_left_out(cache, monkeypatch):
    gitmaker.Git(monkeypatch, files=lambda cwd: of_part(cwd) | ({"same.h": "->map.h"} if cwd.name == "1" else {}))
    names = archived(repository.of_git(without_hash(), "https://git.example", cache, ENVIRONMENT))
    assert "demo-1.2/third_party/hash/map.h" in names
    assert "demo-1.2/third_party/hash/same.h" not in names


@pytest.mark.parametrize(
    "server", ["ext::sh -c x", "--upload-pack=x://", "ssh://-oProxyCommand=x", "http://git.example"]
)
def test_server_that_is_no_address_of_a_repository_is_refused(cache, monkeypatch, server):
    git = Git(monkeypatch)
    with refused(UsageError, "is not the address of a server of git repositories"):
        repository.of_git(TREE, server, cache, ENVIRONMENT)
    assert git.asked == []


def test_filters_that_a_folder_names_do_nothing(folder, cache, monkeypatch):
    """They are programs, which `git status` would start."""
    git = Git(monkeypatch, **{"rev-parse": [COMMIT], "status": []})
    run = repository.git.process.run

    def listing(argv, *, on_line, **options):
        if "config" in argv:
            on_line("core.bare\0filter.a=b.clean\0filter.c.process\0")
            return Completed(0, ())
        return run(argv, on_line=on_line, **options)

    monkeypatch.setattr(repository.git.process, "run", listing)
    (folder / "third_party/hash/.git").write_text("gitdir: ../../.git/modules/hash")
    repository.of_folder(without_hash(), folder, cache, ENVIRONMENT)
    count = int(git.environment["GIT_CONFIG_COUNT"])
    given = {
        git.environment[f"GIT_CONFIG_KEY_{number}"]: git.environment[f"GIT_CONFIG_VALUE_{number}"]
        for number in range(count)
    }
    assert given["filter.a=b.clean"] == given["filter.a=b.process"] == given["filter.c.smudge"] == ""
    assert given["filter.c.required"] == "false"
    assert "--ignore-submodules=all" in git.asked[-1]


def test_git_server_with_other_files_or_none_is_refused(cache, monkeypatch):
    gitmaker.Git(monkeypatch, files=lambda cwd: of_part(cwd) | {"setup.py": "other"})
    with refused(IntegrityError, f"https://git.example has other files of team/demo at {COMMIT}"):
        repository.of_git(TREE, "https://git.example", cache, ENVIRONMENT)
    gitmaker.Git(monkeypatch, "fatal: repository not found")
    with refused(NetworkError, "git cannot fetch https://git.example/team/demo", "PYG_LIB=./pyg-lib"):
        repository.of_git(TREE, "https://git.example", cache, ENVIRONMENT)
    assert not [*cache.path("built").glob("*")]


def test_patterns_match_within_a_folder_alone():
    part = Part(repository="", commit="", licence="", take=("*.c", "conf", "tools/util/include", "LICENSE*"))
    taken = ["a.c", "conf/deep/x", "tools/util/include/y.h", "LICENSE.txt", "LICENSE_radix_sort"]
    assert [
        name for name in (*taken, "sub/a.c", "config", "tools/util/other", "sub/LICENSE") if part.takes(name)
    ] == taken
