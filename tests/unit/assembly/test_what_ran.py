"""The subject of a proof: for any addition to a stack, results of an image were seen in this image.

The whole of `image`, `test` and `publish` on an image of a few bytes. Stand-ins are those of test_wiring, and uv's
choice of packages.
"""

import json
import random
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.assembly import credit
from graphcrate.engines.embedded import run as running
from graphcrate.host.process import Completed
from graphcrate.model.lock import Added
from graphcrate.model.recipe import Channel
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layout import read_layout
from graphcrate.resolve.additions import additions
from layertar.entries import read_entries
from ocilayout import spec
from tests.unit import small_layouts, tars
from tests.unit.house.test_wiring import world  # noqa: F401 (a fixture)

PACKAGES = "/opt/venv/lib/python3.11/site-packages"
SUITE = "/opt/graphcrate/suites/torch_check.py"


@pytest.fixture
def mine(world):  # noqa: F811
    """The world with a recipe of one's own: what it adds, how it is built, and which image ran what."""
    ran, wheels = [], {}

    def run_in(rootfs, command):
        ran.append((f"sha256:{rootfs.parent.name}", " ".join(map(str, command.argv))))
        return world.run_in(rootfs, command)

    def add(context, resolution, *_, **__):
        made = [world.wheel(name, files) for name, files in wheels.items()]
        packages = [msgspec.structs.replace(one, channel=Channel.PYPI) for one in made]
        lock = resolution.lock
        lock = msgspec.structs.replace(
            lock,
            packages=tuple(sorted([*lock.packages, *packages], key=lambda one: one.name)),
            added=Added(packages=tuple(sorted(wheels)), asked=tuple(sorted(wheels))),
        )
        return msgspec.structs.replace(resolution, lock=lock)

    def build(lines="", packages=None):
        wheels.clear()
        wheels.update(packages or {})
        (world.root / "mine.toml").write_text(f'extends = "torch"\ncuda = "cpu"\n{lines}\n')
        return world.typed("image", "./mine.toml")

    def image(lines="", packages=None):
        """Build it; its report, and what was said."""
        code, out, err = build(lines, packages)
        assert code == 0, err
        name, _, digest = out.strip().partition("@")
        folder = world.root / "dist" / name.replace(":", "/")
        report = json.loads((folder / "report.json").read_text())
        assert report["digest"] == digest
        return SimpleNamespace(name=name, digest=digest, folder=folder, report=report, said=err)

    world.patch.setattr(running, "run_in", run_in)
    world.patch.setattr(additions, "add", add)
    return SimpleNamespace(world=world, build=build, image=image, ran=ran, typed=world.typed)


def in_image(mine, digest):
    """Return whether the stack's suite ran in this image."""
    return any(SUITE in argv for image, argv in mine.ran if image == digest)


def entries(image):
    layout = read_layout(image.folder / "oci")
    with open_blob(layout.layer_blobs[-1]) as stream:
        return read_entries(stream, lambda path, member: b"".join(stream.chunks(member.size)))


def files(**contents):
    """Lines of a recipe that bring these files along."""
    named = ", ".join(f'"{path}" = "{source}"' for path, source in contents.items())
    return f"files = {{ {named} }}"


def test_own_files_over_files_of_the_stack_are_named_and_its_suites_run_in_the_image(mine):
    (mine.world.root / "other.py").write_text("broken = True\n")
    (mine.world.root / "base/usr/bin").mkdir(parents=True)
    (mine.world.root / "base/usr/bin/sh").touch()
    over = {
        f"{PACKAGES}/torch/__init__.py": "other.py",
        "/opt/venv/bin/python": "other.py",
        "/usr/bin/sh": "other.py",
        "/opt/mine/new.py": "other.py",
    }
    built = mine.image(files(**over))
    assert in_image(mine, built.digest)
    for path, whose in {
        f"{PACKAGES}/torch/__init__.py": "torch 1.0",
        "/opt/venv/bin/python": "the image's virtual environment",
        "/usr/bin/sh": "the base",
    }.items():
        assert f"{path} ({whose})" in built.said
        assert f"{path} ({whose})" in " ".join(built.report["notes"])
    assert "new.py (" not in built.said
    found = entries(built)
    assert found.by_path[f"{PACKAGES}/torch/__init__.py"[1:]] == b"broken = True\n"
    # Its bytecode says nothing of its source: it would go on running.
    assert found.removed == {f"{PACKAGES}/torch/__pycache__/__init__.cpython-311.pyc"[1:]}


