"""Witnesses out of lock files of others."""

import base64
import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.compat.facts.witnesses import Witnessed
from graphcrate.host.context import Context
from graphcrate.model import codec
from graphcrate.model.errors import IntegrityError, UsageError
from tests.made import refused
from upkeep import witnesses

NAME, SHA = "torch-2.0.1+cu118-cp311-cp311-linux_x86_64.whl", "ab" * 32
QUOTED = NAME.replace("+", "%2B")
COMMIT = "0123456789" * 4
SRI = base64.b64encode(bytes.fromhex(SHA)).decode()
ADDRESS = f"https://h/whl/cu118/{QUOTED}"
NAMING = {
    "uv.lock": f"""[[package]]
name = "torch"
wheels = [
  {{ url = "{ADDRESS}", hash = "sha256:{SHA}", size = 5 }},
]""",
    "poetry.lock": f"""[[package]]
name = "torch"
files = [
  {{file = "{NAME}", hash = "sha256:{SHA}"}},
]""",
    "old poetry.lock": f"""[metadata.files]
torch = [
  {{file = "{NAME}", hash = "sha256:{SHA}"}},
]""",
    "pylock.toml": f"""[[packages]]
name = "torch"
wheels = [{{ url = "{ADDRESS}", hashes = {{ sha256 = "{SHA}" }} }}]""",
    "requirements.txt": f"torch @ {ADDRESS}#sha256={SHA}\n",
    "hashed address": f"torch @ {ADDRESS} \\\n    --hash=sha256:{SHA}\n",
    "binary-hashes.nix": f"""x86_64-linux-311 = {{
  name = "torch-2.0.1-cp311-cp311-linux_x86_64.whl";
  url = "{ADDRESS}";
  hash = "sha256-{SRI}";
}};""",
}
SETS = {
    "requirements.txt": f"""numpy==1.26.4 \\
    --hash=sha256:{"0" * 64}
torch==2.0.1+cu118 \\
    --hash=sha256:{"1" * 64} \\
    --hash=sha256:{SHA}
    # via x
""",
    "Pipfile.lock": json.dumps({"default": {"torch": {"version": "==2.0.1+cu118", "hashes": [f"sha256:{SHA}"]}}}),
}


@pytest.fixture
def table(tmp_path):
    """A table without rows."""
    target = tmp_path / witnesses.TABLE
    target.parent.mkdir(parents=True)
    target.write_text("# comment\nsingle = []\nfile = []\n")
    return target


@pytest.mark.parametrize("form", NAMING)
def test_lock_that_names_files_gives_their_hashes(form):
    assert witnesses.hashes_of(NAMING[form].encode()).named == {NAME: SHA}


@pytest.mark.parametrize("form", SETS)
def test_lock_with_sets_of_hashes_confirms_a_file_and_names_none(form):
    found = witnesses.hashes_of(SETS[form].encode())
    row = Witnessed(name=NAME, sha256=SHA, witnesses=(f"one/a:uv.lock@{COMMIT}",))
    (confirmed,), lines = witnesses.merged([row], found, f"two/b:{form}@{COMMIT}")
    assert (confirmed.is_proved, lines) == (True, [f"{NAME}: 2 independent"])
    assert witnesses.merged([], found, f"two/b:{form}@{COMMIT}") == ([], [])


@pytest.mark.parametrize("name", [NAME.replace("+cu118", ""), NAME.replace("linux_x86_64", "win_amd64")])
def test_wheel_that_another_index_may_have_too_is_passed_over(name):
    assert witnesses.hashes_of(f"torch @ https://h/{name}#sha256={SHA}\n".encode()).named == {}


def test_lock_with_another_hash_for_a_known_file_is_refused_by_both_names():
    row = Witnessed(name=NAME, sha256="0" * 64, witnesses=(f"one/a:uv.lock@{COMMIT}",))
    with refused(IntegrityError, NAME, "two/b:x.lock@", "one/a:uv.lock@", SHA, "0" * 64):
        witnesses.merged([row], witnesses.Found({NAME: SHA}, {}), f"two/b:x.lock@{COMMIT}")


@given(st.binary(max_size=300) | st.text().map(str.encode))
def test_any_bytes_are_read_without_a_traceback(content):
    witnesses.hashes_of(content)


def test_table_is_written_as_it_is_read_and_single_witnesses_wait_apart():
    text = Context.here().root.joinpath(witnesses.TABLE).read_text(encoding="utf-8")
    rows = codec.convert(tomllib.loads(text)["file"], tuple[Witnessed, ...])
    assert witnesses.written(text, rows) == text
    one = Witnessed(name=NAME, sha256=SHA, size=5, witnesses=(f"one/a:uv.lock@{COMMIT}",))
    document = tomllib.loads(witnesses.written("# comment\nsingle = []\n", [one]))
    assert document["file"] == []
    assert codec.convert(document["single"], tuple[Witnessed, ...]) == (one,)


@pytest.mark.parametrize(("file", "commit"), [("absent.lock", COMMIT), ("uv.lock", "main")])
def test_file_that_is_absent_or_has_no_commit_is_refused_and_nothing_is_written(tmp_path, table, file, commit):
    before = table.read_text()
    (tmp_path / "uv.lock").write_text(NAMING["uv.lock"])
    with refused(UsageError, file, "python -m upkeep witnesses"):
        witnesses.update([witnesses.Path(file)], "one/a", commit, tmp_path, tmp_path, check=False)
    assert table.read_text() == before


def test_lock_is_added_to_the_table_and_a_second_one_proves_it(tmp_path, table):
    (tmp_path / "uv.lock").write_text(NAMING["uv.lock"])
    asked = [witnesses.Path("uv.lock")], "one/a", COMMIT, tmp_path, tmp_path
    before = table.read_text()
    assert witnesses.update(*asked, check=True) == [f"uv.lock: {NAME}: 1 independent"]
    assert table.read_text() == before
    assert witnesses.update(*asked, check=False) == [f"uv.lock: {NAME}: 1 independent"]
    assert witnesses.update(*asked, check=False) == ["uv.lock: nothing new"]
    (row,) = codec.convert(tomllib.loads(table.read_text())["single"], tuple[Witnessed, ...])
    assert row.witnesses == (f"one/a:uv.lock@{COMMIT}",)
    (tmp_path / "Pipfile.lock").write_text(SETS["Pipfile.lock"])
    witnesses.update([witnesses.Path("Pipfile.lock")], "two/b", COMMIT, tmp_path, tmp_path, check=False)
    (row,) = codec.convert(tomllib.loads(table.read_text())["file"], tuple[Witnessed, ...])
    assert row.is_proved
