"""Start-up code of an image: found in its bytes, masked for suites, said on label, in report and policy."""

import contextlib
import json
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.assembly import proving, summary
from graphcrate.checks.audit import names
from graphcrate.checks.audit.packages import Packages
from graphcrate.compat.facts import slim, start_up
from graphcrate.engines import run_suites
from graphcrate.host.sandbox.gpu import HostGpu
from graphcrate.inputs.wheels.install import place
from graphcrate.model.audit import Contents, InstalledDistribution
from graphcrate.model.contract import Settings
from graphcrate.model.plan import Slim
from graphcrate.model.report import Beside, OwnTests, StartUp
from graphcrate.publish import predicates
from graphcrate.smoke import own
from graphcrate.smoke import suites as smoke
from tests.unit.smoke import test_gate
from tests.unit.wheelmaker import make_wheel

SITE = "/opt/venv/lib/python3.11/site-packages"
NAMESPACE = (
    "import sys, types, os;has_mfs = sys.version_info > (3, 5);p = os.path.join(sys._getframe(1).f_locals['sitedir'], "
    "*('google',));importlib = has_mfs and __import__('importlib.util');has_mfs and __import__('importlib.machinery');"
    "m = has_mfs and sys.modules.setdefault('google', importlib.util.module_from_spec("
    "importlib.machinery.PathFinder.find_spec('google', [os.path.dirname(p)])));"
    "m = m or sys.modules.setdefault('google', types.ModuleType('google'));"
    "mp = (m or []) and m.__dict__.setdefault('__path__',[]);(p not in mp) and mp.append(p)\n"
)
PRECEDENCE = (
    "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; "
    "enabled and __import__('_distutils_hack').add_shim(); \n"
)
DEBIANS = """# install the apport exception handler if available
try:
    import apport_python_hook
except ImportError:
    pass
else:
    apport_python_hook.install()
"""


def found(files, labels=None):
    """Paths of what runs by itself, of those of these files that count."""
    asked = {path: data.encode() for path, data in files.items() if start_up.concerns(path)}
    return [start.path.removeprefix(f"{SITE}/") for start in start_up.found(asked, labels or {})]


@pytest.mark.parametrize(
    "path",
    [
        "evil.pth",
        "a1_coverage.pth",
        "__editable__.x.pth",
        "sitecustomize.py",
        "sitecustomize.pyc",
        "sitecustomize.so",
        "sitecustomize.cpython-311-x86_64-linux-gnu.so",
        "sitecustomize/__init__.py",
        "usercustomize.py",
        "__pycache__/sitecustomize.cpython-311.pyc",
        "apport_python_hook.py",
        "apport_python_hook/__init__.py",
        "numpy/_distributor_init_local.py",
        "numpy/_distributor_init_local.cpython-311-x86_64-linux-gnu.so",
        "scipy/_distributor_init_local/__init__.py",
    ],
)
def test_file_that_runs_by_itself_is_found_whatever_is_in_it(path):
    for content in ("", "import os\n", "../elsewhere\n", "# nothing\n"):
        assert found({f"{SITE}/{path}": content}) == [path]


@pytest.mark.parametrize("path", ["/usr/lib/python3.11/sitecustomize.py", "/etc/python3.11/sitecustomize.py"])
def test_start_up_file_of_python_itself_is_found_but_for_debians_own(path):
    assert found({path: "import evil\n"}) == [path]
    assert found({path: DEBIANS}) == []


@pytest.mark.parametrize(
    ("folder", "group", "counts"),
    [
        ("evil-1.0", "torch.backends", True),
        ("evil-1.0", " torch.backends ", True),
        ("evil-1.0", "networkx.backend_info", True),
        ("evil-1.0", "triton.backends", True),
        ("torch-2.5", "torch.backends", False),
        ("networkx-3.4", "networkx.backend_info", False),
        ("evil-1.0", "console_scripts", False),
        ("evil-1.0", "torch_dynamo_backends", False),
    ],
)
def test_entry_points_count_where_their_package_loads_them_by_itself(folder, group, counts):
    path = f"{SITE}/{folder}.dist-info/entry_points.txt"
    assert bool(found({path: f"[a]\nb = c\n[{group}]\nevil = evil:start\n"})) is counts


@pytest.mark.parametrize(
    "path",
    ["torch/evil.pth", "pth.py", "mysitecustomize.py", "mine/sitecustomize.py", "torch/_distributor_init_local.py"],
)
def test_file_of_such_a_name_where_nobody_looks_is_not_found(path):
    assert found({f"{SITE}/{path}": "import os\n"}) == []


def test_namespace_line_of_setuptools_does_no_harm_and_any_change_of_it_counts():
    path = f"{SITE}/protobuf-3.20.3-py3.9-nspkg.pth"
    several = NAMESPACE + NAMESPACE.replace("'google',", "'google', 'cloud'").replace("'google'", "'google.cloud'")
    assert found({path: NAMESPACE}) == []
    for other in (
        f"{NAMESPACE}import evil\n",
        NAMESPACE.replace("'google'", "'torch'"),
        NAMESPACE.replace("mp.append(p)", "mp.append(p) and __import__('evil')"),
        NAMESPACE.replace("\n", "\rimport evil\n"),
        several.replace("google.cloud", "evil"),
        "",
    ):
        assert found({path: other}) == ["protobuf-3.20.3-py3.9-nspkg.pth"], other


