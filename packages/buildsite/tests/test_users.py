"""A list of users lets in whom it names, by a token of which it has a hash, and is read by its owner alone."""

import contextlib
import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildsite import users
from buildsite.users import DEFAULTS, Allowed, Users, new_token
from graphcrate.host.disk import private
from graphcrate.model.errors import GraphcrateError, HostError, RecipeError, UsageError


def digest(token):
    return hashlib.sha256(token.encode()).hexdigest()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "users.toml"


def write(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_new_token_is_known_and_the_file_has_its_hash_alone(path):
    token = new_token(path, "ada")
    assert path.stat().st_mode & 0o777 == 0o600
    assert token not in path.read_text()
    known = Users(path)
    assert (known.of_token(token), known.of_token(token[:-1]), known.of_token("")) == ("ada", "", "")
    assert known.of_token(digest(token)) == ""


def test_second_token_replaces_the_first_and_leaves_the_rest(path):
    write(path, "# of the institute\n[limits]\nqueue = 3\n\n[user.ada]\nqueue = 9\n[user.eve]\n")
    first, other, second = new_token(path, "ada"), new_token(path, "eve"), new_token(path, "ada")
    known = Users(path)
    assert [known.of_token(token) for token in (first, other, second)] == ["", "eve", "ada"]
    assert path.read_text().startswith("# of the institute\n[limits]\nqueue = 3\n\n[user.ada]\n")
    assert (known.allowed("ada").queue, known.allowed("eve").queue) == (9, 3)


@pytest.mark.parametrize("name", ["ada", "ada.b", "ada@example.org", "7", "a-b_c"])
def test_names_of_users_are_written_so_that_they_are_read_back(path, name):
    new_token(path, "first")
    token = new_token(path, name)
    assert Users(path).of_token(token) == name


@pytest.mark.parametrize("name", ["", "-x", "a b", "a\nb", "../x", 'a"', "x" * 65, "é", ".a"])
def test_name_that_is_none_is_refused_and_nothing_is_written(path, name):
    with pytest.raises(UsageError):
        new_token(path, name)
    assert not path.exists()


def test_row_in_another_form_is_not_changed(path):
    text = "user = { ada = { queue = 3 } }\n"
    write(path, text)
    for name in ("ada", "eve"):
        with pytest.raises(UsageError, match="cannot be changed"):
            new_token(path, name)
    assert path.read_text() == text


def test_own_limit_goes_before_that_of_all_and_that_before_the_default(path):
    write(path, '[limits]\nqueue = 3\ndisk = "200GB"\n[user.ada]\nminutes = 5\n[user."eve@x"]\ndisk = "1GB"\n')
    known = Users(path)
    assert known.allowed("ada") == Allowed(queue=3, minutes=5, disk=200 * 1000**3)
    assert known.allowed("eve@x") == Allowed(queue=3, minutes=DEFAULTS.minutes, disk=1000**3)
    assert known.allowed("bob").queue == 3
    assert Users().allowed("bob") == DEFAULTS


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666])
def test_file_that_others_may_read_or_write_is_refused(path, mode):
    write(path, "", mode)
    with pytest.raises(HostError, match=r"others \(mode"):
        Users(path)


def test_file_of_another_user_is_refused(path, monkeypatch):
    write(path, "")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    if os.getuid() == 0:
        os.chown(path, 4711, -1)
    with pytest.raises(HostError, match="belongs to another user"):
        private.read(path, "a list of users")


@pytest.mark.parametrize(
    "text",
    [
        *('[user.ada]\ntoken = "secret"\n', "[user.ada]\nqueue = -1\n", "[user.ada]\nquue = 1\n", '[user."a b"]\n'),
        *('[limits]\ndisk = "much"\n', "[limits]\nminutes = 0\n", "[[user]]\n", "[user.ada\n", "[limits]\ntoken = ''"),
        f'[user.ada]\ntoken = "{digest("a")}"\n[user.eve]\ntoken = "{digest("a")}"\n',
    ],
)
def test_mistake_in_the_list_is_named_with_its_line(path, text):
    write(path, text)
    with pytest.raises(RecipeError, match=r"users\.toml:\d+: "):
        Users(path)


def test_changed_list_is_read_again_and_a_broken_one_lets_nobody_in(path):
    token = new_token(path, "ada")
    known = Users(path)
    later = new_token(path, "eve")
    known.refresh()
    assert (known.of_token(token), known.of_token(later)) == ("ada", "eve")
    write(path, "[user.ada\n")
    for _ in range(2):
        with pytest.raises(RecipeError):
            known.refresh()
        assert known.of_token(token) == ""
    path.unlink()
    with pytest.raises(UsageError):
        known.refresh()


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_any_bytes_are_a_list_or_an_error_of_ours(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any-users.toml"
    path.write_bytes(data)
    path.chmod(0o600)
    with contextlib.suppress(GraphcrateError):
        assert Users(path).of_token("") == ""


@given(st.text(max_size=80))
def test_any_name_is_refused_or_gets_a_token_that_is_its_own(tmp_path_factory, name):
    path = tmp_path_factory.getbasetemp() / "names-users.toml"
    path.unlink(missing_ok=True)
    if users.is_name(name):
        token = new_token(path, name)
        assert Users(path).of_token(token) == name
    else:
        with pytest.raises(UsageError):
            new_token(path, name)