def test_own_file_that_breaks_the_stack_fails_the_smoke_suite(mine):
    (mine.world.root / "other.py").write_text("raise SystemExit(1)\n")
    recipe = 'extends = "torch"\ncuda = "cpu"\n' + files(**{"/opt/venv/bin/python": "other.py"})
    assert mine.typed("image", "torch", "--cuda", "cpu")[0] == 0
    (mine.world.root / "mine.toml").write_text(recipe)
    mine.world.completed = Completed(126, ("cannot be run",))
    code, out, err = mine.typed("image", "./mine.toml")
    assert (code, out) == (10, ""), err


@pytest.mark.parametrize(
    ("lines", "packages"),
    [
        ('env = { PYTHONPATH = "/opt/mine" }', {}),
        ("", {"hook": {"hook.pth": b"import os\n"}}),
        ("", {"hook": {"sitecustomize.py": b"import os\n"}}),
        ("", {"hook": {"hook-1.0.dist-info/entry_points.txt": b"[torch.backends]\nx = hook:load\n"}}),
    ],
    ids=["a variable", "a .pth file", "sitecustomize", "a backend of torch"],
)
def test_additions_that_change_how_python_starts_run_the_suites_in_the_image(mine, lines, packages):
    built = mine.image(lines, packages=packages)
    assert in_image(mine, built.digest)
    assert [suite["image"] for suite in built.report["suites"]] == [built.digest] * len(built.report["suites"])


def test_wheel_that_overwrites_the_python_of_the_venv_is_refused(mine):
    code, out, err = mine.build("", {"hook": {"hook-1.0.data/scripts/python3.11": b"#!/bin/sh\n"}})
    assert (code, out) == (9, ""), err
    assert "the image's virtual environment and hook 1.0 both own /opt/venv/bin/python3.11" in err


def test_publish_of_an_own_image_refuses_suite_results_of_the_stack_image(mine):
    built = mine.image(packages={"more": {"more/__init__.py": b"1\n"}})
    below, own = built.report["suites"]
    assert (below["suite"], own["suite"], own["image"]) == ("torch", "imports", built.digest)
    assert in_image(mine, below["image"])
    assert not in_image(mine, built.digest)
    assert below["image"][7:19] in built.said
    send = ("publish", built.name, "--to", str(mine.world.root / "share"), "--as", "oci-archive", "--allow-cpu-only")
    code, _, err = mine.typed(*send)
    assert (code, "has not passed in this very image" in err) == (16, True), err
    command = err.rpartition("next:  ")[2].split()
    assert command[0] == "./build.py"
    code, _, err = mine.typed(*command[1:])
    assert (code, in_image(mine, built.digest)) == (0, True), err
    assert mine.typed(*send)[0] == 0
    again = mine.image(packages={"more": {"more/__init__.py": b"1\n"}})  # its own result is the better one
    assert [suite["image"] for suite in again.report["suites"]] == [built.digest] * 2


def test_rerun_of_an_own_image_runs_the_stack_suites_and_its_own_commands(mine):
    built = mine.image('smoke = ["true a", "true b"]')
    mine.ran.clear()
    code, _, err = mine.typed("test", built.name, "--rerun")
    assert code == 0, err
    commands = [argv for _, argv in mine.ran]
    assert SUITE in commands[0]
    assert [argv.rpartition("&& ")[2] for argv in commands[1:]] == ["true a", "true b"]
    assert {image for image, _ in mine.ran} == {built.digest}


