"""`update --security`: which release fixes a locked package and is allowed, what is written, what stays and why."""

import json
from types import SimpleNamespace

import msgspec
import pytest
from packaging.version import Version

from graphcrate.compat.facts.suites import base_of
from graphcrate.compat.plan.base_images import base_packages
from graphcrate.compat.variants import catalog, ported, recipes
from graphcrate.host.context import Context
from graphcrate.model.errors import DiskFullError, NetworkError, NewsError, UsageError
from graphcrate.model.lock import DebianBase, Lock, decode_lock, encode
from graphcrate.model.platform import ARM64
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources.offers import Offer
from graphcrate.resolve.sources.target import WheelTarget, project_and_version
from graphcrate.resolve.stack.locks import request_digest
from graphcrate.resolve.stack.pinning import UnsolvableError
from tests.made import deb, index_of, refused, sdist, wheel
from tests.unit import small_debian
from tests.unit.small_debian import stanza
from tests.unit.wheel_server import small_wheel
from upkeep import staged
from upkeep.releases import ListedRelease
from upkeep.request import UpdateRequest
from upkeep.security import fixes, pinned
from upkeep.security import run as security
from upkeep.security import text as security_text
from upkeep.security.advisories import security_ends
from upkeep.security.vulnerability import Advisory

TARGET = WheelTarget("3.11", "2.36")


def advisory(*fixed, ids=("PYSEC-2099-1", "CVE-2099-0001")):
    return Advisory(ids=ids, fixed=fixed)


def listed(version, uploaded="2026-01-01", ending="-py3-none-any.whl"):
    return ListedRelease(version=version, files=(f"jinja2-{version}{ending}",), uploaded=uploaded)


# --- which release ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "fixed", "expected"),
    [
        ("1.26.17", ("1.26.17", "2.0.6"), True),
        ("1.26.16", ("1.26.17", "2.0.6"), False),
        ("2.0.1", ("1.26.17", "2.0.6"), False),
        ("2.0.6", ("1.26.17", "2.0.6"), True),
        ("2.1.0", ("1.26.17", "2.0.6"), True),
        ("3.0", ("1.26.17", "2.0.6"), True),
        ("9.0", (), False),
    ],
)
def test_release_of_another_series_fixes_by_that_series_own_release(release, fixed, expected):
    assert fixes.fixes(Version(release), advisory(*fixed)) == expected


@pytest.mark.parametrize(
    ("advisories", "releases", "day", "expected", "reason"),
    [
        ([advisory("3.1.3")], ["3.1.1", "3.1.3", "3.1.4"], "", ["3.1.3", "3.1.4"], ""),
        ([advisory("3.1.3"), advisory("3.1.4")], ["3.1.3", "3.1.4"], "", ["3.1.4"], ""),
        ([advisory()], ["3.1.3"], "", [], "no release fixes it yet"),
        ([advisory(), advisory("3.1.3")], ["3.1.3"], "", ["3.1.3"], ""),
        ([advisory("3.1.9")], ["3.1.3"], "", [], "no release that fixes it (fixed in 3.1.9)"),
        (
            [advisory("3.1.3")],
            ["3.1.3"],
            "2025-12-31",
            [],
            "is of 2026-01-01, and the stack's packages are of 2025-12-31",
        ),
        ([advisory("3.1.3")], ["3.1.3"], "2026-01-01", ["3.1.3"], ""),
    ],
)
def test_candidates_are_the_allowed_releases_that_fix_all_lowest_first(advisories, releases, day, expected, reason):
    known = [listed(version) for version in releases]
    allowed, why = fixes.candidates(wheel("jinja2", "3.1.2"), advisories, known, TARGET, day)
    assert [release.version for release in allowed] == expected
    assert reason in why
    assert bool(why) != bool(expected)


def test_fixing_release_without_a_wheel_or_a_day_is_said():
    package = wheel("jinja2", "3.1.2")
    for ending in ("-cp39-cp39-linux_x86_64.whl", ".tar.gz"):
        _, why = fixes.candidates(package, [advisory("3.1.3")], [listed("3.1.3", ending=ending)], TARGET, "")
        assert "no wheel for Python 3.11" in why
    _, why = fixes.candidates(package, [advisory("3.1.3")], [listed("3.1.3", uploaded="")], TARGET, "2026-01-01")
    assert "has no day on the index" in why


