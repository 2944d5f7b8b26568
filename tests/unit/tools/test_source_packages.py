"""The list of packages that are compiled from source, what is made of messages and results, and its table."""

import zipfile

from graphcrate.model.errors import BuildError
from tests import ROOT
from tools import source_packages as trying
from tools.source_packages import Compiled, Result, Source
from tools.tables import filled
from tools.typed import Message, Typed, advised

LISTED = trying.read_list()
DEMO = Source(name="demo", kind="setuptools, C", use="import demo")
MADE = Compiled(version="1.0", seconds=20.4, differing=())


def message(next_step):
    return Message(typed=Typed(with_="demo"), exit_code=9, what="demo does not compile", next_step=next_step)


def test_listed_packages_are_of_many_kinds_and_their_lines_are_python():
    names = [source.name for source in LISTED]
    assert len(set(names)) == len(names)
    assert len({source.kind for source in LISTED}) >= 10
    for source in LISTED:
        compile(source.use, source.name, "exec")


def test_ledger_has_results_of_listed_packages_only():
    assert set(trying.read_ledger()) <= {source.name for source in LISTED}


def test_package_is_compiled_as_messages_say_until_it_passes():
    asked = []

    def attempt(typed):
        asked.append(typed)
        if typed.build_apt != "swig make":
            raise BuildError("no", next_step=f"BUILD_APT={'make' if typed.build_apt else 'swig'}")
        return MADE

    result = trying.tried(DEMO, attempt)
    assert (result.passed, result.typed.build_apt, len(result.messages)) == (True, "swig make", 2)
    assert len(asked) == 3


def test_package_fails_where_a_message_names_nothing_new():
    def attempt(typed):
        raise BuildError("no", cause="Its sources.", next_step="BUILD_APT=swig")

    result = trying.tried(DEMO, attempt)
    assert (result.passed, len(result.messages)) == (False, 2)


def test_package_that_imports_what_is_not_there_is_tried_with_it():
    """pysptk imports pkg_resources, which setuptools has up to 81: `make image` says so after its smoke test."""
    typed = Typed(with_="demo")
    raised = "ModuleNotFoundError: No module named 'pkg_resources'"
    said = Message(typed=typed, exit_code=9, what="", next_step=trying.remedied("demo", typed, raised, "3.11"))
    assert advised(said, "torch").with_ == "demo setuptools<82"
    assert trying.remedied("demo", typed, "ValueError: no", "3.11") == ""


def test_differing_files_of_two_wheels_are_named(tmp_path):
    paths = []
    for number, content in enumerate(("a", "a", "b")):
        paths.append(tmp_path / f"{number}.whl")
        with zipfile.ZipFile(paths[-1], "w") as wheel:
            wheel.writestr(zipfile.ZipInfo("demo/_demo.so"), content)
            wheel.writestr(zipfile.ZipInfo("demo-1.0.dist-info/RECORD"), content)
    assert trying.differences(paths[0], paths[1]) == []
    assert trying.differences(paths[0], paths[2]) == ["demo/_demo.so"]


def test_table_has_what_was_typed_and_whether_it_was_the_same_or_why_it_failed(monkeypatch):
    others = [Source(name=name, kind="meson", use="") for name in ("failing", "differing", "new")]
    monkeypatch.setattr(trying, "read_list", lambda: (DEMO, *others))
    date = "2026-01-02T00:00:00Z"
    results = (
        Result(package="demo", typed=Typed(with_="demo", build_apt="a b"), version="1.0", seconds=20.4, date=date),
        Result(package="failing", typed=Typed(with_="failing"), messages=(message("x"),), date=date),
        Result(package="differing", typed=Typed(with_="d"), version="2", seconds=1, differing=("d/_d.so",), date=date),
    )
    monkeypatch.setattr(trying, "read_ledger", lambda: {result.package: result for result in results})
    table = trying.tables()["sources"]
    assert "Of these 4 packages of 2 kinds 2 build and run, 1 of them to the same bytes twice" in table
    assert '| demo | setuptools, C | `WITH=demo BUILD_APT="a b"` | 1.0 | 20 | yes |' in table
    assert "**no**: demo does not compile" in table
    assert "no: `_d.so`" in table
    assert "| new | meson | not tried yet |" in table


def test_page_has_room_for_its_table():
    page = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    assert "| package |" in filled(page, trying.tables())
