"""Reads the hosts of a training from YAML, as GLT's own launcher has it; a mistake is told with line and field."""

from __future__ import annotations

import difflib
import getpass
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAM = "/opt/graphcrate/examples/glt/train_distributed.py"
#: field → (one for each node, or one for all nodes; what it is)
FIELDS = {
    "nodes": "addresses of the nodes; the first is node 0",
    "ports": "of sshd on each node; default 22",
    "usernames": "on each node; default: yours here",
    "python_bins": "Python with GLT, or an image's: singularity exec --nv glt.sif python; default: python",
    "dst_paths": "the folder to start in, on each node; default: the home",
    "visible_devices": "GPUs of each node, such as 0,1; default: all",
    "dataset": "the folder that partition.py made, as each node sees it",
    "program": f"default: {PROGRAM}",
    "arguments": "more options for the program, such as --epochs 20",
    "in_channel": "the folder knows it",
    "out_channel": "the folder knows it",
}
FOR_ALL = ("program", "arguments", "in_channel", "out_channel")


@dataclass(frozen=True)
class Host:
    """One node, and what is run there."""

    rank: int
    address: str
    port: int
    user: str
    python: tuple[str, ...]
    folder: str
    devices: str
    dataset: str

    def __str__(self) -> str:
        return f"node {self.rank} ({self.user}@{self.address}:{self.port})"


@dataclass(frozen=True)
class Config:
    """All nodes, the program and the options that it gets on every one."""

    hosts: tuple[Host, ...]
    program: str
    arguments: tuple[str, ...]


class Mistakes:
    """The places in a file at which something is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def at(self, node: Any, field: str, what: str) -> Fault:  # noqa: ANN401  a node of PyYAML
        """A fault that names the line of a node."""
        return Fault(Layer.DATA, f"{self.path}:{node.start_mark.line + 1}: {field}: {what}")


def read(path: Path) -> Config:
    """The file's hosts. Raises Fault of layer data."""
    mistakes = Mistakes(path)
    fields = _fields(path, mistakes)
    if "nodes" not in fields:
        raise Fault(Layer.DATA, f"{path}: nodes: it is missing: {FIELDS['nodes']}")
    nodes = _texts(fields["nodes"], "nodes", None, mistakes)
    found = {name: _texts(node, name, len(nodes), mistakes) for name, node in fields.items() if name not in FOR_ALL}
    if "dataset" not in found:
        raise Fault(Layer.DATA, f"{path}: dataset: it is missing: {FIELDS['dataset']}")
    hosts = []
    for rank, address in enumerate(nodes):
        given = {name: texts[rank] for name, texts in found.items()}
        port = given.get("ports", "22")
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise mistakes.at(fields["ports"], "ports", f"{port!r} is no port, which are 1 to 65535")
        if not address.strip() or set(address) & set(" @/"):
            raise mistakes.at(fields["nodes"], "nodes", f"{address!r} is no address; the user's name is in usernames")
        hosts.append(
            Host(
                rank=rank,
                address=address,
                port=int(port),
                user=given.get("usernames") or getpass.getuser(),
                python=_words(given.get("python_bins", "python"), fields.get("python_bins"), "python_bins", mistakes),
                folder=given.get("dst_paths", ""),
                devices=given.get("visible_devices", ""),
                dataset=given["dataset"],
            )
        )
    return Config(tuple(hosts), _one(fields, "program", mistakes) or PROGRAM, _arguments(fields, mistakes))


def _fields(path: Path, mistakes: Mistakes) -> Mapping[str, Any]:
    """The file's top level as nodes of PyYAML, which know their lines."""
    try:
        import yaml
    except ImportError as error:
        raise Fault(
            Layer.MACHINE, f"{error}: `pip install paramiko pyyaml`, or start this program inside an image with GLT"
        ) from error
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise Fault(Layer.DATA, f"--config {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise Fault(Layer.DATA, f"{path}{line}: it is no YAML: {problem}") from error
    if not isinstance(root, yaml.MappingNode):
        raise Fault(Layer.DATA, f"{path}: it has no fields; `nodes:` and `dataset:` are needed")
    fields: dict[str, Any] = {}
    for key, value in root.value:
        if key.value in fields:
            raise mistakes.at(key, key.value, "it is there twice")
        if key.value not in FIELDS:
            near = difflib.get_close_matches(key.value, FIELDS, n=1)
            hint = f"; is {near[0]} meant?" if near else f"; there are {', '.join(FIELDS)}"
            raise mistakes.at(key, key.value, f"there is no such field{hint}")
        fields[key.value] = value
    return fields


def _texts(node: Any, field: str, count: int | None, mistakes: Mistakes) -> list[str]:  # noqa: ANN401
    """A text for each node: a list of as many, or one text for all. `count` is None where the list says how many."""
    if node.id == "scalar":
        if not node.value.strip():
            raise mistakes.at(node, field, f"it is empty: {FIELDS[field]}")
        return [str(node.value)] * (count or 1)
    if node.id != "sequence" or any(each.id != "scalar" for each in node.value):
        raise mistakes.at(node, field, f"it must be a list of texts: {FIELDS[field]}")
    for each in node.value:
        if not each.value.strip():
            raise mistakes.at(each, field, "an entry is empty")
    if not node.value or (count is not None and len(node.value) != count):
        raise mistakes.at(
            node, field, f"it has {len(node.value)} entries for {count or 'no'} nodes; one text alone is for all nodes"
        )
    return [str(each.value) for each in node.value]


def _one(fields: Mapping[str, Any], field: str, mistakes: Mistakes) -> str:
    if field not in fields:
        return ""
    if fields[field].id != "scalar" or not fields[field].value.strip():
        raise mistakes.at(fields[field], field, f"it must be one text: {FIELDS[field]}")
    return str(fields[field].value)


def _arguments(fields: Mapping[str, Any], mistakes: Mistakes) -> tuple[str, ...]:
    """Options of the program: from `arguments`, a line or a list, and the widths that the tutorials give."""
    found: list[str] = []
    for name in ("in_channel", "out_channel"):
        if width := _one(fields, name, mistakes):
            if not width.isdigit():
                raise mistakes.at(fields[name], name, f"{width!r} is no number")
            found += [f"--{name}={width}"]
    if "arguments" in fields:
        node = fields["arguments"]
        if node.id == "sequence":
            found += _texts(node, "arguments", len(node.value), mistakes)
        else:
            found += _words(_one(fields, "arguments", mistakes), node, "arguments", mistakes)
    return tuple(found)


def _words(text: str, node: Any, field: str, mistakes: Mistakes) -> tuple[str, ...]:  # noqa: ANN401
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise mistakes.at(node, field, f"{text!r}: {error}") from error