def test_torch_and_what_goes_with_it_keep_their_releases():
    for name in ("torch", "torch-geometric"):
        assert "the recipe names its version: ./build.py update looks" in fixes.unmovable(wheel(name, "2.0.1"))
    assert "pytorch channel" in fixes.unmovable(wheel("torchvision", "0.15", "pytorch"))
    assert "built from sources" in fixes.unmovable(sdist("torch-scatter"))
    assert fixes.unmovable(wheel("jinja2", "3.1.2")) == ""


# --- a checkout -------------------------------------------------------------------------------------------------------

RECIPE = """name = "made"
description = "a stack"
smoke = ["torch"]
requirements = ["jinja2", "tqdm"]
{more}
[[variant]]
cuda = "13.0"
python = "3.11"
base = {{ provider = "debian", suite = "bookworm" }}
{day}
[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "2.98.0"
torch_cuda = "13.0"

[[variant]]
cuda = "12.6"
python = "3.11"
base = {{ provider = "debian", suite = "bookworm" }}

[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "2.97.0"
torch_cuda = "12.6"
"""
DEBS = tuple(
    deb(name, {"libc6": "2.36-9", "python3.11": "3.11.2-6"}.get(name, "1"))
    for name in sorted({*base_packages("bookworm"), *base_of("bookworm").packages, "libc6", "python3.11", "openssl"})
)


class Together:
    """In place of uv: what is asked for is given, unless a line is refused. `needs`: what else a release brings.

    `moves`: what a release needs another one of, which a pin contradicts; else what has no pin is as preferred.
    """

    def __init__(self):
        self.asked, self.refused, self.needs, self.moves, self.cutoffs = [], {}, {}, {}, []

    def __call__(self, requirements, target, offers, *, preferred=(), cutoff=None, **options):
        self.asked.append(list(requirements))
        self.cutoffs.append(cutoff)
        pins = dict(line.split("==") for line in requirements if "==" in line)
        moved = {name: to for line in requirements for name, to in self.moves.get(line, {}).items()}
        reasons = [self.refused[line] for line in requirements if line in self.refused]
        reasons += [f"{name}=={to} is needed" for name, to in moved.items() if pins.get(name, to) != to]
        if reasons:
            error = UnsolvableError("the requirements cannot be resolved")
            error.explanation = reasons[0]
            raise error
        versions = {package.name: package.version for package in preferred} | pins | moved
        more = (line.split("==") for line in requirements for line in self.needs.get(line, ()))
        for name, version in {**versions, **dict(more)}.items():
            links = next(offers.listed(Channel.PYPI, name), ())
            link = next((link for link in links if str(project_and_version(link.name)[1]) == version), None)
            if link:
                yield Offer(name, version, Channel.PYPI, link)


@pytest.fixture
def made(server, cache, progress, no_places, tmp_path, monkeypatch):
    """A project with two locks, jinja2 3.1.2 in both, an index with advisories, Debian's lists, uv's stand-in."""
    keys = tmp_path / "keys"
    keys.mkdir()
    debian = small_debian.trusted(server, cache, progress, keys, monkeypatch)
    debian.put("bookworm", [stanza(each.name, each.version) for each in DEBS])
    debian.put("bookworm-updates", [])
    debian.put("bookworm-security", [])
    root = tmp_path / "checkout"
    for folder in ("recipes", "docs", "images"):
        (root / folder).mkdir(parents=True)
    uv = Together()
    monkeypatch.setattr(pinned, "resolve_pins", uv)
    ran = []
    monkeypatch.setattr(staged.StagedCheckout, "build_py", lambda stage, *words: ran.append(words))
    monkeypatch.setattr(staged.StagedCheckout, "tool", lambda stage, *words: ran.append(words))
    mirror = server.url("/debian")
    environment = {**no_places, **index_of(server), "DEBIAN_MIRROR": mirror, "DEBIAN_SECURITY_MIRROR": mirror}
    ctx = Context(root=root, environment={**environment, "GRAPHCRATE_CACHE": str(tmp_path / "cache")}, quiet=True)
    project = SimpleNamespace(root=root, ctx=ctx, server=server, debian=debian, uv=uv, ran=ran)
    put(project)
    publish(server, "jinja2", "3.1.2", "3.1.3", "3.1.4", "3.1.5")
    publish(server, "tqdm", "4.66", "4.67")
    known(server, "jinja2", "3.1.2", fixed("3.1.3"))
    for name, *versions in (("jinja2", "3.1.3", "3.1.4"), ("tqdm", "4.66"), ("torch", "2.98.0", "2.97.0")):
        for version in versions:
            known(server, name, version)
    yield project
    ctx.cache.close()


