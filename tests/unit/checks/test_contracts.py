"""Every check on an image that keeps it, on one that breaks it, and where something is not known."""

import inspect

import msgspec
import pytest

from graphcrate.artifacts.formats.runtime_files import SIF_SCRIPT, read_settings
from graphcrate.checks import wording
from graphcrate.checks.contracts import run as contracts
from graphcrate.checks.contracts.check import check as contract_check
from graphcrate.checks.contracts.run import CHECKS
from graphcrate.model.contract import ContractFinding, FileFact, Host, ImageView, Settings
from graphcrate.model.runtime import RUNTIMES
from tests.unit.contract_cases import CASES, GOOD, HOST, UNREAD, configured, files

BY_ID = {check.id: check for check in CHECKS}
#: they judge what is there alone: nothing can be unknown
ALWAYS_KNOWN = {"layered", "layer-count", "docker-layer-types", "importable", "unsquashfs", "enroot-layer-types"}
ALWAYS_KNOWN |= {"index-platform"}
#: nothing speaks against the good image where all of it was read
UNSURE = {"layers", "hidden", "mount-points", "devices", "own-driver", "cuda-once", "size", "etc-binds"}


def verdict(name, view=None, host=None):
    changed = msgspec.structs.replace(GOOD, **(view or {})), msgspec.structs.replace(HOST, **(host or {}))
    return BY_ID[name].find(*changed, RUNTIMES)


@pytest.mark.parametrize("name", BY_ID)
def test_contract_check_of_a_good_image_passes(name):
    finding = verdict(name)
    assert (finding.status, bool(finding.seen)) == ("unknown" if name == "infiniband" else "pass", True)
    if name in UNSURE:
        assert verdict(name, {"unread": UNREAD}).status == "unknown"
    if hasattr(BY_ID[name].judge, "__wrapped__"):  # a check of the configuration
        assert verdict(name, {"settings": None}).status == "unknown"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_contract_check_of_each_changed_image_has_the_expected_status(case):
    name, status, *changes = case
    finding = verdict(name, *changes)
    assert (finding.status, bool(finding.seen)) == (status.rstrip("?"), True), finding.seen
    assert finding.status not in ("fail", "warn") or (finding.why and finding.fix)
    if status.endswith("?"):
        unsure = verdict(name, {**changes[0], "unread": UNREAD})
        assert (unsure.status, unsure.fix) == ("unknown", finding.fix)
        assert UNREAD[0] in unsure.seen


@pytest.mark.parametrize(
    ("glibc", "fix"),
    [
        ("2.36", ""),
        ("2.38", "a base of Debian trixie, with glibc 2.41"),
        ("2.99", "a base with glibc 2.99 or newer"),
    ],
)
def test_plugin_of_a_site_wants_a_base_with_its_c_library(glibc, fix):
    """The image has 2.36; libfabric and NCCL's plugin are the host's, of Slingshot and of EFA alike."""
    site = {"plugin": "/opt/site/aws-ofi-nccl", "glibc": glibc}
    efa = {"verbs": msgspec.structs.replace(GOOD.verbs, providers={"efa": ""})}
    for changes, kind in ((None, "slingshot"), (efa, "efa")):
        finding = verdict("fabric", changes, {**site, "fabric": kind})
        assert (finding.status, finding.fix) == ("warn" if fix else "pass", fix)
        assert f"({site['plugin']})" in finding.seen
        assert glibc in finding.seen


def test_contract_checks_have_failing_and_unknown_cases():
    seen = {(name, status.rstrip("?")) for name, status, *_ in CASES}
    assert all(seen & {(name, "fail"), (name, "warn")} for name in BY_ID)
    doubting = {name for name, status, *_ in CASES if status == "unknown" or status.endswith("?")} | UNSURE
    configured = {name for name, check in BY_ID.items() if hasattr(check.judge, "__wrapped__")}
    assert BY_ID.keys() - doubting - configured == ALWAYS_KNOWN


@pytest.mark.parametrize("name", BY_ID)
def test_contract_reasons_exist_without_docstrings(name, monkeypatch):
    """As under -OO, or PYTHONOPTIMIZE=2 of a person's environment."""
    judge = inspect.unwrap(BY_ID[name].judge)
    monkeypatch.setattr(judge, "__doc__", None)
    made = contract_check("title", "docker")(judge)
    assert (made.reason, made.source) == (BY_ID[name].reason, BY_ID[name].source)


def test_contract_checks_have_unique_titles_reasons_and_sources():
    assert len(BY_ID) == len(CHECKS) == len({check.title for check in CHECKS})
    for check in CHECKS:
        assert (check.reason[-1] == ".", check.source[-1] != ".") == (True, True), check.id
        assert set(check.runtimes) <= set(RUNTIMES)


