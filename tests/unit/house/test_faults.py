"""The page of faults has each row of tests/faults with its result."""

import json
import re

import pytest

from tests.faults import page

RECORD = {"how": "exit code 6: it is cut off", "seconds": 1.25}


def test_faults_page_has_each_row_with_its_record():
    text = page.text({name: RECORD for name, _ in page.load()})
    rows = re.findall(r"^\| ((?!fault |---).+?) \| (.+?) \| (.*) \| ([\d.]*) \|$", text, re.MULTILINE)
    assert rows == [(row.fault, row.done, RECORD["how"], "1.2") for _, row in page.load()]


def test_run_that_lacks_a_row_writes_no_page(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "docs" / "faults.md")
    first, *_ = [name for name, _ in page.load()]
    (tmp_path / "one.json").write_text(json.dumps({"name": first, **RECORD}))
    with pytest.raises(SystemExit, match="no record of"):
        page.main(tmp_path)
    assert not page.PAGE.exists()