def put(project, *, more="", day="", packages=()):
    """Write the recipe and its locks, of jinja2 3.1.2, tqdm 4.66, torch and further packages."""
    path = project.root / "recipes/made.toml"
    path.write_text(RECIPE.format(more=more, day=day))
    recipe = recipes.load(path)
    for variant in recipe.variants:
        torch = wheel("torch", variant.candidates[0].torch)
        digest = request_digest(recipe, variant, variant.candidates[0])
        lock = Lock(
            recipe="made", cuda=variant.cuda, candidate="pypi", torch_cuda=variant.cuda, python="3.11", created=1,
            request_sha256=digest, base=DebianBase(suite="bookworm", packages=DEBS),
            packages=(wheel("jinja2", "3.1.2"), *packages, torch, wheel("tqdm", "4.66")),
        )  # fmt: skip
        path = catalog.path_of_lock(project.root, "made", variant.cuda, "pypi")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(lock))
        catalog.proof_path(path).write_text("{}")


def publish(server, name, *versions):
    server.simple(name, dict(small_wheel(name, version) for version in versions), uploaded="2026-01-01T00:00:00Z")


def fixed(*versions, number=1):
    link = "https://advisories.example/x"
    return {"id": f"PYSEC-2099-{number}", "aliases": [f"CVE-2099-000{number}"], "fixed_in": [*versions], "link": link}


def known(server, name, version, *advisories):
    server.put(f"/pypi/{name}/{version}/json", json.dumps({"vulnerabilities": advisories}).encode())


def run(project, *, check=False, recipe=""):
    return security.run(UpdateRequest(check=check, recipe=recipe), project.ctx)


def lock(project, cuda="13.0"):
    return decode_lock(catalog.path_of_lock(project.root, "made", cuda, "pypi").read_bytes())


def versions(project, cuda="13.0"):
    return {package.name: package.version for package in lock(project, cuda).packages}


def content(project):
    return {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()}


def test_lowest_fixing_release_is_taken_into_each_lock_and_nothing_else_moves(made):
    before = lock(made)
    review = run(made)
    assert [change.title for change in review.changed] == ["made CUDA 13.0, pypi", "made CUDA 12.6, pypi"]
    assert versions(made) == {"jinja2": "3.1.3", "torch": "2.98.0", "tqdm": "4.66"}
    after = lock(made)
    assert after.base == before.base
    assert [each for each in after.packages if each.name != "jinja2"] == [
        each for each in before.packages if each.name != "jinja2"
    ]
    assert after.created > before.created
    assert (after.request_sha256, review.written) == (before.request_sha256, True)
    assert not list(made.root.rglob("*.proof.json"))
    assert made.ran == [("render",), ("tools.generate",)]
    assert "tqdm==4.66" in made.uv.asked[0]
    text = security_text.text(review)
    for words in (
        "| jinja2 | 3.1.2 | 3.1.3 | PYSEC-2099-1, CVE-2099-0001 | made CUDA 13.0, pypi; made CUDA 12.6, pypi |",
        "2 locks change: vulnerable packages and bases, nothing else.",
    ):
        assert words in text, text


def test_check_writes_nothing_and_ends_with_20(made):
    before = content(made)
    review = run(made, check=True)
    assert (content(made), made.ran, review.written) == (before, [], False)
    with refused(NewsError, "made CUDA 13.0, pypi", "--security"):
        security.raise_if_fixable(review)
    assert "Nothing was written." in security_text.text(review)


def test_locks_without_known_vulnerabilities_stay_and_end_with_0(made):
    known(made.server, "jinja2", "3.1.2")
    before = content(made)
    review = run(made)
    security.raise_if_fixable(review)
    assert (content(made), review.locks, review.unknown, made.uv.asked) == (before, (), (), [])
    assert "No lock has a known vulnerability" in security_text.text(review)


def test_fix_that_has_what_is_known_against_the_locked_one_is_passed_over(made):
    known(made.server, "jinja2", "3.1.3", fixed("3.1.4"))
    run(made)
    assert versions(made)["jinja2"] == "3.1.4"


def test_release_without_anything_known_comes_before_a_lower_one_with_something_else(made):
    known(made.server, "jinja2", "3.1.3", fixed("3.1.4", number=2))
    run(made)
    assert versions(made)["jinja2"] == "3.1.4"