def test_contract_check_of_several_runtimes_is_judged_once():
    findings = contracts.judge(GOOD, HOST, ("pyxis", "apptainer"))
    named = {finding.check: finding.runtimes for finding in findings}
    assert named["user-site"] == ("apptainer", "pyxis")
    assert named["mount-points"] == ("apptainer",)
    assert "notebook" not in named
    assert len(findings) == len(named)


def test_contract_runtimes_follow_the_form_of_the_artifact():
    for form, runtimes in (("layout", tuple(RUNTIMES)), ("sif", ("apptainer",)), ("squashfs", ("apptainer", "pyxis"))):
        assert contracts.targets(msgspec.structs.replace(GOOD, form=form)) == runtimes


def test_contract_checks_take_an_empty_image():
    for form in ("layout", "archive", "sif", "squashfs", "folder", "registry"):
        for settings in (None, Settings(platform="")):
            view = ImageView(name="empty", form=form, settings=settings)
            assert len(contracts.judge(view, Host(), RUNTIMES)) == len(CHECKS)


OCI_SCRIPT = """#!/bin/sh\nOCI_ENTRYPOINT='"/entry" "a b"'\nOCI_CMD='"bash"'\nexec "$@"\n"""
SIF = {
    "/.singularity.d/env/10-docker2singularity.sh": (
        '#!/bin/sh\nexport PATH="/opt/venv/bin:/bin"\nexport LANG="${LANG:-"C.UTF-8"}"\nexport ODD="${ODD:-"a\\$b"}"\n'
    ),
    "/.singularity.d/env/90-environment.sh": "#!/bin/sh\nexport PLAIN=1\nexport QUOTED='x y'\nLOCAL=no\n"
    "[ -n \"${OURS:-}\" ] || OURS='it'\"'\"'s'\nexport OURS\nBROKEN='a\nb'\nexport BROKEN\n",
    "/.singularity.d/labels.json": '{"org.label-schema.schema-version": "1.0", "graphcrate.torch": "2.0.1"}',
}
SIF_VARIABLES = {"PATH": "/opt/venv/bin:/bin", "LANG": "C.UTF-8", "ODD": "a$b", "PLAIN": "1", "QUOTED": "x y"}
SIF_VARIABLES |= {"OURS": "it's", "BROKEN": "a"}


def test_settings_of_a_sif_are_read_from_its_script_and_labels():
    settings = read_settings({SIF_SCRIPT}, lambda path: SIF.get(path, ""))
    assert settings.variables == SIF_VARIABLES
    assert settings.labels["graphcrate.torch"] == "2.0.1"
    assert read_settings({SIF_SCRIPT}, lambda path: "[broken").labels == {}


def test_run_script_of_a_sif_is_judged_as_entrypoint():
    scripts = {'#!/bin/sh\nexec "$@"\n': "pass", "#!/bin/sh\npython /main.py\n": "fail", OCI_SCRIPT: "fail"}
    for text, status in scripts.items():
        script = {SIF_SCRIPT[1:].replace("/", "__"): FileFact(kind="file", text=text, mode=0o755)}
        finding = verdict("entrypoint", {"form": "sif", **configured(entrypoint=(SIF_SCRIPT,)), **files(**script)})
        assert finding.status == status, finding.seen
    assert "/entry 'a b'" in finding.seen


def test_settings_of_an_enroot_import_are_read_from_rc_and_environment():
    rc = "mkdir -p \"/work\"\nif [ $# -gt 0 ]; then\n    exec '/entry' 'a b' \"$@\"\nelse\n    exec bash\nfi\n"
    texts = {"/etc/rc": rc, "/etc/environment": "# made\nPATH=/bin\nA=b=c\n"}
    settings = read_settings(texts, lambda path: texts.get(path, ""))
    assert (settings.entrypoint, settings.variables) == (("/entry", "a b"), {"PATH": "/bin", "A": "b=c"})


def found(status, seen="seen"):
    return ContractFinding(
        check="a-check", title="a check", runtimes=("docker", "pai"), status=status, seen=seen, fix="do it"
    )


def test_contract_lines_have_failures_first_and_no_control_characters():
    answer = wording.contracts((found("pass"), found("fail", "\x1b[2J\tx\ny")))
    assert answer.summary == ("1 fail, 1 pass",)
    fail = ["fail  a check (docker, pai): \\x1b[2J\\tx\\ny", "      fix: do it"]
    assert [line for line, _ in answer.lines()][:3] == [*fail, "pass  a check (docker, pai): seen"]


def test_contract_lines_after_a_build_omit_passes():
    def told(*statuses):
        answer = wording.contracts([found(status) for status in statuses], everything=False)
        return list(wording.after_build("contracts", answer, "all kept", "check a:b"))

    assert told("pass", "unknown") == ["contracts: all kept"]
    lines = [f"  {status}  a check (docker, pai): seen; fix: do it" for status in ("fail", "warn")]
    assert told("warn", "pass", "fail") == ["contracts: 1 fail, 1 warn    (check a:b)", *lines]
