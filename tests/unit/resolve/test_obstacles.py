"""Reasons why no release of a package can be taken, from a little index whose pages and metadata are a table."""

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from graphcrate.model.recipe import Channel
from graphcrate.resolve.additions.obstacles import MOST_RELEASES, Clause, obstacles
from graphcrate.resolve.sources.offers import Offer
from graphcrate.resolve.sources.source import Link

#: project → version → what it is ("wheel", "sdist", "cp38", "old": a wheel for Python 2) and what it requires
INDEX = {
    "plain": {"1.0": ("wheel",)},
    "above": {"1.0": ("wheel", "plain", "torch>=2")},
    "only-source": {"1.0": ("sdist",), "2.0": ("sdist",)},
    "above-source": {"1.0": ("wheel", "plain"), "2.0": ("wheel", "only-source>=2")},
    "newer-source": {"1.0": ("wheel",), "2.0": ("sdist",)},
    "other-python": {"1.0": ("cp38",)},
    "too-new": {"1.0": ("old",)},
    "wants-absent": {"1.0": ("wheel", "nowhere")},
    "wants-torch": {"1.0": ("wheel", "torch>=3"), "2.0": ("wheel", "torch>=4", "only-source")},
    "deep": {"1.0": ("wheel", "wants-torch")},
    "may-source": {"1.0": ("wheel", "only-source"), "2.0": ("wheel", "torch>=4")},
    "circle": {"1.0": ("wheel", "circle2")},
    "circle2": {"1.0": ("wheel", "circle")},
    "pre": {"1.0": ("wheel", "torch>=3"), "2.0rc1": ("wheel",)},
    "many": {f"{number}.0": ("wheel", "torch>=3") for number in range(1, 40)} | {"0.1": ("wheel",)},
    "extra": {"1.0": ("wheel", "only-source; extra == 'all'")},
}
FILES = {"sdist": "{0}-{1}.tar.gz", "cp38": "{0}-{1}-cp38-cp38-linux_x86_64.whl"}


class World:
    """torch 2.0 is the stack's."""

    fixed = frozenset({"torch"})

    def __init__(self, as_sources=(), **bounds):
        self.bounds = bounds
        self.as_sources = as_sources
        self.read = []

    def releases(self, name):
        return [self._offer(name, version, row[0]) for version, row in INDEX.get(name, {}).items()]

    def _offer(self, name, version, kind):
        file = FILES.get(kind, "{0}-{1}-py3-none-any.whl").format(name.replace("-", "_"), version)
        python = "<3" if kind == "old" else ""
        return Offer(name, version, Channel.PYPI, Link(name=file, url=f"https://x/{file}", python=python))

    def needs(self, release, extras):
        self.read.append((release.name, release.version))
        lines = map(Requirement, INDEX[release.name][release.version][1:])
        return [line for line in lines if not line.marker or any(line.marker.evaluate({"extra": e}) for e in extras)]

    def fits(self, release):
        return release.link.name.endswith("none-any.whl") or release.name in self.as_sources

    def rank(self, release):
        return release.link.name.endswith("none-any.whl")

    def runs(self, release):
        return SpecifierSet(release.link.python).contains("3.11")

    def is_against(self, clause):
        return clause.name == "torch" and not clause.requirement.specifier.contains(Version("2.0"))

    def bound(self, name):
        return SpecifierSet(self.bounds.get(name, ""))

    def expect(self, clauses):
        pass


def found(*asked, **bounds):
    clauses = [Clause("", Requirement(one)) for one in asked]
    return [(one.kind, one.clause.who, one.clause.needed) for one in obstacles(clauses, World(**bounds))]


@pytest.mark.parametrize(
    "asked", ["plain", "above", "torch", "above-source", "newer-source", "circle", "extra", "plain>=1,<2"]
)
def test_installable_package_has_no_obstacle(asked):
    assert found(asked) == []


@pytest.mark.parametrize(
    ("asked", "obstacle"),
    [
        ("tqmd", ("absent", "", "tqmd")),
        ("wants-absent", ("absent", "wants-absent==1.0", "nowhere")),
        ("only-source", ("source", "", "only-source")),
        ("above-source==2.0", ("source", "above-source==2.0", "only-source>=2")),
        ("newer-source==2.0", ("source", "", "newer-source==2.0")),
        ("extra[all]", ("source", "extra==1.0", "only-source")),
        ("other-python", ("wheels", "", "other-python")),
        ("too-new", ("python", "", "too-new")),
        ("plain>=2", ("version", "", "plain>=2")),
        ("torch>=3", ("bound", "", "torch>=3")),
        ("wants-torch", ("bound", "wants-torch==2.0", "torch>=4")),
        ("deep", ("bound", "wants-torch==2.0", "torch>=4")),
        ("pre", ("bound", "pre==1.0", "torch>=3")),
    ],
)
def test_first_obstacle_names_the_package_that_requires_it(asked, obstacle):
    assert found(asked)[0] == obstacle


def test_release_against_the_stack_is_an_obstacle_and_older_sources_are_too():
    assert found("wants-torch") == [("bound", "wants-torch==2.0", "torch>=4")]
    assert found("may-source") == [
        ("bound", "may-source==2.0", "torch>=4"),
        ("source", "may-source==1.0", "only-source"),
    ]


def test_of_two_wheels_of_a_release_the_one_that_is_taken_counts():
    """xgboost 3.0.5 has one for manylinux2014 without NCCL, and one for manylinux_2_28, which uv takes, with it."""

    class TwoWheels(World):
        def releases(self, name):
            files = ("2-1.0-py3-none-any.whl", "1-1.0-py3-none-any.whl")
            return [Offer(name, "1.0", Channel.PYPI, Link(name=file, url=f"https://x/{file}")) for file in files]

        def needs(self, release, extras):
            return [Requirement("torch>=3")] if release.link.name.startswith("2") else []

        def rank(self, release):
            return int(release.link.name[0])

    (found_one,) = obstacles([Clause("", Requirement("xgboost"))], TwoWheels())
    assert (found_one.kind, found_one.clause.needed) == ("bound", "torch>=3")


def test_constraint_that_excludes_releases_gives_an_obstacle():
    assert found("newer-source", **{"newer-source": "!=1.0"}) == [("source", "", "newer-source")]
    assert found("plain", plain="<1") == [("version", "", "plain")]


def test_obstacles_read_the_newest_releases_only():
    world = World()
    (obstacle,) = obstacles([Clause("", Requirement("many"))], world)
    assert obstacle.clause.who == "many==39.0"
    assert len(world.read) == MOST_RELEASES


def test_obstacles_ignore_conflicts_between_two_packages():
    """uv says it, and its words are shown."""
    assert found("plain<1.5", "plain>=1") == []


@pytest.mark.parametrize("asked", ["only-source", "above-source==2.0", "newer-source==2.0"])
def test_source_allowed_for_a_package_is_no_obstacle(asked):
    assert found(asked, as_sources=("only-source", "newer-source")) == []
