"""Keys and names of one machine: what packages make, what is removed, and who makes it at its first start."""

import itertools
import re

import msgspec
import pytest

from graphcrate import render
from graphcrate.compat.facts import identities
from graphcrate.inputs.bases import debian
from graphcrate.model.lock import DebianBase, decode_lock
from graphcrate.model.report import LayerRecord
from tests import ROOT
from tests.made import bookworm, deb, place
from tests.unit.render.test_render import LOCK, plan_of

ROWS = identities.identities()
LOCKS = sorted((ROOT / "images").rglob("*.lock.json"))


def names(base):
    return {package.name for package in base.packages}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.packages[0]}{row.paths[0]}")
def test_identity_rows_have_source_programs_and_paths(row):
    assert re.match(r"(measured|read|documented): ", row.known)
    assert row.what
    assert row.programs or row.by_hand
    assert bool(row.programs) == bool(row.commands) == bool(row.folder)
    assert all(re.fullmatch(r"/(etc|var/lib)(/[a-z0-9.*_-]+)+", path) for path in row.paths)
    assert all(re.fullmatch(r"/(usr/)?s?bin/[a-z0-9_]+", program) for program in row.programs)


def test_identity_programs_have_unique_base_names():
    """They wait in one folder; /sbin is a link to /usr/sbin."""
    programs = {program for row in ROWS for program in row.programs}
    by_name = itertools.groupby(sorted(programs, key=base_name), base_name)
    assert [name for name, ones in by_name if len({one.removeprefix("/usr") for one in ones}) > 1] == []


def base_name(program):
    return program.rpartition("/")[2]


@pytest.mark.parametrize(
    ("path", "listed"),
    [
        ("etc/ssh/ssh_host_ed25519_key", True),
        ("etc/ssh/ssh_host_rsa_key.pub", True),
        ("etc/ssh/sshd_config", False),
        ("etc/machine-id", True),
        ("etc/munge/munge.key", True),
        ("etc/munge", False),
        ("var/lib/postgresql/15/main", True),
        ("var/lib/postgresql/15/main/base/1/112", True),
        ("var/lib/postgresql/15", False),
        ("etc/ssl/certs/ca-certificates.crt", False),
        ("home/etc/machine-id", False),
    ],
)
def test_identity_pattern_matches_files_and_folder_contents(path, listed):
    assert bool(identities.pattern().fullmatch(path)) is listed


def test_committed_locks_have_no_packages_with_identities():
    locks = [decode_lock(path.read_bytes()) for path in LOCKS]
    bases = [base for lock in locks for base in (lock.base, lock.compilation and lock.compilation.base)]
    found = [names(base) for base in bases if isinstance(base, DebianBase)]
    assert found
    assert [identities.key(packages) for packages in found] == [""] * len(found)


def test_sshd_wrapper_makes_host_keys_before_restoring_sshd():
    lines = identities.after_install({"openssh-server", "bash"})
    text = "\n".join(lines)
    assert lines[0] == "rm -rf /etc/ssh/ssh_host_*"
    assert "dpkg-divert --quiet --local --rename --divert /usr/lib/graphcrate/sshd --add /usr/sbin/sshd" in text
    script = identities.wrapper("/usr/sbin/sshd", identities.of({"openssh-server"}))
    order = ["flock", "[ -w /etc/ssh ]", "ssh-keygen -A", "[ -w /usr/sbin ]", "--no-rename --remove", "mv -f"]
    places = [script.index(word) for word in order]
    assert places == sorted(places)
    assert '\nif [ -x /usr/lib/graphcrate/sshd ]; then exec /usr/lib/graphcrate/sshd "$@"; fi\n' in script
    assert [line for line in script.splitlines() if line.lstrip().startswith("'") or line.endswith("\\")] == []


def test_ssl_cert_removes_its_links_and_diverts_each_program():
    lines = identities.after_install({"ssl-cert", "xrdp"})
    links = "find /etc/ssl/certs -maxdepth 1 -lname ssl-cert-snakeoil.pem -delete"
    assert any(links in line for line in lines)
    assert sum("dpkg-divert" in line and "--add" in line for line in lines) == 7
    assert all(line.startswith("if dpkg-query --search ") for line in lines if line.endswith("; then \\"))
    making = identities.of({"ssl-cert", "xrdp"})
    script = identities.wrapper("/usr/sbin/xrdp", [one for one in making if "/usr/sbin/xrdp" in one.programs])
    assert script.index("make-ssl-cert generate-default-snakeoil") < script.index("xrdp-keygen xrdp auto")


def test_munge_key_is_removed_and_not_made():
    assert [line for line in identities.after_install({"munge"}) if "munge.key" not in line] == []


def test_base_with_identities_of_older_rules_is_built_again(cache, monkeypatch):
    """Its key says by which rules it was made, where any apply: the first one here is as before there were any."""
    digest, made = "sha256:" + "0" * 64, []

    def build(lock, ctx, on_python):
        made.append(lock)
        ctx.cache.write(ctx.cache.path("blobs", "sha256", "0" * 64), b"")
        return LayerRecord(title="", digest=digest, diff_id=digest, size=0, unpacked_size=0)

    monkeypatch.setattr(debian, "_build", build)
    monkeypatch.setattr(debian, "unpack", lambda layers, folder, advance: folder.mkdir())
    plain = (deb("libc6", "2.36"), deb("python3.11", "3.11.2"))
    bases = bookworm(*plain), bookworm(*plain, deb("openssh-server"))
    for rules in ((), ("true",), ("false",), ("false",)):
        ours = {"openssh-server": rules}
        monkeypatch.setattr(
            identities,
            "after_install",
            lambda names, ours=ours: next((ours[name] for name in ours if name in names), ()),
        )
        for base in bases:
            debian.prepare(base, place(cache))
    assert [made.count(base) for base in bases] == [1, 3]


def with_ssh():
    base = msgspec.structs.replace(LOCK.base, packages=(*LOCK.base.packages, deb("openssh-server")))
    return plan_of(msgspec.structs.replace(LOCK, base=base))


def test_dockerfile_removes_host_keys_in_the_installing_run():
    text = render.dockerfile(with_ssh())
    command = re.search(r"^RUN if ! dpkg --status .*?(?<!\\)\n(?!    | &&)", text, re.MULTILINE | re.DOTALL)[0]
    for words in ("apt-get -o", "rm -rf /etc/ssh/ssh_host_*", "dpkg-divert --quiet --local --rename", "ssh-keygen -A"):
        assert words in command
    assert "ssh_host" not in render.dockerfile(plan_of())


def test_definition_removes_host_keys_in_both_stages():
    plan = with_ssh()
    text = render.definition(plan)
    assert text.count("\n    rm -rf /etc/ssh/ssh_host_*\n") == text.count("%post\n") == 2
    assert "ssh_host" not in render.definition(plan_of())
