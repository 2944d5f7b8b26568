"""Commands in messages are values, each of whose forms is taken by the program that it is typed to.

Each `command(…)` and `setting(…)` of the code is made here with what its call says, in all three forms: for make, for
./build.py and for an installed package.
"""

import ast
import functools
import re
import shlex
import tomllib

import pytest

from doctor import __main__ as doctor
from graphcrate.cli import diagnosis
from graphcrate.host.context import Context
from graphcrate.model import command as commands
from graphcrate.model.command import ETC, OPTIONS, SETTINGS, Command, Setting, command, setting, without
from graphcrate.model.options import ROWS
from tests import HOUSE, ROOT, modules_of_house, nodes_of, tree_of_file
from tests.commands import command_line, makefile, objections, upkeeps
from tests.unit.doctor.test_doctor_explain import TEXTS
from tests.unit.house.test_wiring import RECIPE
from tests.unit.made_up_host import MadeUp

MODULES = modules_of_house()
#: makes the command of whatever was asked for: tests/unit/assembly/test_build.py has its rows
OF_A_REQUEST = ROOT / "graphcrate/compat/variants/request.py"
OLD_KERNEL = {"/proc/sys/kernel/osrelease": "3.10.0-1160.el7.x86_64\n"}
MAKERS = {"command": command, "setting": setting, "without": without}


def calls(path):
    """(line, function, call) of the commands that a module makes."""
    if "graphcrate.model.command" not in path.read_text(encoding="utf-8"):
        return  # without a walk through it
    tree = tree_of_file(path)
    ours = {
        name.asname or name.name: name.name
        for node in nodes_of(tree, ast.ImportFrom)
        if node.module == "graphcrate.model.command"
        for name in node.names
    }
    for node in nodes_of(tree, ast.Call):
        if isinstance(node.func, ast.Name) and ours.get(node.func.id) in MAKERS:
            yield node.lineno, ours[node.func.id], node


def stand_in(verb, name):
    """A value of an option whose own is not written in the call: `True` of a flag, else what says nothing."""
    option = f"--{name.strip('_').replace('_', '-')}"
    of = [command_line()[verb]] if verb in command_line() else command_line().values()
    found = [one for each in of for one in each.params if option in (*one.opts, *one.secondary_opts)]
    return True if found and found[0].is_flag else ETC


def made(maker, node):
    """The value that a call makes; unknown words are `NAME`."""
    words = [
        word.value if isinstance(word, ast.Constant) else ETC if ast.unparse(word) == "ETC" else "NAME"
        for word in node.args
    ]
    verb = words[0] if words else ""
    options = {
        one.arg: one.value.value if isinstance(one.value, ast.Constant) else stand_in(verb, one.arg)
        for one in node.keywords
        if one.arg
    }
    return MAKERS[maker](*words, **options)


def label(path):
    """The path of a module in its package's folder."""
    return next(path.relative_to(source).as_posix() for source in HOUSE if path.is_relative_to(source))


@functools.cache
def made_by_code():
    """Return the value of each such call, by its place. Not while tests are collected, which each worker does."""
    return {
        f"{label(path)}:{line}": made(maker, node)
        for path in MODULES
        for line, maker, node in calls(path)
        if path != OF_A_REQUEST
    }


def test_next_step_commands_parse_in_every_form():
    unknown = "'ETC' is not"  # one of its choices, a number
    found = {where: objections(value) for where, value in made_by_code().items() if isinstance(value, Command)}
    assert len(found) > 200
    known = {where: [one for one in said if unknown not in one] for where, said in found.items()}
    assert {where: said for where, said in known.items() if said} == {}


def test_next_step_settings_are_make_variables_and_options():
    options = {option for each in command_line().values() for one in each.params for option in one.opts}
    for where, value in made_by_code().items():
        if isinstance(value, Setting):
            assert value.by_make().partition("=")[0] in makefile()[1], where
            assert value.words()[0] in options, where


def options_of(verb, commands=None):
    return {option for one in (commands or command_line())[verb].params for option in (*one.opts, *one.secondary_opts)}


