"""The command: `doctor`, `doctor --explain TEXT`; the exit code says whether something cannot work."""

import argparse
import json
import shutil
import sys
from typing import Callable, List, Optional

from doctor.explain import PATTERNS, Answer, explain
from doctor.host import Host
from doctor.page import folded, page_lines, say
from doctor.stated import other_versions, version_here
from doctor.survey import cannot_work, survey

#: as in graphcrate.errors: HostError ("The machine lacks something"), UsageError
DONE, LACKING, UNKNOWN = 0, 7, 2
NEEDS_GRAPHCRATE = "which hosts a build asks is known to graphcrate itself: ./build.py doctor --network in a clone"
NOTHING_KNOWN = """\
The doctor knows {count} errors, and this is none of them. What helps to find it:
  - the first error of the output, not the last; of several processes that of the one which failed first
  - python -X faulthandler PROGRAM where it crashed; NCCL_DEBUG=WARN where processes wait for each other
Ask where you have graphcrate from (an issue in its repository), with three things: the command, the whole output, and
what `doctor --json` prints on the same node and in the same container. Look through it before you send it: it has names
of hosts, users and folders."""


def main(argv: Optional[List[str]] = None, worded: Callable[[str], str] = str) -> int:
    """Look around, or explain; returns the exit code. `worded`: puts commands into the caller's words."""
    options = arguments(sys.argv[1:] if argv is None else argv)
    if options.network:
        sys.stderr.write(f"doctor: {worded(NEEDS_GRAPHCRATE)}\n")
        return UNKNOWN
    if options.explain is not None:
        # a log is of many programs and letters, whatever this machine's locale says
        text = sys.stdin.buffer.read().decode("utf-8", "replace") if options.explain == "-" else options.explain
        return explain_text(text, options.json, worded)
    report = [
        (area, [each._replace(seen=worded(each.seen), why=worded(each.why), fix=worded(each.fix)) for each in found])
        for area, found in survey(Host(), options.imports)
    ]
    if options.json:
        say(json.dumps({"findings": [each.as_json(area) for area, found in report for each in found]}, indent=2))
    else:
        width = min(shutil.get_terminal_size((110, 24)).columns, 140)
        for line in page_lines(report, width, sys.stdout.isatty()):
            say(line)
    return LACKING if cannot_work(report) else DONE


def arguments(argv: List[str]) -> argparse.Namespace:
    """The command line; ends with code 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="doctor",
        description="Looks at this machine or container: what CUDA, torch and PyG will meet there, and what to "
        "do about it. "
        "Writes nothing. Exit code 0: nothing is wrong; 7: something cannot work; 2: wrong usage, or an "
        "error that is "
        "not known.",
    )
    parser.add_argument(
        "--network", action="store_true", help="the hosts that a build asks; graphcrate's own tries them"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.add_argument("--explain", metavar="TEXT", help="cause and fix of a pasted error; - reads it from stdin")
    imports = parser.add_mutually_exclusive_group()
    imports.add_argument(
        "--imports", action="store_true", default=None, help="import torch and the extensions (where there is a torch)"
    )
    imports.add_argument("--no-imports", dest="imports", action="store_false", help="import nothing: seconds less")
    options = parser.parse_args(argv)
    if options.network and (options.explain is not None or options.imports is not None):
        parser.error("--network goes with --json alone")
    return options


def explain_text(text: str, as_json: bool, worded: Callable[[str], str]) -> int:
    """Print what is known of an error."""
    answers = [answer._replace(cause=worded(answer.cause), fix=worded(answer.fix)) for answer in explain(text)]
    others = other_versions(text, version_here(Host()))
    if as_json:
        say(json.dumps({"answers": [answer._asdict() for answer in answers], "versions": others}, indent=2))
        return DONE if answers else UNKNOWN
    for line in folded(others, 100) if others else ():
        say(line)
    if not answers:
        say(NOTHING_KNOWN.format(count=len(PATTERNS)))
    else:
        say("\n\n".join("\n".join(answer_lines(answer)) for answer in answers))
    return DONE if answers else UNKNOWN


def answer_lines(answer: Answer) -> List[str]:
    """An answer for eyes."""
    rows = [("error:", answer.line), ("cause:", answer.cause), ("fix:", answer.fix), ("seen:", answer.source)]
    lines = []
    for label, text in rows:
        for number, line in enumerate(folded(text, 100)):
            lines.append("{:7}{}".format("" if number else label, line))
    return lines


if __name__ == "__main__":
    sys.exit(main())
