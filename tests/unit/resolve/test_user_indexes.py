"""Indexes and folders that a user set for uv and pip."""

import pytest

from graphcrate.resolve.sources import user_indexes as place
from graphcrate.resolve.sources.user_indexes import UserIndexes, user_indexes, wheel_folders


@pytest.fixture(autouse=True)
def no_system_files(monkeypatch):
    monkeypatch.setattr(place, "SYSTEM_FILES", ())


MORE = {"UV_INDEX": "corp=https://a/s https://b/s", "PIP_EXTRA_INDEX_URL": "https://b/s https://c/s"}
EMITTED = "--index-url https://d/s\n--extra-index-url https://more/s\n\nsix==1\n"


@pytest.mark.parametrize(
    ("environment", "emitted", "found"),
    [
        ({}, "# nothing\n", UserIndexes("")),
        ({}, EMITTED, UserIndexes("https://d/s", ("https://more/s",))),
        ({"UV_DEFAULT_INDEX": "corp=https://a/s", "UV_INDEX_URL": "https://b/s"}, EMITTED, UserIndexes("https://a/s")),
        ({"UV_INDEX_URL": "https://b/s", "PIP_INDEX_URL": "https://c/s"}, "", UserIndexes("https://b/s")),
        ({"PIP_INDEX_URL": "https://me:pw@c/s"}, "", UserIndexes("https://me:pw@c/s")),
        # an address with an equals sign is no name before an address
        (
            {"UV_INDEX_URL": "https://c/s?key=1", "UV_INDEX": "n=https://d/s?a=b"},
            "",
            UserIndexes("https://c/s?key=1", ("https://d/s?a=b",)),
        ),
        # asked once, however often it is named
        (
            {"UV_INDEX_URL": "https://c/s", "UV_INDEX": "https://c/s x=https://d/s https://d/s"},
            "",
            UserIndexes("https://c/s", ("https://d/s",)),
        ),
        (MORE, "", UserIndexes("", ("https://a/s", "https://b/s", "https://c/s"), merged=True)),
    ],
)
def test_user_indexes_follow_variables_then_uv(environment, emitted, found):
    assert user_indexes(environment, emitted) == found


def test_user_indexes_follow_pip_files_in_order(tmp_path, monkeypatch):
    system, broken, chosen, user = (tmp_path / name for name in ("etc.conf", "broken.conf", "chosen.conf", ".config"))
    system.write_text("[global]\nindex-url = https://system/s\nextra-index-url =\n  https://one/s\n  https://two/s\n")
    broken.write_text("index-url without a section")
    chosen.write_text("[install]\nindex-url = https://chosen/s\n")
    (user / "pip").mkdir(parents=True)
    (user / "pip" / "pip.conf").write_text("[install]\nindex-url = https://user/%40s\n")
    monkeypatch.setattr(place, "SYSTEM_FILES", (system, broken))
    home = {"HOME": str(tmp_path)}
    assert user_indexes({}).default == "https://system/s"
    assert user_indexes(home) == UserIndexes("https://user/%40s", ("https://one/s", "https://two/s"), merged=True)
    assert user_indexes(home | {"PIP_CONFIG_FILE": str(chosen)}).default == "https://chosen/s"
    assert user_indexes({"PIP_CONFIG_FILE": "/dev/null"}).default == ""


def test_find_links_give_existing_folders_and_no_pages(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    links = f"{first},https://links.example/page.html", f"{second.as_uri()} {first} /no/such/folder"
    found = wheel_folders(dict(zip(("UV_FIND_LINKS", "PIP_FIND_LINKS"), links, strict=True)))
    assert found == (str(first), str(second))