#: options that say nothing of an image, and are not typed again for it
NOT_OF_A_REQUEST = {
    "image": {"--smoke", "--plan", "--dry-run", "--verbose", "--json", "--at", "--save"},
    "lock": set(),
    "render": {"--output"},
}


def test_request_options_are_options_of_their_command():
    for verb, names in OPTIONS.items():
        options = {f"--{name}" for name in names}
        assert options <= options_of(verb), verb
        if verb in NOT_OF_A_REQUEST:  # those of `publish` say where to
            others = {option for option in options_of(verb) - options if option.startswith("--")}
            assert others == NOT_OF_A_REQUEST[verb], verb


def test_command_settings_are_those_of_the_makefile():
    """Of a target: what its lines and the variables in them name, in capitals."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    variables = dict(re.findall(r"^(\w+) :?= ((?:.*\\\n)*.*)$", text, re.MULTILINE))
    for verb, names in SETTINGS.items():
        lines = re.search(rf"^{verb}: .*\n((?:\t.*\n)+)", text, re.MULTILINE)[1]
        while more := [name for name in variables if f"$({name})" in lines]:
            for name in more:
                lines = lines.replace(f"$({name})", variables[name])
        found = set(re.findall(r"\b[A-Z_]+\b", lines)) & makefile()[1]
        assert {Setting(name).by_make().partition("=")[0] for name in names} == found - {"RECIPE", "STACK", "FROM"}, (
            verb
        )


@pytest.mark.parametrize(
    ("value", "here", "there"),
    [
        (
            command("image", "pyg", cuda="11.8", with_="a b"),
            "make image CUDA=11.8 'WITH=a b'",
            "image pyg --cuda 11.8 --with 'a b'",
        ),
        (command("image", "torch"), "make image STACK=torch", "image torch"),
        (command("image", "…", extensions="wheels"), "make image … EXTENSIONS=wheels", "image … --extensions wheels"),
        (
            command("image", "mine.toml", cuda="12.6"),
            "make image RECIPE=mine.toml CUDA=12.6",
            "image mine.toml --cuda 12.6",
        ),
        (
            command("image", "pyg", cuda="…", keep_going=True),
            "make image CUDA=… KEEP_GOING=yes",
            "image pyg --cuda … --keep-going",
        ),
        (
            command("image", "glt", "…", output="FOLDER"),
            "./build.py image glt … --output FOLDER",
            "image glt … --output FOLDER",
        ),
        (
            command("image", "pyg", requirements=["a", "b"]),
            "./build.py image pyg --requirements a --requirements b",
            "image pyg --requirements a --requirements b",
        ),
        (
            command("publish", "…", to="X", allow_cpu_only=True),
            "make publish … TO=X ALLOW_CPU_ONLY=yes",
            "publish … --to X --allow-cpu-only",
        ),
        (command("publish", "pyg:1", to="X"), "./build.py publish pyg:1 --to X", "publish pyg:1 --to X"),
        (
            command("lock", "mine.toml", cuda="12.6", check=False),
            "./build.py lock mine.toml --cuda 12.6",
            "lock mine.toml --cuda 12.6",
        ),
        (command("run", "pyg:1", "--", "python", "…"), "./build.py run pyg:1 -- python …", "run pyg:1 -- python …"),
        (setting(mirror="sjtu"), "MIRROR=sjtu", "--mirror sjtu"),
        (setting(locked=True), "LOCKED=yes", "--locked"),
        (setting(apt="a b"), "'APT=a b'", "--apt 'a b'"),
    ],
)
def test_next_step_prints_as_make_build_py_or_graphcrate(value, here, there, monkeypatch):
    if isinstance(value, Setting):
        assert value.both() == f"{here} ({there})"
    assert f"{value}" == here
    monkeypatch.setattr(commands, "INSTALLED", True)
    assert f"{value}" == ("graphcrate " * isinstance(value, Command)) + there


@pytest.mark.parametrize(
    ("argv0", "printed"),
    [
        ("build.py", "make image CUDA=11.8"),  # as the Makefile calls it
        ("-c", "make image CUDA=11.8"),
        ("./build.py", "./build.py image pyg --cuda 11.8"),
        ("../graph crate/build.py", "'../graph crate/build.py' image pyg --cuda 11.8"),
        ("/home/me/graphcrate/build.py", "/home/me/graphcrate/build.py image pyg --cuda 11.8"),
    ],
)
def test_next_step_has_the_form_that_was_typed(argv0, printed, monkeypatch):
    monkeypatch.setattr(commands, "TYPED_PATH", commands.typed_path(argv0))
    assert f"{command('image', 'pyg', cuda='11.8')}" == printed
    program = shlex.split(printed)[0].replace("make", "./build.py")
    assert shlex.split(f"{command('run', 'pyg:1')}") == [program, "run", "pyg:1"]
    assert f"{setting(mirror='sjtu')}" == ("MIRROR=sjtu" if "make" in printed else "--mirror sjtu")
    text = "rows say ./build.py run pyg:1, and make image CUDA=11.8"
    by_path = f"rows say {shlex.quote(program)} run pyg:1, and {printed}"
    assert commands.as_typed(text) == (text if "make" in printed else by_path)
    assert commands.filled("{make image CUDA=11.8}") == printed


@functools.cache
def plain_command():
    """Return the form of a command or a setting of make as mere text, which only a checkout could type."""
    goals, settings = ("|".join(sorted(names)) for names in makefile())
    ours = rf"\./build\.py|\bgraphcrate (?:{'|'.join(command_line())})\b"
    return re.compile(rf"{ours}|\bmake (?:{goals}|…)(?![\w-])|(?<![\w$])(?:{settings})=")


#: text that is committed, and the same wherever it is rendered
RENDERED = "render/texts.py"
#: module → what it may have all the same
EXEMPT = {
    # a note in a lock, whose bytes are the same everywhere
    "assembly/extensions.py": {", which the driver translates when it first loads them (TOOLKIT=image may be newer)"},
    "model/command.py": {"./build.py"},
    "cli/serve.py": {"make serve"},  # which installs what the command lacks
    "resolve/stack/extensions.py": {  # why a lock has no such package, in the lock
        "left out on request (EXTENSIONS=none)",
        "sources are not asked for (EXTENSIONS=wheels)",
        "wheels are not asked for (EXTENSIONS=source)",
    },
    "resolve/sources/pyg_lib.py": {  # the same, and a note
        "its sources are on GitHub, which is not reached; PYG_LIB=folder gives them",
        "pyg_lib is a wheel of its channel: PYG_LIB was not needed (EXTENSIONS=source compiles it)",
    },
}


#: in its words, which the command puts into those of the caller: plain Python runs them
OF_THE_DOCTOR = ("cli/diagnosis.py", "cli/diagnosis_facts.py")


def written(path):
    """A module's texts that have one; docstrings are for who reads the code."""
    tree = tree_of_file(path)
    bodies = [node.body for node in nodes_of(tree, ast.Module, ast.ClassDef, ast.FunctionDef)]
    documented = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    texts = [node for node in nodes_of(tree, ast.Constant) if isinstance(node.value, str)]
    return {node.value for node in texts if id(node) not in documented and plain_command().search(node.value)}