def test_start_up_file_of_setuptools_does_no_harm_beside_its_own_module_alone(monkeypatch):
    known = start_up._known()[0]
    (module,) = known.beside
    hack = "own module of setuptools"
    ours = msgspec.structs.replace(known, beside={module: (start_up._sha256(hack.encode()),)})
    monkeypatch.setattr(start_up, "_known", lambda: (ours,))
    path = f"{SITE}/distutils-precedence.pth"
    assert found({path: PRECEDENCE, f"{SITE}/{module}": hack}) == []
    for files in (
        {path: PRECEDENCE},
        {path: PRECEDENCE, f"{SITE}/{module}": "import evil\n"},
        {path: f"{PRECEDENCE}import evil\n", f"{SITE}/{module}": hack},
        {path: PRECEDENCE, f"{SITE}/{module}": hack, f"{SITE}/_distutils_hack/__init__.abi3.so": ""},
        {f"{SITE}/other.pth": PRECEDENCE, f"{SITE}/{module}": hack},
    ):
        assert len(found(files)) == 1, files


def test_guard_of_an_image_that_was_cut_does_no_harm_and_another_one_does():
    guard = slim.guard(Slim(capabilities=("7.0", "8.0"), ptx=False, everything=False))
    path = f"{SITE}/sitecustomize.py"
    assert found({path: guard}, {slim.LABEL: "7.0,8.0"}) == []
    assert found({path: guard}) == ["sitecustomize.py"]
    assert found({path: f"{guard}import evil\n"}, {slim.LABEL: "7.0,8.0"}) == ["sitecustomize.py"]


def test_wheel_is_placed_with_what_of_it_runs_by_itself(tmp_path):
    files = {"evil.pth": b"import hook\n", "hook.py": b""}
    path = make_wheel(tmp_path, "evil", files=files, entry_points="[torch.backends]\na = hook\n")
    with open_wheel(path) as wheel:
        starts = place(wheel, "3.11").starts
    assert {(start.path, start.package) for start in starts} == {
        (f"{SITE}/evil.pth", "evil"),
        (f"{SITE}/evil-1.0.dist-info/entry_points.txt", "evil"),
    }


def contents(*distributions, labels=None, environment=(), **texts):
    """An image of these packages (name → paths), with these texts by their path in site-packages."""
    records = {
        f"{SITE}/{name}-1.0.dist-info/RECORD": "".join(f"{path},sha256=a,1\n" for path in paths).encode()
        for name, paths in distributions
    }
    installed = tuple(
        InstalledDistribution(name=name, version="1.0", folder=SITE, files=frozenset(f"{SITE}/{one}" for one in paths))
        for name, paths in distributions
    )
    return Contents(
        name="x",
        form="layout",
        binaries={},
        texts={**records, **{f"{SITE}/{path.replace('__', '.')}": data for path, data in texts.items()}},
        distributions=installed,
        settings=Settings(labels=labels or {}, environment=environment),
    )


def test_audit_says_what_runs_by_itself_and_what_is_imported_in_place_of_another():
    image = contents(
        ("torch", ["torch/__init__.py", "torch/part.py"]),
        ("evil", ["torch/more.py", "torch/part/__init__.py", "evil.pth"]),
        environment=("LD_PRELOAD=/opt/mine/x.so", "PYTHONUNBUFFERED=1"),
        evil__pth=b"import evil\n",
    )
    packages = Packages(image)
    said = [(one.check, one.severity, one.package, one.file) for one in names.findings(image, packages)]
    assert said == [
        ("names", "warn", "evil", "torch/part/__init__.py"),
        ("names", "note", "evil", "torch/more.py"),
        ("start", "note", "evil", "evil.pth"),
        ("start", "note", "base", "LD_PRELOAD"),
    ]
    assert names.beside(image) == (Beside(package="evil", path="torch/more.py", other="torch"),)


# Suites

FILE = StartUp(path=f"{SITE}/evil.pth", by="Python, when it starts", package="evil")
STARTS = (FILE, StartUp(path="LD_PRELOAD", by="x"))


def ran(tmp_path, program, *lines, starts=STARTS):
    """The report of a program that prints these lines, and what it was started with."""
    seen = []

    class Inside:
        def run(self, order):
            seen.append(order)
            assert all(bind.source.read_bytes() == b"" for bind in order.binds[1:])
            for line in lines:
                order.on_line(line)
            return SimpleNamespace(returncode=0)

    report = smoke.run(program, Inside(), tmp_path, say=lambda _: None, on_gpu=False, starts=starts)
    assert not list(tmp_path.glob(".smoke-*"))
    return report, seen[0]


VERDICT = {"suite": "torch", "status": "passed", "device": "cpu", "metrics": {}, "versions": {}}


