"""Additions of a user to a stack: the command line's words, requirements files, recipes of their own, tags, plans."""

import contextlib
import os
import shlex
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import upkeep.cli
from graphcrate.cli import main
from graphcrate.compat.plan.compile_steps import ADDED_SOURCES
from graphcrate.compat.plan.planning import make_plan
from graphcrate.compat.requirements import own, own_files, own_packages, own_typed, package_text
from graphcrate.model.errors import RecipeError, UsageError
from graphcrate.model.lock import Added
from graphcrate.model.plan import FilesStep, WheelsStep
from graphcrate.model.recipe import Additions
from graphcrate.model.report import OwnTests
from graphcrate.oci import reference
from graphcrate.render import texts
from graphcrate.smoke.own import APT, ASK, SAID, programs
from graphcrate.smoke.suites import Ran
from projectfiles import files as project_files
from tests.made import refused, sdist, wheel
from tests.unit.compiled_plans import RECIPE, TOOLKITS, VARIANT, plain_lock
from tests.unit.compiled_plans import lock as compiled_lock

COMMIT = "0123456789" * 4


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "a-1.0-py3-none-any.whl").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "packages"),
    [
        (["lightning wandb dgl==2.1"], ["lightning", "wandb", "dgl==2.1"]),
        (["lightning", "wandb", "lightning"], ["lightning", "wandb"]),
        (["lightning >= 2.1, < 3"], ["lightning >= 2.1, < 3"]),
        (["'ray[default] >2' tqdm"], ["ray[default] >2", "tqdm"]),
        (["./mypkg a-1.0-py3-none-any.whl"], ["{}/mypkg", "{}/a-1.0-py3-none-any.whl"]),
        ([f"git+https://git.example/x.git@{COMMIT}"], [f"git+https://git.example/x.git@{COMMIT}"]),
        ([f"mine @ git+https://git.example/x.git@{COMMIT}"], [f"git+https://git.example/x.git@{COMMIT}"]),
    ],
)
def test_with_and_apt_words_become_additions(folder, words, packages):
    given = own_typed.given(words, [], ["git graphviz", "tmux,vim"])
    assert given.packages == tuple(one.format(folder.resolve()) for one in packages)
    assert given.apt == ("git", "graphviz", "tmux", "vim")


def test_build_apt_is_read_from_command_line_and_recipe(folder):
    assert own_typed.given((), build_apt=("swig,libsuitesparse-dev",)).build_apt == ("swig", "libsuitesparse-dev")
    with pytest.raises(UsageError, match="--build-apt: 'Swig!' is not a name of a Debian package"):
        own_typed.given((), build_apt=("Swig!",))
    first, second = Additions(build_apt=("swig",)), Additions(build_apt=("swig", "m4"))
    assert own_packages.merge_additions(first, second).build_apt == ("swig", "m4")


def test_requirements_file_gives_packages_constraints_and_projects(folder):
    (folder / "more.txt").write_text("wandb\n")
    (folder / "bounds.txt").write_text("numpy<2\n")
    (folder / "requirements.txt").write_text(
        "# mine\nlightning==2.1  # pinned\n\ndgl \\\n  >=2.0 --hash=sha256:aa\n-r more.txt\n-c bounds.txt\n-e ./mypkg\n"
    )
    additions = own_typed.given([], [folder / "requirements.txt"], [])
    assert additions.packages == ("lightning==2.1", "dgl >=2.0", "wandb", str((folder / "mypkg").resolve()))
    assert additions.constraints == ("numpy<2",)


@pytest.mark.parametrize(
    ("text", "spaced"),
    [
        ("lightning, wandb", "lightning wandb"),
        ("lightning,wandb", "lightning wandb"),
        ("lightning\uff0cwandb\u3001ray[tune, data]", "lightning wandb ray[tune, data]"),
        ("einops,", "einops"),
    ],
)
def test_packages_with_commas_between_them_are_given_back_with_spaces(text, spaced):
    with refused(UsageError, f"'{text}': packages are separated by spaces", "next:  write ") as caught:
        own_typed.given([text], [], [])
    assert shlex.split(caught.value.next_step)[1] == f"WITH={spaced}"


@pytest.mark.parametrize("text", [",", " , ,", "\uff0c", "\u3001\uff1b"])
def test_commas_alone_name_no_package(text):
    with refused(UsageError, "names no package", "next:  name them: 'WITH=lightning wandb'"):
        own_typed.given([text], [], [])


@pytest.mark.parametrize("text", ["ray[default,tune] einops", "ray>1,<2 einops", "ray>1, <2"])
def test_commas_of_extras_and_bounds_are_no_list(text):
    assert own_typed.given([text], [], []).packages