def test_modules_have_no_commands_in_plain_text():
    found = {label(path): written(path) for path in MODULES}
    for name in (RENDERED, *OF_THE_DOCTOR):
        del found[name]
    left = {name: texts - EXEMPT.get(name, set()) for name, texts in found.items()}
    assert {name: texts for name, texts in left.items() if texts} == {}


def texts_of(value):
    """All texts of a TOML document."""
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_of(one)


DATA = [*(ROOT / "graphcrate/compat/data").glob("*.toml"), *(ROOT / "recipes").glob("*.toml")]


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.name)
def test_commands_in_data_files_are_in_braces(path):
    for text in texts_of(tomllib.loads(path.read_text(encoding="utf-8"))):
        assert not plain_command().search(re.sub(r"\{[^{}]*\}", "", text)), text
        for found in re.findall(r"\{(?:make |[A-Z_]+=)[^{}]*\}", text):
            made = commands._read(found[1:-1])
            assert made is not None, text
            assert isinstance(made, Setting) or objections(made) == [], text


def test_filled_replaces_commands_in_braces(monkeypatch):
    text = "{make image STACK=glt CUDA=12.1}, {WITH=igraph}; {what} is {no command}, {make}, { }, {WITH=}, {make lock}"
    rest = "{what} is {no command}, {make}, { }, {WITH=}, {make lock}"
    assert commands.filled(text) == f"make image STACK=glt CUDA=12.1, WITH=igraph; {rest}"
    monkeypatch.setattr(commands, "INSTALLED", True)
    assert commands.filled(text) == f"graphcrate image glt --cuda 12.1, --with igraph; {rest}"


