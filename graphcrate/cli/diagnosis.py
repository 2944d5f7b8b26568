"""The doctor on a host: what the doctor of images says, and of the host's own programs and of an image's errors more.

The doctor's modules are in images, whose proofs name each byte of them; what only a host is told is added here. As
they, this needs Python 3.6 alone: `build.py` calls it where there is no environment.
"""

import re
from typing import Callable, Iterator, List, Optional

from doctor import __main__ as doctor
from doctor.explain import PATTERNS, Answer
from doctor.explain import explain as explain_of_images
from doctor.finding import OK, Finding, warn
from doctor.host import Host
from doctor.survey import Report
from doctor.survey import survey as survey_of_images
from graphcrate.cli.diagnosis_facts import FIXES, RELEASES

arguments = doctor.arguments
_SIGNS = {pattern.id: pattern.sign for pattern in PATTERNS}
_EVERYWHERE = "apptainer-squashfs"  #: of which the doctor's own fix is of a time when gzip was the default
_OF_AN_IMAGE = "/opt/venv/"  #: in a traceback: where an image has its packages


def main(argv: Optional[List[str]] = None, worded: Callable[[str], str] = str) -> int:
    """Look around, or explain, as the doctor does; its exit code."""
    doctor.survey, doctor.explain = survey, explain  # type: ignore[attr-defined]  # which its `main` calls
    return doctor.main(argv, worded)


def explain(text: str) -> List[Answer]:
    """Return the answers to a text; of an image with what is typed to build another one."""
    of_image = _OF_AN_IMAGE in text
    answers = explain_of_images(text)
    return [_rebuilt(answer) if of_image or answer.id == _EVERYWHERE else answer for answer in answers]


def _rebuilt(answer: Answer) -> Answer:
    fix = FIXES.get(answer.id)
    if not fix:
        return answer
    match = re.search(_SIGNS[answer.id], answer.line)
    words = match.groupdict() if match else {}
    return answer._replace(fix=re.sub(r"\{(\w+)\}", lambda each: words.get(each.group(1)) or "it", fix))


def survey(host: Host, imports: Optional[bool] = None) -> Report:
    """Every area with its findings, as a host tells them, and those of `_known` behind them."""
    areas = survey_of_images(host, imports)
    return [(area, [*map(_renewed, findings), *_known(findings)]) for area, findings in areas]


def _renewed(finding: Finding) -> Finding:
    """The finding; of a kernel that mounts gzip alone with the option that writes it."""
    is_old_kernel = finding.fix.startswith("./build.py convert REF --to sif    (gzip")
    return finding._replace(fix=FIXES[_EVERYWHERE]) if is_old_kernel else finding


def _known(findings: List[Finding]) -> Iterator[Finding]:
    """Yield what is known of the release of a runtime that is here."""
    for finding in findings:
        for program, release, mended, why in RELEASES if finding.status == OK else ():
            # "apptainer version 1.5.0-1.el9, /usr/bin/apptainer"
            if re.match(rf"{re.escape(program)} version v?{re.escape(release)}(?![.\d])", finding.seen):
                fix = f"{program} {mended} or later: module avail {program}, or the administrator"
                check = "./build.py check FILE.sif    reads one that it wrote"
                yield warn("release", f"{program} {release}", why, f"{fix}; {check}")
