"""The user's index settings, as uv and pip read them."""

import pytest

from graphcrate.resolve.user_index import parse_emitted, user_indexes, wheel_folders


def never():
    raise AssertionError("uv must not be asked")


def emitted():
    return "--index-url https://default.example/simple\n--extra-index-url https://more.example/simple\n\nsix==1\n"


def test_uv_is_asked_where_nothing_is_set():
    found = user_indexes({}, emitted, ())
    assert (found.default, found.extra) == ("https://default.example/simple", ("https://more.example/simple",))
    assert not found.merged


@pytest.mark.parametrize(
    ("environment", "default"),
    [
        (
            {"UV_DEFAULT_INDEX": "https://a/s", "UV_INDEX_URL": "https://b/s", "PIP_INDEX_URL": "https://c/s"},
            "https://a/s",
        ),
        ({"UV_DEFAULT_INDEX": "corp=https://a/s"}, "https://a/s"),
        ({"UV_INDEX_URL": "https://b/s", "PIP_INDEX_URL": "https://c/s"}, "https://b/s"),
        ({"PIP_INDEX_URL": "https://me:pw@c/s"}, "https://me:pw@c/s"),
    ],
)
def test_variables_in_order(environment, default):
    assert user_indexes(environment, never, ()).default == default


def test_further_indexes_of_uv_and_pip():
    environment = {
        "UV_DEFAULT_INDEX": "https://d/s",
        "UV_INDEX": "corp=https://a/s https://b/s",
        "PIP_EXTRA_INDEX_URL": "https://b/s https://c/s",
    }
    found = user_indexes(environment, never, ())
    assert found.extra == ("https://a/s", "https://b/s", "https://c/s")
    assert found.merged


def test_pip_files_in_order(tmp_path):
    system = tmp_path / "etc.conf"
    system.write_text("[global]\nindex-url = https://system/s\nextra-index-url =\n  https://one/s\n  https://two/s\n")
    home = tmp_path / "home"
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text("[install]\nindex-url = https://user/%40s\n")
    found = user_indexes({"HOME": str(home)}, never, (system,))
    assert found.default == "https://user/%40s"
    assert found.extra == ("https://one/s", "https://two/s")
    chosen = tmp_path / "chosen.conf"
    chosen.write_text("[global]\nindex-url = https://chosen/s\n")
    found = user_indexes({"HOME": str(home), "PIP_CONFIG_FILE": str(chosen)}, never, (system,))
    assert found.default == "https://chosen/s"
    assert (
        user_indexes({"PIP_CONFIG_FILE": "/dev/null"}, emitted, (system,)).default == "https://default.example/simple"
    )


def test_a_broken_pip_file_is_passed_over(tmp_path):
    broken = tmp_path / "pip.conf"
    broken.write_text("index-url without a section")
    assert user_indexes({}, emitted, (broken,)).default == "https://default.example/simple"


def test_folders_among_find_links(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    environment = {
        "UV_FIND_LINKS": f"{first},https://links.example/page.html",
        "PIP_FIND_LINKS": f"{second.as_uri()} {first} /no/such/folder",
    }
    assert wheel_folders(environment, ()) == (str(first), str(second))


def test_emitted_lines_without_any_index():
    assert parse_emitted("# nothing\n") == ("", ())
