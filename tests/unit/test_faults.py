"""docs/faults.md has the rows that tests/faults has: a row more or less wants `make faults`."""

import re

from tests.faults import page


def test_faults_page_has_exactly_the_rows_of_tests_faults():
    rows = re.findall(r"^\| ((?!fault |---).+?) \| (.+?) \| .* \| [\d.]* \|$", page.PAGE.read_text(), re.MULTILINE)
    assert rows == [(row.fault, row.done) for _, row in page.load()]
