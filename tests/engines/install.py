"""Installs the engines that tests try images with, as root on Debian and Ubuntu: `python -m tests.engines.install`.

Most are packages of the machine's own apt. What it lacks comes from Debian's sid, each program in a folder of its own
with sid's C library, from which it is told to load: the machine's packages and package lists stay as they are.
Links are made last: a run that was broken off leaves none, and the next one starts afresh.
"""

import contextlib
import functools
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.prepare import HOST, StopError, apt_install, failure, finished, has_apt_as_root, quiet, say

ROOT = Path("/opt/graphcrate-engines")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LINKS = Path("/usr/local/bin")
SUITE = "sid"  #: the suite of Debian that has them all
SUITE_OF_OLD = "trixie"  #: the one whose cosign is of version 2
#: program → npm's package, in the last version for the Node.js of Debian 12
OF_NPM = {"devcontainer": "@devcontainers/cli@0.80.0"}
SUITES = "bullseye|bookworm|trixie|forky|sid|stable|oldstable|testing|unstable"
MULTIARCH = "lib/x86_64-linux-gnu"
FIRST_ID, IDS = 200_000, 65_536  #: subordinate ids for root: where they may begin, how many a container needs
#: program → Debian's package
PROGRAMS = {
    **{name: name for name in ("fuse-overlayfs", "iptables", "patchelf", "podman", "runc", "skopeo", "slirp4netns")},
    **{name: name for name in ("docker-registry", "nginx", "slurmctld", "slurmd", "squashfuse", "tmux", "umoci")},
    "ch-run": "charliecloud",
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "dockerd": "docker.io",
    "mksquashfs": "squashfs-tools",
    "mmdebstrap": "mmdebstrap",
    "munged": "munge",
    "newuidmap": "uidmap",
    "ip": "iproute2",
    "ps": "procps",
    "rsvg-convert": "librsvg2-bin",
    "sbatch": "slurm-client",
    "sshd": "openssh-server",
    "ssh-keyscan": "openssh-client",
    "/usr/share/lmod/lmod/libexec/lmod": "lmod",
}

#: file below the libraries' folder → Debian's package
LIBRARIES = {"pmix2/lib/libpmix.so": "libpmix-dev"}  # which Slurm's plugin for PMIx opens by this name


def packages_of(programs: Mapping[str, str]) -> list[str]:
    """Debian's packages of those programs that are missing, and Debian's keys where Ubuntu lacks them."""
    missing = [package for program, package in programs.items() if not find(program)]
    return missing if KEYRING.exists() else [*missing, "debian-archive-keyring"]


def find(program: str) -> str | None:
    """Return a program's path. A plain user's PATH often lacks the system's folders."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")


def install() -> None:
    """Install what is missing; tests skip what cannot be installed. Raises StopError."""
    if has_apt_as_root():
        apt_install(packages_of(PROGRAMS))
        apt_install(packages_of({"docker": "docker-cli"}))  # a package of its own from Debian 13 on
        apt_install([package for file, package in LIBRARIES.items() if not any(Path("/usr/lib").glob(f"*/{file}"))])
        prepare_apptainer()
        prepare_clients()
    elif missing := packages_of(PROGRAMS):
        say(f"not installed: {', '.join(missing)}; their tests are skipped\nnext:  as root, make test-engines")


def prepare_apptainer() -> None:
    """Apptainer that works for root here, also under the name singularity. Raises StopError."""
    if not find("apptainer"):
        if offered_by_apt("apptainer"):
            apt_install(["apptainer"])
            adapt(Path("/etc/apptainer/apptainer.conf"))
        else:
            install_apart("apptainer", arrange_apptainer, "buildcfg")
    if not find("singularity"):  # the name that spython and many scripts call
        link(LINKS / "singularity", str(find("apptainer")))
    for kind in ("uid", "gid"):
        allow_fakeroot(kind)
    with contextlib.suppress(OSError):  # many containers have no such device; Apptainer then unpacks images
        Path("/dev/fuse").chmod(0o666)  # as udev sets it: plain users mount images too


def prepare_clients() -> None:
    """cosign 3 and 2 and oras, which read the signatures and statements that the tests make. Raises StopError."""
    for command, package, suite in (
        ("cosign", "cosign", SUITE),
        ("cosign2", "cosign", SUITE_OF_OLD),
        ("oras", "oras", SUITE),
    ):
        if not find(command):
            install_apart(package, functools.partial(arrange_program, package), "version", command, suite)
    for name, package in OF_NPM.items():
        if not find(name):
            apt_install(packages_of({"npm": "npm"}))
            install_by_npm(name, package)


def install_by_npm(name: str, package: str) -> None:
    """Install a program of npm's in a folder of its own, without programs that it would run meanwhile."""
    say(f"as root, installing {package} of npm in {ROOT / name}")
    shutil.rmtree(ROOT / name, ignore_errors=True)
    options = ["--prefix", str(ROOT / name), "--ignore-scripts", "--no-audit", "--no-fund"]
    must(["npm", "install", *options, package], f"{package} cannot be installed")
    program = f"{ROOT / name}/node_modules/.bin/{name}"
    must([program, "--version"], f"{package} does not start here")
    link(LINKS / name, program)


