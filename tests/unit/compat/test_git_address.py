"""Addresses of git repositories: which are taken, what is written of them, and what no word of a stranger becomes."""

import pytest

from graphcrate.compat.requirements import own, own_packages, own_typed, package_text
from graphcrate.model.errors import UsageError
from projectfiles import git_address
from projectfiles.git_address import GitAddress

COMMIT = "0123456789" * 4
HONEST = {
    "https://git.example/team/repo": ("https://git.example/team/repo", ""),
    "https://git.example/team/repo.git@v1.0": ("https://git.example/team/repo.git", "v1.0"),
    f"https://git.example/team/repo@{COMMIT}#egg=repo": ("https://git.example/team/repo", COMMIT, "", "repo"),
    "https://me:s3cret%24@git.example:8443/repo@feature/x-1": (
        "https://me:s3cret%24@git.example:8443/repo",
        "feature/x-1",
    ),
    "https://git.example/~me/repo@main": ("https://git.example/~me/repo", "main"),
    "https://git.example/@team/repo@release/2.0+cu118": ("https://git.example/@team/repo", "release/2.0+cu118"),
    "https://[::1]:8443/repo": ("https://[::1]:8443/repo", ""),
    "https://git_lab.example/a/b/c/d": ("https://git_lab.example/a/b/c/d", ""),
    "ssh://git@git.example:2222/team/repo.git": ("ssh://git@git.example:2222/team/repo.git", ""),
    "ssh://git.example/team/repo": ("ssh://git.example/team/repo", ""),
    "git://git.example/team/repo": ("git://git.example/team/repo", ""),
    "git@git.example:team/repo.git@main": ("git@git.example:team/repo.git", "main"),
    "git@git.example:/srv/repo.git": ("git@git.example:/srv/repo.git", ""),
    "file:///srv/my%20repo@main": ("file:///srv/my%20repo", "main"),
    "file:///home/jürgen/repo": ("file:///home/jürgen/repo", ""),
    "file://localhost/srv/repo": ("file:///srv/repo", ""),
    "https://git.example/repo#subdirectory=python&egg=x": ("https://git.example/repo", "", "python", "x"),
    "https://git.example/repo@main#subdirectory=./a//b.c/": ("https://git.example/repo", "main", "a/b.c"),
    "git@git.example:team/repo@main#subdirectory=.": ("git@git.example:team/repo", "main"),
    "https://git.example/repo#": ("https://git.example/repo", ""),
}

#: each would be an option, a program, another transport, or a word for a shell
HOSTILE = (
    "--upload-pack=touch${IFS}/tmp/x;false://", "-u touch /tmp/x", "--config=core.sshCommand=x", "-c core.pager=x",
    "--template=/tmp/x", "--exec=x", "-oProxyCommand=x", "--", "-", "ext::sh -c x", "ext::sh -c x% %S", "fd::3",
    "fd::3,4/x", "transport::https://h/x", "http::ftp://h/x", "ext://h/x", "fd://3/x", "ftp://h/x", "ftps://h/x",
    "http://h/x", "svn://h/x", "git+https://h/x", "ssh+git://h/x", "HTTPS://h/x", "javascript://h/x", "data:,x",
    "/home/me/private", "../x", "~/x", "C:/x", "h:x", "ssh://-oProxyCommand=x/a", "ssh://-x@h/a",
    "ssh://u@-oProxyCommand=x/a", "ssh://h:-1/a", "ssh://$(x)/a", "ssh://h/$(x)", "ssh://h/`x`", "ssh://h/a;x",
    "ssh://h/a|x", "ssh://h/a&x", "ssh://h/a x", "ssh://h/a'x", 'ssh://h/a"x', "ssh://h/a\\x", "ssh://h/a>x",
    "ssh://h/a*", "ssh://h/a?x", "ssh://h/a[x]", "ssh://h/{a,x}", "ssh://h/a!x", "ssh://h/a\nx", "ssh://h/a\rx",
    "ssh://h/a\tx", "ssh://h/a\0x", "ssh://h/a\x1b[2J", "ssh://h/a\u202ex", "ssh://h/a\u200bx", "https://h/%0a%0dx",
    "https://u%0a:p@h/x", "https://h%0a/x", "https://h/%7f", "https:///x", "https://h", "https://h/", "https://",
    "file://", "file:///", "file://h/x", "file://u@/x", "file:x", "file:/x", "file:///$HOME/x", "git://u@h/x",
    "ssh://u:p@h/x", "-x@h:y", "u@-h:y", "u@h:-y", "u@h:", "u@h:y z", "u@h:y;x", "u@h://x", "git@$(x):y",
    "https://h/x@-x", "https://h/x@--upload-pack=x", "https://h/x@a b", "https://h/x@a;b", "https://h/x@$(b)",
    "https://h/x@a..b", "https://h/x@a~1", "https://h/x@a^", "https://h/x@a:b", "https://h/x@", "https://h/x@@{u}",
    "https://h/x@a\nb", "https://h/x@a.lock", "https://h/x@/a", "https://h/x@a//b", "https://h:99999999/x",
)  # fmt: skip