def test_stack_with_a_day_keeps_its_package_and_the_reason_names_the_recipes_way(made):
    put(made, day='exclude_newer = "2025-12-31"')
    review = run(made, check=True)
    capped = review.locks[0]
    assert (capped.packages, capped.unfixed[0].name) == ((), "jinja2")
    assert "exclude_newer_except" in capped.unfixed[0].reason
    assert "2025-12-31" in capped.unfixed[0].reason
    assert review.locks[1].packages[0].after == "3.1.3"  # of today
    # whoever lets it through changes the recipe: the lock that was made before is renewed, and answers it then
    recipe_file = made.root / "recipes/made.toml"
    more = 'exclude_newer_except = { jinja2 = "CVE-2099-0001" }'
    recipe_file.write_text(RECIPE.format(more=more, day='exclude_newer = "2025-12-31"'))
    assert run(made).locks[0].packages[0].after == "3.1.3"
    recipe = recipes.load(recipe_file)
    assert lock(made).request_sha256 == request_digest(recipe, recipe.variants[0], recipe.variants[0].candidates[0])


def test_lock_of_an_older_recipe_stays_and_the_command_that_makes_it_again_is_named(made):
    recipe_file = made.root / "recipes/made.toml"
    recipe_file.write_text(recipe_file.read_text().replace('"tqdm"', '"tqdm>4"'))
    made.debian.put("bookworm-security", [stanza("openssl", "2")])
    before = content(made)
    review = run(made)
    assert content(made) == before
    assert [(each.name, each.version) for each in review.locks[0].unfixed] == [
        ("jinja2", "3.1.2"),
        ("base", "bookworm"),
    ]
    assert "answers an older recipe, and no build takes it: " in review.locks[0].unfixed[0].reason


def test_fix_that_does_not_go_with_the_rest_is_named_with_uvs_reason_and_a_later_one_is_tried(made):
    made.uv.refused = {"jinja2==3.1.3": "\u00d7 No solution\n\u2570\u2500\u25b6 Because tqdm 4.66 depends on jinja2<3"}
    run(made, check=True)
    assert run(made, check=True).locks[0].packages[0].after == "3.1.4"
    made.uv.refused |= dict.fromkeys(("jinja2==3.1.4", "jinja2==3.1.5"), "no")
    (unfixed,) = run(made, check=True).locks[0].unfixed
    assert unfixed.reason == (
        "jinja2 3.1.3 goes with no releases of the rest that the stack allows: "
        "No solution Because tqdm 4.66 depends on jinja2<3"
    )


JINJA = ("3.1.3", "3.1.4", "3.1.5")


def test_package_that_a_fix_needs_comes_along_and_the_text_says_why(made):
    publish(made.server, "new", "1.0")
    wheels = [small_wheel("jinja2", version, requires=["new"]) for version in ("3.1.2", *JINJA)]
    made.server.simple("jinja2", dict(wheels), uploaded="2026-01-01T00:00:00Z")
    made.uv.needs = {f"jinja2=={version}": ("new==1.0",) for version in JINJA}
    review = run(made, recipe="made")
    assert versions(made) == {"jinja2": "3.1.3", "new": "1.0", "torch": "2.98.0", "tqdm": "4.66"}
    text = security_text.text(review)
    assert "| new | new | 1.0 | it has to move: jinja2 3.1.3 requires new | made CUDA 13.0, pypi; " in text
    assert "vulnerable packages, what has to move with them, and bases, nothing else." in text


def needing_tqdm(made, *jinjas):
    """These jinja2 need a newer tqdm than the locks have."""
    wheels = [small_wheel("jinja2", each, requires=["tqdm>=4.67"]) for each in ("3.1.2", *JINJA)]
    made.server.simple("jinja2", dict(wheels), uploaded="2026-01-01T00:00:00Z")
    made.uv.moves = {f"jinja2=={each}": {"tqdm": "4.67"} for each in jinjas}
    known(made.server, "tqdm", "4.67")


