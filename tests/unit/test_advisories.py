"""Known vulnerabilities of an image: what its files say it has, what an index and Debian's lists on loopback know."""

import gzip
import json
from types import SimpleNamespace

import pytest

from graphcrate.compat.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.resolve.advisories import Advisories
from graphcrate.resolve.offers import Sources
from tests.made import index_of
from tests.unit import small_debian, small_layouts
from tests.unit.small_debian import stanza
from tests.unit.tars import file, symlink
from tests.unit.test_debian import deb
from tests.unit.wheel_server import Fault, sha256

SITE = "opt/venv/lib/python3.11/site-packages"
ADVISORY = {
    "id": "PYSEC-2099-1", "aliases": ["CVE-2099-0001", "GHSA-aaaa-bbbb-cccc"], "fixed_in": ["3.1.4", "2.11.9"],
    "link": "https://advisories.example/PYSEC-2099-1", "details": "words", "summary": None, "withdrawn": None,
}  # fmt: skip


def release(server, name, version, *advisories, **more):
    """The index's JSON of a release."""
    server.put(
        f"/pypi/{name}/{version}/json", json.dumps({"info": {}, "vulnerabilities": [*advisories], **more}).encode()
    )


def has_json(server):
    """The index's JSON of the project that tells whether it has any."""
    server.put("/pypi/pip/json", b'{"info": {}, "vulnerabilities": []}')


def wheel(name, version, **files):
    folder = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: x\n\nName: of the description\n"
    )
    more = [file(f"{folder}/{path}.json", json.dumps(value).encode()) for path, value in files.items()]
    return [file(f"{folder}/METADATA", metadata.encode()), *more]


def debian_files(*packages, suite="bookworm", number="12"):
    """A system's files; packages are (name, version, more lines)."""
    status = "".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n{''.join(more)}\n"
        for name, version, *more in packages
    )
    release = f'PRETTY_NAME="Debian GNU/Linux {number} ({suite})"\nVERSION_ID="{number}"\n'
    release += f"VERSION_CODENAME={suite}\nID=debian\n"
    return [
        file("usr/lib/os-release", release.encode()),
        symlink("etc/os-release", "../usr/lib/os-release"),
        file("var/lib/dpkg/status", status.encode()),
    ]


# --- releases of an index ---------------------------------------------------------------------------------------------


@pytest.fixture
def ask(server, cache, no_places):
    """What is known of a release, by a client that asks for the first time."""

    def run(name, version, **environment):
        sources = Sources(SourceOptions(), cache, {**no_places, **index_of(server), **environment})
        return Advisories(sources).of(name, version)

    return run


def test_advisories_of_a_release_have_ids_fixing_releases_in_order_and_a_link(server, ask):
    release(server, "jinja2", "3.1.2", ADVISORY)
    (found,) = ask("jinja2", "3.1.2").advisories
    assert found.ids == ("PYSEC-2099-1", "CVE-2099-0001", "GHSA-aaaa-bbbb-cccc")
    assert (found.fixed, found.link) == (("2.11.9", "3.1.4"), ADVISORY["link"])


def test_withdrawn_advisories_do_not_count_and_a_release_without_any_has_none(server, ask):
    release(server, "jinja2", "3.1.2", {**ADVISORY, "withdrawn": "2026-01-01T00:00:00Z"})
    assert ask("jinja2", "3.1.2").advisories == ()


def test_release_for_a_cuda_is_judged_as_the_one_that_it_was_built_of(server, ask):
    release(server, "torch", "2.0.1", ADVISORY)
    assert len(ask("torch", "2.0.1+cu118").advisories) == 1


def test_an_answer_counts_for_a_day_and_is_asked_for_again_after_it(server, ask, monkeypatch):
    release(server, "jinja2", "3.1.2")
    now = settings.now()
    for day, count in ((0.0, 1), (0.9, 1), (1.1, 2), (-1.0, 3)):
        monkeypatch.setattr(settings, "now", lambda day=day: now + day * 86_400)
        assert ask("jinja2", "3.1.2").advisories == ()
        assert len(server.asked) == count


def test_index_without_json_of_releases_is_not_known_and_not_none(server, ask):
    answer = ask("jinja2", "3.1.2")
    assert (answer.advisories, answer.silent) == (None, True)
    assert "no advisories" in answer.why


def project(server, name, newest, *advisories, releases=()):
    """The index's JSON of a project, which has the advisories of its newest release."""
    document = {
        "info": {"version": newest},
        "releases": {each: [] for each in releases},
        "vulnerabilities": [*advisories],
    }
    server.put(f"/pypi/{name}/json", json.dumps(document).encode())


