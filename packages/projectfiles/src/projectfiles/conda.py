"""Conda's environment.yml, and lists of `conda list --export`: match specifications, and pip's lines among them."""

import re

import yaml

from projectfiles.errors import ProjectFileError
from projectfiles.values import Line, Needs, Note
from projectfiles.words import printable

#: of `conda list --export`, whose lines are name=version=build
_LIST = re.compile(r"^# (\$ conda create --name|platform: )|^[A-Za-z0-9_.-]+=[^=\s]+=[^=\s]+$", re.MULTILINE)
_EXPLICIT = re.compile(r"^@EXPLICIT\s*$", re.MULTILINE)
_MOST = 20_000  #: packages: an alias of YAML may stand for a list, and 1 MB has many
#: of an environment; `name` and `prefix` say where conda would put it
_KNOWN = ("name", "prefix", "channels", "dependencies", "variables")


def is_list(text: str) -> bool:
    """Return whether a text is a list of conda's (`conda list --export`), not a requirements file."""
    return bool(_LIST.search(text) or _EXPLICIT.search(text))


def listed_packages(text: str, name: str) -> Needs:
    """Return the packages of a list of conda's. Raises ProjectFileError for one of addresses."""
    if _EXPLICIT.search(text):
        raise ProjectFileError(
            f"{name} lists conda's packages by their addresses",
            kind="addresses",
            where=name,
            next_step="conda env export --from-history > environment.yml    (give that file)",
        )
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    specs = [Line(f"{name}:{number}", line, "conda") for number, line in lines if line and not line.startswith("#")]
    return Needs(lines=specs)


def environment(text: str, name: str) -> Needs:
    """Return the needs of an environment.yml. Raises ProjectFileError."""
    top = _mapping(_document(text, name), name)
    if "dependencies" not in top or not isinstance(top["dependencies"], yaml.SequenceNode):
        raise ProjectFileError(
            f"{name} is not an environment of conda: it has no list of `dependencies`",
            kind="needs",
            where=name,
            next_step="conda env export --from-history > environment.yml    (of the environment that works)",
        )
    specs, pip = list[Line](), list[Line]()
    for node in top["dependencies"].value:
        where = _where(name, node)
        if len(specs) + len(pip) > _MOST:
            raise ProjectFileError(
                f"{where}: more than {_MOST} packages",
                kind="form",
                where=where,
                next_step="conda env export --from-history > environment.yml    (of the environment that works)",
            )
        if isinstance(node, yaml.ScalarNode):
            specs.append(Line(where, node.value, "conda"))
        elif (part := _mapping(node, name)).keys() == {"pip"} and isinstance(part["pip"], yaml.SequenceNode):
            pip += [Line(_where(name, node), _pip_line(node, name)) for node in part["pip"].value]
        else:
            raise ProjectFileError(
                f"{where}: neither a package nor a list under `pip:`",
                kind="form",
                where=where,
                next_step="conda env export shows its form",
            )
    channels = top.get("channels")
    named = [str(node.value) for node in channels.value] if isinstance(channels, yaml.SequenceNode) else []
    made = Needs(
        lines=[*specs, *(line for line in pip if line.text)],
        channels=[channel for channel in named if channel not in ("nodefaults", "defaults")],
    )
    if "variables" in top:
        made.notes.append(Note("variables", name))
    made.notes += [Note("key", _where(name, top[key]), (key,)) for key in top if key not in _KNOWN]
    return made


def _where(name: str, node: yaml.Node) -> str:
    return f"{name}:{node.start_mark.line + 1}"


def _pip_line(node: yaml.Node, name: str) -> str:
    """Return a line of pip's, without a comment after it, which YAML leaves where the text is quoted."""
    if not isinstance(node, yaml.ScalarNode):
        where = _where(name, node)
        what = f"{where}: not a line of pip's"
        raise ProjectFileError(what, kind="form", where=where, next_step="einops, or 'einops>=0.7'")
    return re.sub(r"\s#.*$", "", node.value).strip()


def _document(text: str, name: str) -> yaml.Node | None:
    """Read YAML as a tree with lines: nothing in it is made a value, and an alias is not unfolded."""
    try:
        return yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = f"{name}:{line}: not YAML: {printable(str(error.problem or error.context))}"
        raise ProjectFileError(what, kind="syntax", where=f"{name}:{line}", next_step=f"fix line {line}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        why = "lists within lists without end" if isinstance(error, RecursionError) else printable(str(error))
        what = f"{name} is not YAML: {why[:200]}"
        raise ProjectFileError(what, kind="syntax", where=name, next_step="give an environment.yml of conda") from error


def _mapping(node: yaml.Node | None, name: str) -> dict[str, yaml.Node]:
    """Return the values of a mapping by their keys; none of what is no mapping.

    Raise ProjectFileError for a repeated key.
    """
    mapping = dict[str, yaml.Node]()
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if not isinstance(key, yaml.ScalarNode) or key.value in mapping:
            problem = f"{printable(str(key.value))!r} is there twice" if isinstance(key, yaml.ScalarNode) else "no key"
            where, line = _where(name, key), key.start_mark.line + 1
            raise ProjectFileError(f"{where}: {problem}", kind="form", where=where, next_step=f"fix line {line}")
        mapping[key.value] = value
    return mapping
