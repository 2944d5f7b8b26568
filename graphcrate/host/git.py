"""git, as it is started for repositories of strangers: nothing that an address or a repository says starts a program.

What the user's own settings say of reaching a server stays: credential helpers, insteadOf, proxies, certificates,
core.sshCommand. docs/decisions/git.md says why, and what is off.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcrate.host import arguments, process
from graphcrate.host.process import Completed
from projectfiles.git_address import SCHEMES

#: of the user's variables those by which git reaches a private repository
VARIABLES = ("SSH_AUTH_SOCK", "SSH_ASKPASS", "GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND")
MINUTES = 10
#: what a repository or the user's settings could have git start, or write into files, in none of our commands
_OFF = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null", "diff.external="),
    *("core.autocrlf=false", "core.eol=lf", "submodule.recurse=false", "fetch.recurseSubmodules=false"),
    *("transfer.bundleURI=false", "gc.auto=0", "maintenance.auto=false", "protocol.allow=never"),
    *(f"protocol.{scheme}.allow=always" for scheme in SCHEMES),
)
OPTIONS = ("--no-pager", *(word for setting in _OFF for word in ("-c", setting)))


def run(
    *ours: str,
    environment: Mapping[str, str],
    cwd: Path,
    strange: Sequence[str] = (),
    seconds: float = MINUTES * 60.0,
    settings: Mapping[str, str] | None = None,
) -> tuple[Completed, list[str]]:
    """Run a command of git without a question; how it ended, and all lines that it printed.

    `cwd`: an empty folder of ours, or the work tree that the command is about: git takes the settings of the
    repository that it stands in. `strange`: words of others, behind `--`; `settings` go over all others. Raises
    UsageError for a word that begins with a dash all the same, else what `process.run` raises.
    """
    lines: list[str] = []
    end = ("--",) if strange else ()
    argv = arguments.line("git", *OPTIONS, *ours, *end, strange=strange)
    given = variables(environment, cwd, settings or {})
    done = process.run(argv, environment=given, cwd=cwd, on_line=lines.append, timeout=seconds)
    return done, lines


def output(*ours: str, environment: Mapping[str, str], cwd: Path) -> str:
    """Run a command without words of others; return its output. Raises BuildError with git's last lines."""
    argv = arguments.line("git", *OPTIONS, *ours)
    return process.output(argv, environment=variables(environment, cwd), cwd=cwd, timeout=MINUTES * 60.0)


def variables(environment: Mapping[str, str], cwd: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """git's variables: those of `environment` but for others of git's own, and what keeps it from asking.

    A question for a password, or whether a host is known, would wait for ever.
    """
    given = {name: value for name, value in environment.items() if not name.startswith("GIT_") or name in VARIABLES}
    over = settings or {}
    more = {f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(over)}
    more |= {f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(over.values())}
    return more | {
        "SSH_ASKPASS": "/bin/false",
        **given,
        "GIT_TERMINAL_PROMPT": "0",
        "SSH_ASKPASS_REQUIRE": "force",
        "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES),
        "GIT_CEILING_DIRECTORIES": str(cwd.resolve().parent),  # no repository above it is taken
        "GIT_CONFIG_COUNT": str(len(over)),
        "GIT_OPTIONAL_LOCKS": "0",
    }