def test_mirror_with_json_of_projects_alone_knows_the_newest_release_and_no_other(server, ask):
    project(server, "jinja2", "3.1.6", ADVISORY, releases=("3.1.2", "3.1.6"))
    assert len(ask("jinja2", "3.1.6").advisories) == 1
    assert len(ask("jinja2", "3.1.6.0").advisories) == 1
    older, unheard = ask("jinja2", "3.1.2"), ask("jinja2", "3.1.3")
    assert (older.advisories, older.silent) == (None, True)
    assert "newest release alone" in older.why
    assert (unheard.advisories, unheard.silent) == (None, False)


def test_answer_about_another_release_is_not_known(server, ask):
    release(server, "jinja2", "3.1.2", info={"version": "3.1.6"})
    answer = ask("jinja2", "3.1.2")
    assert (answer.advisories, answer.silent) == (None, True)


def test_project_that_an_index_with_json_lacks_is_not_known_and_nobody_is_silent(server, ask):
    has_json(server)
    answer = ask("companys-own", "1.0")
    assert (answer.advisories, answer.silent) == (None, False)
    assert "no such release" in answer.why


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b"null", b'{"vulnerabilities": 1}', b'{"vulnerabilities": [1]}',
        b'{"vulnerabilities": [{"id": 7}]}', b'{"vulnerabilities": [{"aliases": []}]}', b'{"vulnerabilities": [',
        b'{"vulnerabilities": [], "info": 1}', b'{"vulnerabilities": [], "releases": [1]}',
        b'{"vulnerabilities": [], "info": {"version": []}}', b'{"vulnerabilities": "\xff"}',
        b"[" * 100_000, b'{"info": {}}', b'{"vulnerabilities": null}',
        b'{"vulnerabilities": [' + b",".join([b'{"id": "CVE-1"}'] * 501) + b"]}",
    ],
)  # fmt: skip
def test_hostile_or_odd_answer_is_not_known_and_somebody_is_silent(server, ask, body):
    server.put("/pypi/jinja2/3.1.2/json", body)
    answer = ask("jinja2", "3.1.2")
    assert (answer.advisories, answer.silent, bool(answer.why)) == (None, True, True)


def test_huge_answer_is_not_read_to_its_end(server, ask, monkeypatch):
    monkeypatch.setattr("graphcrate.resolve.advisories._MOST_BYTES", 1 << 20)
    server.put("/pypi/jinja2/3.1.2/json", b" " * (1 << 22))
    assert "too large" in ask("jinja2", "3.1.2").why


def test_odd_values_of_an_advisory_are_left_out_and_it_still_counts(server, ask):
    odd = {
        "id": "\x1b[31mred", "aliases": [1, None, "CVE-2099-0001", "x" * 1000], "fixed_in": ["3.1.4", "none", 5, {}],
        "link": "javascript:alert(1)", "withdrawn": None,
    }  # fmt: skip
    release(server, "jinja2", "3.1.2", odd, {"id": "", "aliases": "CVE", "fixed_in": "3", "link": ["x"]})
    first, second = ask("jinja2", "3.1.2").advisories
    assert (first.ids, first.fixed, first.link) == (("CVE-2099-0001",), ("3.1.4",), "")
    assert (second.ids, second.fixed) == (("without an id",), ())


@pytest.mark.parametrize(
    ("name", "version"),
    [("../../simple/x", "1"), ("", "1"), ("a b", "1"), ("x" * 300, "1"), ("x", ""), ("x", "../1"), ("x", "1" * 300)],
)
def test_name_or_version_that_is_none_is_asked_about_nowhere(server, ask, name, version):
    answer = ask(name, version)
    assert (answer.advisories, server.asked) == (None, [])


def test_folder_or_address_without_simple_is_no_index_to_ask(server, ask, tmp_path):
    for address in (tmp_path.as_uri() + "/simple", server.url("/pages")):
        answer = ask("jinja2", "3.1.2", UV_DEFAULT_INDEX=address)
        assert (answer.advisories, answer.silent, server.asked) == (None, True, [])


def test_second_index_is_asked_for_what_the_first_lacks(server, ask):
    release(server, "jinja2", "3.1.2", ADVISORY)
    assert len(ask("jinja2", "3.1.2", UV_INDEX=server.url("/company/simple")).advisories) == 1
    assert [path.split("/")[1] for path in server.paths()] == [*["company"] * 3, "pypi"]


# --- an image ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def debian(server, cache, progress, tmp_path, monkeypatch):
    keys = tmp_path / "keys"
    keys.mkdir()
    return small_debian.trusted(server, cache, progress, keys, monkeypatch)


