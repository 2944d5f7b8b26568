"""Distributions made of .debs are rows: a made-up one, and Debian's next suite, are taken by every room from theirs."""

import datetime
import re
import tomllib

import msgspec
import pytest

from debroot.mirrors import DebianMirror, addresses
from debroot.normalise import sources
from graphcrate import render
from graphcrate.checks.contracts import contents as contracts
from graphcrate.compat.facts import compilers, suites
from graphcrate.compat.facts.facts import data
from graphcrate.compat.plan import base_images, planning
from graphcrate.compat.variants import recipes
from graphcrate.inputs.bases import archive, contents, debian, mirrors
from graphcrate.model.errors import IntegrityError, ResolutionError
from graphcrate.model.lock import DebianBase, DebianPackage, LockedFile, decode_lock
from graphcrate.model.recipe import BaseSpec
from graphcrate.publish import bill
from graphcrate.resolve.sources.target import target_of
from tests import ROOT, modules_of_house
from tests.made import RECIPES, place, refused
from tests.unit import small_debian
from tests.unit.contract_cases import GOOD, HOST, OS_RELEASE, files, release
from tests.unit.model.test_platform import strings
from tests.unit.small_debian import stanza
from tools import suites as tool

#: laid out as Ubuntu is: one archive for packages and fixes, an index of files beside the components
ROWS = """
[distributions.madeup]
title = "Made-Up"
keys = ["madeup-keys.asc"]
main = "madeup"
security = "madeup"
security_pool = "pool/"
components = ["universe"]
contents = "index/Contents-{architecture}"
image = "madeup:{suite}"

[suites.nova]
distribution = "madeup"
release = "24.04"
released = 2024-04-25
security_until = 2029-05-31
known = "assumed"

[suites.nova.base]
python = "3.12"
glibc = "2.39"
kernel = "3.2"
gcc = [12, 13]
packages = ["made-up-keyring"]
known = "assumed"

[suites.forky.base]
python = "3.14"
glibc = "2.43"
kernel = "3.2"
gcc = [15]
known = "assumed"
"""
#: what every base has, what a suite's row adds, and the interpreter
PACKAGES = [
    *(stanza(name) for name in base_images.DEBIAN_PACKAGES if name != "python3"),
    stanza("python3", "3.12.3", Depends="python3.12"),
    stanza("python3.12", "3.12.3-1"),
    stanza("libc6", "2.39-0made8", Essential="yes"),
    stanza("made-up-keyring"),
]
DAY = datetime.date(2026, 11, 26)


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    """The project's rows with those."""
    known = tomllib.loads(data("suites.toml").decode())
    more = tomllib.loads(ROWS)
    known["distributions"] |= more["distributions"]
    for name, row in more["suites"].items():
        known["suites"][name] = known["suites"].get(name, {}) | row
    document = msgspec.convert(known, suites._Document)
    monkeypatch.setattr(suites, "_document", lambda: document)
    for cached in (suites.bases, suites.distributions):
        cached.cache_clear()
    yield
    for cached in (suites.bases, suites.distributions):
        cached.cache_clear()


@pytest.fixture
def made_up(server, cache, progress, tmp_path, monkeypatch):
    """Its archive on loopback, signed by a key that is no other distribution's."""
    found = small_debian.trusted(server, cache, progress, tmp_path, monkeypatch)
    (tmp_path / "madeup-keys.asc").write_text(str(small_debian.signer().extract_certificate()))
    for suite in ("nova", "nova-updates", "nova-security"):
        packages = PACKAGES if suite == "nova" else []
        found.put(suite, packages, root="/madeup", section="universe")
    return found


def place_of(made_up):
    variables = {"MADEUP_MIRROR": made_up.server.url("/madeup"), "MADEUP_FALLBACK": "none"}
    return place(made_up.cache, variables, made_up.progress)


def base(*packages):
    file = LockedFile(name="a.deb", size=1, sha256="a" * 64)
    rows = [DebianPackage(name=name, version="1", architecture="amd64", file=file) for name in packages]
    return DebianBase(suite="nova", packages=tuple(rows))


def test_recipe_base_suite_must_have_a_row_and_its_python():
    assert list(recipes._bad_base(BaseSpec(suite="nova"), "3.12")) == []
    assert list(recipes._bad_base(BaseSpec(suite="forky"), "3.14")) == []
    assert list(recipes._bad_base(BaseSpec(suite="nova"), "3.11")) == [
        ("python", "Made-Up nova has Python 3.12, not 3.11")
    ]
    assert target_of(BaseSpec(suite="nova"), "3.12").glibc == "2.39"
    assert compilers.compiler_for("nova", 12) == "g++-12"
    with refused(ResolutionError, "every compiler of Made-Up nova is too new"):
        compilers.compiler_for("nova", 11)
    with refused(ResolutionError, "no base is made of the suite 'gone'", "nova"):
        suites.base_of("gone")