def test_suite_runs_with_empty_files_in_place_of_what_runs_by_itself(tmp_path):
    report, order = ran(tmp_path, smoke.suite("torch", on_gpu=False), json.dumps(VERDICT))
    assert report.status == "passed"
    assert [(bind.target, bind.read_only) for bind in order.binds] == [("/out", False), (STARTS[0].path, True)]
    assert order.environment["LD_PRELOAD"] == ""
    (own_test,) = own.programs(OwnTests(imports=("evil",)))
    for whole in (own_test, smoke.started("torch", on_gpu=False)):
        _, order = ran(tmp_path, whole, json.dumps(VERDICT))
        assert [bind.target for bind in order.binds] == ["/out"]
        assert "LD_PRELOAD" not in order.environment


def test_whole_start_counts_no_figures_and_fails_with_the_suite(tmp_path):
    program = smoke.started("torch", on_gpu=False)
    report, _ = ran(tmp_path, program, json.dumps({**VERDICT, "metrics": {"test_accuracy": 1.0}}))
    assert (report.suite, report.status, report.device, report.metrics) == ("start", "passed", "cpu", {})
    assert ran(tmp_path, program)[0].status == "failed"
    for change in ({"status": "failed", "reason": "x"}, {"device": "cuda"}):
        assert ran(tmp_path, program, json.dumps({**VERDICT, **change}))[0].status == "failed"


@pytest.mark.parametrize(
    ("starts", "expected"),
    [(STARTS, ["torch", "nccl", "start", "imports"]), ((), ["torch", "nccl", "imports"])],
)
def test_start_up_code_of_an_image_has_a_suite_run_once_more(tmp_path, monkeypatch, progress, starts, expected):
    ran_here = []

    class Runner:
        def runtime(self, environment):
            return SimpleNamespace(name="graphcrate", version="1")

        @contextlib.contextmanager
        def opened(self, artifact, *, cache, progress):
            yield self

    def run(program, inside, folder, **options):
        ran_here.append((program.name, options["starts"]))
        return test_gate.suite(program.name, image="")

    monkeypatch.setattr(run_suites.table, "runner", lambda _: Runner())
    monkeypatch.setattr(smoke.gpu, "detect", HostGpu)
    monkeypatch.setattr(smoke, "run", run)
    from tests.made import place as context
    from tests.unit.smoke.test_passes import ARTIFACT, TrialOrder

    order = TrialOrder(
        artifact=ARTIFACT, suites=("torch", "nccl"), device="auto", folder=str(tmp_path), passes=str(tmp_path / "p"),
        own=OwnTests(imports=("evil",)), starts=starts,
    )  # fmt: skip
    report = run_suites.run_suites(order, context(None, {}, progress))
    assert [result.suite for result in report.suites] == expected
    assert {given for _, given in ran_here} == {starts}
    without = msgspec.structs.replace(order, starts=() if starts else STARTS)
    run_suites.run_suites(without, context(None, {}, progress))
    assert [name for name, _ in ran_here[len(expected) :]][:1] == ["torch"], "a pass with it is none without"


# What is said


def of(**fields):
    return test_gate.report(**fields)


def test_summary_and_statement_say_what_runs_by_itself():
    assert [line for line in summary.lines(of(starts=STARTS), 1.0) if "starts" in line] == [
        f"starts  {SITE}/evil.pth (evil) is run by Python, when it starts: the suites ran without it",
        "starts  LD_PRELOAD is run by x: the suites ran without it",
    ]
    assert list(summary.starting(of())) == []
    about = predicates.smoke([], manifest="a", config="b", starts=STARTS)
    assert about["startUp"] == [start.sentence for start in STARTS]
    assert "startUp" not in predicates.smoke([], manifest="a", config="b")


def test_publish_of_an_image_with_start_up_code_needs_its_start_and_passes_without_it():
    image = of(starts=STARTS)
    assert test_gate.reasons(image) == ["its test start has not passed in this very image"]
    whole = (*image.suites, test_gate.suite("start"))
    assert test_gate.reasons(of(starts=STARTS, suites=whole)) == []
    untested = of(starts=STARTS, smoke=None, suites=(test_gate.suite("start"),))
    for version, refused in (("dna 1", 2), (f"dna 1{smoke.APART}", 0)):
        passes = [
            msgspec.structs.replace(one, claim=msgspec.structs.replace(one.claim, version=version))
            for one in map(test_gate.passed, (test_gate.suite(device="Tesla V100"), test_gate.suite("ops")))
        ]
        lacking = [what for what in test_gate.reasons(untested, passes=passes) if "the suite" in what]
        assert len(lacking) == refused


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"starts": STARTS}, "evil.pth (evil) is run by Python"),
        (
            {"beside": (Beside(package="evil", path="torch/x.py", other="torch"),)},
            "torch/x.py of evil is in",
        ),
        ({"beside": (Beside(package="torch", path="space/x.py", other="evil"),)}, "space/x.py of torch is in the"),
    ],
)
def test_stack_results_are_not_credited_to_an_image_that_may_change_them(fields, why):
    below, plan = of(), SimpleNamespace(added=("evil", "more"))
    above = of(suites=(), smoke=None, **fields)
    assert why in proving._objection(below, above, plan)
