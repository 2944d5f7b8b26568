"""Commands of a shell's text: words, variables that are known, what follows what. Read, never run.

A subset of POSIX's grammar: plain commands behind one another. Of `if`, `for`, `case`,
functions and subshells no more is found than where they end: they are one command that is not looked into.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, MutableMapping
from typing import NamedTuple

from dockerread import expansions
from dockerread.errors import ReadError

MOST_COMMANDS = 5000
_LONGEST_VALUE = 4096  #: characters of a variable: `A=$A$A` doubles
_BETWEEN = "\x00"  #: stands between words that an unquoted variable is split into, and for an empty one
#: commands that take assignments, whose values are not split; `_` stands for instructions of a Dockerfile
_DECLARATIONS = (["export"], ["ARG"], ["local"], ["readonly"], ["declare"], ["_"])
_LONGEST_COMMAND = 500  #: characters between `$(` and `)`
_DEEPEST = 50  #: of compound commands, and of defaults within defaults
_BLANK, _OPERATORS = " \t", "&|;()\n"
#: words that begin a compound command → those that end it
_COMPOUND = {"if": "fi", "for": "done", "while": "done", "until": "done", "select": "done", "case": "esac", "{": "}"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[1-9])(?:(:?[-+])(.*))?", re.DOTALL)
_CHANGED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)([/%:].*)")
_SHELLS = ("bash", "sh", "dash")
_BEFORE_SHELL = ("sudo", "exec", "-E", "-H")
_OF_TEXT = re.compile(r"-[a-z]*c")  #: bash -c, bash -lc
_HEREDOC = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")


class Simple(NamedTuple):
    """A command with its lines. `unknown`: why its words are not known; `before`: the operator that it comes behind."""

    line: int
    end: int
    words: tuple[str, ...]
    before: str = ""
    unknown: str = ""
    writes: tuple[str, ...] = ()  #: files that its output goes to
    assigned: tuple[tuple[str, str], ...] = ()  #: variables before its first word

    @property
    def text(self) -> str:
        """The command in one line, for people."""
        return " ".join(self.words) or " ".join(f"{name}={value}" for name, value in self.assigned)

    @property
    def exported(self) -> dict[str, str]:
        """The variables that it sets for what is behind it; none where it is not known."""
        if self.unknown:
            return {}
        words = self.words[1:] if self.words[:1] == ("export",) else ()
        pairs = (word.partition("=") for word in words)
        return dict(self.assigned) | {name: value for name, equals, value in pairs if equals}


class Unknown(Exception):  # noqa: N818 (no error: what was read says it)
    """A word whose value is known only to the shell that runs it."""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as shells and Docker have them: a form feed or U+2028 ends none."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def expand(text: str, variables: Mapping[str, str], depth: int = 0) -> str:
    """Put in variables as a Dockerfile has them: `$A`, `${A}`, `${A:-default}`. Raises Unknown."""
    made, at = list[str](), 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            made.append(text[at + 1])
            at += 2
        elif text[at] == "$":
            value, at = _variable(text, at, variables, depth)
            made.append(value)
        else:
            made.append(text[at])
            at += 1
    return _bounded("".join(made))


def commands(text: str, first: int, variables: MutableMapping[str, str]) -> list[Simple]:
    """Return the commands of a text whose first line has this number; assignments are put into `variables`.

    Raises ReadError for more than anybody writes.
    """
    parsed = list[Simple]()
    for command in _joined(_Lexer(text, first, variables).commands()):
        parsed += unwrapped(command, variables)
        if len(parsed) > MOST_COMMANDS:
            raise ReadError(f"there are more than {MOST_COMMANDS} commands in it", kind="length")
    return parsed


def unwrapped(command: Simple, variables: Mapping[str, str]) -> list[Simple]:
    """Return the commands of `bash -c '…'`, with the lines of the whole; else the command itself.

    Raises ReadError for more than anybody writes.
    """
    at = next((number for number, word in enumerate(command.words) if word not in _BEFORE_SHELL), 0)
    words = command.words[at:]
    is_shell = bool(words) and posixpath.basename(words[0]) in _SHELLS
    options = words[1 : 1 + next((number for number, word in enumerate(words[1:]) if word[:1] != "-"), 0)]
    is_plain = not (command.unknown or command.writes or command.before in ("|", "||"))
    if not (is_shell and is_plain and options and _OF_TEXT.fullmatch(options[-1])):
        return [command]
    inner = list(_joined(_Lexer(words[1 + len(options)], 1, dict(variables)).commands()))
    if len(inner) > MOST_COMMANDS:
        raise ReadError(f"there are more than {MOST_COMMANDS} commands in it", kind="length")
    return [
        step._replace(line=command.line, end=command.end, before=step.before if number else command.before)
        for number, step in enumerate(inner)
    ]


def _bounded(value: str) -> str:
    if len(value) > _LONGEST_VALUE:
        raise Unknown(f"a word of more than {_LONGEST_VALUE} characters")
    return value


def _variable(text: str, at: int, variables: Mapping[str, str], depth: int) -> tuple[str, int]:
    """Return the value of what a `$` begins, and where it ends. Raises Unknown."""
    if text.startswith("${", at):
        end = _closing(text, at + 2)
        match, other_form = _BRACED.fullmatch(text[at + 2 : end]), _CHANGED.fullmatch(text[at + 2 : end])
        if other_form and not match and other_form[1] in variables:
            value = expansions.changed(variables[other_form[1]], other_form[2])
            if value is not None:
                return _bounded(value), end + 1
        if not match or depth > _DEEPEST:
            raise Unknown(f"${{{text[at + 2 : min(end, at + 30)]}}} is not known here")
        name, operator, other = match.groups()
        value = variables.get(name)
        if operator and operator.endswith("+"):
            return (expand(other, variables, depth + 1) if value else ""), end + 1
        if operator and not value:
            return expand(other, variables, depth + 1), end + 1
        if value is None:
            raise Unknown(f"{name} is not known here")
        return value, end + 1
    if text.startswith(("$(", "$((")):
        raise Unknown("$(…) is known to the shell alone")
    if text.startswith("$(", at):
        raise Unknown("$(…) is known to the shell alone")
    name = _NAME.match(text, at + 1)
    if not name:
        if at + 1 < len(text) and text[at + 1] in "@*#?!$0123456789-":
            raise Unknown(f"${text[at + 1]} is known to the shell alone")
        return "$", at + 1
    if name[0] not in variables:
        raise Unknown(f"{name[0]} is not known here")
    return variables[name[0]], name.end()


def _closing(text: str, at: int) -> int:
    """Return where the brace ends that was opened before `at`."""
    depth = 1
    for place in range(at, min(len(text), at + _LONGEST_VALUE)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place
    raise Unknown("a brace that does not end")


class _Lexer:
    """Words and operators of a text, from its begin to its end."""

    def __init__(self, text: str, first: int, variables: MutableMapping[str, str]) -> None:
        self._text, self._variables = text, variables
        self._at, self._line = 0, first
        self._heredocs = list[tuple[str, bool]]()

    def commands(self) -> Iterator[tuple[Simple, str]]:
        """Yield each command with the operator behind it."""
        before = ""
        while True:
            command, operator = self._command(before)
            if command.words or command.assigned or command.unknown:
                yield command, operator
                self._variables.update(_set(command))
            if not operator:
                return
            before = operator

    def _command(self, before: str) -> tuple[Simple, str]:
        words, writes, unknown, operator = list[str](), list[str](), "", ""
        line = end = 0
        while True:
            self._skip()
            line = line or self._line
            end = end or line
            if self._at >= len(self._text):
                break
            if self._text[self._at] in _OPERATORS:
                operator = self._operator()
                break
            if redirect := self._redirect():
                word, why = self._word()
                word = word.replace(_BETWEEN, " ")
                end = self._line
                writes += [word] if redirect.startswith((">", "&>")) else []
                unknown = unknown or why
                continue
            word, why = self._word()
            unknown = unknown or why
            words += self._split(word, words)
            end = self._line
        assigned = list[tuple[str, str]]()
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            assigned.append((match[1], match[2]))
            words.pop(0)
        files = tuple(name for name in writes if name not in ("/dev/null", "1", "2", "&1", "&2"))
        return Simple(line, end, tuple(words), before, unknown, files, tuple(assigned)), operator

    def _skip(self) -> None:
        """Pass over blanks, lines that go on and comments."""
        text = self._text
        while self._at < len(text):
            if text[self._at] in _BLANK or text[self._at] == "\r":
                self._at += 1
            elif text.startswith("\\\n", self._at):
                self._at += 2
                self._line += 1
            elif text[self._at] == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            else:
                return

    def _operator(self) -> str:
        for operator in ("&&", "||", ";;", ";", "|", "&", "(", ")", "\n"):
            if self._text.startswith(operator, self._at):
                self._at += len(operator)
                if operator == "\n":
                    self._line += 1
                    self._pass_heredocs()
                return operator
        raise AssertionError(self._text[self._at])

    def _redirect(self) -> str:
        """Take `>`, `2>&`, `<<EOF`; a document's body is passed over where its line ends."""
        start = self._at + len(re.compile(r"\d*").match(self._text, self._at)[0])  # type: ignore[index]
        if start > self._at and not self._text.startswith((">", "<"), start):
            return ""
        if match := _HEREDOC.match(self._text, start):
            self._heredocs.append((match[3], bool(match[1])))
            self._at = match.start(3) - len(match[2])
            return "<<"
        for operator in ("&>>", "&>", ">>", ">|", ">&", "<&", "<<<", "<>", ">", "<"):
            if self._text.startswith(operator, start):
                self._at = start + len(operator)
                self._skip()
                return operator
        return ""

    def _pass_heredocs(self) -> None:
        for name, strips in self._heredocs:
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                body = self._text[self._at : end]
                self._at, self._line = end + 1, self._line + 1
                if (body.lstrip("\t") if strips else body) == name:
                    break
        self._heredocs.clear()

    def _word(self) -> tuple[str, str]:
        """Return a word, and why it is not known where it is not: it is then as it is written."""
        start = self._at
        made, unknown, text = list[str](), "", self._text
        while self._at < len(text):
            char = text[self._at]
            if char in _BLANK or char in _OPERATORS or char in "<>":
                break
            try:
                made.append(self._part(char))
            except Unknown as error:
                unknown = unknown or str(error)
        if unknown:
            return text[start : self._at], unknown
        word = "".join(made)
        if not word and not set(text[start : self._at]) & set("'\""):
            word = _BETWEEN  # an unquoted variable that is empty is no word
        return (word, "") if len(word) <= _LONGEST_VALUE else (word[:80], "a word is too long")

    def _split(self, word: str, before: list[str]) -> list[str]:
        """Return the words that an unquoted variable stands for; of a value that is assigned it is one."""
        is_assigned = _ASSIGNMENT.fullmatch(word) and all(map(_ASSIGNMENT.fullmatch, before))
        if is_assigned or before[:1] in _DECLARATIONS:
            return [word.replace(_BETWEEN, " ")]
        return [part for part in word.split(_BETWEEN) if part] if _BETWEEN in word else [word]

    def _part(self, char: str) -> str:
        """Take a quotation, a variable or a character. Raises Unknown, behind it."""
        text = self._text
        if char == "'":
            end = text.find("'", self._at + 1)
            end = len(text) if end < 0 else end
            part = text[self._at + 1 : end]
            self._move(end + 1)
            return part
        if char == '"':
            return self._quoted()
        if char == "\\":
            part = text[self._at + 1 : self._at + 2]
            self._move(self._at + 2)
            return "" if part == "\n" else part
        if char in "$`":
            return re.sub(r"\s+", _BETWEEN, self._value())
        self._at += 1
        return char

    def _quoted(self) -> str:
        made, unknown = list[str](), ""
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != '"':
            char = self._text[self._at]
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                made.append(self._text[self._at + 1].replace("\n", ""))
                self._move(self._at + 2)
            elif char in "$`":
                try:
                    made.append(self._value())
                except Unknown as error:
                    unknown = unknown or str(error)
            else:
                made.append(char)
                self._move(self._at + 1)
        self._at += 1
        if unknown:
            raise Unknown(unknown)
        return "".join(made)

    def _value(self) -> str:
        """Take a variable or what the shell puts in place of a command. Raises Unknown, behind it."""
        text, start = self._text, self._at
        if text[start] == "`":
            end = text.find("`", start + 1)
            self._move(len(text) if end < 0 else end + 1)
            raise Unknown("`…` is known to the shell alone")
        if text.startswith("$(", start):
            end = _end_of_parentheses(text, start + 2)
            self._move(end)
            inside, printed = text[start + 2 : end - 1], None
            if len(inside) <= _LONGEST_COMMAND:
                printed = expansions.printed(inside, lambda part: expand(part, self._variables))
            if printed is None:
                raise Unknown("$(…) is known to the shell alone")
            return printed
        try:
            value, end = _variable(text, start, self._variables, 0)
        except Unknown:
            match = re.compile(r"\$(?:\{[^}\n]{0,500}\}?|[A-Za-z_0-9]+|.)?", re.DOTALL).match(text, start)
            self._move(match.end() if match else start + 1)
            raise
        self._move(end)
        return value

    def _move(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to


def _set(command: Simple) -> Iterator[tuple[str, str]]:
    """Yield the variables that a command sets for those behind it."""
    if command.unknown:
        return
    if not command.words:
        yield from command.assigned
    elif command.words[0] in ("export", "ARG", "local", "readonly"):
        yield from ((match[1], match[2]) for word in command.words if (match := _ASSIGNMENT.fullmatch(word)))


def _end_of_parentheses(text: str, at: int) -> int:
    depth = 1
    while at < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def _joined(commands: Iterator[tuple[Simple, str]]) -> Iterator[Simple]:
    """Yield plain commands, and compound ones as one that is not known."""
    open_, begun, is_named = list[str](), None, False
    for command, operator in commands:
        word = command.words[0] if command.words else ""
        if begun and not open_ and word not in _COMPOUND:  # no function after all
            yield begun._replace(unknown=_why(begun, is_named=True))
            begun = None
        if word in _COMPOUND and len(open_) < _DEEPEST:
            open_.append(_COMPOUND[word])
        elif command.before == "(" and not (open_ and open_[-1] == "esac"):
            open_.append(")")
        elif not open_ and word and (operator == "(" or word == "function"):
            begun, is_named = command, True
            continue
        if not open_:
            yield command
            continue
        begun = begun or command
        if word == open_[-1] or (operator == ")" and open_[-1] == ")"):
            open_.pop()
        if not open_:
            yield begun._replace(end=command.end, unknown=_why(begun, is_named=is_named))
            begun, is_named = None, False
    if begun:
        yield begun._replace(unknown=_why(begun, is_named=is_named))


def _why(begun: Simple, *, is_named: bool) -> str:
    if is_named:
        return "a function is known to the shell alone"
    word = begun.words[0] if begun.words and begun.words[0] in _COMPOUND else "( … )"
    if _COMPOUND.get(word) == "done":
        return f"{word} repeats commands: write each of them out"
    return f"{word} takes one way or another where it runs"


def expand_words(text: str, variables: Mapping[str, str]) -> list[str]:
    """Return the words of an instruction's text, with variables put in. Raises Unknown."""
    parsed = _Lexer(f"_ {text}", 1, dict(variables)).commands()
    words = list[str]()
    for command, operator in parsed:
        if command.unknown:
            raise Unknown(command.unknown)
        words += [*command.words, *([operator.strip()] if operator.strip() else [])]
    return words[1:]
