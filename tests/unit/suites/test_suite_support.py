"""Debian's suites and their security updates: the words where one gets none, and the renewal of dates."""

import datetime
import re

import msgspec
import pytest

from graphcrate.assembly.summary import Upkeep, plan_lines, upkeep_of
from graphcrate.checks import new_image
from graphcrate.checks.contracts.contents import security_updates
from graphcrate.checks.reading import read_image
from graphcrate.compat.facts import suites
from graphcrate.compat.variants import explain
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.targets import MachineRequest, Target
from graphcrate.host import settings
from graphcrate.host.settings import today as real_today
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import RegistryBase, decode_lock
from graphcrate.model.recipe import Additions, BaseSpec
from graphcrate.pages import report as pages
from graphcrate.publish import policy
from tests import ROOT
from tests.made import RECIPES, build_request, refused
from tests.unit import small_layouts, tars
from tests.unit.conftest import TODAY
from tests.unit.contract_cases import GOOD, HOST, OS_RELEASE, configured, files, release
from tools import suites as tool

#: of debian.csv in distro-info-data 2026.10.12-1, whose rows end where nothing more is known
LIST = """\
version,codename,series,created,release,eol,eol-lts,eol-elts
9,Stretch,stretch,2015-04-26,2017-06-17,2020-07-18,2022-06-30,2027-06-30
10,Buster,buster,2017-06-17,2019-07-06,2022-09-10,2024-06-30,2029-06-30
11,Bullseye,bullseye,2019-07-06,2021-08-14,2024-08-14,2026-08-31,2031-06-30
12,Bookworm,bookworm,2021-08-14,2023-06-10,2026-07-11,2028-06-30,2033-06-30
13,Trixie,trixie,2023-06-10,2025-08-09,2028-08-09,2030-06-30,2035-06-30
14,Forky,forky,2025-08-09
15,Duke,duke,2027-08-01
,Sid,sid,1993-08-16
"""
WRITTEN = tool.SUITES.read_text(encoding="utf-8")
VERSION = re.search(r"distro-info-data (\S+)", WRITTEN)[1]
GLT, ON_BULLSEYE = RECIPES["glt"], decode_lock((ROOT / "images/glt/cu117/pypi.lock.json").read_bytes())
ON_BOOKWORM = decode_lock((ROOT / "images/glt/cu121/pypi.lock.json").read_bytes())


def day(text):
    return datetime.date.fromisoformat(text)


@pytest.mark.parametrize(
    ("name", "on", "state", "until"),
    [
        ("bullseye", "2021-08-13", "unreleased", None),
        ("bullseye", "2021-08-14", "supported", "2024-08-14"),
        ("bullseye", "2024-08-14", "supported", "2024-08-14"),
        ("bullseye", "2024-08-15", "LTS", "2026-08-31"),
        ("bullseye", "2026-08-31", "LTS", "2026-08-31"),
        ("bullseye", "2026-09-01", "ended", "2026-08-31"),
        ("bookworm", "2026-11-25", "LTS", "2028-06-30"),
        ("trixie", "2026-11-25", "supported", "2028-08-09"),
        ("forky", "2026-11-25", "unreleased", None),
    ],
)
def test_debian_suite_standing_by_date(name, on, state, until):
    found = suites.standing(name, day(on))
    assert found == (state, until and day(until))
    assert found.has_updates is (state in ("supported", "LTS"))


def test_unknown_suite_has_no_standing():
    assert (suites.standing("jammy", TODAY), suites.described("jammy", TODAY)) == (None, "")
    assert (suites.retired("jammy", TODAY), suites.last_day("jammy")) == ("no", None)


def test_described_suites_have_their_support_dates():
    words = {name: suites.described(name, TODAY) for name in suites.known()}
    dates = {name: re.findall(r"\d{4}-\d\d-\d\d", text) for name, text in words.items()}
    assert dates["bullseye"] == ["2026-08-31"]
    assert dates["bookworm"] == ["2028-06-30"]
    assert dates["trixie"] == ["2028-08-09", "2030-06-30"]
    assert ("no security" in words["bullseye"], "LTS" in words["bookworm"], dates["forky"]) == (True, True, [])
    assert suites.updated(TODAY) == ("trixie", "bookworm")


