"""A whole file as a draft of a recipe: instructions of a Dockerfile, lines of a script; what both have to say."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dockerread import installers, shell, stages
from dockerread.dockerfile import Instruction, instructions
from graphcrate.compat.adopt import commands, installs, stack
from graphcrate.compat.adopt.draft import BASE_VARIABLES, Draft, Item, Place, kinds, row_of_base
from graphcrate.compat.adopt.installs import Outcome
from graphcrate.compat.requirements import own_files
from graphcrate.model.errors import UsageError
from graphcrate.model.words import listed

#: folders of what a stage installs: its lines are the recipe's then
ENVIRONMENT = re.compile(
    r"/(opt/(venv|conda|env)|venv|env|usr/local|root/\.local|app/\.venv|.*(\.venv|site-packages))(/.*)?"
)
_UV = re.compile(r"\S*(astral-sh|ghcr\.io|mambaorg)\S*")
_ARCHIVE = re.compile(r".*\.(tar|tgz|tar\.\w+|zip)")
_SHELLS = (("/bin/bash",), ("bash",), ("/bin/sh",), ("sh",), ("/usr/bin/bash",), ("python",), ("python3",))
_MOST_SOURCES = 200
#: what names of other images say of the stack
_OF_NAMES = {
    "torch": re.compile(r"torch(?:-\w+)?[:_-]?v?(\d\.\d+(?:\.\d+)?)"),
    "cuda": re.compile(r"cuda[:_-]?(\d{1,2}\.\d)"),
}
#: files of a machine's own settings, which have passwords and keys
_SETTINGS = frozenset(
    {"pip.conf", "uv.toml", ".netrc", ".npmrc", ".condarc", "condarc", ".pypirc", ".git-credentials", "id_rsa"}
    | {"id_ed25519", "sources.list", "credentials", "auth.toml"}
)


def of_dockerfile(text: str, draft: Draft, arguments: Mapping[str, str]) -> None:
    """Read a Dockerfile; `arguments`: values of its ARGs."""
    _Dockerfile(draft, arguments).read(instructions(text, draft.name))


def of_script(text: str, draft: Draft, arguments: Mapping[str, str]) -> None:
    """Read a script, or the commands of a page for people."""
    place, variables = Place(draft.context, is_host=True), dict(arguments)
    commands.take(draft, place, shell.commands(text, 1, variables))
    draft.directories.clear()


def of_list(draft: Draft, name: str) -> None:
    """Take a file of requirements, such as an environment.yml, as a whole."""
    place = Place(draft.context, is_host=True)
    draft.add(1, 1, name, "recipe", installs.take_list(draft, place, name, 1))


class _Dockerfile:
    """The stages of a Dockerfile, of which the image has the last and those that it is made of."""

    def __init__(self, draft: Draft, arguments: Mapping[str, str]) -> None:
        self._draft, self._given = draft, arguments
        self._globals = dict[str, str]()
        self._variables = dict[str, str]()
        self._place = Place(draft.context)
        self._entry: tuple[str, ...] = ()
        self._begun = 0  #: line of the base image

    def read(self, parsed: Sequence[Instruction]) -> None:
        """Read all instructions. Raises ReadError for a file without FROM."""
        before, parts = stages.split(parsed, self._draft.name)
        for step in before:
            self._before(step)
        needed = stages.needed(parts, lambda copy: any(map(ENVIRONMENT.fullmatch, copy.flat.split()[:-1])))
        names = {stage.name for stage in parts if stage.name}
        for number, stage in enumerate(parts):
            if number not in needed:
                self._pass(stage, stage.name or str(number))
                continue
            self._variables = {}
            is_own = stage.origin in {other.name for other in parts[:number] if other.name}
            if not is_own and number == len(parts) - 1 and len(needed) > 1:
                self._place.folder = "/"
            for step in stage.steps:
                self._take(step, names | set(map(str, range(number))), is_own)

    def _before(self, step: Instruction) -> None:
        if step.keyword == "ARG":
            stages.take_arguments(step, self._given, self._globals, self._globals)
        self._draft.add(step.line, step.end, f"{step.keyword} {step.flat}", "nothing", "a value of the lines behind it")

    def _pass(self, stage: stages.Stage, name: str) -> None:
        for step in stage.steps:
            why = f"of the stage {name}, of which the image has files at most"
            self._draft.add(step.line, step.end, f"{step.keyword} {step.flat}", "nothing", why)

    def _take(self, step: Instruction, known: set[str], is_own: bool) -> None:
        source = "".join(f"--from={value} " for name, value in step.flags if name == "from")
        draft, text = self._draft, f"{step.keyword} {source}{step.flat}"
        if step.keyword == "RUN":
            self._run(step)
            return
        row = next((row for row in kinds().instructions if step.keyword in row.names), None)
        if row:
            draft.add(step.line, step.end, text, row.fate, row.why)
            return
        try:
            outcome = self._outcome(step, known, is_own)
        except shell.Unknown as error:
            outcome = Outcome("yours", str(error))
        draft.add(step.line, step.end, text, *outcome)

    def _outcome(self, step: Instruction, known: set[str], is_own: bool) -> Outcome:
        match step.keyword:
            case "FROM":
                return self._base(step, is_own)
            case "ARG":
                stages.take_arguments(step, self._given, self._variables, self._globals)
                return Outcome("nothing", "a value of the lines behind it")
            case "ENV":
                return self._environment(step)
            case "COPY" | "ADD":
                return self._copy(step, known)
            case "WORKDIR":
                folder = shell.expand(step.flat.strip("\"'"), self._variables)
                self._place.folder = posixpath.normpath(posixpath.join(self._place.folder, folder))
                return workdir(self._draft, self._place.folder, step.line)
            case "LABEL":
                return labels(self._draft, list(stages.pairs(step.flat, self._variables)), step.line)
            case "MAINTAINER":
                return labels(self._draft, [("org.opencontainers.image.authors", step.flat)], step.line)
        return self._command(step)

    def _base(self, step: Instruction, is_own: bool) -> Outcome:
        if is_own:
            return Outcome("nothing", "it goes on with a stage")
        reference = shell.expand(stages.image(step), self._globals)
        if row := row_of_base(reference):
            self._place.folder, self._begun = row[0].folder, step.line
        return base(self._draft, reference, step.line)

    def _environment(self, step: Instruction) -> Outcome:
        pairs = list(stages.pairs(step.flat, {**BASE_VARIABLES, **self._variables}))
        self._variables.update(pairs)
        outcomes = {name: commands.variable(self._draft, name, value, step.line) for name, value in pairs}
        passed = [name for name, outcome in outcomes.items() if outcome.fate in ("stack", "nothing")]
        if len(outcomes) > 1:
            outcomes |= {
                name: outcome._replace(what=f"{name}: {outcome.what}")
                for name, outcome in outcomes.items()
                if outcome.fate == "yours"
            }
        made = installs.all_of([*outcomes.values()])
        more = f"; without {listed(passed)}" if passed and made.fate == "recipe" else ""
        return made._replace(what=made.what + more)

    def _run(self, step: Instruction) -> None:
        place = Place(self._draft.context, self._place.folder, dict(self._place.copied), self._place.cloned)
        for text in (value for name, value in step.flags if name == "mount"):
            self._mount(place, text, step.line)
        commands.take(self._draft, place, stages.commands(step, self._variables))

    def _mount(self, place: Place, text: str, line: int) -> None:
        """Take a mount of files of the context for what one RUN reads; name one of passwords and keys."""
        fields = {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
        kind = fields.get("type", "bind")
        if kind in ("secret", "ssh"):
            why = "no image has a password or a key: an index and its login are your machine's own settings"
            self._draft.add(line, line, f"RUN --mount={text}", "nothing", why)
        elif kind == "bind" and "from" not in fields:
            target = next((fields[name] for name in ("target", "dst", "destination") if name in fields), "")
            source = posixpath.normpath((fields.get("source") or fields.get("src") or ".").lstrip("/") or ".")
            if not source.startswith(".."):
                place.copied[posixpath.normpath(posixpath.join(place.folder, target))] = source

    def _copy(self, step: Instruction, known: set[str]) -> Outcome:
        words = list(step.words or shell.expand_words(step.flat, self._variables))
        source = dict(step.flags).get("from", "")
        if step.heredocs:
            return Outcome("yours", "put its text into a file beside the recipe, and name it in files")
        if len(words) < 2:
            return Outcome("yours", "it names no file")
        target = posixpath.normpath(posixpath.join(self._place.folder, words[-1]))
        if source:
            if source.lower() in known and all(map(ENVIRONMENT.fullmatch, words[:-1])):
                return Outcome("nothing", "what that stage installs is the recipe's")
            if _UV.fullmatch(source):
                return Outcome("nothing", "a tool that installs packages, which the image does without")
            if source.lower() in known:
                return Outcome("yours", f"what the stage {source} makes is not made: put it here, and name it in files")
            return Outcome("yours", f"{source} is another image: take the files out of it, and name them in files")
        is_folder = words[-1].endswith(("/", ".")) or len(words) > 2
        return copied(
            self._draft, self._place, words[:-1], target, step.line, into=is_folder, unpacks=step.keyword == "ADD"
        )

    def _command(self, step: Instruction) -> Outcome:
        if step.words is None and step.flat.startswith("["):
            return Outcome("yours", "its list is not JSON, which has double quotes and commas")
        words = step.words if step.words is not None else _words_of_shell(step.flat)
        if self._draft.workdir is None and self._begun and self._place.folder != "/":
            workdir(self._draft, self._place.folder, self._begun)  # the base's own: no line says it
        if step.keyword == "ENTRYPOINT":
            self._entry = words
            return command(self._draft, words, step.line)
        return command(self._draft, (*self._entry, *words), step.line)


def _words_of_shell(text: str) -> tuple[str, ...]:
    """Return the words of a command in the shell's form: a plain one needs no shell."""
    if not text:
        return ()
    parsed = shell.commands(text, 1, {})
    plain = len(parsed) == 1 and not (parsed[0].unknown or parsed[0].writes or parsed[0].assigned or "<" in text)
    words = parsed[0].words if plain else ()
    return (words[1:] if words[:1] == ("exec",) else words) or ("/bin/sh", "-c", text)