@pytest.mark.parametrize(
    ("words", "text", "apt", "what"),
    [
        (["light=ning"], None, [], "'light=ning' is not a package"),
        (["./nothing"], None, [], "--with: there is no folder ./nothing"),
        (["x @ https://host.example/x.whl"], None, [], "x is given by an address"),
        (["'open"], None, [], "cannot be read: No closing quotation"),
        ([], None, ["Git!"], "'Git!' is not a name"),
        ([], "", [], "requirements.txt has no packages"),
        (
            [],
            "a\n--index-url ftp://user:secret@host.example\n",
            [],
            "2: --index-url ftp://host.example is not an address",
        ),
        (
            [],
            "--index-url https://${TOKEN}@host.example\n",
            [],
            "requirements.txt:1: the address has a variable of your",
        ),
        ([], "-f ./nowhere\n", [], "requirements.txt:1: -f ./nowhere is neither an address nor a folder"),
        ([], "b c\na\nd e\n", [], r"2 of its lines cannot be taken\s+\S+requirements.txt:1: 'b c' [\s\S]*:3: 'd e'"),
        ([], "einops=0.7.0\n", [], "'einops=0.7.0' has one = as conda writes it\nnext:  write einops==0.7.0"),
        (["einops=0.7.0"], None, [], "--with: 'einops=0.7.0' has one = as conda writes it"),
        ([], "https://host.example/x-1.0-py3-none-any.whl\n", [], "requirements.txt:1: x is given by an address"),
        ([], "-e .[dev]\n", [], "neither a wheel nor a folder with a pyproject.toml"),
        ([], "--nonsense\n", [], "requirements.txt:1: --nonsense is not taken"),
        ([], "a\nb c\n", [], "requirements.txt:2: 'b c' is not a package"),
        ([], "-r absent.txt\n", [], "there is no file /.*/absent.txt"),
        ([], "-r requirements.txt\n", [], r"requirements.txt → \S+requirements.txt"),
        ([], "a\n-c ./sub/../circle.txt\n", [], r"requirements.txt → \S+circle.txt → \S+requirements.txt"),
        ([], "-r a\0b\n", [], "a.x00b cannot be read: embedded null byte"),
        ([], "-r /dev/zero\n", [], "/dev/zero has more than 1 MB"),
        ([], "~nobody-of-that-name/x\n", [], "requirements.txt:1: '~nobody-of-that-name/x' is not the path"),
        ([], "./~\0x\n", [], "requirements.txt:1: './~.x00x' is not the path"),
        ([], f"./{'x' * 300}\n", [], "File name too long"),
        (["~nobody-of-that-name/x"], None, [], "--with: '~nobody-of-that-name/x' is not the path"),
    ],
)
def test_unsupported_requirement_is_a_usage_error_with_its_line(folder, words, text, apt, what):
    (folder / "sub").mkdir()
    (folder / "circle.txt").write_text("-r requirements.txt\n")
    (folder / "requirements.txt").write_text(text or "")
    with pytest.raises(UsageError, match=what) as caught:
        own_typed.given(words, [folder / "requirements.txt"] if text is not None else [], apt)
    assert "secret" not in str(caught.value)


def test_requirements_file_included_many_times_is_read_once(folder):
    """Each of 40 files names the next twice: as pip reads them, a million million files."""
    for number in range(40):
        (folder / f"{number}.txt").write_text(f"-r {number + 1}.txt\n-r ./{number + 1}.txt\n-c {number + 1}.txt\n")
    (folder / "40.txt").write_text("lightning\n")
    found = package_text.read_requirements(folder / "0.txt")
    assert (found.packages, found.constraints) == (("lightning",), ("lightning",))