OF_JOBS = {"--partition", "--account", "--time", "--cpus"}
#: Options that make has a setting for: a text has them as values, since whoever types to make knows no option. (Those
#: of `make sif` too; `--to` is also `convert`'s, where it means something else, and those of jobs are also `test`'s.)
OF_MAKE = {f"--{name}" for names in SETTINGS.values() for name in names} - {"--to", *OF_JOBS}
OF_MAKE |= {"--kernel", "--compression"}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
#: of other programs: conda, docker, git, ldd, sacct, unshare
OTHERS = {
    "--from-history",
    "--host",
    "--jobs",
    "--map-auto",
    "--map-root-user",
    "--ours",
    "--rm",
    "--theirs",
    "--version",
}


def test_options_in_next_steps_exist():
    ours = {option for known in (command_line(), upkeeps()) for verb in known for option in options_of(verb, known)}
    for path in MODULES:
        tree = tree_of_file(path)
        steps = [one.value for one in nodes_of(tree, ast.keyword) if one.arg in ("next_step", "fix")]
        texts = [str(one.value) for step in steps for one in ast.walk(step) if isinstance(one, ast.Constant)]
        named = {option: text for text in texts for option in OPTION.findall(text)}
        strange = {option: text for option, text in named.items() if option not in ours | OTHERS or option in OF_MAKE}
        assert strange == {}, path


@pytest.mark.parametrize(
    ("typed_words", "next_step"),
    [
        (("image", "torch", "--cuda", "9"), "graphcrate image torch --cuda 10.2    (graphcrate list shows all)"),
        (("image", "torch", "--gpu", ","), "graphcrate image torch, or with --gpu v100"),
        (("image", "torch", "--cuda", "10.2"), "graphcrate image torch --cuda cpu    (for now)"),
        (("build", "pyg"), "graphcrate image pyg    is what does that"),
        (("lock",), "graphcrate lock pyg --cuda 11.8    (list has all)"),
        (("image", "--cuda", ""), "graphcrate image pyg --cuda 11.8, or leave it out"),
        (("matrix",), "work in a clone of the project, or in a recipe of your own: graphcrate lock mine.toml"),
        (("image", "torch", "--cuda", "9", "--slim", "yes"), "graphcrate image torch --cuda 10.2 --slim yes    ("),
    ],
)
def test_installed_package_prints_graphcrate_commands(typed_words, next_step, tmp_path, monkeypatch, typed):
    monkeypatch.setattr(commands, "INSTALLED", True)
    root = tmp_path / "data"
    (root / "recipes").mkdir(parents=True)
    text = RECIPE.replace("make image CUDA=cpu", "{make image STACK=torch CUDA=cpu}    (for now)")
    (root / "recipes" / "torch.toml").write_text(text)
    made = Context(root=root, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache")})
    monkeypatch.setattr(Context, "here", classmethod(lambda kind: made))
    code, _, said = typed(*typed_words)
    assert code
    assert f"next:  {next_step}" in said
    assert not plain_command().search(said.replace("graphcrate", ""))


@pytest.mark.parametrize(
    ("is_installed", "fix"), [(True, "graphcrate image pyg --cuda 11.8"), (False, "make image CUDA=11.8")]
)
def test_doctor_of_an_installed_package_names_its_own_commands(typed, monkeypatch, is_installed, fix):
    monkeypatch.setattr(commands, "INSTALLED", is_installed)
    text = "The NVIDIA driver on your system is too old (found version 11040)"
    for form in ((), ("--json",)):
        _, out, said = typed("doctor", "--explain", text, *form)
        assert (f"{fix}    (the newest of ours" in out, said) == (True, "")


CHECKOUT = re.compile(r"\bmake (image|sif)\b|\./build\.py")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("make image …    has it; ./build.py check REF", "graphcrate image …    has it; graphcrate check REF"),
        ("(make image CUDA=…, where they go together)", "(graphcrate image pyg --cuda …, where they go together)"),
        ("make image CUDA=… FLAVOUR=devel    has it", "graphcrate image pyg --cuda … --flavour devel    has it"),
        ("make image GPU=sm_110; more", "graphcrate image pyg --gpu sm_110; more"),
        ("nothing of ours: make; build.py", "nothing of ours: make; build.py"),
    ],
)
def test_commands_of_a_checkout_are_typed_as_this_package_lies(monkeypatch, text, words):
    assert commands.as_typed(text) == text
    monkeypatch.setattr(commands, "INSTALLED", True)
    assert words in commands.as_typed(text)
    assert not CHECKOUT.search(commands.as_typed(text))