@pytest.mark.parametrize("text", HONEST)
def test_honest_address_is_written_again_from_its_parts(text):
    assert git_address.read(text) == GitAddress(*HONEST[text])
    written = own_typed.given([f"git+{text}"]).packages[0]
    assert own_packages.git_address(written) == GitAddress(*HONEST[text])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_address_is_refused_and_shows_nothing_to_paste(text, tmp_path):
    with pytest.raises(ValueError):
        git_address.read(text)
    path = tmp_path / "requirements.txt"
    ways = [lambda: package_text.read_package(f"git+{text}", tmp_path, "mine.toml: pip")]
    if text.isprintable() and " " not in text:
        path.write_text(f"git+{text}\n", encoding="utf-8")
        ways.append(lambda: own_typed.given([], [path]))
        (tmp_path / "mine.toml").write_text(f"extends = 'torch'\npip = ['''git+{text}''']\n", encoding="utf-8")
        ways.append(lambda: own.load(tmp_path / "mine.toml"))
    for way in ways:
        with pytest.raises(UsageError, match="is not an address that git is given") as caught:
            way()
        assert caught.value.next_step == "git+https://HOST/PATH@COMMIT, git+ssh://git@HOST/PATH, git+file:///PATH"
        assert caught.value.what.isprintable()


@pytest.mark.parametrize(
    ("fragment", "words"),
    [
        ("subdirectory=..", "its subdirectory= is not a folder below the repository"),
        ("subdirectory=a/../../b", "its subdirectory= is not a folder below the repository"),
        ("subdirectory=/etc", "its subdirectory= is not a folder below the repository"),
        ("subdirectory=.git/hooks", "its subdirectory= is not a folder below the repository"),
        ("subdirectory=a/-x", "its subdirectory= is not a folder below the repository"),
        ("subdirectory=a%2Fb", "its subdirectory= is not a folder below the repository"),
        ("subdirectory=$(x)", "its subdirectory= is not a folder below the repository"),
        ("subdirectory=", "is none of egg=NAME and subdirectory=FOLDER"),
        ("subdirectory=a&subdirectory=b", "is none of egg=NAME and subdirectory=FOLDER"),
        ("sha256=0123", "is none of egg=NAME and subdirectory=FOLDER"),
        ("main", "is none of egg=NAME and subdirectory=FOLDER"),
        ("egg=mine[train]", "extras of a repository are not read: name what they need beside it"),
        ("egg=-x", "its egg= is not the name of a package"),
    ],
)
def test_fragment_of_an_address_is_read_or_refused_with_its_line(tmp_path, fragment, words):
    path = tmp_path / "requirements.txt"
    path.write_text(f"einops\ngit+https://git.example/x@main#{fragment}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"requirements\.txt:2: .* is not an address that git is given") as caught:
        own_typed.given([], [path])
    assert words in caught.value.what
    assert caught.value.next_step == "git+https://HOST/PATH@COMMIT#subdirectory=FOLDER"
