"""docs/faults.md has the rows that tests/faults has: a row more or less wants `make faults`."""

import re

from tests.faults import page


def test_the_page_has_every_row_and_no_other():
    rows = re.findall(r"^\| ((?!fault |---).+?) \| (.+?) \| .* \| [\d.]* \|$", page.PAGE.read_text(), re.MULTILINE)
    assert rows == [(row.fault, row.done) for _, row in page.load()]