def test_no_text_of_an_installed_doctor_names_a_checkout(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(commands, "INSTALLED", True)
    monkeypatch.setattr(doctor, "Host", lambda: MadeUp(tmp_path, OLD_KERNEL))
    for _, _, text in TEXTS:
        diagnosis.main(["--explain", text], commands.as_typed)
    diagnosis.main([], commands.as_typed)
    printed = capsys.readouterr().out
    assert "graphcrate convert REF --to sif --kernel 3.10" in printed
    assert [line for line in printed.splitlines() if CHECKOUT.search(line) and not line.startswith("error:")] == []


#: words that begin a command of another program's, or a variable of ours, in a next step
TYPED_TO_A_SHELL = re.compile(
    r"(?:^|[:;(,] |`)(?:sudo )?(?:rm|less|ls|mkdir|mv|cp|head|cat|unsquashfs|realpath|skopeo|oras|podman|docker|git"
    r"|apptainer|singularity|REGISTRY_\w+=|cosign|srun|sbatch|uv|pip)\b[^;]*$|--(?:tag|partition|host) $"
)
#: what such a command has besides, which is ours, or quoted before
QUOTED = {
    "quoted",
    "log_in",
    "command",
    "step",
    "again",
    "error.next_step",
    "PACKAGES.get(name, name)",
    "settings.PLAIN_HTTP",
}
QUOTED |= {"engine.name", "self.engine.name", "engine.program", "self.program", "SELF"}
STARTS = {"{engine.name} ", "{self.engine.name} ", "{engine.program} ", "{self.program} "}


def test_words_in_commands_of_next_steps_are_quoted_for_a_shell():
    """A user pastes them: a name or an address of a stranger's must not run there."""
    bare = []
    for path in MODULES:
        for call in nodes_of(tree_of_file(path), ast.Call):
            for keyword in call.keywords:
                if keyword.arg in ("next_step", "usual"):
                    bare += [f"{path.name}:{text.lineno}: {name}" for text, name in values_typed_bare(keyword.value)]
    assert bare == []


def values_typed_bare(value):
    quoted = [node for node in ast.walk(value) if isinstance(node, ast.Call) and ast.unparse(node.func) == "for_shell"]
    inside = {id(node) for call in quoted for node in ast.walk(call)}
    for text in ast.walk(value):
        if not isinstance(text, ast.JoinedStr) or id(text) in inside:
            continue
        before = ""
        for part in text.values:
            if isinstance(part, ast.Constant):
                before += part.value.split("    ")[-1] if "    " in part.value else part.value
                continue
            name = ast.unparse(part.value)
            before = before.split("    ")[-1]
            is_typed = TYPED_TO_A_SHELL.search(before) or any(before.startswith(start) for start in STARTS)
            is_safe = (
                name in QUOTED
                or name.isupper()
                or re.match(r"(?:for_shell|shlex\.quote|setting|command|commands|without)\(", name)
            )
            if is_typed and not is_safe:
                yield text, name
            before += "{" + name + "}"


def test_each_option_has_one_row_that_something_uses():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert [row.name for row in ROWS if not (row.again or row.make) or (row.field and not row.again)] == []