def test_package_that_stands_against_each_fix_moves_with_the_lowest_and_torch_stays_pinned(made):
    needing_tqdm(made, *JINJA)
    review = run(made)
    assert versions(made) == {"jinja2": "3.1.3", "torch": "2.98.0", "tqdm": "4.67"}
    jinja, tqdm = review.locks[0].packages
    assert (jinja.ids, jinja.along) == (("PYSEC-2099-1", "CVE-2099-0001"), "")
    assert (tqdm.before, tqdm.after, tqdm.ids, tqdm.along) == ("4.66", "4.67", (), "jinja2 3.1.3 requires tqdm>=4.67")
    free = next(lines for lines in made.uv.asked if "tqdm" in lines[2:])
    assert {"torch==2.98.0", "jinja2==3.1.3"} <= {*free}
    row = "| tqdm | 4.66 | 4.67 | it has to move: jinja2 3.1.3 requires tqdm>=4.67 | made CUDA 13.0, pypi; "
    assert row in security_text.text(review)


def test_later_fix_with_which_all_others_stay_comes_before_a_lower_one_that_moves_another(made):
    needing_tqdm(made, "3.1.3")
    run(made)
    assert versions(made) == {"jinja2": "3.1.4", "torch": "2.98.0", "tqdm": "4.66"}


def test_release_with_something_known_is_not_taken_along_and_the_reason_names_it(made):
    needing_tqdm(made, *JINJA)
    known(made.server, "tqdm", "4.67", fixed(number=5))
    (unfixed,) = run(made).locks[0].unfixed
    assert unfixed.reason == ("jinja2 3.1.3 takes tqdm 4.67 along, against which is known: PYSEC-2099-5, CVE-2099-0005")
    assert versions(made)["tqdm"] == "4.66"


def test_package_that_moves_along_and_is_vulnerable_itself_counts_as_fixed(made):
    needing_tqdm(made, *JINJA)
    known(made.server, "tqdm", "4.66", fixed("4.67", number=6))
    review = run(made)
    tqdm = review.locks[0].packages[1]
    assert (tqdm.after, tqdm.ids, tqdm.along) == (
        "4.67", ("PYSEC-2099-6", "CVE-2099-0006"), "jinja2 3.1.3 requires tqdm>=4.67",
    )  # fmt: skip
    assert review.locks[0].unfixed == ()


def test_nothing_younger_than_the_stacks_day_is_taken_along(made):
    more = 'exclude_newer_except = { jinja2 = "CVE-2099-0001" }'
    put(made, more=more, day='exclude_newer = "2025-12-31"')
    needing_tqdm(made, *JINJA)
    made.server.simple("torch", dict([small_wheel("torch", "2.98.0", requires=["nccl==2.1"])]), uploaded="")
    run(made, recipe="made")
    cutoff = next(filter(None, made.uv.cutoffs))
    assert (cutoff.date, {"jinja2", "torch", "nccl"} <= {*cutoff.exempt}, "tqdm" in cutoff.exempt) == (
        "2025-12-31", True, False,
    )  # fmt: skip


def test_torch_with_a_known_vulnerability_stays_and_the_rest_is_renewed(made):
    known(made.server, "torch", "2.98.0", fixed("2.99.0", number=7), fixed(number=8))
    review = run(made)
    assert versions(made) == {"jinja2": "3.1.3", "torch": "2.98.0", "tqdm": "4.66"}
    assert (
        "- torch 2.98.0 (PYSEC-2099-7, CVE-2099-0007, PYSEC-2099-8, CVE-2099-0008): the recipe"
        in security_text.text(review)
    )


def test_vulnerability_that_no_release_fixes_is_named_beside_those_that_are(made):
    known(made.server, "jinja2", "3.1.2", fixed("3.1.3"), fixed(number=2))
    review = run(made)
    assert review.locks[0].packages[0].left == ("PYSEC-2099-2", "CVE-2099-0002")
    assert "(no release fixes PYSEC-2099-2, CVE-2099-0002 yet)" in security_text.text(review)


def test_base_is_listed_again_where_the_security_archive_has_a_fix_and_packages_stay(made):
    known(made.server, "jinja2", "3.1.2")
    made.debian.put("bookworm-security", [stanza("openssl", "1+deb12u1"), stanza("passwd", "0")])
    made.debian.put(
        "bookworm", [stanza(each.name, each.version, Depends="openssl, python3.11, libc6") for each in DEBS]
    )
    review = run(made)
    assert [(fix.name, fix.before, fix.after) for fix in review.locks[0].base] == [("openssl", "1", "1+deb12u1")]
    base = {package.name: package.version for package in lock(made).base.packages}
    assert (base["openssl"], base["passwd"], versions(made)["jinja2"]) == ("1+deb12u1", "1", "3.1.2")
    wanted = "- made CUDA 13.0, pypi; made CUDA 12.6, pypi:\n  - openssl 1 → 1+deb12u1\n"
    assert wanted in security_text.text(review)


