"""Linters find nothing in the texts that are committed for engines, nor in our own shell scripts."""

import re

from spython.main.parse.parsers import SingularityParser

from graphcrate import render
from tests import ROOT
from tests.lint.linters import findings, hadolint, run_instructions, scripts, stages
from tests.unit.compiled_plans import PLANS


def committed(pattern):
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(ROOT.glob(pattern))}


#: What no committed variant may have: each kind of toolkit, devel images.
KINDS = ("debian", "pypi", "image", "cpu", "debian-devel", "image-devel")
DOCKERFILES = committed("images/*/*/Dockerfile") | {f"of {kind}": render.dockerfile(PLANS[kind]) for kind in KINDS}
DEFINITIONS = committed("images/*/*/*.def") | {f"of {kind}": render.definition(PLANS[kind]) for kind in KINDS}
JOBS = ROOT / "tests" / "unit" / "render" / "jobs"
SCRIPTS = [ROOT / name for name in ("tools/prepare", "tools/lock-requirements", ".ci/run", ".ci/machine")]
#: What a rendered text may ask a linter to overlook, with why.
OVERLOOKED = {
    "DL3008": "versions of apt's packages are not pinned: Debian's archive keeps one version of each, so that a "
    "pinned one is gone with the next update. Where the bytes matter, the base is given by the lock.",
    "SC2016": "a `$` in single quotes: a script for others is written, whose variables are theirs.",
}


def shellcheck_all(texts, folder):
    """Findings in all texts, of equal ones by the first name. One process: starting it takes longer than most do."""
    names = {}
    for name, text in texts.items():
        names.setdefault(text, name)
    for text, name in names.items():
        (folder / name.replace("/", " ")).write_text(text)
    return findings("shellcheck", "--norc", "--color=never", "--shell=sh", *sorted(folder.iterdir()))


def test_there_is_something_to_look_at():
    """A folder that moved would leave the tests below without cases, and green."""
    folders = [{path.parent for path in ROOT.glob(f"images/*/*/{name}")} for name in ("Dockerfile", "*.def")]
    assert folders[0] == folders[1] != set()


def test_hadolint_finds_only_what_is_agreed(tmp_path):
    """Asked to mind no pragma, it finds what they name and nothing else; so a stranger's hadolint finds nothing.

    Two thirds of what Dockerfiles run is in several: it is looked at in the first, which takes a quarter of the time.
    """
    agreed, seen = set(), set()
    for number, whole in enumerate(DOCKERFILES.values()):
        text = "\n".join(piece for piece in instructions(whole) if not (is_run(piece) and piece in seen))
        seen |= set(instructions(whole))
        (path := tmp_path / f"{number}").write_text(text)
        agreed |= {(f"{path}:{line}", rule) for line, rule in overlooked(text)}
    said = hadolint(*sorted(tmp_path.iterdir()))
    assert {tuple(line.split(" ")[:2]) for line in said.splitlines()} == agreed


def instructions(dockerfile):
    """The instructions of a Dockerfile, each with the comments and empty lines above it; joined, they are its text."""
    found, lines = [[]], dockerfile.split("\n")
    for number, line in enumerate(lines):
        found[-1].append(line)
        goes_on = line.endswith("\\") and not line.lstrip().startswith("#")
        is_above = not line.strip() or line.lstrip().startswith("#")
        if not (goes_on or is_above) and number + 1 < len(lines):
            found.append([])
    return ["\n".join(each) for each in found]


def is_run(instruction):
    """Return whether the first line of an instruction that is no comment begins with RUN."""
    return re.match(r"(?:\s*#.*\n|\s*\n)*RUN ", instruction) is not None


def overlooked(text, form="# hadolint ignore="):
    """(line, rule) of what the pragmas of a text name. Each stands below its reason and above what it is about."""
    lines, found = [line.strip() for line in text.split("\n")], set()
    for number, line in enumerate(lines, 1):
        if re.match(r"#.*\b(hadolint|shellcheck)\b", line):
            rule = line.removeprefix(form)
            assert rule in OVERLOOKED, f"{number}: {line}"
            assert lines[number - 2].startswith("# "), f"line {number} gives no reason"
            found.add((str(number + 1), rule))
    return found