def test_debian_suite_without_an_end_date_is_supported(monkeypatch):
    kept = suites.DebianSuite(release="15", released=day("2029-08-01"), known="made up")
    monkeypatch.setattr(suites, "known", lambda: {"duke": kept})
    assert suites.standing("duke", day("2030-01-01")) == ("supported", None)
    assert suites.described("duke", day("2030-01-01"))


def test_retired_suite_by_date_is_no_perhaps_or_yes():
    cases = {
        ("buster", "2024-06-30"): "no",
        ("buster", "2024-07-01"): "perhaps",
        ("buster", "2025-07-12"): "perhaps",
        ("buster", "2025-07-13"): "yes",
        ("bullseye", "2026-08-31"): "no",
        ("bullseye", "2026-09-01"): "perhaps",
        ("bookworm", "2026-11-25"): "no",
        ("forky", "2026-11-25"): "no",
        ("sid", "2026-11-25"): "no",
    }
    assert {case: suites.retired(case[0], day(case[1])) for case in cases} == cases


def test_suite_of_a_base_is_its_field_or_part_of_its_reference():
    assert suites.of_base(BaseSpec(suite="trixie")) == "trixie"
    named = {"python:3.11-slim-bookworm": "bookworm", "docker.io/library/debian:buster": "buster", "ubuntu:22.04": ""}
    found = {name: suites.of_base(BaseSpec(provider="registry", reference=name)) for name in named}
    assert found == named
    assert [suites.of_release(number) for number in ("12", "12.15", "8", "")] == ["bookworm", "bookworm", "", ""]


def test_suite_dates_are_ordered_and_bases_are_released_suites():
    for name, suite in suites.known().items():
        days = [one for one in (suite.released, suite.security_until, suite.lts_until, suite.archived) if one]
        assert days == sorted(days), name
        assert suite.known.startswith(("documented: ", "measured: "))
    numbers = [int(suite.release) for suite in suites.known().values()]
    assert numbers == sorted(numbers)
    assert all(suites.known()[name].released for name in suites.bases())


def test_today_is_the_utc_date(monkeypatch):
    for seconds, text in ((1788220799, "2026-08-31"), (1788220800, "2026-09-01")):
        monkeypatch.setattr(settings, "now", lambda seconds=seconds: float(seconds))
        assert real_today() == day(text)


# --- what a plan and `explain` say ------------------------------------------------------------------------------------


def upkeep(lock=ON_BULLSEYE, machine=None, today=TODAY, **fields):
    request = build_request(**{"name": "glt", "cuda": lock.cuda, **fields})
    return upkeep_of(lock, GLT, machine or Target(), NextSteps(request).on, today)


def test_plan_line_of_the_base_has_its_last_update_date():
    assert upkeep(ON_BOOKWORM) == (suites.described("bookworm", TODAY), "")
    assert upkeep(today=day("2026-08-31")).instead == ""
    lines = plan_lines("a:b", ON_BOOKWORM, (), "", 0, upkeep=upkeep(ON_BOOKWORM))
    (base,) = [line for line in lines if line.startswith("  base ")]
    assert base.endswith("; security updates by LTS until 2028-06-30")


def test_plan_on_a_base_without_updates_names_a_newer_variant():
    found = upkeep()
    assert found.support == "no security updates since 2026-08-31"
    assert found.instead.startswith("make image STACK=glt CUDA=12.1    (torch 2.3.1 on Debian bookworm")
    lines = plan_lines("a:b", ON_BULLSEYE, (), "", 0, upkeep=found)
    at = next(at for at, line in enumerate(lines) if line.startswith("  base "))
    assert (lines[at].endswith(found.support), lines[at + 1].strip()) == (True, f"instead: {found.instead}")
    plain = plan_lines("a:b", ON_BULLSEYE, (), "", 0)
    assert len(plain) == len(lines) - 1


