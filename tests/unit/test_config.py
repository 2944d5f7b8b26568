"""Defaults in files: a person's, a folder's over it, the command line over both."""

import pytest

from graphcrate.cli import config as configuration
from graphcrate.host import settings
from graphcrate.host.context import Context, as_installed
from graphcrate.model.errors import RecipeError, UsageError


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
    assert read() == configuration.Config()
    found = read(person='mirror = "sjtu"\ntarget = "dgx2"', folder='mirror = "nju"\nto = "registry.example/team"')
    assert (found.mirror, found.target, found.to, found.cache) == ("nju", "dgx2", "registry.example/team", "")


def test_an_unknown_field_is_refused_with_the_line_and_what_there_is(read):
    with pytest.raises(RecipeError, match=r"graphcrate.toml:2: miror: ") as caught:
        read(folder='to = "x"\nmiror = "sjtu"')
    assert "mirror, target, to and cache" in caught.value.next_step


def test_without_a_home_folder_the_current_folders_file_counts(read, monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", fail)
    assert read(person='to = "x"', folder='mirror = "nju"', HOME="") == configuration.Config(mirror="nju")


def test_the_cache_unless_a_variable_names_one(read, tmp_path):
    read(folder=f'cache = "{tmp_path}/there"')
    assert configuration.here().environment["GRAPHCRATE_CACHE"] == f"{tmp_path}/there"
    read(folder='cache = "/other"', GRAPHCRATE_CACHE="/mine")
    assert configuration.here().environment["GRAPHCRATE_CACHE"] == "/mine"


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("make image CUDA=11.8 'WITH=a b'", "graphcrate image pyg --cuda 11.8 --with 'a b'"),
        (
            "make image STACK=torch CUDA=11.8    (./build.py list)",
            "graphcrate image torch --cuda 11.8    (graphcrate list)",
        ),
        ("EXTENSIONS=wheels make image …", "graphcrate image … --extensions wheels"),
        ("DEBIAN_MIRROR=http://x make image …", "DEBIAN_MIRROR=http://x graphcrate image …"),
        ("MIRROR=sjtu or TOOLKIT=image)", "--mirror sjtu or --toolkit image)"),
    ],
)
def test_an_installed_package_says_commands_as_they_are_typed_there(here, there, tmp_path):
    assert as_installed(here) == there
    assert Context(root=tmp_path / "data", environment={}).as_typed(here) == there
    assert Context(root=tmp_path / "checkout", environment={}).as_typed(here) == here


def test_an_installed_package_leaves_its_recipes_and_locks_alone(tmp_path):
    with pytest.raises(UsageError, match="an installed package keeps its locks as they are"):
        Context(root=tmp_path / "data", environment={}).require_checkout("its locks")
    Context(root=tmp_path / "checkout", environment={}).require_checkout("its locks")
