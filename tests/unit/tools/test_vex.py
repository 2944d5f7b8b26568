"""tools/vex.py: what grype and trivy find in a package without code becomes a statement, all else stays unsaid."""

import json

import pytest

from graphcrate.model.errors import UsageError
from tools import vex

HEADERS = "pkg:deb/debian/linux-libc-dev@6.1.140-1?arch=amd64&distro=debian-12"
LIBRARY = "pkg:deb/debian/zlib1g@1.2.13-1?arch=amd64&distro=debian-12"
FOUND = (
    ("CVE-2026-2", "linux-libc-dev", HEADERS),
    ("CVE-2026-1", "linux-libc-dev", HEADERS),
    ("CVE-1", "zlib1g", LIBRARY),
)
GRYPE = {
    "matches": [
        {"vulnerability": {"id": cve, "severity": "High"}, "artifact": {"name": name, "purl": purl, "version": "1"}}
        for cve, name, purl in (*FOUND, FOUND[0])
    ],
    "descriptor": {"name": "grype", "timestamp": "2026-11-28T10:00:00Z"},
}
TRIVY = {
    "SchemaVersion": 2,
    "CreatedAt": "2026-11-28T10:00:00Z",
    "Results": [
        {"Target": "python-pkg"},
        {
            "Target": "debian 12",
            "Vulnerabilities": [
                {"VulnerabilityID": cve, "PkgName": name, "PkgIdentifier": {"PURL": purl}} for cve, name, purl in FOUND
            ],
        },
    ],
}


@pytest.mark.parametrize("found", [GRYPE, TRIVY], ids=["grype", "trivy"])
def test_findings_in_headers_become_statements_and_others_do_not(found, tmp_path, capsys):
    (tmp_path / "found.json").write_text(json.dumps(found))
    assert vex.main([str(tmp_path / "found.json")]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [(row["vulnerability"]["name"], row["products"]) for row in made["statements"]] == [
        ("CVE-2026-1", [{"@id": HEADERS}]),
        ("CVE-2026-2", [{"@id": HEADERS}]),
    ]
    assert {(row["status"], row["justification"]) for row in made["statements"]} == {
        ("not_affected", "vulnerable_code_not_present")
    }
    assert (made["@context"], made["timestamp"]) == ("https://openvex.dev/ns/v0.2.0", "2026-11-28T10:00:00Z")
    assert made["@id"].startswith("urn:uuid:")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "no findings of grype or trivy"),
        ({"matches": []}, "no findings of grype or trivy"),
        ({**GRYPE, "matches": GRYPE["matches"][2:3]}, "nothing was found in linux-libc-dev"),
        ({"matches": 5}, "Expected `array"),
    ],
)
def test_file_without_anything_to_say_is_refused(found, message, tmp_path, capsys):
    (tmp_path / "found.json").write_text(json.dumps(found))
    assert vex.main([str(tmp_path / "found.json")]) == UsageError.exit_code
    out, err = capsys.readouterr()
    assert (out, message in err) == ("", True), err
    assert vex.main([]) == UsageError.exit_code