def test_published_statements_name_only_images_that_ran(mine):
    """Random additions, each built, tested where that is asked for, and published."""
    chance = random.Random(33)
    modules = (
        "more/__init__.py",
        "more/x.py",
        "more.pth",
        "sitecustomize.py",
        "other/a.py",
        "more-1.0.data/data/share/x",
    )
    targets = (f"{PACKAGES}/torch/__init__.py", "/opt/mine/a.py", "/usr/bin/sh", f"{PACKAGES}/usercustomize.py")
    published = 0
    for turn in range(14):
        lines, packages = [], {}
        if chance.random() < 0.5:
            packages = {"more": dict.fromkeys(chance.sample(modules, chance.randint(1, 3)), b"%d\n" % turn)}
        if chance.random() < 0.4:
            (mine.world.root / "a.py").write_text(f"x = {turn}\n")
            lines.append(files(**dict.fromkeys(chance.sample(targets, chance.randint(1, 2)), "a.py")))
        if chance.random() < 0.3:
            lines.append(f'env = {{ MINE = "{turn}" }}')
        if chance.random() < 0.3:
            lines.append('smoke = ["true"]')
        if chance.random() < 0.2:
            mine.world.lock(created=small_layouts.CREATED + turn)
        built = mine.image("\n".join(lines), packages=packages)
        share = mine.world.root / f"share-{turn}"
        send = ("publish", built.name, "--to", str(share), "--as", "oci-archive", "--allow-cpu-only")
        if mine.typed(*send)[0] == 16:
            assert mine.typed("test", built.name)[0] == 0
            code, _, err = mine.typed(*send)
            assert code == (16 if "/usr/bin/sh" in " ".join(lines) else 0), err
        if not share.is_dir():
            continue  # not published, and nothing is said of it
        published += 1
        (path,) = share.glob("*.proofs/suites.json")
        statement = json.loads(path.read_text())
        (subject,) = statement["subject"]
        digest = f"sha256:{subject['digest']['sha256']}"
        assert digest == built.digest == statement["predicate"]["ran"]["manifest"]
        assert in_image(mine, digest)
        assert {suite["image"] for suite in statement["predicate"]["suites"]} == {digest}
        names = {suite["suite"] for suite in statement["predicate"]["suites"]}
        assert "torch" in names
    assert published > 7


def test_adding_a_package_of_the_stack_gives_the_stack_image_and_a_note(mine):
    """The tag was that of another image: `…-torch-scatter`."""

    def add(context, resolution, *_, **__):
        lock = resolution.lock
        asked = msgspec.structs.replace(
            lock, notes=(*lock.notes, "already there: torch 1.0"), added=Added(asked=("torch",))
        )
        return msgspec.structs.replace(resolution, lock=asked)

    mine.world.patch.setattr(additions, "add", add)
    code, out, err = mine.typed("image", "torch", "--cuda", "cpu", "--with", "torch")
    assert (code, "already there: torch 1.0" in err) == (0, True)
    assert mine.typed("image", "torch", "--cuda", "cpu")[1] == out
    assert "-torch" not in out.partition("@")[0].partition(":")[2]


