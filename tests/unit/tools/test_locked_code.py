"""The tools that read what committed locks name find each file of any kind on the index."""

import sys
from types import SimpleNamespace

import pytest

from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import LockedFile
from graphcrate.resolve.sources.source import Link
from tools import locked_code, locked_licences, measure_wheel

SDIST = "torch_cluster-1.6.3.tar.gz"
YANKED = "demo-1.0-py3-none-any.whl"


@pytest.fixture
def sources(monkeypatch):
    links = (
        Link(name=SDIST, url=f"https://index.example/{SDIST}", sha256="ab" * 32),
        Link(name=YANKED, url=f"https://index.example/{YANKED}", sha256="cd" * 32, yanked=True),
    )
    monkeypatch.setattr(measure_wheel, "Offers", lambda *_: SimpleNamespace(of_channel=lambda _: ["place"]))
    return SimpleNamespace(listings=SimpleNamespace(project=lambda *_: links))


@pytest.mark.parametrize(("name", "sha256"), [(SDIST, "ab" * 32), (YANKED, "cd" * 32)])
def test_locked_source_and_yanked_wheel_are_found_on_the_index(sources, name, sha256):
    file = LockedFile(name=name, size=1, sha256=sha256)
    assert locked_code.link_of(sources, "demo", file).name == name


def test_locked_file_that_the_index_lacks_is_named(sources):
    with pytest.raises(ResolutionError, match="has no other"):
        locked_code.link_of(sources, "demo", LockedFile(name="other.whl", size=1, sha256="ab" * 32))


@pytest.mark.parametrize("tool", [locked_code, locked_licences])
@pytest.mark.parametrize("words", [["--nev"], ["--new", "pyg"]])
def test_unknown_option_ends_with_2_and_reads_nothing(tool, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tool", *words])
    monkeypatch.setattr(tool, "locked", lambda: pytest.fail("it goes on"))
    with pytest.raises(SystemExit) as ended:
        tool.main()
    assert (ended.value.code, "unrecognized arguments: " in capsys.readouterr().err) == (2, True)