def test_newer_base_command_keeps_gpu_and_additions_without_the_channel(tmp_path):
    asked = {"gpu": "v100", "additions": Additions(packages=("tqdm",)), "channel": "pytorch", "wheels": tmp_path}
    found = upkeep(machine=Target(gpus=("V100",)), **asked)
    assert found.instead.startswith("make image STACK=glt CUDA=12.1 GPU=v100 WITH=tqdm    (")


def test_newer_base_command_omits_variants_that_the_driver_cannot_run():
    dgx2 = Target(gpus=("V100",), drivers=("450.80.02",))
    assert ("CUDA=" in upkeep(machine=dgx2).instead, "base.suite" in upkeep(machine=dgx2).instead) == (False, True)


def test_registry_base_is_judged_by_its_reference_in_the_recipe():
    base = RegistryBase(reference="docker.io/library/python", digest="sha256:0", interpreter="/usr/bin/python3.9")
    lock = msgspec.structs.replace(ON_BULLSEYE, base=base)
    found = {}
    for name in ("python:3.9-slim-bullseye", "nvidia/cuda:11.7.1-base-ubuntu22.04"):
        spec = BaseSpec(provider="registry", reference=name)
        variants = tuple(msgspec.structs.replace(one, base=spec) if one.cuda == "11.7" else one for one in GLT.variants)
        recipe = msgspec.structs.replace(GLT, variants=variants)
        found[name] = upkeep_of(lock, recipe, Target(), lambda cuda: command("image", "glt", cuda=cuda), TODAY)
    on_bullseye, on_ubuntu = found.values()
    assert (on_bullseye, on_ubuntu) == (upkeep(), Upkeep())


def rows_of(*variants):
    """Rows by CUDA version and Debian, which run but for those in brackets."""
    (pattern,) = explain.explain(GLT, Target(), MachineRequest()).rows[:1]
    rejected = msgspec.structs.replace(pattern.verdict, status="rejected")
    for cuda, base in variants:
        row = msgspec.structs.replace(pattern, cuda=cuda.strip("()"), base=base)
        yield msgspec.structs.replace(row, verdict=rejected) if cuda.startswith("(") else row


@pytest.mark.parametrize(
    ("cuda", "variants", "nearest"),
    [
        ("11.6", [("11.6", "bullseye"), ("11.7", "bullseye"), ("12.1", "bookworm"), ("13.0", "trixie")], "12.1"),
        ("11.6", [("11.6", "bullseye"), ("(12.1)", "bookworm"), ("13.0", "trixie")], "13.0"),
        ("11.7", [("11.7", "bullseye"), ("9.2", "trixie"), ("10.2", "trixie"), ("cpu", "trixie")], "10.2"),
        ("11.7", [("11.7", "bullseye"), ("12.1", "forky"), ("12.6", ""), ("cpu", "trixie")], None),
        ("cpu", [("cpu", "bullseye"), ("12.1", "trixie")], None),
    ],
)
def test_on_newer_base_gives_the_nearest_cuda_variant(cuda, variants, nearest):
    found = explain.on_newer_base(cuda, list(rows_of(*variants)), TODAY)
    assert (found.cuda if found else None) == nearest


def test_explain_notes_a_base_without_updates_of_chosen_or_requested_cuda():
    def lines(cuda=None, today=TODAY, **machine):
        found = explain.explain(GLT, Target(**machine), MachineRequest(gpu="v100"), cuda, today)
        return [line.strip() for line, _ in explain.answer(found).lines() if "note: Debian bullseye" in line]

    assert lines(gpus=("V100",)) == []  # it chooses bookworm
    asked = lines("11.7", gpus=("V100",))
    assert [line.rpartition(": ")[2] for line in asked] == ["make image STACK=glt CUDA=12.1 GPU=v100"]
    (chosen,) = lines(gpus=("V100",), drivers=("450.80.02",))
    assert chosen.endswith("since 2026-08-31")  # nothing newer runs there
    assert lines(gpus=("V100",), drivers=("450.80.02",), today=day("2026-08-31")) == []


