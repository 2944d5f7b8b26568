"""Command lines of other programs: strangers' words are no options, and nothing else starts a program."""

import ast

import pytest

from graphcrate.host import arguments
from graphcrate.model.errors import UsageError
from tests import nodes_of
from tests.made import refused
from tests.unit.house.test_imports import EVERY, GUESTS, SOURCES, tree_of

#: where programs are started: by words of `arguments.line` alone, or by a program of ours inside a sandbox
STARTERS = {
    "graphcrate.host.process": "Popen of what is an Argv",
    "graphcrate.host.sandbox.attach": "Popen of what is an Argv",
    "ociregistry.credentials": "a credential helper of the user's, found in PATH, and `get`; the registry is its input",
    "debroot.boxed": "its own Python, nsbox's options with their values in words of their own; `--`, then a path",
    "nsbox.box": "its own program, by a path of ours and a number",
    "nsbox.namespaces": "runs inside: executes what its orders name in the image",
}
#: (module, argument of `line`) → why it is ours, or is told from an option by the program
OURS = {
    ("engines.pyxis", "*before"): "srun's options, each in one word with its value, then `env NAME=VALUE`",
    ("engines.slurm_jobs", "*attached"): "--name=VALUE",
    ("engines.slurm_node", "_INTO_FILE"): "constant",
    ("engines.slurm_node", "order.printed or os.devnull"): "positional: a path of ours, after sh's own name",
    ("engines.slurm_node", "*python"): "positional: our Python and a command of ours, as it was typed",
    ("engines.slurm", "*command"): "options of ours, --jobs=VALUE",
    ("host.engines.apptainer_client", "*prefix"): "srun's options",
    ("host.engines.apptainer_client", "*words"): "spython's; the image went through `operand`",
    ("host.engines.apptainer_client", "program"): "found in PATH",
    ("host.git", "*OPTIONS"): "-c NAME=VALUE",
    ("host.git", "*end"): "--",
    ("host.git", "*ours"): "held by test_words_of_git_are_ours",
    ("host.sandbox.gpu", "*words"): "constants",
    ("host.sandbox.gpu", "program"): "constants",
    ("host.engines.oci_engine", "*ours"): "held by test_words_of_engines_are_ours",
    ("host.engines.oci_engine", "*self.command"): "found in PATH, --host ADDRESS of the user's own setting",
    ("host.engines.oci_engine", "client"): "found in PATH",
    ("host.sandbox.sandbox", "*argv"): "nsbox's: Python, constants, a file of ours and a number",
    ("host.engines.spython_client", "*cmd"): "spython's; the image went through `operand`",
    ("inputs.wheels.wheel_build", "*options"): "paths in the cache",
    ("inputs.wheels.wheel_build", "program"): "the text of a program of ours",
    ("oci.credentials", "program"): "docker-credential-NAME of the user's own configuration, found in PATH",
    ("publish.destinations.bundle", "*pip"): "our Python, and constants",
    ("publish.destinations.bundle", "*chosen"): "constants",
    ("publish.destinations.bundle", "*(f'--platform={tag}' for tag in tags)"): "--name=VALUE",
    ("publish.destinations.bundle", "*places"): "--name=VALUE",
    ("resolve.sources.uv", "*begin"): "uv, and constants",
    ("resolve.sources.uv", "*options"): "constants, and a path in the cache",
    ("resolve.stack.pinning", "*argv"): "uv, paths in the cache, versions and days that were parsed",
    ("upkeep.staged", "*isolated"): "constants",
    ("upkeep.staged", "*words"): "commands of ours, with names of committed recipes",
}
#: (module, argument of `git.run` or `git.output`) → why it cannot be an option of a stranger's choice
OF_GIT = {
    ("inputs.commits", "*fetch"): "constants",
    ("inputs.commits", "*ours"): "held here: its callers are `_run`",
    ("inputs.commits", "*words"): "a commit of 40 digits, and a path in the cache",
    ("inputs.commits", "commit"): "40 digits",
    ("inputs.commits", "there"): "40 digits, as git prints them",
    ("inputs.commits", "blob"): "--blob=COMMIT:.gitmodules",
    ("inputs.repository", "*words"): "constants, and commits of our data",
    ("host.disk.checkout", "*status"): "constants",
}
#: (module, argument of an engine's `call` or `ask`)
OF_ENGINES = {
    ("artifacts.saved", "str(file)"): "the value of --output, in the cache",
    ("engines.oci", "*command"): "options with their values: a name and tag of ours, names of variables",
    ("engines.oci", "*words"): "options with their values",
    ("engines.oci", "str(archive)"): "the value of --input",
    ("engines.oci", "name"): "graphcrate-HEX",
}