def test_lock_of_another_platform_is_renewed_from_that_platforms_lists(made):
    recipe = recipes.load(made.root / "recipes/made.toml")
    variant = ported.on_platform(recipe.variants[0], ARM64)
    debs = tuple(deb(each.name, each.version, architecture="arm64") for each in DEBS)
    of_arm = msgspec.structs.replace(
        lock(made),
        base=DebianBase(suite="bookworm", packages=debs),
        request_sha256=request_digest(recipe, variant, variant.candidates[0]),
    )
    path = catalog.path_of_lock(made.root, "made", "13.0", "pypi", ARM64)
    path.parent.mkdir()
    path.write_bytes(encode(of_arm))
    arm = {"Architecture": "arm64", "Depends": "openssl, python3.11, libc6"}
    lists = {"": [stanza(each.name, each.version, **arm) for each in DEBS], "-updates": []}
    lists["-security"] = [stanza("openssl", "1+deb12u1", Architecture="arm64")]
    for suite, stanzas in lists.items():
        made.debian.put(f"bookworm{suite}", stanzas, stem="binary-arm64/Packages")
    review = run(made)
    after = decode_lock(path.read_bytes())
    assert {each.name: each.version for each in after.packages}["jinja2"] == "3.1.3"
    openssl = next(each for each in after.base.packages if each.name == "openssl")
    assert (openssl.version, openssl.architecture) == ("1+deb12u1", "arm64")
    assert (versions(made)["jinja2"], lock(made).base.packages) == ("3.1.3", DEBS)
    text = security_text.text(review)
    assert "| made CUDA 13.0, pypi; made CUDA 13.0, pypi, arm64; made CUDA 12.6, pypi |" in text
    assert "- made CUDA 13.0, pypi, arm64:\n  - openssl 1 → 1+deb12u1" in text
    assert "- bases of Debian bookworm: " in text, "nobody has its lists for x86-64 here"


def test_base_that_cannot_be_listed_again_stays_with_the_reason(made):
    made.debian.put("bookworm", [stanza("openssl")])
    made.debian.put("bookworm-security", [stanza("openssl", "2")])
    review = run(made)
    assert lock(made).base.packages == DEBS
    assert "bookworm cannot be listed again: openssl 1" in review.locks[0].unfixed[-1].reason


def test_what_is_not_known_is_in_the_text_and_the_rest_goes_on(made):
    del made.server.bodies["/pypi/tqdm/4.66/json"]
    del made.server.bodies["/debian/dists/bookworm/InRelease"]
    own = made.root / "wheels"
    own.mkdir()
    (own / "mine-1.0-py3-none-any.whl").write_bytes(b"")
    put(made, packages=(wheel("mine", "1.0", "local"),))
    made.ctx.environment["PIP_FIND_LINKS"] = str(own)
    review = run(made, check=True)
    assert [fix.name for fix in review.locks[0].packages] == ["jinja2"]
    text = security_text.text(review)
    for words in (
        "3 of 6 releases and suites could be judged.",
        "- tqdm 4.66: ",
        "- mine 1.0: from a folder",
        "- bases of Debian bookworm: ",
    ):
        assert words in text, text


def test_nothing_known_at_all_ends_with_5(made):
    made.server.bodies.clear()
    with refused(NetworkError, "is not known"):
        run(made)


def test_disk_that_fills_while_locks_are_written_leaves_the_checkout_as_it_was(made, monkeypatch):
    before, count = content(made), []

    def write(path, data):
        if path.is_relative_to(made.root):
            count.append(path)
            if len(count) == 2:
                raise DiskFullError("no room")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    monkeypatch.setattr(staged, "write_file", write)
    with refused(DiskFullError, "no room"):
        run(made)
    assert content(made) == before


def test_recipe_that_there_is_not_and_an_installed_package_are_refused(made):
    with refused(UsageError, "there is no recipe 'nobody'"):
        run(made, recipe="nobody")
    assert msgspec.json.encode(run(made, recipe="made", check=True))


@pytest.mark.parametrize(("suite", "why"), [("bookworm", ""), ("bullseye", "no security updates since 2026-08-31")])
def test_suite_without_updates_says_since_when_and_a_supported_one_nothing(suite, why):
    said = security_ends(suite)
    assert (why in said, bool(said)) == (True, bool(why))