def base(draft: Draft, reference: str, line: int) -> Outcome:
    """Take what a base image says of the stack."""
    parsed, evidence = row_of_base(reference), draft.evidence
    evidence.bases.append(reference)
    if not parsed:
        for kind, pattern in _OF_NAMES.items():
            if match := pattern.search(reference):
                setattr(evidence, kind, match[1])
        stack.note_label(evidence, reference)
        return Outcome("yours", "what that image has besides Python and torch is not known here")
    row, named = parsed
    evidence.has_pyg |= row.pyg
    for name, value in named.items():
        setattr(evidence, name, value)
    evidence.lines.append(line)
    if reference.partition("@")[0].partition(":")[2].split("-").count("devel"):
        evidence.compilers.append(line)
    versions = ", ".join(f"{'CUDA' if name == 'cuda' else name} {value}" for name, value in named.items())
    return Outcome("stack", row.why or versions or "PyG")


def workdir(draft: Draft, path: str, line: int) -> Outcome:
    """Take the folder that programs start in."""
    if path == "/":
        draft.workdir = None
        return Outcome("stack", "every image begins there")
    if path.startswith(("/home/", "/root")) or path == "/home":
        draft.workdir = None
        return Outcome("nothing", "a runtime puts the user's own home there, and begins in the folder where one is")
    if faults := list(own_files.of_folder(path)):
        draft.workdir = None
        return Outcome("yours", faults[0])
    draft.workdir = Item(path, line)
    return Outcome("recipe", "workdir")