@pytest.fixture
def check(server, debian, cache, no_places, tmp_path, monkeypatch, typed):
    """`check --only vulnerabilities` of an image with these layers: code, JSON or text, stderr."""
    debian.put("bookworm", [stanza("bash", "5.2-1"), stanza("openssl", "3.0.1")])
    debian.put("bookworm-updates", [])
    debian.put("bookworm-security", [stanza("libssl3", "3.0.2-1~deb12u2"), stanza("openssl", "3.0.2-1~deb12u2")])
    mirror = server.url("/debian")
    variables = {**no_places, **index_of(server), "DEBIAN_MIRROR": mirror, "DEBIAN_SECURITY_MIRROR": mirror}
    variables |= {"GRAPHCRATE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}

    def run(*layers, only="vulnerabilities", as_json=True, **environment):
        made = Context(root=tmp_path, environment={**variables, **environment}, quiet=True)
        monkeypatch.setattr(Context, "here", classmethod(lambda kind: made))
        monkeypatch.chdir(tmp_path)
        path = small_layouts.layout(tmp_path / "dist" / "image" / str(len(server.asked)), *layers, tag="tag").path
        code, out, err = typed("check", path, *(["--only", only] if only else []), *(["--json"] if as_json else []))
        made.cache.close()
        return SimpleNamespace(
            code=code, out=out, err=err, report=as_json and json.loads(out or "{}")["vulnerabilities"]
        )

    return run


IMAGE = [
    *debian_files(("bash", "5.2-1"), ("libssl3", "3.0.2-1~deb12u1", "Source: openssl (3.0.2-1~deb12u1)\n")),
    *wheel("Jinja2", "3.1.2"),
]


def test_image_with_known_vulnerabilities_names_them_and_ends_with_14(server, check):
    release(server, "jinja2", "3.1.2", ADVISORY)
    ended = check(IMAGE)
    assert ended.code == 14, ended.err
    assert "2 packages with known vulnerabilities" in ended.err
    debian, python = ended.report["known"]
    assert debian == {
        "kind": "debian", "name": "libssl3", "version": "3.0.2-1~deb12u1", "source": "openssl",
        "fixed": ["3.0.2-1~deb12u2"], "link": "https://security-tracker.debian.org/tracker/source-package/openssl",
    }  # fmt: skip
    assert (python["name"], python["version"], python["ids"][1]) == ("jinja2", "3.1.2", "CVE-2099-0001")
    assert (ended.report["judged"], ended.report["unknown"]) == ({"debian": 2, "python": 1}, [])
    text = check(IMAGE, as_json=False).out
    for words in ("libssl3 (openssl)", "2.11.9 or 3.1.4", "GHSA-aaaa-bbbb-cccc", "judged 2 of Debian and 1 of Python"):
        assert words in text


def test_ids_of_debians_fixes_are_those_that_the_changelog_of_the_fix_names(server, debian, check, tmp_path):
    text = (
        "openssl (3.0.2-1~deb12u2) x; y\n\n  * CVE-2099-0002\n\nopenssl (3.0.2-1~deb12u1) x; y\n\n  * CVE-2099-0001\n"
    )
    made = deb(tmp_path, "libssl3", [file("usr/share/doc/libssl3/changelog.gz", gzip.compress(text.encode()))])
    content = made.read_bytes()
    fields = {"Filename": "pool/libssl3.deb", "SHA256": sha256(content), "Size": len(content)}
    debian.put("bookworm-security", [stanza("libssl3", "3.0.2-1~deb12u2", **fields)])
    image = [*debian_files(("libssl3", "3.0.2-1~deb12u1", "Source: openssl (3.0.2-1~deb12u1)\n"))]
    assert "ids" not in check(image).report["known"][0], "the file is nowhere"
    server.put("/debian/pool/libssl3.deb", content)
    assert check(image).report["known"][0]["ids"] == ["CVE-2099-0002"]


def test_image_without_known_vulnerabilities_ends_with_0_and_says_how_many_were_judged(server, check):
    release(server, "jinja2", "3.1.4")
    ended = check([*debian_files(("bash", "5.2-1")), *wheel("jinja2", "3.1.4")], as_json=False)
    assert (ended.code, ended.out.splitlines()[-1]) == (
        0,
        "vulnerabilities  judged 1 of Debian and 1 of Python: none is known of these",
    )


def test_offline_check_ends_with_5_and_not_known(check):
    nobody = "http://127.0.0.1:9"
    ended = check(
        IMAGE, UV_DEFAULT_INDEX=f"{nobody}/simple", DEBIAN_MIRROR=f"{nobody}/debian", DEBIAN_SECURITY_MIRROR=nobody
    )
    assert (ended.code, ended.report["known"], ended.report["judged"]) == (5, [], {"debian": 0, "python": 0})
    assert {each["kind"]: (each["packages"], each["silent"]) for each in ended.report["unknown"]} == {
        "debian": (["bash", "libssl3"], True),
        "python": (["jinja2"], True),
    }


def test_index_without_advisories_ends_with_5_though_debian_is_judged(check):
    ended = check([*debian_files(("bash", "5.2-1")), *wheel("jinja2", "3.1.2")], as_json=False)
    assert ended.code == 5, ended.err
    assert "not known  1 package of Python: 127.0.0.1 has no advisories" in ended.out


def test_packages_from_elsewhere_are_not_known_with_the_reason(server, check):
    has_json(server)
    release(server, "jinja2", "3.1.4")
    ended = check(
        [
            *debian_files(("bash", "5.2-1"), ("cuda-toolkit", "12.1")),
            *wheel("jinja2", "3.1.4"),
            *wheel("mine", "1.0", direct_url={"url": "file:///home/me/mine"}),
            *wheel("fork", "1.0", direct_url={"url": "https://host.example/fork.git"}),
            *wheel("odd", "1.0", direct_url=[]),
            *wheel("companys-own", "1.0"),
            file("opt/conda/conda-meta/zlib-1.2-h1.json", b"{}"),
        ]
    )
    assert (ended.code, ended.report["judged"]) == (0, {"debian": 1, "python": 1}), ended.err
    whys = {each["packages"][0]: each["why"] for each in ended.report["unknown"]}
    assert whys["mine"] == "installed from a local file or folder"
    assert whys["fork"] == "installed from an address, not from an index"
    assert whys["odd"] == "installed from somewhere else than an index"
    assert "no such release" in whys["companys-own"]
    assert "not in the lists of Debian bookworm" in whys["cuda-toolkit"]
    assert "conda" in whys["zlib"]


def test_image_with_more_packages_than_are_asked_about_is_not_known_for_the_rest(server, check, monkeypatch):
    monkeypatch.setattr("graphcrate.resolve.advisories._MOST_ASKED", 1)
    release(server, "a", "1")
    ended = check([*debian_files(("bash", "5.2-1")), *wheel("a", "1"), *wheel("b", "1")])
    assert (ended.code, ended.report["judged"]["python"], ended.report["unknown"][0]["packages"]) == (5, 1, ["b"])


def test_release_past_its_end_of_life_is_not_known_but_for_what_its_archive_fixed(debian, check):
    debian.put("bullseye", [stanza("bash", "5.1")])
    debian.put("bullseye-updates", [])
    debian.put("bullseye-security", [stanza("openssl", "1.1.2")])
    ended = check(debian_files(("bash", "5.1"), ("openssl", "1.1.1"), suite="bullseye", number="11"))
    assert [found["name"] for found in ended.report["known"]] == ["openssl"]
    (unknown,) = ended.report["unknown"]
    assert unknown["packages"] == ["bash"]
    assert "no security updates since 2026-08-31" in unknown["why"]
    assert ended.report["judged"]["debian"] == 1


@pytest.mark.parametrize(
    ("release_text", "why"),
    [
        (b'ID=alpine\nPRETTY_NAME="Alpine Linux v3.20"\n', "Alpine Linux v3.20"),
        (b"ID=debian\nVERSION_CODENAME=x\n", "debian"),
    ],
)
def test_system_that_is_not_known_here_is_said(check, release_text, why):
    packages = [] if b"alpine" in release_text else debian_files(("bash", "5"))[2:]
    ended = check([file("etc/os-release", release_text), *packages])
    assert why in ended.report["unknown"][0]["why"]
    assert ended.report["judged"]["debian"] == 0


def test_removed_packages_and_damaged_status_are_no_packages(check):
    status = (
        b"Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\nPackage: half\n\n\xff\xfe: x\n\nVersion: 1\n"
    )
    image = [*debian_files()[:2], file("var/lib/dpkg/status", status)]
    assert check(image).report["judged"] == {"debian": 0, "python": 0}


def test_image_without_dpkg_has_a_file_for_each_package(check):
    status = b"Package: libssl3\nVersion: 3.0.2-1~deb12u1\nArchitecture: amd64\nSource: openssl\n"
    image = [*debian_files()[:2], file("var/lib/dpkg/status.d/libssl3", status)]
    assert [found["source"] for found in check(image).report["known"]] == ["openssl"]


def test_plain_check_asks_nobody(server, check):
    ended = check(IMAGE, only="")
    assert (ended.report, server.asked) == (None, [])


def test_server_that_fails_in_the_middle_leaves_the_rest_not_known(server, check):
    has_json(server)
    release(server, "jinja2", "3.1.2")
    server.faults["/pypi/jinja2/3.1.2/json"] = [Fault(status=403)]
    ended = check([*debian_files(("bash", "5.2-1")), *wheel("jinja2", "3.1.2")])
    assert (ended.code, ended.report["judged"]["python"]) == (5, 0)
    assert check([*debian_files(("bash", "5.2-1")), *wheel("jinja2", "3.1.2")]).code == 0, "no failure is remembered"
