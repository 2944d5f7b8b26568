"""Addresses of git repositories: their parts, and what no word of a stranger becomes."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projectfiles import git_address


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("https://h/a", ("https://h/a", "", "", "")),
        ("https://h/a@v1#egg=x&subdirectory=./b//c/", ("https://h/a", "v1", "b/c", "x")),
        ("git@h:a/b.git@main", ("git@h:a/b.git", "main", "", "")),
        ("file://localhost/srv/a", ("file:///srv/a", "", "", "")),
    ],
)
def test_address_has_its_parts_and_is_written_again(text, parts):
    address = git_address.read(text)
    assert address == parts
    assert git_address.read(address.written) == address


@pytest.mark.parametrize(
    "text", ["--upload-pack=x;false://", "ext::sh -c x", "ssh://-oProxyCommand=x/a", "ssh://h/$(x)", "https://h/x@-x"]
)
def test_word_for_git_ssh_or_a_shell_is_refused(text):
    with pytest.raises(ValueError):
        git_address.read(text)


@given(st.text(max_size=60))
def test_what_is_read_of_any_text_is_one_plain_word_of_a_known_scheme(text):
    try:
        address = git_address.read(text)
    except ValueError:
        return
    assert address.url.startswith(("https://", "ssh://", "git://", "file:///")) or "@" in address.url.partition(":")[0]
    for word in address:
        assert not word.startswith("-")
        assert (
            shlex.quote(word.replace("~", "").replace("\u00e4", "a")).strip("'") == word.replace("~", "")
            or not word.isascii()
        )
    assert git_address.repository(address.url) == address.url


@pytest.mark.parametrize(
    ("base", "text", "address"),
    [
        ("https://h/a/b", "../c", "https://h/a/c"),
        ("https://h/a/b.git", "./c", "https://h/a/b.git/c"),
        ("https://h/a/b/", "../../c/d", "https://h/c/d"),
        ("git@h:a/b", "../c", "git@h:a/c"),
        ("git@h:b", "../c", "git@h:c"),
        ("ssh://git@h:22/a/b", "../c", "ssh://git@h:22/a/c"),
        ("file:///srv/a", "../b", "file:///srv/b"),
    ],
)
def test_relative_address_of_a_submodule(base, text, address):
    assert git_address.relative(base, text) == address


@pytest.mark.parametrize(
    ("base", "text"),
    [("https://h/b", "../../c"), ("git@h:b", "../../c"), ("file:///b", "../../c"), ("https://h/a", "../-x y")],
)
def test_relative_address_above_the_root_is_refused(base, text):
    with pytest.raises(ValueError):
        git_address.relative(base, text)