def labels(draft: Draft, pairs: Sequence[tuple[str, str]], line: int) -> Outcome:
    """Take labels."""
    outcomes = list[Outcome]()
    for name, value in pairs:
        if faults := list(own_files.of_labels({name: value})):
            outcomes.append(Outcome("yours", faults[0]))
            continue
        draft.labels[name] = Item(value, line)
        outcomes.append(Outcome("recipe", name))
    made = [outcome.what for outcome in outcomes if outcome.fate == "recipe"]
    refused = [outcome.what for outcome in outcomes if outcome.fate == "yours"]
    taken = f"labels: {', '.join(made)}" if made else ""
    return Outcome("yours" if refused else "recipe", "; ".join(filter(None, (*refused, taken))))


def command(draft: Draft, words: tuple[str, ...], line: int) -> Outcome:
    """Take what the image starts."""
    words = installers.without_runner(words)
    if not words or words in _SHELLS:
        return Outcome("stack", "a shell starts where nothing else is asked for")
    if faults := list(own_files.of_command(words)):
        return Outcome("yours", faults[0])
    program = words[0]
    if ENVIRONMENT.fullmatch(program) and "/bin/" in program and program not in draft.files:
        program = posixpath.basename(program)  # of an environment, in whose place is the image's
        words = (program, *words[1:])
    is_plain = program.startswith(("/bin/", "/usr/")) or "/" not in program
    is_there = program in draft.files or (is_plain and not program.endswith(".sh"))
    folders = [target for target, item in draft.files.items() if (draft.context / item.value).is_dir()]
    full = posixpath.normpath(posixpath.join(draft.workdir.value if draft.workdir else "/", program))
    if not is_there and full not in draft.files and not any(full.startswith(f"{folder}/") for folder in folders):
        return Outcome("yours", f"{program} is not in the image: put it beside the recipe, and name it in files")
    draft.command = (words, line)
    return Outcome("recipe", "command")