def test_made_up_distribution_uses_its_own_mirror_variables(tmp_path):
    mirror = {"MADEUP_MIRROR": "http://a.example/madeup", "DEBIAN_MIRROR": "http://b.example/debian"}
    found = mirrors.archives(mirror, tmp_path, suite="nova")
    own = DebianMirror("http://a.example/madeup", "http://a.example/madeup")
    assert found.listing == (own,)
    assert {one.main.rpartition("/")[2] for one in found.others} == {"madeup"}
    assert (found.retired, found.snapshot) == (DebianMirror(""), ""), "no such place is known of it"
    paths = list(addresses("pool/main/b/bash/bash_5_amd64.deb", "", found._replace(others=())))
    assert paths == ["http://a.example/madeup/pool/main/b/bash/bash_5_amd64.deb"]
    (tmp_path / "sources.list").write_text("deb http://c.example/madeup nova main\n")
    assert mirrors.own_mirror({}, tmp_path, suite="nova").main == "http://c.example/madeup"
    assert mirrors.own_mirror({}, tmp_path, suite="bookworm") is None


def test_made_up_distribution_is_locked_from_its_own_archive(made_up):
    found = debian.lock(BaseSpec(suite="nova"), "3.12", place_of(made_up))
    assert {"made-up-keyring", "python3.12", "libc6"} <= {package.name for package in found.packages}
    assert (found.suite, debian.python_version(found), debian.glibc_version(found)) == ("nova", "3.12.3", "2.39")
    with refused(ResolutionError, "Made-Up nova cannot give a base: the recipe needs nothing-such"):
        debian.lock(BaseSpec(suite="nova", packages=("nothing-such",)), "3.12", place_of(made_up))


def test_lists_signed_by_another_distributions_key_are_refused(made_up, tmp_path):
    (tmp_path / "madeup-keys.asc").write_text("")
    with refused(IntegrityError, "not signed by a key of Made-Up's", "MADEUP_MIRROR=http://a-mirror/madeup"):
        archive.SuiteArchive("nova", place_of(made_up))


def test_contents_index_of_a_made_up_distribution_is_read(made_up):
    made_up.put_contents("nova", "usr/lib/x86_64-linux-gnu/libx.so.1 libs/libx1", root="/madeup", section="index")
    assert contents.index("nova", place_of(made_up)).packages == {"libx.so.1": ("libx1",)}


def test_apt_sources_of_a_made_up_distribution_have_its_components():
    example = (
        "deb http://a.example/madeup nova main restricted universe\ndeb http://a.example/madeup nova-updates main\n"
    )
    lines = sources(example, "nova", suites.distribution_of("nova")).splitlines()
    assert lines == ["deb http://a.example/madeup nova universe", "deb http://a.example/madeup nova-updates universe"]


def test_plan_and_sbom_name_a_made_up_distribution():
    recipe = RECIPES["pyg"]
    lock = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
    variant = msgspec.structs.replace(recipe.variant("11.8"), base=BaseSpec(suite="nova"), python="3.12")
    assert base_images.wanted_image(variant).reference == "madeup:nova"
    candidate = next(one for one in variant.candidates if one.name == lock.candidate)
    plan = planning.make_plan(recipe, msgspec.structs.replace(lock, base=base("bash")), candidate, examples={})
    assert plan.base.image.reference == "madeup:nova"
    assert [re.search("-(.*)-py", alias)[1] for alias in plan.aliases] == ["madeup24.04"]
    text = render.dockerfile(plan)
    assert "\nARG MADEUP_MIRROR\n" in text
    assert 'sed -i "s|http[^ ]*/madeup|${MADEUP_MIRROR:-&}|"' in text
    assert "DEBIAN_MIRROR" not in text
    assert bill._system(base("bash")).name == "madeup"
    (component,) = bill._debian(base("bash").packages, "nova", in_image=True, system=None)
    assert str(component.purl).startswith("pkg:deb/madeup/bash@1?")


@pytest.mark.parametrize("suite", ["bullseye", "bookworm", "trixie"])
def test_base_and_engine_image_of_each_suite_have_rdma_core(suite):
    row = suites.base_of(suite)
    assert {"libibverbs1", "ibverbs-providers"} < set(row.fabric) <= set(base_images.base_packages(suite))
    variant = msgspec.structs.replace(RECIPES["torch"].variant("cpu"), base=BaseSpec(suite=suite), python=row.python)
    assert set(row.fabric) < set(base_images.wanted_image(variant).packages)


def test_security_updates_of_a_made_up_distribution_are_judged():
    image = msgspec.structs.replace(GOOD, **files(**{OS_RELEASE: release("nova", "24.04", ID="madeup")}))
    verdict = contracts.security_updates.judge(image, msgspec.structs.replace(HOST, today=DAY))
    assert (verdict.status, verdict.seen) == ("pass", "Made-Up nova: security updates until 2029-05-31")
    assert suites.of_release("24.04", "madeup") == "nova"


def test_renewing_debian_dates_keeps_other_distributions():
    text = data("suites.toml").decode() + ROWS[ROWS.index("[suites.nova]") :]
    header = "version,series,release,eol,eol-lts"
    listed = [f"{row.release},{name},,," for name, row in suites.known().items() if row.distribution == "debian"]
    nova = tool.renewed(text, tool.rows_of("\n".join([header, *listed])), "1").partition("[suites.nova]\n")[2]
    assert nova.startswith('distribution = "madeup"\nrelease = "24.04"\nreleased = 2024-04-25\n')


def test_python_sources_contain_no_suite_name():
    name = re.compile(rf"\b({'|'.join(suites.known())})\b")
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}"
        for path in modules_of_house()
        for line, text in strings(path)
        if name.search(text)
    ]
    assert found == [], "take it from the row: graphcrate/compat/data/suites.toml"
