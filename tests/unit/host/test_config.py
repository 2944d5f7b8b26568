"""Defaults in files: a person's, a folder's over it, the command line over both."""

import pytest

from graphcrate.cli import options as configuration
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.model.errors import RecipeError, UsageError
from tests.made import refused


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = tmp_path / ".config" / "graphcrate"
    home.mkdir(parents=True)

    def run(*, person="", folder="", **variables):
        (home / "config.toml").write_text(person)
        (tmp_path / "graphcrate.toml").write_text(folder)
        monkeypatch.setattr(settings, "environment", lambda: {"HOME": str(tmp_path), **variables})
        configuration.config.cache_clear()
        return configuration.config()

    yield run
    configuration.config.cache_clear()


def test_config_of_the_folder_overrides_that_of_the_user(read):
    assert read() == configuration.Config()
    found = read(person='mirror = "sjtu"\ntarget = "dgx2"', folder='mirror = "nju"\nto = "registry.example/team"')
    assert (found.mirror, found.target, found.to, found.cache) == ("nju", "dgx2", "registry.example/team", "")


def test_unknown_config_field_is_refused_with_line_and_known_fields(read):
    with refused(RecipeError, "graphcrate.toml:2: miror: ", "mirror, target, to, cache, remote_cache, "):
        read(folder='to = "x"\nmiror = "sjtu"')


def test_config_without_a_home_reads_the_current_folder(read, monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", fail)
    assert read(person='to = "x"', folder='mirror = "nju"', HOME="") == configuration.Config(mirror="nju")


@pytest.mark.parametrize("variables", [{}, {"GRAPHCRATE_CACHE": "/mine"}])
def test_config_cache_is_used_unless_a_variable_is_set(read, variables):
    read(folder='cache = "/there"', **variables)
    assert configuration.here().environment["GRAPHCRATE_CACHE"] == variables.get("GRAPHCRATE_CACHE", "/there")


def test_a_site_s_shared_cache_of_the_users_file_is_used_unless_a_variable_is_set(read):
    lines = 'remote_cache = ["/a", "/b"]\ncache_trust = ["~/site.pub"]\ncache_key = "k"\ncache_check = "20"'
    read(person=lines, GRAPHCRATE_CACHE_KEY="mine")
    names = ("REMOTE_CACHE", "CACHE_TRUST", "CACHE_KEY", "CACHE_CHECK")
    environment = configuration.here().environment
    assert [environment[f"GRAPHCRATE_{name}"] for name in names] == ["/a /b", "~/site.pub", "mine", "20"]


@pytest.mark.parametrize(
    "line",
    [
        *(f'{name} = ["/"]' for name in ("mounts", "images", "remote_cache", "cache_trust")),
        *(f'{name} = "1"' for name in ("cache_key", "cache_check")),
    ],
)
def test_a_projects_own_file_chooses_no_folder_and_no_shared_cache(read, line):
    with refused(UsageError, line.partition(" ")[0], "which a project's own file cannot have", "config.toml"):
        read(folder=line)


def test_installed_package_refuses_to_write_locks(tmp_path):
    with refused(UsageError, "an installed package keeps its locks as they are"):
        Context(root=tmp_path / "data", environment={}).require_checkout("its locks")
    Context(root=tmp_path / "checkout", environment={}).require_checkout("its locks")