def offered_by_apt(package: str) -> bool:
    """Return whether the machine's own sources have it."""
    found = re.search(r"Candidate: (\S+)", quiet(["apt-cache", "policy", package]).stdout)
    return found is not None and found[1] != "(none)"


def install_apart(
    name: str, arrange: Callable[[Path, Path, Path], None], trial: str, command: str = "", suite: str = SUITE
) -> None:
    """Fetch, unpack, arrange, try, link the program of this package; `trial` is its argument. Raises StopError.

    `arrange` gets the folder with the packages' files, the one to make, and the one that it will be. `command`: what it
    is called here, else as its package.
    """
    mirror, command = find_mirror(), command or name
    if not KEYRING.exists():
        apt_install(["debian-archive-keyring"])
    prefix, work = ROOT / command, ROOT / "unfinished"
    say(f"as root, installing {name} of Debian {suite} in {prefix}; this machine's own packages stay as they are")
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(prefix, ignore_errors=True)  # it has no link: an earlier run did not come to its end
    try:
        work.mkdir(parents=True)
        for deb in fetch(work, mirror, suite, name):
            must(["dpkg-deb", "--extract", str(deb), str(work / "files")], f"{deb.name} cannot be unpacked")
        arrange(work / "files", work / "done", prefix)
        (work / "done").rename(prefix)
        must([f"{prefix}/bin/{name}", trial], f"{name} of Debian {suite} does not start here")
    except BaseException:
        shutil.rmtree(prefix, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    link(LINKS / command, f"{prefix}/bin/{name}")


def find_mirror() -> str:
    """The archive that this machine's apt uses, else mmdebstrap's default. Raises StopError."""
    if chosen := os.environ.get("DEBIAN_MIRROR", "").rstrip("/"):
        return chosen
    if mirror := mirror_among(quiet(["apt-get", "update", "--print-uris"]).stdout):
        return mirror
    if find("mmdebstrap"):  # Ubuntu's apt knows no Debian, its mmdebstrap does
        hook = 'cat "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* 2>/dev/null; exit 1'
        asked = quiet(["mmdebstrap", "--variant=custom", "--skip=update", f"--setup-hook={hook}", SUITE, "/dev/null"])
        if mirror := mirror_among(asked.stdout + asked.stderr):
            return mirror
    raise StopError(
        HOST, "no Debian mirror is known on this machine", "DEBIAN_MIRROR=http://a-mirror/debian make test-engines"
    )


def mirror_among(text: str) -> str:
    """The first archive of Debian's own suites in `apt-get update --print-uris` or one-line sources; empty if none."""
    printed = rf"^'(\S+?)/+dists/(?:{SUITES})/InRelease'"
    written = rf"^deb (?:\[[^]]*\] )?(\S+?)/* (?:{SUITES}) "
    url: str
    for first, second in re.findall(f"{printed}|{written}", text, re.MULTILINE):
        url = first or second
        # other people's archives use these suites too: "docker.com/linux/debian bookworm"
        if "debian" in url.partition("//")[2] and "/linux/" not in url:
            return url
    return ""


def fetch(work: Path, mirror: str, suite: str, *packages: str) -> list[Path]:
    """Packages of a suite and the libraries that they depend on, signed by Debian. Raises StopError."""
    for name in ("lists/partial", "archives/partial", "empty", "debs"):
        (work / name).mkdir(parents=True)
    (work / "status").touch()
    source = f"deb [signed-by={KEYRING} arch=amd64 target=Packages] {mirror} {suite} main\n"
    (work / "sources.list").write_text(source)
    (work / "apt.conf").write_text(apt_configuration(work))
    environment = {**os.environ, "APT_CONFIG": str(work / "apt.conf")}

    def apt(*words: str) -> str:
        result = quiet(words, environment, work / "debs")
        if result.returncode:
            raise failure("apt-get", result.stderr + result.stdout, "make test-engines")
        return result.stdout

    apt("apt-get", "-q", "update")
    libraries = libraries_of(apt("apt-cache", "show", "--no-all-versions", *packages))
    apt("apt-get", "-q", "download", *sorted({*packages, *libraries}))
    return sorted((work / "debs").iterdir())


def apt_configuration(work: Path) -> str:
    """apt.conf for folders of our own. A file, because apt reads the machine's own before it looks at its arguments."""
    values = {
        "Dir::State": work,
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work,
        "Dir::Log": work / "empty",
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": work / "empty",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": work / "empty",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    return "".join(f'{name} "{value}";\n' for name, value in values.items())


def libraries_of(stanzas: str) -> list[str]:
    """Packages of libraries in the Depends lines of packages' descriptions."""
    depends = ", ".join(re.findall(r"^Depends: (.*)$", stanzas, re.MULTILINE))
    return sorted(set(re.findall(r"(?:^|[,|] *)(lib[a-z0-9.+-]+)", depends)))


def arrange_apptainer(files: Path, target: Path, prefix: Path) -> None:
    """Put the packages' files where Apptainer finds them when it is not in /usr, with libraries of their own.

    It takes the folder over `bin` for the place of all else, and the starter takes the one four steps up for it;
    Debian has the starter a step deeper, so it moves, and a link leads there from where the program looks.
    """
    keep_libraries(files, target)
    for source, name in (("usr/bin", "bin"), ("etc", "etc"), ("var", "var")):
        shutil.move(files / source, target / name)
    (target / "libexec").mkdir()
    shutil.move(files / "usr" / MULTIARCH / "apptainer", target / "libexec")
    (target / MULTIARCH).parent.mkdir()
    (target / MULTIARCH).symlink_to("../libexec")
    for program in (target / "bin/apptainer", target / "libexec/apptainer/bin/starter"):
        use_libraries(program, prefix)
    adapt(target / "etc/apptainer/apptainer.conf")


def arrange_program(name: str, files: Path, target: Path, prefix: Path) -> None:
    """One program, with its own C library."""
    keep_libraries(files, target)
    shutil.move(files / "usr/bin", target / "bin")
    use_libraries(target / f"bin/{name}", prefix)


def keep_libraries(files: Path, target: Path) -> None:
    """Move the packages' libraries to where `use_libraries` has them looked for."""
    private = target / "libraries"
    private.mkdir(parents=True)
    for path in sorted((files / "usr" / MULTIARCH).glob("*.so*")):
        shutil.move(path, private)


def use_libraries(program: Path, prefix: Path) -> None:
    """Have a program load the libraries that it was built with. Raises StopError."""
    # rpath, not runpath: it counts before LD_LIBRARY_PATH, and for what the libraries themselves need
    flags = ["--force-rpath", "--set-rpath", f"{prefix}/libraries"]
    flags += ["--set-interpreter", f"{prefix}/libraries/ld-linux-x86-64.so.2"]
    must(["patchelf", *flags, str(program)], f"{program.name} of Debian {SUITE} is not the program that was expected")


def adapt(configuration: Path) -> None:
    """Keep Apptainer from asking for a capability that this machine denies root: nothing would start."""
    held = re.search(r"^CapPrm:\s*(\S+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    if held is not None and int(held[1], 16) != (2 << last) - 1:
        configuration.write_text(ask_for_no_capabilities(configuration.read_text()))


def ask_for_no_capabilities(text: str) -> str:
    """apptainer.conf with which root's containers get the capabilities that files have, not all that there are."""
    return re.sub(r"^root default capabilities = .*$", "root default capabilities = file", text, flags=re.MULTILINE)


def allow_fakeroot(kind: str) -> None:
    """A range of subordinate ids for root, if it has none: `--fakeroot` asks for it of root too. kind: uid or gid."""
    listing = Path(f"/etc/sub{kind}")
    text = listing.read_text() if listing.exists() else ""
    if (first := free_range(text)) is not None:
        listing.touch()
        must(["usermod", f"--add-sub{kind}s", f"{first}-{first + IDS - 1}", "root"], f"{listing} cannot be changed")


def free_range(text: str) -> int | None:
    """The start of a new range in /etc/subuid; None where root has one already."""
    entries = [line.split(":") for line in text.splitlines() if line.count(":") == 2]
    if any(owner in ("root", "0") for owner, _, _ in entries):
        return None
    return max([FIRST_ID, *(int(first) + int(count) for _, first, count in entries)])


def link(path: Path, target: str) -> None:
    """A symbolic link, made in one step."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)


def must(command: Sequence[str], what: str) -> None:
    """Run a program that has to succeed. Raises StopError that says `what`, and the program's last lines."""
    result = quiet(command)
    if result.returncode:
        lines = (result.stdout + result.stderr).strip().splitlines()[-8:]
        tail = "".join(f"\n    {line}" for line in lines)
        raise StopError(HOST, f"{what}{tail}", "report these lines; tests that need it cannot run here until then")


if __name__ == "__main__":
    sys.exit(finished(install))
