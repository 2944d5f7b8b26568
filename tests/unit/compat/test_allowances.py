"""`allow` of a recipe of one's own: a finding of the audit warns instead of failing, and everybody is told."""

import msgspec
import pytest

from graphcrate.checks import wording
from graphcrate.checks.audit import run as audit
from graphcrate.compat.facts import allowances
from graphcrate.compat.plan import planning
from graphcrate.compat.requirements import own, own_packages
from graphcrate.model.allowance import Allowance
from graphcrate.model.audit import AuditFinding
from graphcrate.model.contract import Settings
from graphcrate.model.errors import RecipeError
from graphcrate.model.plan import BaseImage, BaseStep, ConfigStep, Plan, Stack
from graphcrate.model.recipe import Additions
from tests.made import refused
from tests.unit.audited import PYTHON, SITE, contents, package

DRAWING = Allowance(package="rdkit", library="libX*", why="nothing is drawn")
CAIRO, DRAW, OTHER = (f"{SITE}/rdkit{path}" for path in (".libs/libcairo-83.so.2", "/Draw.so", "/Other.so"))
FILES = {
    CAIRO: {"needed": ("libX11.so.6", "libXext.so.6"), "soname": "libcairo-83.so.2"},
    DRAW: {"needed": ("libcairo-83.so.2",), "runpath": "$ORIGIN/../rdkit.libs"},
}
RECIPE = """\
extends = "pyg"
pip = ["rdkit"]
allow = [{ package = "rdkit", library = "libX*", why = "nothing is drawn" }]
"""


def image(*allow, files=FILES):
    settings = Settings(labels={allowances.LABEL: allowances.label(allow)} if allow else {})
    return contents({**PYTHON, **files}, package("rdkit", files=files), settings=settings)


def severities(found):
    return {one.file.rpartition("/")[2]: (one.severity, one.allowed) for one in found.findings}


def test_allowed_finding_and_its_consequences_are_warnings():
    assert {one[0] for one in severities(audit.judge(image())).values()} == {"fail"}
    found = audit.judge(image(DRAWING))
    assert severities(found) == dict.fromkeys(("libcairo-83.so.2", "Draw.so"), ("warn", "nothing is drawn"))
    told = wording.audit(found, everything=False).sections[0].entries
    assert [entry.label for entry in told] == ["warn", "warn"]
    assert all("allowed: nothing is drawn" in entry.details for entry in told)


def test_allowance_covers_no_other_library_or_file():
    """Neither another library that is missing beside those, nor what needs a second file that is broken."""
    more = {**FILES[CAIRO], "needed": (*FILES[CAIRO]["needed"], "libSM.so.6")}
    assert severities(audit.judge(image(DRAWING, files={**FILES, CAIRO: more}))) == dict.fromkeys(
        ("libcairo-83.so.2", "Draw.so"), ("fail", "")
    )
    second = {OTHER: {"needed": ("libown.so.1",)}}
    both = {DRAW: {"needed": ("libcairo-83.so.2", "Other.so"), "runpath": "$ORIGIN/../rdkit.libs:$ORIGIN"}}
    found = severities(audit.judge(image(DRAWING, files={**FILES, **second, **both})))
    assert {name: severity for name, (severity, _) in found.items()} == {
        "libcairo-83.so.2": "warn",
        "Draw.so": "fail",
        "Other.so": "fail",
    }


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"package": "rdkit"}, True),
        ({"package": "RDKit"}, True),
        ({"package": "r*"}, True),
        ({"package": "rdkit", "file": "rdkit/Chem/*"}, True),
        ({"package": "rdkit", "file": "other/*"}, False),
        ({"package": "rdkit", "check": "symbols"}, False),
        ({"package": "rdkit", "library": "libX1*"}, False),
        ({"package": "ase"}, False),
    ],
)
def test_allowance_patterns_match_package_library_and_file(fields, fits):
    one = AuditFinding("libraries", "fail", "rdkit", "rdkit/Chem/a.so", "", missing=(("libX11.so.6", "libXext.so.6"),))
    judged = allowances.judged(one, [Allowance(**fields, why="x")])
    assert (judged.severity, judged.allowed) == (("warn", "x") if fits else ("fail", ""))
    without = msgspec.structs.replace(one, missing=())
    assert not allowances.why(without, [Allowance(package="rdkit", library="libX*", why="x")])


@pytest.mark.parametrize(
    "label",
    ["", "no JSON", "[1]", '[{"package": ""}]', '[{"package": "x", "why": "y", "more": 1}]', "[" * 9000, "\ud800"],
)
def test_invalid_allowance_label_allows_nothing(label):
    assert allowances.of_labels({allowances.LABEL: label}) == ()


def test_allowance_of_a_recipe_is_in_plan_label_and_provenance(tmp_path):
    (tmp_path / "mine.toml").write_text(RECIPE)
    _, additions = own.load(tmp_path / "mine.toml")
    assert additions.allow == (DRAWING,)
    assert own_packages.recorded(additions).allow == (DRAWING,)
    assert own_packages.merge_additions(additions, Additions(packages=("ase",))).allow == (DRAWING,)
    assert msgspec.json.decode(msgspec.json.encode(additions), type=Additions) == additions


def test_plan_has_an_allowance_label_and_line_only_if_allowed():
    def plan(**fields):
        config = ConfigStep(environment={"PATH": "/bin"}, labels={}, command=())
        base = BaseStep(base=None, image=BaseImage(reference="x", interpreter="/usr/bin/python3"))
        texts = dict.fromkeys(("description", "cuda", "python", "torch", "torch_cuda", "candidate"), "")
        made = Plan(name="pyg", tag="1", created=0, stack=Stack(**texts), steps=(base, config))
        lock = type("Lock", (), {"additions": type("Added", (), {"packages": ()}), "packages": (), "compilation": None})
        return planning._with_additions(made, lock, Additions(**fields), None)

    allowed = plan(allow=(DRAWING,))
    assert list(allowances.plan_lines(allowed)) == ["  allowed   libraries of rdkit (libX*): nothing is drawn"]
    assert allowances.of_labels(allowed.config.labels) == (DRAWING,)
    assert allowances.LABEL not in plan(apt=("git",)).config.labels


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('allow = [{ package = "rdkit" }]', ("mine.toml:2", "why")),
        ('allow = [{ package = "rdkit", why = "" }]', ("mine.toml:2", "why")),
        ('allow = [{ package = "*", why = "x" }]', ("every finding", "libraries")),
        ('allow = [{ package = "rdkit", why = "x", check = "libs" }]', ("check",)),
        ('allow = [{ package = "rdkit", why = "x", reason = "y" }]', ("reason",)),
        ('allow = [{ package = "rdkit", why = "x\\ny" }]', ("control character",)),
        ("allow = [" + '{ package = "a", why = "x" },' * 51 + "]", ("at most 50",)),
    ],
)
def test_invalid_allowance_is_refused(tmp_path, text, words):
    (tmp_path / "mine.toml").write_text(f'extends = "pyg"\n{text}\n')
    with refused(RecipeError, *words):
        own.load(tmp_path / "mine.toml")
