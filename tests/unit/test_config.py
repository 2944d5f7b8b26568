"""Defaults in files: a person's, a folder's over it, the command line over both."""

import pytest

from graphcrate.cli import config as configuration
from graphcrate.host import settings
from graphcrate.model.errors import RecipeError


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment = {"HOME": str(tmp_path / "home")}
    monkeypatch.setattr(settings, "environment", lambda: environment)
    home = tmp_path / "home" / ".config" / "graphcrate"
    home.mkdir(parents=True)

    def run(*, person="", folder="", **variables):
        (home / "config.toml").write_text(person)
        (tmp_path / "graphcrate.toml").write_text(folder)
        environment.update(variables)
        configuration.config.cache_clear()
        return configuration.config()

    yield run
    configuration.config.cache_clear()


def test_the_folders_file_goes_over_the_persons(read):
    found = read(person='mirror = "sjtu"\ntarget = "dgx2"', folder='mirror = "nju"\nto = "registry.example/team"')
    assert (found.mirror, found.target, found.to, found.cache) == ("nju", "dgx2", "registry.example/team", "")


def test_nothing_is_configured_without_files(read):
    assert read() == configuration.Config()


def test_an_unknown_field_is_refused_with_the_line_and_what_there_is(read):
    with pytest.raises(RecipeError, match=r"graphcrate.toml:2: miror: ") as caught:
        read(folder='to = "x"\nmiror = "sjtu"')
    assert "mirror, target, to and cache" in caught.value.next_step


def test_the_cache_unless_a_variable_names_one(read, tmp_path):
    read(folder=f'cache = "{tmp_path}/there"')
    assert configuration.here().environment["GRAPHCRATE_CACHE"] == f"{tmp_path}/there"
    read(folder='cache = "/other"', GRAPHCRATE_CACHE="/mine")
    assert configuration.here().environment["GRAPHCRATE_CACHE"] == "/mine"