def test_own_image_after_a_new_stack_lock_has_the_new_packages_or_a_note_on_its_older_lock(
    world,  # noqa: F811
):
    asked = []

    def lock(context, resolution, *_, digest):
        """In place of uv: nothing is added."""
        asked.append(digest)
        return msgspec.structs.replace(resolution.lock, request_sha256=digest, added=Added())

    world.patch.setattr(additions, "_lock", lock)
    (world.root / "mine.toml").write_text('extends = "torch"\ncuda = "cpu"\nsmoke = ["true"]\n')

    def built(*options):
        code, out, err = world.typed("image", "./mine.toml", *options)
        name = out.strip().partition("@")[0].replace(":", "/")
        return code, err, json.loads((world.root / "dist" / name / "report.json").read_text()) if name else {}

    world.lock(numpy={"numpy/__init__.py": b"1.26.4"})
    _, _, before = built()
    world.lock(numpy={"numpy/__init__.py": b"1.26.99"})
    code, err, _ = built("--locked")
    assert (code, "answers other packages, or another stack" in err) == (18, True)
    _, _, after = built()
    assert len(asked) == 2
    assert before["lock_sha256"] != after["lock_sha256"]
    (plain,) = (path for path in (world.root / "dist/torch").glob("1.0-*/report.json") if not path.parent.is_symlink())
    layers = [layer["digest"] for layer in json.loads(plain.read_text())["layers"]]
    assert [layer["digest"] for layer in after["layers"]] == layers
    built()
    world.lock(created=small_layouts.CREATED + 5, numpy={"numpy/__init__.py": b"1.26.99"})
    built()
    assert len(asked) == 2  # the same stack, locked at another time


# Layers on top of layers


def on_top(tmp_path, *added, below=("a",), **config):
    """The reason why results of an image of layers `below` do not hold for one with these entries on top."""
    lower = [[tars.file(f"opt/venv/lib/python3.11/site-packages/{name}.py")] for name in below]
    first = small_layouts.layout(tmp_path / "first", *lower)
    second = small_layouts.layout(tmp_path / "second", *lower, *added, **config)
    return credit.objection(first, second)


def test_layer_of_packages_on_top_has_no_objection(tmp_path):
    inside = f"{PACKAGES}/more/__init__.py"[1:]
    assert on_top(tmp_path, [tars.file(inside), tars.file("opt/venv/bin/more"), tars.file("opt/venv/share/x")]) == ""


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (tars.file("etc/ld.so.preload"), "/etc/ld.so.preload is added"),
        (tars.file(f"{PACKAGES[1:]}/x.pth"), "x.pth is run by Python, when it starts"),
        (tars.file(f"{PACKAGES[1:]}/usercustomize.py"), "usercustomize.py is run by Python"),
        (tars.file(f"{PACKAGES[1:]}/sitecustomize/__init__.py"), "when it starts"),
        (tars.file(f"{PACKAGES[1:]}/sitecustomize.cpython-311-x86_64-linux-gnu.so"), "when it starts"),
        (tars.file(f"{PACKAGES[1:]}/apport_python_hook.py"), "Debian's Python, when it starts"),
        (tars.file(f"{PACKAGES[1:]}/numpy/_distributor_init_local.py"), "when it is imported"),
        (tars.symlink(f"{PACKAGES[1:]}/y.pth", "elsewhere"), "y.pth is run by Python"),
        (tars.file("opt/venv/lib/libiomp5.so"), "the loader may take"),
        (tars.file("opt/venv/bin/python3.11"), "bin/python3.11 is replaced"),
        (tars.file("opt/venv/pyvenv.cfg"), "pyvenv.cfg is replaced"),
        (tars.file(f"{PACKAGES[1:]}/.wh.a.py"), "a.py is removed"),
        (tars.file(f"{PACKAGES[1:]}/{spec.OPAQUE}"), "site-packages is removed"),
        (tars.symlink("opt/venv/lib64", "elsewhere"), "lib64 is replaced"),
    ],
)
def test_layer_with_more_than_packages_has_an_objection(tmp_path, entry, why):
    assert why in on_top(tmp_path, [entry])


def test_other_lower_layers_or_another_environment_are_an_objection(tmp_path):
    assert "environment" in on_top(tmp_path / "1", environment={"A": "1"})
    first = small_layouts.layout(tmp_path / "2", [tars.file("a")], [tars.file("b")])
    for name, layers in {"3": [[tars.file("b")], [tars.file("a")]], "4": [[tars.file("a")]]}.items():
        other = small_layouts.layout(tmp_path / name, *layers)
        assert "does not have the layers" in credit.objection(first, other)