def copied(
    draft: Draft, place: Place, sources: Sequence[str], target: str, line: int, *, into: bool, unpacks: bool = False
) -> Outcome:
    """Take files and folders that are beside the file; `into`: the target is a folder."""
    outcomes = list[Outcome]()
    for source in sources:
        if "://" in source or source.startswith("git@"):
            return Outcome("yours", "what it fetches may be another file tomorrow: download it, and name it in files")
        if unpacks and _ARCHIVE.fullmatch(source):
            return Outcome("yours", "it unpacks an archive: name the folder that is in it in files")
        names = _matching(draft.context, source)
        if not names:
            return Outcome("yours", f"{source} is not in {draft.context}")
        for name in names:
            is_folder = (draft.context / name).is_dir()
            inside = posixpath.join(target, posixpath.basename(name)) if into and not is_folder else target
            inside = own_files.merged(posixpath.normpath(inside))
            place.copied.pop(inside, None)
            place.copied[inside] = name
            outcomes.append(_file(draft, inside, name, line))
    return installs.all_of(outcomes)


def _file(draft: Draft, target: str, source: str, line: int) -> Outcome:
    if {posixpath.basename(target), posixpath.basename(source)} & _SETTINGS:
        why = "it is a machine's setting, and may have a password: your own is asked while an image is built"
        return Outcome("yours", why)
    if target.startswith(("/tmp/", "/var/tmp/", "/root/", "/home/")) or target in ("/tmp", "/root", "/"):
        is_list = source.endswith((".txt", ".yml", ".yaml", ".toml", ".lock", ".in"))
        if is_list:
            return Outcome("nothing", "lists of packages are read beside the recipe")
    if faults := list(own_files.of_paths((target,))):
        return Outcome("yours", faults[0])
    try:
        named = {path: item.value for path, item in draft.files.items()}
        own_files.contents(draft.context, named | {target: source}, draft.within)
    except UsageError as error:
        what = error.what.replace(f"{draft.context}/", "")
        what = f"{what.partition(' cannot be')[0]} is not a text" if "codec can't decode" in what else what
        return Outcome("yours", f"{what}: bind the folder when the image runs")
    draft.files[target] = Item(source, line)
    return Outcome("recipe", f"files: {target}")


def _matching(context: Path, source: str) -> list[str]:
    """Names below the context that a source means, with wildcards; none out of it."""
    name = posixpath.normpath(source.lstrip("/") or ".")
    try:
        if name.startswith(".."):
            return []
        if not any(char in name for char in "*?["):
            return [name] if (context / name).exists() else []
        parent, _, last = name.rpartition("/")
        if any(char in parent for char in "*?[") or "**" in last:
            return []
        parsed = sorted(path.relative_to(context).as_posix() for path in (context / parent).glob(last))
        return parsed[:_MOST_SOURCES]
    except (OSError, ValueError):
        return []
