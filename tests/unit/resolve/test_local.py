"""A person's own projects on their way into a lock: their names, and who is asked for what builds them."""

from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.model.errors import ResolutionError
from graphcrate.model.recipe import Channel
from graphcrate.resolve.additions import local
from graphcrate.resolve.sources.source import Source, SourceKind
from tests.made import file_of, refused
from tests.unit.compiled_plans import VARIANT
from tests.unit.wheelmaker import make_wheel

INDEX = Source(SourceKind.INDEX, "https://index.example/simple")
THEIRS = Source(SourceKind.INDEX, "https://theirs.example/simple", ("setuptools",), "requirements.txt:1")


@pytest.fixture
def store(tmp_path, cache, monkeypatch):
    """Stores a package whose wheel is there; what `project.of_commit` got as the back-end is noted."""
    wheel, given = make_wheel(tmp_path / "wheel", "demo"), []

    def of_commit(package, back_end, *_, **__):
        given.append(back_end)
        return wheel

    monkeypatch.setattr(local.project, "of_commit", of_commit)
    monkeypatch.setattr(local, "store_unhashed", lambda link, *_: file_of(link.name, b""))

    def stored(package, *further):
        ctx = SimpleNamespace(environment={}, progress=SimpleNamespace(note=print))
        context = SimpleNamespace(ctx=ctx, request=SimpleNamespace(walled=False), variant=VARIANT)
        sources = SimpleNamespace(user=SimpleNamespace(merged=False), client=None, cache=cache)
        offers = SimpleNamespace(
            sources=sources, of_channel=lambda channel: (INDEX, *further) if channel is Channel.PYPI else ()
        )
        return local.store_local(package, offers, context)

    stored.back_ends = given
    return stored


@pytest.mark.parametrize("fragment", ["", "#egg=demo", "#egg=De.mo&subdirectory=x", "#egg=Demo"])
def test_address_with_another_egg_than_its_project_is_refused(store, fragment):
    address = f"git+https://me:token@git.example/x@main{fragment}"
    if "De.mo" in fragment:
        words = ("https://git.example/x has demo, and its address says egg=De.mo", "write #egg=demo")
        with refused(ResolutionError, *words):
            store(address)
    else:
        assert store(address).name == "demo"


def test_back_end_of_an_index_that_a_file_names_is_told_from_the_users_own(store):
    other_line = msgspec.structs.replace(THEIRS, where="requirements.txt:9")
    for further in ((), (THEIRS,), (other_line,)):
        store("git+https://git.example/x@main", *further)
    plain, theirs, again = (back_end.asked for back_end in store.back_ends)
    assert plain != theirs == again