LINES = st.one_of(
    st.sampled_from(
        ["-r more.txt", "-c more.txt", "-e ./mypkg", "./mypkg", "lightning==2.1", "dgl[x] >= 2 ; a == 'b'"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.builds(
        " ".join, st.lists(st.sampled_from(["-r", "-e", "--requirement", "~", "~x/", "./", "\0", "file://", "@"]))
    ),
)


@given(st.lists(LINES))
def test_random_requirements_lines_are_packages_or_usage_errors(lines):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mypkg").mkdir()
        (folder / "mypkg/setup.py").touch()
        (folder / "more.txt").write_text("wandb\n")
        (folder / "requirements.txt").write_text("\n".join(lines))
        with contextlib.suppress(UsageError):
            found = package_text.read_requirements(folder / "requirements.txt")
            assert found.packages or found.constraints
            assert all(map(own_packages.name_of, found.packages + found.constraints))


@given(st.text(max_size=30))
def test_random_with_words_are_packages_or_usage_errors(text):
    with contextlib.suppress(UsageError):
        assert all(map(own_packages.name_of, own_typed.given([text]).packages))


def test_own_recipe_is_read_with_all_its_fields(folder):
    (folder / "train.py").write_text("print(1)\n")
    (folder / "mine.toml").write_text(
        'extends = "pyg"\ncuda = "11.8"\npip = ["lightning", "./mypkg"]\napt = ["git"]\nbuild_apt = ["swig"]\n'
        'build_env = { CMAKE_ARGS = "-DA=on -DB=off" }\n'
        'env = { WANDB_MODE = "offline" }\nfiles = { "/opt/mine/train.py" = "train.py" }\n'
        'smoke = ["python /opt/mine/train.py"]\n'
    )
    recipe, additions = own.load(folder / "mine.toml")
    assert (recipe.extends, recipe.cuda) == ("pyg", "11.8")
    assert additions == Additions(
        packages=("lightning", str(folder.resolve() / "mypkg")),
        apt=("git",),
        build_apt=("swig",),
        build_environment={"CMAKE_ARGS": "-DA=on -DB=off"},
        environment={"WANDB_MODE": "offline"},
        files={"/opt/mine/train.py": "print(1)\n"},
        smoke=("python /opt/mine/train.py",),
        name="mine",
    )


@pytest.mark.parametrize(
    ("line", "error", "what"),
    [
        ("pips = []", RecipeError, "mine.toml:2: pips: "),
        ('apt = ["Git"]', RecipeError, "mine.toml:2: apt: 'Git' is not a name"),
        ('build_env = { MAX_JOBS = "64" }', RecipeError, "mine.toml:2: build_env: MAX_JOBS cannot be set"),
        ('build_apt = ["Git"]', RecipeError, "mine.toml:2: build_apt: 'Git' is not a name"),
        ('env = { "a b" = "" }', RecipeError, "mine.toml:2: env: 'a b' is not a name"),
        ('files = { "opt/x" = "x" }', RecipeError, "mine.toml:2: files: 'opt/x' is not an absolute path"),
        ('files = { "/opt/x" = "absent" }', UsageError, "there is no file /.*/absent"),
        ('files = { "/opt/x" = "large" }', UsageError, "large has more than 1 MB"),
        ('files = { "/opt/x" = "/etc/hostname" }', UsageError, "/etc/hostname is not in the recipe's folder"),
        ('files = { "/opt/x" = "../outside" }', UsageError, "../outside is not in the recipe's folder"),
        ('files = { "/opt/x" = "leads-out" }', UsageError, "leads-out is not in the recipe's folder"),
        ('files = { "/opt/x" = "zeros" }', UsageError, "zeros is not in the recipe's folder"),
        ('files = { "/opt/x" = "pipe" }', UsageError, "pipe is neither a file nor a folder"),
        ('files = { "/opt/x" = "a\\u0000b" }', UsageError, "cannot be put into the image"),
        ('files = { "/opt/x" = "circle" }', UsageError, "cannot be put into the image"),
        ('files = { "/opt/.wh.x" = "x" }', RecipeError, "mine.toml:2: files: '/opt/.wh.x' is a whiteout"),
        ('files = { "/opt/./x" = "x" }', RecipeError, "mine.toml:2: files: '/opt/./x' is not an absolute path"),
        ('files = { "/opt/\\n" = "x" }', RecipeError, "mine.toml:2: files: "),
        ('env = { A = "1\\n2" }', RecipeError, "mine.toml:2: env: A has a control character"),
        ('env = { A = "\\u0000" }', RecipeError, "mine.toml:2: env: A has a control character"),
        ("smoke_minutes = 0", RecipeError, "mine.toml:2: smoke_minutes: at least 1"),
        ('env = { PATH = "/x" }', RecipeError, "mine.toml:2: env: PATH = '/x' does not fit: .*PATH"),
        ('env = { LD_LIBRARY_PATH = "/y" }', RecipeError, "mine.toml:2: env: LD_LIBRARY_PATH"),
        ('env = { PYTHONHOME = "/y" }', RecipeError, "mine.toml:2: env: PYTHONHOME"),
        ('env = { NVIDIA_DRIVER_CAPABILITIES = "utility" }', RecipeError, "mine.toml:2: env: NVIDIA_DRIVER"),
        ('env = { PYTHONNOUSERSITE = "0" }', RecipeError, "mine.toml:2: env: PYTHONNOUSERSITE"),
        ('files = { "/proc/x" = "mine.toml" }', RecipeError, "mine.toml:2: files: /proc/x is not for files"),
        ('files = { "/etc/passwd" = "mine.toml" }', RecipeError, "runtimes add users to it"),
        ('files = { "/opt/graphcrate/suites/dna.py" = "mine.toml" }', RecipeError, "that prove the image"),
        ('files = { "/opt/a" = "mine.toml", "/opt/a/b" = "mine.toml" }', UsageError, "/opt/a/b makes it a folder"),
        ('pip = "einops"', RecipeError, r'mine.toml:2: pip: .*write pip = \["einops"\]'),
        ("workdir = \u201c/opt/x\u201d", RecipeError, "mine.toml:2: .*: it has \u201c and \u201d, and TOML takes"),
        ('pip = "einops wandb"', RecipeError, r'write pip = \["einops", "wandb"\]'),
        ('smoke = "python /opt/x.py"', RecipeError, r'write smoke = \["python /opt/x.py"\]'),
        ('extend = "pyg"', RecipeError, "mine.toml:2: extend: .*did you mean extends"),
        ('requirements = "absent.txt"', UsageError, "there is no file /.*/absent.txt"),
        ('requirements = ["one.txt", "absent.txt"]', UsageError, "there is no file /.*/absent.txt"),
        ('files = { "/opt/x" = "linked" }', UsageError, "linked/sub is a link to a folder"),
        ('files = { "/opt/x" = "leads" }', UsageError, "leads is not in the recipe's folder"),
        ('files = { "/opt/x" = "binary" }', UsageError, "a.png cannot be put into the image"),
        ('directories = { "/opt/../x" = "0755" }', RecipeError, "directories: '/opt/../x' is not an absolute path"),
        ('directories = { "/opt/$(x)" = "0755" }', RecipeError, "directories: .* is not an absolute path"),
        ('directories = { "/opt/x" = "4755" }', RecipeError, "directories: '4755' of '/opt/x' are no permissions"),
        ('directories = { "/opt/venv/x" = "0700" }', RecipeError, "directories: /opt/venv/x is the stack's own"),
        ('directories = { "/opt" = "0700" }', RecipeError, "directories: /opt is the stack's own"),
        ('directories = { "/tmp/x" = "0700" }', RecipeError, "directories: /tmp/x is not for files of a recipe"),
        ('workdir = "/a$(touch b)"', RecipeError, "workdir: .* is not an absolute path"),
        ('workdir = "/home/me"', RecipeError, "workdir: /home/me is not for files of a recipe"),
        ('command = ["a\\n%setup"]', RecipeError, "command: a control character"),
        ('command = [""]', RecipeError, "command: at most 256 words"),
        ('labels = { "a b" = "" }', RecipeError, "labels: 'a b' is not a name of a label"),
        ('labels = { "graphcrate.torch" = "1" }', RecipeError, "labels: graphcrate.torch says what the image is"),
        ('labels = { a = "1\\n%setup" }', RecipeError, "labels: a: a label is one line"),
    ],
)
def test_invalid_own_recipe_is_an_error_with_its_line(folder, line, error, what):
    (folder / "large").write_bytes(bytes(project_files.LARGEST_FILE + 1))
    (folder / "linked").mkdir()
    (folder / "binary").mkdir()
    (folder / "binary/a.png").write_bytes(b"\x89PNG")
    os.mkfifo(folder / "pipe")
    (folder / "one.txt").write_text("einops\n")
    links = {"leads-out": "../outside", "zeros": "/dev/zero", "circle": "circle", "leads": "..", "linked/sub": ".."}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "mine.toml").write_text(f'extends = "pyg"\n{line}\n')
    with pytest.raises(error, match=what):
        own.load(folder / "mine.toml")


def test_recipe_that_is_not_in_utf_8_is_an_error_with_its_line_and_the_command_that_converts_it(folder):
    path = folder / "mine.toml"
    path.write_bytes('extends = "pyg"\n# \u4e2d\u6587\n'.encode("gbk"))
    with refused(
        RecipeError, "is not in UTF-8: line 2 has the byte 0xd6", f"gb18030 -t utf-8 {path} > {path}.utf8 && mv"
    ):
        own.load(path)


def test_own_recipe_with_folder_command_workdir_and_labels_is_read(folder):
    """A folder without what belongs to a person; a program keeps its right to be run."""
    for name in (
        "app/run.sh",
        "app/sub/a.py",
        "app/.env",
        "app/__pycache__/a.pyc",
        "app/sub/a.pyc",
        "one.txt",
        "two.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("wandb\n" if name.startswith("o") else "einops\n")
    (folder / "app/run.sh").chmod(0o755)
    (folder / "mine.toml").write_text(
        'extends = "torch"\nfiles = { "/app" = "app" }\nworkdir = "/app"\ncommand = ["./run.sh", "a b"]\n'
        'directories = { "/data" = "1777" }\nlabels = { authors = "us" }\nrequirements = ["one.txt", "two.txt"]\n'
    )
    _, additions = own.load(folder / "mine.toml")
    assert additions.packages == ("wandb", "einops")
    assert sorted(additions.files) == ["/app/run.sh", "/app/sub/a.py"]
    assert (additions.programs, additions.directories) == (("/app/run.sh",), {"/data": 0o1777})
    _, plan = plans(plain_lock(), plain_lock(), **msgspec.structs.asdict(additions) | {"packages": ()})
    step = next(step for step in plan.of(FilesStep) if step.title == "added files")
    modes = {file.path: (file.folder, file.mode) for file in step.files}
    assert modes == {
        "/app": (True, 0o755),
        "/data": (True, 0o1777),
        "/app/run.sh": (False, 0o755),
        "/app/sub/a.py": (False, 0o644),
    }
    assert (plan.config.command, plan.config.working_folder) == (("./run.sh", "a b"), "/app")
    assert plan.config.labels["authors"] == "us"
    text = texts.definition(plan)
    assert "exec ./run.sh 'a b'" in text
    assert "chmod 1777 /data" in text
    assert 'WORKDIR /app\nCMD ["./run.sh", "a b"]' in texts.dockerfile(plan)


def test_own_recipe_with_a_folder_of_too_many_files_is_refused(folder, monkeypatch):
    monkeypatch.setattr(own_files, "MOST_FILES", 3)
    (folder / "app").mkdir()
    for number in range(4):
        (folder / "app" / f"{number}.py").touch()
    (folder / "mine.toml").write_text('extends = "torch"\nfiles = { "/app" = "app" }\n')
    with pytest.raises(UsageError, match="app has more than 3 files"):
        own.load(folder / "mine.toml")


def test_own_recipe_that_extends_a_file_is_refused(folder):
    (folder / "mine.toml").write_text('extends = "./other.toml"\n')
    with pytest.raises(RecipeError, match=r"mine.toml:1: extends: './other.toml' is a file: .* a stack, such as pyg"):
        own.load(folder / "mine.toml")


def test_own_recipe_may_extend_path_and_driver_capabilities(folder):
    """The image's own PATH in the person's; capabilities that have those of CUDA."""
    lines = 'PATH = "/opt/mine/bin:$PATH:${PATH}", NVIDIA_DRIVER_CAPABILITIES = "compute,utility,video"'
    (folder / "mine.toml").write_text(f'extends = "pyg"\nenv = {{ {lines} }}\n')
    _, additions = own.load(folder / "mine.toml")
    plain, plan = plans(plain_lock(), plain_lock(), environment=additions.environment)
    image = plain.config.environment["PATH"]
    assert plan.config.environment["PATH"] == f"/opt/mine/bin:{image}:{image}"
    assert plan.config.environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility,video"


def of(additions):
    """The names of what was asked for, as though the stack had none of it."""
    return [*map(own_packages.name_of, additions.packages)]


@pytest.mark.parametrize(
    ("additions", "suffix"),
    [
        (Additions(packages=("Lightning==2.1", "wandb"), apt=("git",)), "-lightning-wandb-git"),
        (Additions(packages=("/home/me/my_pkg", "/tmp/a-1.0-py3-none-any.whl")), "-my-pkg-a"),
        (Additions(packages=(f"git+https://git.example/team/Tool.git@{COMMIT}",)), "-tool"),
        (Additions(packages=("git+ssh://git@git.example/team/Tool@feature/x",)), "-tool"),
        (Additions(packages=("a" * 20, "b" * 20, "c" * 20)), f"-{'a' * 20}-{'b' * 20}-and-1-more"),
        (Additions(packages=("lightning",), name="mine"), ""),
        (Additions(), ""),
    ],
)  # fmt: skip
def test_tag_suffix_names_the_additions(additions, suffix):
    assert own_packages.suffix(additions, of(additions)) == suffix


def test_tag_suffix_omits_packages_of_the_stack_and_excluded_markers():
    """Tags grew by packages that were there: `-torch-torch-geometric-torch-scatter`, `-pywin32-`."""
    asked = Additions(packages=("Torch_Scatter", "einops", "pywin32; sys_platform == 'win32'"), apt=("git",))
    assert own_packages.suffix(asked, ["einops", "numpy"]) == "-einops-git"
    assert own_packages.changes(asked, ["einops"])
    assert own_packages.changes(asked, []), "git"
    assert not own_packages.changes(Additions(packages=("torch-scatter",)), [])


def plans(stack, lock, **additions):
    """The plan of a stack, and that of the lock with what was added to it."""
    return [
        make_plan(RECIPE, one, VARIANT.candidates[0], examples={"a.py": ""}, additions=more)
        for one, more in ((stack, None), (lock, Additions(**additions)))
    ]


def test_plan_with_additions_keeps_the_layers_of_the_stack():
    added = Added(packages=("big", "numpy", "small"), asked=("small",), moved=("numpy",))
    lock = plain_lock(wheel("numpy"), wheel("small"), wheel("big", size=40_000_000))
    lock = msgspec.structs.replace(lock, added=added)
    more = {"packages": ("small",), "apt": ("git",), "environment": {"MINE": "1"}, "files": {"/opt/mine": "text"}}
    plain, plan = plans(plain_lock(wheel("numpy")), lock, **more)
    assert plans(lock, lock, name="mine")[1].name == "mine"
    assert plan.steps[: len(plain.steps) - 1] != plain.steps[:-1]  # numpy has left its layer
    wheels = [(step.title, [one.name for one in step.packages]) for step in plan.steps if isinstance(step, WheelsStep)]
    assert wheels[-2:] == [("big 1.0", ["big"]), ("added packages", ["numpy", "small"])]
    assert [step.title for step in plan.steps if isinstance(step, FilesStep)][-1] == "added files"
    assert plan.config.environment["MINE"] == "1"
    assert plan.tag == f"{plain.tag}-small-git"
    assert {"git", *plain.base.image.packages} == {*plan.base.image.packages}
    assert plan.config.labels["org.opencontainers.image.version"] == plan.tag


def test_own_tests_have_names_limits_and_versions():
    tests = programs(OwnTests(imports=("lightning",), commands=("python train.py", "false"), minutes=2))
    assert [(one.name, one.limit) for one in tests] == [("imports", 300), ("own-1", 120), ("own-2", 120)]
    assert tests[1].version != programs(OwnTests(commands=("python other.py",)))[0].version
    assert programs(OwnTests()) == []


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize(
    ("returncode", "late", "status", "reason"),
    [
        (0, "", "passed", ""),
        (1, "", "failed", "ended with exit code 1"),
        (-9, "", "failed", "ended with exit code -9"),
        (0, "sh did not finish within 60 s", "failed", "sh did not finish within 60 s"),
    ],
)
def test_own_test_passes_if_it_ends_with_0_in_time(returncode, late, status, reason, on_gpu):
    for test in programs(OwnTests(imports=("lightning",), commands=("python train.py",))):
        report = test.judge(test, Ran(["epoch 1"], returncode, 2.0, late), on_gpu)
        assert (report.suite, report.status, report.device) == (test.name, status, "gpu" if on_gpu else "cpu")
        assert reason in report.reason


#: what dgl 2.1.0 printed beside torchdata 0.11.0
DGL = """importing einops of einops
importing dgl of dgl
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/dgl/graphbolt/base.py", line 8, in <module>
    from torchdata.datapipes.iter import IterDataPipe
ModuleNotFoundError: No module named 'torchdata.datapipes'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<string>", line 11, in <module>
ImportError: DGL requires the backend pytorch
""".splitlines()


def judged(lines, returncode):
    (test,) = programs(OwnTests(imports=("dgl",)))
    return test.judge(test, Ran(list(lines), returncode, 1.0, ""), False)


def test_failed_import_gives_its_first_exception_and_a_remedy():
    """Ten lines joined by `|` were told, ended by one about something else."""
    report = judged(DGL, 1)
    assert (
        "importing dgl of dgl ended with exit code 1: ModuleNotFoundError: No module named 'torchdata" in report.reason
    )
    assert "requires the backend" not in report.reason
    assert report.metrics == {ASK: "torchdata<0.10"}
    absent = ["importing x of x", "Traceback", "ModuleNotFoundError: No module named 'cv2'"]
    assert judged(absent, 1).metrics == {ASK: "opencv-python-headless"}
    moved = "ImportError: cannot import name 'scalar_search_armijo' from 'scipy.optimize.linesearch' (/opt/venv/x.py)"
    assert judged(["importing ot of pot", "Traceback", moved], 1).metrics == {ASK: "scipy<1.14"}
    program = ["importing git of gitpython", "Traceback", "ImportError: Bad git executable."]
    assert judged(program, 1).metrics == {APT: "git"}
    apart = ["importing x of x", "Traceback", "ModuleNotFoundError: No module named '_tkinter'"]
    assert judged(apart, 1).metrics == {APT: "python3-tk"}
    raised = "ModuleNotFoundError: No module named 'distutils.cmd'"
    older = ["importing x of x", 'File "/usr/lib/python3.9/a.py"', raised]
    newer = [line.replace("3.9", "3.13") for line in older]
    assert [judged(lines, 1).metrics for lines in (older, newer)] == [{APT: "python3-distutils"}, {}]
    assert judged(["importing x of x", "Traceback", "x.errors.Missing: no y"], 1).reason.endswith(
        ": x.errors.Missing: no y"
    )
    assert judged(["importing x of x", "Killed"], 137).reason.endswith("last lines: importing x of x | Killed")
    assert not judged(["importing x of x", "Traceback", "OSError: no"], 1).metrics


@pytest.mark.parametrize(
    ("files", "imported"),
    [
        (["ours_a/__init__.py", "ours_a/b.py"], ["ours_a"]),
        (["ours_b/umf/__init__.py", "ours_b/umf/low/__init__.py", "ours_b/umf/tests/__init__.py"], ["ours_b.umf"]),
        (["ours_c/x/deep/__init__.py", "ours_c/y/__init__.py"], ["ours_c.x.deep", "ours_c.y"]),
        (["ours_d/tests/__init__.py", "ours_d/script.py"], ["ours_d"]),
        (["ours_e.py", "ours_e/data/__init__.py"], ["ours_e"]),
        (["_ours_f/g/__init__.py", "ours_f/__init__.py"], ["ours_f"]),
        (["ours_g/__init__.py", "ours_g/umf/__init__.py", "ours_g/umf/low.py"], ["ours_g.umf"]),  # scikits, nvidia
        (["ours_h/__init__.py", "ours_h/low.py"], ["ours_h"]),
        (["ours_i/__init__.py", "ours_i/own/__init__.py", "ours_i/contrib/__init__.py"], ["ours_i"]),
        (["OURS_J.libs/lib/ours.so", "ours_j/__init__.py"], ["ours_j"]),  # openmm's OpenMM.libs is no module
    ],
)
def test_packages_of_a_namespace_are_imported_rather_than_it_alone(files, imported, tmp_path, monkeypatch, capsys):
    (test,) = programs(OwnTests(imports=("demo",)))
    about = tmp_path / "demo-1.0.dist-info"
    about.mkdir()
    about.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    about.joinpath("RECORD").write_text("".join(f"{name},,\n" for name in [*files, "demo-1.0.dist-info/METADATA"]))
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise ImportError" if "tests" in name else "")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["-c", "demo"])
    exec(test.argv[2], {})
    assert capsys.readouterr().out.splitlines() == [f"importing {name} of demo" for name in imported]
    for name in [name for name in sys.modules if "ours_" in name]:
        del sys.modules[name]


def test_import_with_a_disabled_feature_passes_with_a_warning():
    """transformers beside a torch that is too old for it."""
    said = "Disabling PyTorch because PyTorch >= 2.6 is required but found 2.0.1"
    report = judged(["importing transformers of transformers", said, "importing dgl of dgl"], 0)
    assert (report.status, report.metrics) == ("passed", {SAID: [f"transformers: {said}"]})
    assert not judged(["importing transformers of transformers"], 0).metrics


def test_compiled_additions_are_a_layer_of_their_own():
    need = wheel("pybind11")
    native = msgspec.structs.replace(sdist("native", "1.0"), build=(need,))
    stack = compiled_lock(TOOLKITS["debian"])
    packages = (*stack.packages, native, wheel("small"))
    lock = msgspec.structs.replace(stack, packages=packages, added=Added(packages=("native", "small"), asked=()))
    plain, plan = plans(stack, lock, packages=("native",))
    assert plan.steps[: len(plain.steps) - 1] == plain.steps[:-1]
    assert [step.title for step in plan.steps[len(plain.steps) - 1 : -1]] == ["added packages", ADDED_SOURCES]
    step = plan.steps[-2]
    assert step.packages == (native,)
    assert {"torch", "pybind11"} <= {one.name for one in step.against}
    assert need.file.sha256 in lock.files()
    built = {one.file.sha256 for one in packages if one.compiled}
    assert need.file.sha256 not in lock.files(built)


@pytest.mark.parametrize(
    ("command", "next_step"),
    [
        (["image", "mine.toml"], "make image RECIPE=mine.toml CUDA=12.6"),
        (["lock", "mine.toml"], "./build.py lock mine.toml --cuda 12.6"),
        (["render", "mine.toml"], "./build.py render mine.toml --cuda 12.6"),
        (["image", "torch", "--cuda", "12.4", "--with", "einops"], "make image STACK=torch CUDA=12.6 WITH=einops"),
        (["lock", "torch", "--cuda", "12.4"], "./build.py lock torch --cuda 12.6"),
        (["render", "torch", "--cuda", "12.4"], "./build.py render torch --cuda 12.6"),
        (["explain", "torch", "--cuda", "12.4"], "./build.py explain torch --cuda 12.6"),
        (["matrix", "torch", "--cuda", "12.4"], "./build.py matrix torch --cuda 12.6"),
        (["lock", "torch", "--check", "--cuda", "12.4"], "./build.py lock torch --check --cuda 12.6"),
    ],
)
def test_next_step_names_another_cuda_in_the_typed_command(folder, capsys, command, next_step):
    (folder / "mine.toml").write_text('extends = "torch"\ncuda = "12.4"\npip = ["einops"]\n')
    with pytest.raises(SystemExit):
        (upkeep.cli.app if "--check" in command else main.app)(command, standalone_mode=False)
    assert f"next:  {next_step}    (" in capsys.readouterr().err


#: what a stranger's recipe may name out of its folder (`top`: above it; a canary is there) → in which field
OUTSIDE = {
    "absolute": 'pip = ["{top}/private"]', "above": 'pip = ["../private"]', "home": 'pip = ["~/private"]',
    "file": 'pip = ["file://{top}/private"]', "wheel": 'pip = ["{top}/mine-1.0-py3-none-any.whl"]',
    "wheel above": 'pip = ["../mine-1.0-py3-none-any.whl"]', "link": 'pip = ["./link"]',
    "round": 'pip = ["./sub/../../private"]',
    "wheel by a link": 'pip = ["./mine-1.0-py3-none-any.whl"]', "extras": 'requirements = "extras.txt"',
    "git": 'pip = ["git+file://{top}/private"]', "own git": 'pip = ["git+file://{top}/recipe/sub"]',
    "git by name": 'pip = ["x @ git+file://localhost{top}/private"]',
    "requirements": 'requirements = "../req.txt"', "requirements, absolute": 'requirements = "{top}/req.txt"',
    "requirements by a link": 'requirements = "linked.txt"', "refers": 'requirements = "refers.txt"',
    "constrains": 'requirements = "constrains.txt"', "editable": 'requirements = "editable.txt"',
    "find-links": 'requirements = "find-links.txt"', "poetry": 'requirements = "poetry.lock"',
    "uv": 'requirements = "uv.lock"', "pylock": 'requirements = "pylock.toml"',
    "conda": 'requirements = "environment.yml"',
    "dynamic": 'requirements = "dynamic/pyproject.toml"', "files": 'files = {{"/x" = "../req.txt"}}',
    "files, absolute": 'files = {{"/x" = "{top}/req.txt"}}', "files by a link": 'files = {{"/x" = "linked.txt"}}',
    "proc": 'files = {{"/x" = "/proc/self/environ"}}', "requirements in proc": 'requirements = "/proc/self/environ"',
    "device": 'requirements = "/dev/stdin"', "tty": 'files = {{"/x" = "/dev/tty"}}',
}  # fmt: skip


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    """A stranger's recipe's folder beside what is private; writes the recipe with a field."""
    top, folder = tmp_path / "top", tmp_path / "top/recipe"
    monkeypatch.setenv("HOME", str(top))
    texts = {
        "private/pyproject.toml": '[project]\nname = "private"\noptional-dependencies = {a = ["canary"]}',
        "req.txt": "canary\n",
        "mine-1.0-py3-none-any.whl": "", "recipe/sub/setup.py": "",
        "recipe/refers.txt": "-r ../req.txt",
        "recipe/constrains.txt": "einops\n-c ../req.txt", "recipe/editable.txt": "-e ../private",
        "recipe/extras.txt": "./extra[a]", "recipe/extra/setup.py": "",
        "recipe/find-links.txt": "einops\n--find-links ..", "recipe/poetry.lock": "",
        "recipe/uv.lock": '[[package]]\nname = "a"\nversion = "1"\nsource = {virtual = "."}\n[package.metadata]\n'
        'requires-dist = [{name = "private", directory = "../private"}]\n',
        "recipe/pylock.toml": 'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "private"\n'
        'directory = {path = "../private"}\n',
        "recipe/environment.yml": "dependencies:\n- pip:\n  - ../private\n",
        "recipe/dynamic/pyproject.toml": '[project]\nname = "a"\nversion = "1"\ndynamic = ["dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = {file = ["../../req.txt"]}\n',
    }  # fmt: skip
    for name, text in texts.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (folder / "link").symlink_to("../private")
    (folder / "linked.txt").symlink_to("../req.txt")
    (folder / "extra/pyproject.toml").symlink_to("../../private/pyproject.toml")
    (folder / "pyproject.toml").symlink_to("../private/pyproject.toml")
    (folder / "mine-1.0-py3-none-any.whl").symlink_to("../mine-1.0-py3-none-any.whl")

    def recipe(field):
        path = folder / "mine.toml"
        path.write_text(f'extends = "pyg"\n{field.format(top=top)}\n')
        return path

    return recipe


@pytest.mark.parametrize("name", OUTSIDE)
def test_stranger_s_recipe_stays_within_its_folder(strangers, name):
    path = strangers(OUTSIDE[name])
    with pytest.raises(UsageError, match="in the recipe's folder") as caught:
        own.load(path)
    assert "TRUST_PATHS=yes (--trust-paths)" in caught.value.next_step
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(set(OUTSIDE) - {"requirements in proc", "proc", "device", "tty", "poetry"}))
def test_recipe_whose_paths_are_trusted_may_name_what_is_outside(strangers, name):
    _, additions = own.load(strangers(OUTSIDE[name]), trusts_paths=True)
    assert additions


def test_what_is_in_the_folder_needs_no_trust(strangers):
    names = 'pip = ["./sub", "einops", "git+https://h/x@main"]\nrequirements = "sub/req.txt"\n'
    path = strangers(names + 'files = {{"/x" = "sub/setup.py"}}')
    (path.parent / "sub/req.txt").write_text("-r more.txt\n-e .\n--find-links .\n")
    (path.parent / "sub/more.txt").write_text("tqdm\n-c ../constrains2.txt")
    (path.parent / "constrains2.txt").write_text("tqdm<5")
    _, additions = own.load(path)
    assert "tqdm" in additions.packages
    assert str(path.parent / "sub") in additions.packages


def test_files_that_are_typed_may_refer_to_what_is_beside_them(strangers):
    """`requirements/dev.txt` with `-r ../base.txt` is how projects have them; who types its name knows it."""
    path = strangers("")
    assert own_typed.given([], [path.parent / "refers.txt"]).packages == ("canary",)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("mine", "mine"),
        ("my recipe", "my-recipe"),
        ("MyNet", "mynet"),
        ("GCN 图网络 v2", "gcn-v2"),
        ("a..b__c.", "a-b-c"),
        ("net_1.2", "net_1.2"),
    ],
)
def test_recipe_file_names_its_image_as_registries_take_it(file, name):
    assert own.image_name(Path(f"{file}.toml")) == name
    reference.parse(f"registry.example/{name}:1")


@given(st.text(min_size=1, max_size=40).filter(lambda text: "/" not in text and text not in (".", "..")))
def test_name_of_any_recipe_file_is_one_that_registries_take_or_refused(stem):
    path = Path(f"x{stem}.toml")
    reference.parse(f"registry.example/{own.image_name(path)}:1")


def test_recipe_file_without_a_letter_that_registries_take_is_refused():
    with refused(UsageError, "gives its image no name", "mv "):
        own.image_name(Path("图网络.toml"))