# --- what `check` says ------------------------------------------------------------------------------------------------


def judged(name, number, **changes):
    view = msgspec.structs.replace(GOOD, **{**files(**{OS_RELEASE: release(name, number)}), **changes})
    return security_updates.judge(view, HOST)


def test_security_updates_contract_names_a_newer_base_or_command():
    found = judged("bullseye", "11")
    assert found.status == "warn"
    assert found.fix.index("trixie (updates until 2030-06-30)") < found.fix.index("bookworm (updates until 2028-06-30)")
    ours = configured(labels={"graphcrate.recipe": "glt", "graphcrate.cuda": "11.6"})
    assert judged("bullseye", "11", **ours).fix.startswith("make image STACK=glt CUDA=11.6 PLAN=yes    ")
    passed = judged("bookworm", "12")
    assert (passed.status, "LTS until 2028-06-30" in passed.seen, passed.fix) == ("pass", True, "")


def test_security_updates_contract_of_ubuntu_is_unknown():
    view = msgspec.structs.replace(
        GOOD,
        **files(**{OS_RELEASE: release("jammy", ID="ubuntu", PRETTY_NAME="'Ubuntu 22.04'", VERSION_CODENAME=None)}),
    )
    found = security_updates.judge(view, HOST)
    assert (found.status, found.seen.startswith("Ubuntu 22.04: ")) == ("unknown", True)


def test_base_without_updates_warns_in_build_and_page_and_may_be_published(ctx, tmp_path):
    text = release("bullseye", "11").text.encode()
    made = small_layouts.layout(tmp_path / "dist/a/b", [tars.folder("etc"), tars.file("etc/os-release", text)], tag="b")
    report = new_image.vet(
        small_layouts.report(made, torch_cuda="cpu"), read_image(str(made.path), ctx), tmp_path, ctx, None
    ).report
    (found,) = [one for one in report.contracts if one.check == "security-updates"]
    assert found.status == "warn"
    assert [line for line in ctx.progress.lines if found.seen in line and found.fix in line]
    refusals = policy.judge(msgspec.structs.replace(report, contracts=(found,)), None, (), ()).refusals
    assert [one for one in refusals if "audit" not in one.what] == []
    page = pages.read(str(made.path), ctx, tmp_path / "dist")
    assert found in page.runtimes["docker"]


# --- renewing the dates -----------------------------------------------------------------------------------------------


def test_committed_suite_dates_are_those_of_distro_info_data():
    assert tool.renewed(WRITTEN, tool.rows_of(LIST), VERSION) == WRITTEN


def test_renewing_suite_dates_changes_dates_and_source_only():
    later = LIST.replace("2028-06-30", "2028-07-31").replace("2025-08-09\n", "2025-08-09,2027-07-10,2030-07-10\n")
    text = tool.renewed(WRITTEN, tool.rows_of(later), "2027.8.1-1")
    assert {*text.splitlines()} - {*WRITTEN.splitlines()} == {
        'source = "distro-info-data 2027.8.1-1 of Debian sid, debian.csv"',
        "lts_until = 2028-07-31",
        "released = 2027-07-10",
        "security_until = 2030-07-10",
    }
    assert tool.renewed(text, tool.rows_of(LIST), VERSION) == WRITTEN


def test_suite_list_without_a_suite_or_column_is_refused_and_new_suites_are_listed():
    with refused(UsageError, "no suite buster"):
        tool.renewed(WRITTEN, tool.rows_of(LIST.replace("buster", "buzz")), VERSION)
    with refused(UsageError, "no column eol-lts"):
        tool.rows_of("version,codename,series,created,release,eol,eol-server\n")
    assert tool.unlisted(WRITTEN, tool.rows_of(LIST)) == []
    released = tool.rows_of(LIST.replace("2027-08-01", "2027-08-01,2029-08-01"))
    assert tool.unlisted(WRITTEN, released) == ["duke"]