def calls(module, is_one):
    """Calls in a module, each with the texts of its positional arguments that are no text of ours."""
    for node in nodes_of(tree_of(module), ast.Call):
        if is_one(ast.unparse(node.func)):
            yield [ast.unparse(argument) for argument in node.args if not is_ours(argument)]


def dotted(function):
    """The name of a function as `a` or `a.b`; empty for what another expression gives."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def is_ours(argument):
    """A constant, or one that begins with one: `--name={value}`."""
    if isinstance(argument, ast.JoinedStr):
        argument = argument.values[0]
    return isinstance(argument, ast.Constant) or ast.unparse(argument) in ("sys.executable", "uv_program()")


def others(is_one, known, modules=tuple(EVERY)):
    short = {module: module.removeprefix("graphcrate.") for module in modules}
    seen = {(short[module], text) for module in modules for texts in calls(module, is_one) for text in texts}
    return seen - set(known), set(known) - seen


def test_programs_are_started_by_a_line_alone():
    """A new way to start a program takes an Argv, which mypy holds its callers to."""
    names = {
        *("subprocess.Popen", "subprocess.run", "subprocess.call", "subprocess.check_output", "subprocess.check_call"),
        *("os.system", "os.popen", "os.posix_spawn", "os.posix_spawnp", "pty.spawn"),
    }
    starting = {
        module
        for module in EVERY
        for node in nodes_of(tree_of(module), ast.Call)
        if (name := dotted(node.func)) in names or name.startswith(("os.exec", "os.spawn"))
    }
    assert starting - GUESTS == set(STARTERS)
    making = [
        module
        for module in EVERY
        for node in nodes_of(tree_of(module), ast.Call)
        if dotted(node.func) in ("Argv", "arguments.Argv", "cast")
        if "Argv" in ast.unparse(node)
    ]
    assert making == ["graphcrate.host.arguments"], "an Argv is made by `line` alone"


def test_first_argument_of_what_starts_programs_is_an_argv():
    for module in ("graphcrate.host.process", "graphcrate.host.sandbox.attach"):
        functions = {node.name: node for node in tree_of(module).body if isinstance(node, ast.FunctionDef)}
        for name in {"run", "output"} & set(functions):
            assert ast.unparse(functions[name].args.args[0]) == "argv: Argv"


def test_words_of_lines_are_ours_or_told_from_options():
    assert others(lambda name: name == "arguments.line", OURS) == (set(), set())


def test_words_of_git_are_ours():
    names = ("git.run", "git.output", "self._run")
    modules = ("graphcrate.inputs.commits", "graphcrate.inputs.repository", "graphcrate.host.disk.checkout")
    new, _ = others(lambda name: name in names, OF_GIT, modules)
    assert new == set()
    using = [module for module in SOURCES if any(True for _ in calls(module, lambda name: name in names[:2]))]
    assert set(using) == set(modules)


def test_words_of_engines_are_ours():
    names = ("engine.call", "guarded.call", "self.ask", "engine.ask")
    modules = tuple(module for module in SOURCES if not module.startswith("graphcrate.oci."))
    new, gone = others(lambda name: name.endswith((*names, "environment).call")), OF_ENGINES, modules)
    assert (new, gone) == (set(), set())


@pytest.mark.parametrize(
    "word",
    [
        "-", "--", "-x", "--upload-pack=x", "-oProxyCommand=x", "--exec", "-c", "--env-file=/etc/passwd", "--rm",
        "--volume=/:/host", "--rsh=x", "--to-command=x", "--checkpoint-action=exec=x", "--use-compress-program=x",
        "--pre-invoke=x", "--config-file=x", "--index-url=x", "--find-links=x", "--build-option=x", "--key=k8s://x",
        "--wrap=x", "--prolog=x", "--task-prolog=x", "--container-mounts=/:/x", "--bind=/:/x", "--root", "-e sh", "-S",
        "", "\0", "a\0b", "a\nb", "a\rb",
    ],
)  # fmt: skip
def test_word_that_a_program_would_take_for_an_option_is_refused(word):
    with refused(UsageError, "is not given to another program") as caught:
        arguments.line("program", "--ours", strange=[word])
    assert word in ("", "-", "--", "-x", "-c") or word not in caught.value.next_step


def test_words_of_a_line_come_in_order():
    made = arguments.line("docker", "run", strange=["name:tag"], inside=["sh", "-c", "x"])
    assert made == ["docker", "run", "name:tag", "sh", "-c", "x"]
