"""Pictures of README and docs/: whole without a style sheet, readable on a telephone, of the project's own data."""

import re
import xml.etree.ElementTree as ET

import pytest

from tests import ROOT

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_picture_needs_no_style_sheet(path):
    """librsvg and many previews do not know variables; without a colour of its own a shape is black."""
    text = path.read_text(encoding="utf-8")
    assert ("var(" in text, "style=" in text) == (False, False)
    root = ET.fromstring(text)
    drawn = [one for one in root.iter() if one.tag in {f"{SVG}{name}" for name in ("rect", "text", "circle")}]
    assert [one.attrib for one in drawn if not re.fullmatch("#[0-9a-f]{6}", one.get("fill", ""))] == []
    lines = [one for one in root.iter() if one.tag in {f"{SVG}{name}" for name in ("line", "polyline")}]
    assert [one.attrib for one in lines if not one.get("stroke")] == []
    width = float(root.get("viewBox").split()[2])
    sizes = {float(one.get("font-size")) for one in root.iter(f"{SVG}text")}
    assert min(sizes) * 390 / width >= 8.5, "at 390 pixels"
    classes = {name for one in root.iter() for name in one.get("class", "").split()}
    assert classes == set(re.findall(r"\.([fs]-[a-z-]+) {", text)), "each has a colour for dark pages"


def test_report_picture_agrees_with_its_proof():
    text = (ROOT / "docs/pictures/report.svg").read_text(encoding="utf-8")
    for words in ("sm_60 does not run", "sm_70 runs", "sm_90 does not run", "dna, ops and ddp passed", "2.65 GB"):
        assert words in text
