"""Debian's archives through apt-get, with folders of its own: the host's packages and lists are left alone.

apt checks the archive's signature with Debian's keyring and every file against the signed lists, resolves
dependencies as Debian does, and knows this machine's proxies. Which mirror, in this order: `DEBIAN_MIRROR`, the
host's own sources if it is a Debian, mmdebstrap's default. No lock ever holds its name.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import msgspec

from graphcrate.host import process, settings
from graphcrate.model.errors import HostError, NetworkError, ResolutionError
from graphcrate.model.lock import DebianPackage, LockedFile

ARCHITECTURE = "amd64"
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)
REGISTRY_INSTEAD = 'or take a base from a registry: base.provider = "registry" in the recipe'


class Mirror(msgspec.Struct, frozen=True):
    """URLs of Debian's main archive and of its security archive; `security` empty when there is none."""

    main: str
    security: str = ""


class Apt:
    """apt-get for one suite. `folder` is its own, kept between calls; one process at a time may use it.

    `components`: parts of the archive besides `main`, such as contrib and non-free.
    """

    def __init__(
        self,
        folder: Path,
        suite: str,
        mirror: Mirror,
        environment: Mapping[str, str],
        components: Sequence[str] = (),
    ) -> None:
        self._folder, self._suite = folder, suite
        self._environment = settings.select_for_child(environment)
        for name in ("lists/partial", "archives/partial", "empty"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").write_text("")
        (folder / "sources.list").write_text(source_lines(suite, mirror, keyring(), components))
        # A file, because apt reads the host's own configuration before it looks at the command line.
        (folder / "apt.conf").write_text(configuration(folder))

    def update(self) -> None:
        """Fetch the lists that have changed. Raises NetworkError."""
        done = self._run(["apt-get", "-qq", "update"], timeout=900)
        if done.returncode and any("NO_PUBKEY" in line for line in done.lines):
            raise HostError(
                f"Debian's archive keys on this machine do not know {self._suite}" + _tail(done.lines),
                cause="They are older than this suite, and packages are only taken from archives that Debian signed.",
                next_step=f"apt-get install --only-upgrade debian-archive-keyring    ({REGISTRY_INSTEAD})",
            )
        if done.returncode:
            raise NetworkError(
                f"Debian {self._suite}'s package lists cannot be fetched" + _tail(done.lines),
                cause="No network, a proxy that apt does not know of, or a mirror without this suite.",
                next_step=f"DEBIAN_MIRROR=http://a-mirror/debian make image …    ({REGISTRY_INSTEAD})",
            )

    def resolve(self, wanted: Sequence[str]) -> tuple[DebianPackage, ...]:
        """These packages and the essential ones with all that they depend on, sorted by name.

        Raises ResolutionError for a name that the suite lacks, or a contradiction.
        """
        seen: list[str] = []
        argv = ["apt-get", "-qq", "--simulate", "install", "?essential", *wanted]
        done = self._run(argv, on_line=seen.append, timeout=300)
        if done.returncode:
            raise ResolutionError(
                f"Debian {self._suite} cannot give a base with {', '.join(wanted)}" + _tail(done.lines),
                next_step="correct base.packages in the recipe",
            )
        versions = dict(found for line in seen if (found := installed(line)))
        known = {(package.name, package.version): package for package in self.available(versions)}
        return tuple(known[item] for item in sorted(versions.items()))

    def available(self, names: Sequence[str] | Mapping[str, str]) -> list[DebianPackage]:
        """Every version that the archives have now of these packages."""
        lines: list[str] = []
        self._run(["apt-cache", "show", *sorted(names)], on_line=lines.append, timeout=300)
        return list(parse_packages(lines))

    def download(self, packages: Sequence[DebianPackage], folder: Path, advance: Callable[[int], None]) -> None:
        """Fetch .debs into an empty folder, under their locked file names. Raises NetworkError.

        apt checks them against the signed lists; whether they are what the lock says is for the caller to check.
        """
        sizes = {package.name: package.file.size for package in packages}

        def count(line: str) -> None:
            if match := re.match(r"Get:\d+ \S+ \S+ \S+ (\S+) ", line):
                advance(sizes.pop(match[1], 0))

        argv = ["apt-get", "download", *(f"{package.name}={package.version}" for package in packages)]
        done = self._run(argv, on_line=count, cwd=folder, timeout=3600)
        if done.returncode:
            raise NetworkError(
                f"Debian packages cannot be fetched{_tail(done.lines)}", next_step="run the same command again"
            )
        for path in list(folder.iterdir()):
            # apt writes an epoch as 1%3a2.0 into the name, the archive leaves it out
            name, version, rest = unquote(path.name).split("_", 2)
            path.rename(folder / f"{name}_{version.split(':', 1)[-1]}_{rest}")

    def _run(
        self,
        argv: Sequence[str],
        *,
        on_line: Callable[[str], None] | None = None,
        cwd: Path | None = None,
        timeout: float,
    ) -> process.Completed:
        if process.find(argv[0]) is None:
            raise HostError(
                f"{argv[0]} is not installed",
                cause="A Debian base is made with Debian's own tools, and this does not look like Debian or Ubuntu.",
                next_step=f"build on Debian or Ubuntu, {REGISTRY_INSTEAD}",
            )
        variables = {**self._environment, "APT_CONFIG": str(self._folder / "apt.conf")}
        return process.run(argv, environment=variables, on_line=on_line, cwd=cwd, timeout=timeout)


def configuration(folder: Path) -> str:
    """apt.conf for private folders and a fixed architecture."""
    values = {
        "Dir::State": f"{folder}",
        "Dir::State::lists": f"{folder}/lists",
        "Dir::State::status": f"{folder}/status",
        "Dir::Cache": f"{folder}",
        "Dir::Etc::sourcelist": f"{folder}/sources.list",
        "Dir::Etc::sourceparts": f"{folder}/empty",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": f"{folder}/empty",
        "Dir::Log": f"{folder}/empty",
        "APT::Architecture": ARCHITECTURE,
        "APT::Install-Recommends": "false",
        "APT::Install-Suggests": "false",
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "true",  # one process at a time is the caller's promise; a plain user may lack the right
    }
    lines = [f'{name} "{value}";' for name, value in values.items()]
    # Lists: the host's further entries would stay beside ours.
    lines += [
        "#clear APT::Architectures;",
        f'APT::Architectures {{ "{ARCHITECTURE}"; }};',
        "#clear APT::Default-Release;",
    ]
    return "\n".join(lines) + "\n"


def source_lines(suite: str, mirror: Mirror, signed_by: Path, components: Sequence[str] = ()) -> str:
    """sources.list for a suite, its updates and its security archive: main and these components."""
    line = f"deb [signed-by={signed_by} arch={ARCHITECTURE}]"
    parts = " ".join(("main", *components))
    lines = [f"{line} {mirror.main} {suite} {parts}", f"{line} {mirror.main} {suite}-updates {parts}"]
    if mirror.security:
        lines.append(f"{line} {mirror.security} {suite}-security {parts}")
    return "\n".join(lines) + "\n"


def keyring() -> Path:
    """Debian's archive keys on this machine."""
    for path in KEYRINGS:
        if path.is_file():
            return path
    raise HostError(
        "Debian's archive keys are not installed",
        cause="Packages are only taken from archives that Debian signed.",
        next_step=f"apt-get install debian-archive-keyring    ({REGISTRY_INSTEAD})",
    )


def installed(line: str) -> tuple[str, str] | None:
    """(name, version) of a line of `apt-get --simulate` that installs a package."""
    match = re.match(r"Inst (\S+) (?:\[\S+\] )?\((\S+) ", line)
    return (match[1].partition(":")[0], match[2]) if match else None


def parse_packages(lines: Sequence[str]) -> Iterator[DebianPackage]:
    """Packages in the stanzas of `apt-cache show` or a Packages file ("Field: value", a blank line between stanzas)."""
    fields: dict[str, str] = {}
    for line in [*lines, ""]:
        name, colon, value = line.partition(":")
        if line.startswith((" ", "\t")):
            continue
        if colon:
            fields.setdefault(name, value.strip())
        elif not line.strip() and fields:
            if {"Package", "Version", "Architecture", "Filename", "Size", "SHA256"} <= fields.keys():
                yield DebianPackage(
                    name=fields["Package"],
                    version=fields["Version"],
                    architecture=fields["Architecture"],
                    file=LockedFile(
                        name=PurePosixPath(fields["Filename"]).name,
                        size=int(fields["Size"]),
                        sha256=fields["SHA256"].lower(),
                    ),
                )
            fields = {}


def find_mirror(suite: str, environment: Mapping[str, str]) -> Mirror:
    """Which archives to use on this machine. Raises HostError when none is known."""
    if chosen := environment.get("DEBIAN_MIRROR", "").rstrip("/"):
        default = f"{chosen}-security" if chosen.endswith("/debian") else ""
        return Mirror(chosen, environment.get("DEBIAN_SECURITY_MIRROR", default).rstrip("/"))
    hook = 'cat "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* 2>/dev/null; exit 1'
    for argv in (
        ["apt-get", "update", "--print-uris"],
        ["mmdebstrap", "--variant=custom", "--skip=update", f"--setup-hook={hook}", suite, "/dev/null"],
    ):
        if process.find(argv[0]):
            lines: list[str] = []
            variables = settings.select_for_child(environment)
            process.run(argv, environment=variables, on_line=lines.append, timeout=120)
            if mirror := mirror_of(lines):
                return mirror
    raise HostError(
        "no Debian mirror is known on this machine",
        cause="Its apt has no Debian sources.",
        next_step=f"DEBIAN_MIRROR=http://a-mirror/debian make image …    ({REGISTRY_INSTEAD})",
    )


#: an archive's URL and suite in `apt-get update --print-uris` and in a one-line source ("deb [options] URL suite …")
ARCHIVE = re.compile(r"'(.+?)/+dists/([^/']+(?:/updates)?)/InRelease'|deb (?:\[[^]]*\] )?(\S+?)/* (\S+) main\b")
SUITES = ("buster", "bullseye", "bookworm", "trixie", "forky", "sid", "stable", "oldstable", "testing", "unstable")


def mirror_of(lines: Sequence[str]) -> Mirror | None:
    """Find the archives that carry Debian's own suites in lines of apt (all mirrors name them alike)."""
    main = security = ""
    for match in filter(None, map(ARCHIVE.match, lines)):
        url, suite = (part for part in match.groups() if part is not None)
        # Other people's archives use these names too ("docker.com/linux/debian bookworm"), never with a pool like it.
        name, _, kind = suite.partition("-")
        if name not in SUITES or "debian" not in url.rpartition("//")[2] or "/linux/" in url:
            continue
        if kind == "security":
            security = security or url
        elif not kind:
            main = main or url
    return Mirror(main, security) if main else None


def folder_name(suite: str, mirror: Mirror, components: Sequence[str] = ()) -> str:
    """Name of the private folder, one for each suite, mirror and set of components."""
    more = "".join(f"-{component}" for component in components)
    return f"{suite}{more}-{hashlib.sha256(msgspec.json.encode(mirror)).hexdigest()[:16]}"


def _tail(lines: Sequence[str]) -> str:
    shown = [line for line in lines if line.startswith(("E:", "W:", "Err:", " "))] or list(lines)
    text = "".join(f"\n    {line.strip()}" for line in shown[-8:])
    return re.sub(r"://[^/@\s]+@", "://…@", text)  # a mirror's address may hold a password
