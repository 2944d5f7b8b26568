"""Writes OpenVEX for what a scanner finds in packages of which no code is in an image: FLAVOUR=devel has headers.

    grype oci-dir:dist/pyg/TAG/oci --output json > found.json      (trivy image --format json … does too)
    python -m tools.vex found.json > vex.json
    grype oci-dir:dist/pyg/TAG/oci --vex vex.json                  (trivy image --vex vex.json … too)

A statement names a vulnerability and the package as it is installed, by its package URL: both scanners take that as the
product (grype: `findMatchingStatement` of grype/vex/openvex). Everything else that was found stays.
"""

import hashlib
import json
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from graphcrate.model import codec
from graphcrate.model.errors import GraphcrateError, UsageError

#: Debian's package → why nothing of it runs
NOT_RUN: Mapping[str, str] = {
    "linux-libc-dev": "It has the kernel's headers, for compilers. The kernel that runs is the host's.",
}


class _Artifact(msgspec.Struct, frozen=True):
    name: str
    purl: str = ""


class _Vulnerability(msgspec.Struct, frozen=True):
    id: str


class _Match(msgspec.Struct, frozen=True):
    vulnerability: _Vulnerability
    artifact: _Artifact


class _Descriptor(msgspec.Struct, frozen=True):
    timestamp: str = ""


class _Identifier(msgspec.Struct, frozen=True, rename="upper"):
    purl: str = ""


class _Row(msgspec.Struct, frozen=True):
    id: str = msgspec.field(name="VulnerabilityID")
    package: str = msgspec.field(name="PkgName")
    identifier: _Identifier = msgspec.field(name="PkgIdentifier", default=_Identifier())


class _Result(msgspec.Struct, frozen=True, rename="pascal"):
    vulnerabilities: tuple[_Row, ...] | None = None


class Findings(msgspec.Struct, frozen=True):
    """Findings of a scanner; the first two are of grype, the others of trivy."""

    matches: tuple[_Match, ...] | None = None
    descriptor: _Descriptor = _Descriptor()
    results: tuple[_Result, ...] | None = msgspec.field(name="Results", default=None)
    created: str = msgspec.field(name="CreatedAt", default="")

    def each(self) -> Iterator[tuple[str, str, str]]:
        """Each finding: package, its URL, the vulnerability."""
        for match in self.matches or ():
            yield match.artifact.name, match.artifact.purl, match.vulnerability.id
        for result in self.results or ():
            for row in result.vulnerabilities or ():
                yield row.package, row.identifier.purl, row.id


def document(findings: Findings) -> dict[str, object]:
    """Return the OpenVEX document, as of the time of the findings. Raises UsageError for a file without findings."""
    time = findings.descriptor.timestamp or findings.created
    if (findings.matches is None and findings.results is None) or not time:
        raise UsageError(
            "these are no findings of grype or trivy", next_step="grype oci-dir:FOLDER --output json > found.json"
        )
    found = {(name, purl, vulnerability) for name, purl, vulnerability in findings.each() if name in NOT_RUN and purl}
    statements = [
        {
            "vulnerability": {"name": vulnerability},
            "products": [{"@id": purl}],
            "status": "not_affected",
            "justification": "vulnerable_code_not_present",
            "impact_statement": NOT_RUN[name],
            "timestamp": time,  # that of the document, which some readers do not take over
        }
        for name, purl, vulnerability in sorted(found)
    ]
    if not statements:
        raise UsageError(
            f"nothing was found in {', '.join(NOT_RUN)}: there is nothing to say",
            next_step="scan without --vex: what was found is about code that is in the image",
        )
    content = hashlib.sha256(json.dumps(statements).encode()).hexdigest()
    return {
        "@context": "https://openvex.dev/ns/v0.2.0",
        "@id": uuid.uuid5(uuid.NAMESPACE_OID, content).urn,
        "author": "graphcrate",
        "role": "builder of the image",
        "timestamp": time,
        "version": 1,
        "statements": statements,
    }


def main(words: list[str]) -> int:
    """Read the findings that the command line names, print the document. Returns the exit code."""
    try:
        if len(words) != 1:
            raise UsageError("one file of findings is read", next_step="python -m tools.vex found.json > vex.json")
        made = document(codec.decode(Path(words[0]).read_bytes(), Findings))
    except (GraphcrateError, msgspec.MsgspecError, OSError) as error:
        print(f"vex: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, GraphcrateError) else UsageError.exit_code
    print(json.dumps(made, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