def test_a_dockerfile_needs_no_newer_builder_than_the_classic_one():
    newer = r"^# *(syntax|escape) *=|^(RUN|COPY|ADD) .*<<|^RUN --|^(COPY|ADD) --(?!from=|chown=)"
    assert [name for name, text in DOCKERFILES.items() if re.search(newer, text, re.MULTILINE)] == []


def test_shellcheck_finds_nothing_in_what_a_dockerfile_runs(tmp_path):
    texts = {}
    for name, text in DOCKERFILES.items():
        agreed = {line: f"# shellcheck disable={rule}\n" for line, rule in overlooked(text) if rule[:2] == "SC"}
        runs = run_instructions(text)
        assert runs, name
        texts |= {f"{name} line {number}": agreed.get(str(number), "") + script for number, script in runs}
    assert shellcheck_all(texts, tmp_path) == ""


def test_shellcheck_finds_nothing_in_a_definitions_sections(tmp_path):
    texts = {}
    for name, definition in DEFINITIONS.items():
        parts = {(stage.name, part): text for stage in stages(definition) for part, text in scripts(stage)}
        assert {"post", "runscript", "test"} <= {part for _, part in parts}, name
        texts |= {f"{name} %{part} of {stage}": text for (stage, part), text in parts.items()}
        overlooked(definition, "# shellcheck disable=")
    assert shellcheck_all(texts, tmp_path) == ""


def test_a_definition_is_whole():
    for name, definition in DEFINITIONS.items():
        found = stages(definition)
        assert set(found[-1].sections) >= {"environment", "help", "labels", "post", "runscript", "test"}, name
        assert "LD_LIBRARY_PATH" not in definition, name
        assert "{{" not in definition, name
        for line in found[-1].sections["labels"].split("\n"):
            assert not line.strip() or re.fullmatch(r"[a-z0-9._-]+ \S.*", line.strip()), (name, line)
        names = [stage.name for stage in found]
        assert all(names), name
        assert len(set(names)) == len(names), name
        assert {source for stage in found for source, _ in stage.files} == set(names[:-1]), name


def test_spython_reads_a_definition_as_we_do(tmp_path):
    file = tmp_path / "definition"
    for name, definition in DEFINITIONS.items():
        file.write_text(definition)
        ours, theirs = stages(file.read_text()), list(SingularityParser(str(file)).parse().values())
        assert len(theirs) == len(ours), name
        for stage, recipe in zip(ours, theirs, strict=True):
            assert recipe.fromHeader.lower().endswith(stage.header["From"].lower()), (name, stage.name)
            assert {source for source, _ in stage.files if source} == set(recipe.layer_files), (name, stage.name)
            assert ("post" in stage.sections) == bool(recipe.install), (name, stage.name)


def test_shellcheck_finds_nothing_in_our_scripts_and_jobs():
    """Jobs are those that `job` prints, kept by tests/unit/render/test_jobs.py."""
    jobs = sorted([*JOBS.glob("*.sbatch"), *JOBS.glob("*.sh")])
    assert {path.suffix for path in jobs} == {".sbatch", ".sh"}
    assert findings("shellcheck", "--norc", *SCRIPTS, *jobs) == ""


def test_a_linter_that_finds_nothing_has_looked(tmp_path):
    assert "SC2086" in shellcheck_all({"good": "true\n", "text": "cd /opt\nrm -rf $HOME\n"}, tmp_path)
    dockerfile = "FROM debian:bookworm-slim\nRUN apt-get install -y --no-install-recommends git\n"
    (tmp_path / "Dockerfile").write_text(dockerfile)
    assert "DL3008" in hadolint(tmp_path / "Dockerfile")
