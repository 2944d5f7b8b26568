"""Libraries that compiled packages are linked to: locked, fetched, part of the key, made and handed to setup.py."""

import io
import json
import os
import tarfile
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from debroot import mirrors, snapshot
from graphcrate.assembly import extension_wheels as assembling
from graphcrate.checks.licences import PackageFacts
from graphcrate.compat.facts import libraries, licences
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.inputs import extensions
from graphcrate.inputs.bases import BaseDriftError, debs
from graphcrate.inputs.extensions import compile as house
from graphcrate.inputs.extensions import libraries as orders
from graphcrate.inputs.extensions import worker
from graphcrate.model.errors import IntegrityError, LockedError, ResolutionError
from graphcrate.model.lock import Added, decode_lock, encode
from graphcrate.publish.bill import sbom
from graphcrate.resolve.additions import additions
from tests.made import file_of, place, refused, sdist
from tests.unit.compiled_plans import TOOLKITS, lock
from tests.unit.proof_lock import SUBJECT
from tests.unit.wheel_server import WheelServer
from upkeep.standing import files as standing

(METIS,) = libraries.of_packages(["torch-sparse"])
HEADER = "#define A 1\n#define IDXTYPEWIDTH 32\n"


def linked_lock(**changes):
    """A lock whose torch-sparse is linked to METIS."""
    made = lock(TOOLKITS["debian"])
    compilation = libraries.with_libraries(made.compilation, ["torch-scatter", "torch-sparse"])
    return msgspec.structs.replace(made, compilation=compilation, **changes)


def archive(files, top="metis-5.1.0"):
    """Packed sources with these files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


SOURCES = {
    "include/metis.h": HEADER,
    "LICENSE.txt": "Apache",
    "GKlib/b.c": "",
    "GKlib/getopt.c": "",
    "libmetis/a.c": "",
    "programs/x.c": "",
}


def key(package, compilation):
    step = compile_steps(msgspec.structs.replace(linked_lock(), compilation=compilation))[0]
    return extensions.origin(package, step)


def test_facts_name_a_file_of_debians_pool_and_a_time_of_its_snapshots():
    source = METIS.locked
    assert mirrors.is_path(source.path)
    assert mirrors.is_time(source.listed)
    assert source.path.endswith(f"/{source.file.name}")
    assert (source.architecture, source.file.sha256[:8], source.file.sha256[-4:]) == ("source", "c50a88b9", "3615")


def test_lock_without_libraries_is_encoded_as_before():
    made = msgspec.structs.replace(lock(TOOLKITS["debian"]), request_sha256="0" * 64)
    assert libraries.with_libraries(made.compilation, ["torch-scatter"]) == made.compilation
    assert b'"libraries"' not in encode(made)
    assert decode_lock(encode(made)) == made


def test_library_is_one_of_the_lock_s_files_while_something_is_compiled():
    made = linked_lock(request_sha256="0" * 64)
    assert decode_lock(encode(made)) == made
    assert METIS.sha256 in made.files()
    assert METIS.sha256 not in made.files([package.file.sha256 for package in made.packages])


def test_step_has_only_the_libraries_of_its_packages():
    made = linked_lock(added=Added(packages=("torch-sparse",)))
    stack, added = compile_steps(made)
    assert (stack.compilation.linked, added.compilation.linked) == ((), (METIS.locked,))
    assert stack.compilation == lock(TOOLKITS["debian"]).compilation


def test_wheelhouse_key_depends_on_the_library_where_a_package_is_linked_to_it(monkeypatch):
    scatter, sparse = sdist("torch-scatter"), sdist("torch-sparse")
    without, within = lock(TOOLKITS["debian"]).compilation, linked_lock().compilation
    assert key(scatter, without) == key(scatter, within)
    assert key(sparse, without) != key(sparse, within)
    other = msgspec.structs.replace(METIS.locked, file=file_of("metis_5.1.0.dfsg.orig.tar.xz", b"another"))
    assert key(sparse, msgspec.structs.replace(within, libraries=(other,))) != key(sparse, within)
    before = key(sparse, within)
    for change, same in (({"options": "-O0"}, False), ({"seconds": 1.0}, True), ({"listed": ""}, True)):
        changed = msgspec.structs.replace(METIS, **change)
        monkeypatch.setattr(libraries, "_libraries", lambda changed=changed: (changed,))
        assert (key(sparse, within) == before) is same, change


def test_lock_with_an_unknown_library_is_refused():
    foreign = msgspec.structs.replace(METIS.locked, name="scotch")
    compilation = msgspec.structs.replace(linked_lock().compilation, libraries=(foreign,))
    with refused(LockedError, "the lock links packages to scotch", "make it again"):
        libraries.linked("torch-sparse", compilation)


def test_user_s_own_compiled_package_brings_its_library_to_a_stack_without():
    stack = lock(TOOLKITS["debian"], packages=tuple(p for p in lock(None).packages if p.name != "torch-sparse"))
    own = linked_lock(added=Added(packages=("torch-sparse",)))
    assert additions._compiled_as(stack, own).compilation.linked == (METIS.locked,)


# -- fetched


@pytest.fixture
def mirror(cache, progress, no_places):
    with WheelServer() as server:
        environment = {**no_places, "DEBIAN_MIRROR": server.url("/debian"), "DEBIAN_SNAPSHOT": server.url("")}
        yield server, place(cache, environment, progress)


def source_of(content):
    return msgspec.structs.replace(METIS.locked, file=file_of(METIS.locked.file.name, content))


def test_sources_are_fetched_by_hash_as_debs_are(mirror):
    server, ctx = mirror
    content = archive(SOURCES)
    server.put(f"/debian/{METIS.path}", content)
    (path,) = debs.fetch_sources([source_of(content)], ctx)
    assert path.read_bytes() == content


def test_sources_that_left_the_mirrors_are_found_on_the_snapshots_by_name(mirror):
    server, ctx = mirror
    content = archive(SOURCES)
    server.put("/mr/package/metis/5.1.0.dfsg-7/srcfiles", json.dumps({"result": [{"hash": "a" * 40}]}).encode())
    server.put(f"/file/{'a' * 40}", content)
    (path,) = debs.fetch_sources([source_of(content)], ctx)
    assert path.read_bytes() == content
    assert snapshot.question("", METIS.locked) == "/mr/package/metis/5.1.0.dfsg-7/srcfiles"


@pytest.mark.parametrize("path", ["pool/main/m/metis/../../x.orig.tar.xz", "pool/main/m/metis/metis.orig.tar.xz.sh"])
def test_sources_with_a_path_out_of_the_pool_are_refused(mirror, path):
    with pytest.raises(IntegrityError, match="names no file of a Debian archive"):
        debs.fetch_sources([msgspec.structs.replace(METIS.locked, path=path)], mirror[1])


def test_lock_check_looks_for_the_sources_too():
    entries = list(standing._debian(linked_lock()))
    assert ("bookworm", METIS.listed, METIS.locked) in entries


def compiling(ctx=None, *, locked=False):
    return assembling.Compiling(None, linked_lock(), SourceOptions(locked=locked), ctx)


def test_build_fetches_each_library_once(monkeypatch):
    monkeypatch.setattr(debs, "fetch_sources", lambda sources, ctx: [Path(source.file.name) for source in sources])
    steps = compile_steps(linked_lock())
    assert compiling()._libraries([*steps, *steps]) == {METIS.sha256: Path("metis_5.1.0.dfsg.orig.tar.xz")}
    assert compiling()._libraries([]) == {}


@pytest.mark.parametrize(("locked", "kind"), [(False, ResolutionError), (True, LockedError)])
def test_sources_that_are_nowhere_end_a_build_with_what_to_do(monkeypatch, locked, kind):
    def gone(*_):
        raise BaseDriftError("no place has 1 package (metis 5.1.0)", cause="gone", next_step="lock again")

    monkeypatch.setattr(debs, "fetch_sources", gone)
    with pytest.raises(kind, match=r"no place has 1 package \(metis") as caught:
        compiling(locked=locked)._libraries(compile_steps(linked_lock()))
    assert caught.value.next_step


# -- its licences


def test_licences_of_a_library_are_part_of_the_image_s_expression():
    sparse = (sdist("torch-sparse", "0.6.18"),)  # others have the same licences
    without = licences.of_lock(lock(TOOLKITS["debian"], packages=sparse)).split(" AND ")
    within = licences.of_lock(linked_lock(packages=sparse)).split(" AND ")
    assert set(within) - set(without) == {"LGPL-2.1-or-later"}
    assert "Apache-2.0" in within


@pytest.mark.parametrize("facts", [None, {"torch-sparse": PackageFacts(licences=("MIT",))}])
def test_sbom_nests_a_library_in_the_package_that_is_linked_to_it(facts):
    document = sbom(linked_lock(request_sha256="0" * 64), SUBJECT, facts=facts)
    within = {component["name"]: component.get("components", []) for component in document["components"]}
    (metis,) = within["torch-sparse"]
    assert (metis["name"], metis["version"], metis["scope"]) == ("metis", "5.1.0.dfsg-7", "required")
    assert [licence["expression"] for licence in metis["licenses"]] == [METIS.licence]
    assert metis["purl"] == "pkg:deb/debian/metis@5.1.0.dfsg-7?arch=source&distro=bookworm"
    assert within["torch-scatter"] == []
    source = next(component for component in document["components"] if component["name"] == "metis")
    assert (source["scope"], source["hashes"][0]["content"]) == ("excluded", METIS.sha256)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) is None


# -- made


def order(folder, files=SOURCES, top="metis-5.1.0", **changes):
    (folder / "metis.tar.xz").write_bytes(archive(files, top))
    made = orders.library_order(METIS, METIS.locked)
    here = {"archive": str(folder / "metis.tar.xz"), "folder": str(folder / "metis"), "log": str(folder / "metis")}
    return {**json.loads(msgspec.json.encode(made)), **here, **changes}


def test_sources_are_unpacked_edited_and_listed_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "gcc-11")
    first, second = worker.prepare(order(tmp_path))
    assert [first.source, second.source] == ["metis/GKlib/b.c", "metis/libmetis/a.c"]
    assert first.command[:1] + first.command[-4:] == ["gcc-11", "-c", "GKlib/b.c", "-o", "objects/GKlib_b.c.o"]
    assert {"-Iinclude", "-fPIC", "-fvisibility=hidden"} <= set(first.command)
    assert first.folder == str(tmp_path / "metis")
    assert first.headers == ""
    assert first.seconds == METIS.seconds / 2
    header = (tmp_path / "metis/include/metis.h").read_text()
    assert header == "#define A 1\n#define IDXTYPEWIDTH 64\n"
    assert "Lesser" in (tmp_path / "metis/NOTICE.METIS.txt").read_text()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"files": {**SOURCES, "include/metis.h": "#define IDXTYPEWIDTH 64\n"}}, "has no line of its own"),
        ({"files": {**SOURCES, "include/metis.h": HEADER * 2}}, "has no line of its own"),
        ({"files": {"include/metis.h": HEADER}}, "has no file to compile"),
        ({"top": "metis-6"}, "metis-5.1.0"),
    ],
)
def test_sources_that_are_not_the_expected_ones_are_reported_and_raised(tmp_path, capsys, changes, says):
    with pytest.raises(OSError, match=says):
        worker.prepare(order(tmp_path, **changes))
    assert json.loads(capsys.readouterr().out) == {"event": "failed", "package": "metis"}


def done(error=None):
    future = Future()
    future.set_exception(error) if error else future.set_result(None)
    return future


def test_library_is_put_together_in_order_of_its_objects_without_times(tmp_path, monkeypatch):
    (tmp_path / "metis/objects").mkdir(parents=True)
    for name in ("b.o", "a.o", "c.txt"):
        (tmp_path / "metis/objects" / name).touch()
    ran = []

    def run(command, *, cwd, **_):
        ran.append((command, cwd))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(worker.subprocess, "run", run)
    given = {"name": "metis", "folder": str(tmp_path / "metis"), "log": str(tmp_path / "metis")}
    worker.put_together(given, [done(), done()])
    assert ran == [(["ar", "rcsD", "../libmetis.a", "a.o", "b.o"], f"{tmp_path}/metis/objects")]


def test_library_is_not_put_together_after_a_failed_file_or_ar(tmp_path, monkeypatch, capsys):
    (tmp_path / "metis/objects").mkdir(parents=True)
    given = {"name": "metis", "folder": str(tmp_path / "metis"), "log": str(tmp_path / "metis")}
    with pytest.raises(OSError, match=r"a\.c"):
        worker.put_together(given, [done(OSError("a.c"))])
    monkeypatch.setattr(worker.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    with pytest.raises(OSError, match="metis"):
        worker.put_together(given, [])
    assert json.loads(capsys.readouterr().out)["log"] == f"{tmp_path}/metis.log"


def test_package_gets_its_library_s_variables_folders_and_licences(tmp_path, monkeypatch):
    monkeypatch.delenv("WITH_METIS", raising=False)
    compilation = linked_lock().compilation
    assert orders.package_order("torch-scatter", compilation) == {}
    given = orders.package_order("torch-sparse", compilation)
    assert given["include_dirs"] == ["/build/metis/include"]
    assert given["library_dirs"] == ["/build/metis"]
    assert given["texts"] == {
        "LICENSE.METIS.txt": "/build/metis/LICENSE.txt",
        "NOTICE.METIS.txt": "/build/metis/NOTICE.METIS.txt",
    }
    (tmp_path / "L").write_text("Apache")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    worker.link_to_libraries({**given, "folder": str(tmp_path), "texts": {"LICENSE.METIS.txt": str(tmp_path / "L")}})
    assert os.environ["WITH_METIS"] == "1"
    assert (tmp_path / "LICENSE.METIS.txt").read_text() == "Apache"
    worker.link_to_libraries({"folder": str(tmp_path)})


def lay_out(tmp_path, packages, content):
    made = msgspec.structs.replace(linked_lock().compilation, libraries=(source_of(content),))
    (tmp_path / "sdist").touch()
    (tmp_path / "metis").write_bytes(content)
    files = {package.file.sha256: tmp_path / "sdist" for package in packages}
    files[made.linked[0].file.sha256] = tmp_path / "metis"
    build = tmp_path / "build"
    build.mkdir()
    job = SimpleNamespace(step=SimpleNamespace(compilation=made), files=files)
    house._lay_out(job, packages, build, 2)
    return build, json.loads((build / "orders.json").read_text())


def test_orders_have_the_library_where_a_package_that_is_compiled_wants_it(tmp_path):
    content = archive(SOURCES)
    build, given = lay_out(tmp_path, [sdist("torch-scatter"), sdist("torch-sparse")], content)
    assert [library["name"] for library in given["libraries"]] == ["metis"]
    assert [package.get("libraries") for package in given["packages"]] == [None, ["metis"]]
    assert (build / "metis_5.1.0.dfsg.orig.tar.xz").read_bytes() == content


def test_orders_have_no_library_where_no_package_wants_it(tmp_path):
    build, given = lay_out(tmp_path, [sdist("torch-scatter")], archive(SOURCES))
    assert given["libraries"] == []
    assert not (build / "metis_5.1.0.dfsg.orig.tar.xz").exists()


def test_damaged_sources_of_a_library_are_refused_before_anything_is_compiled(tmp_path):
    with pytest.raises(IntegrityError, match=r"metis_5\.1\.0\.dfsg\.orig\.tar\.xz cannot be inflated"):
        lay_out(tmp_path, [sdist("torch-sparse")], archive(SOURCES)[:-40])


def test_failed_library_is_blamed_on_the_package_that_is_linked_to_it():
    packages = [sdist("torch-scatter"), sdist("torch-sparse")]
    assert house._linked_to("metis", packages, linked_lock().compilation) == ["torch-sparse"]
    assert house._linked_to("", packages, linked_lock().compilation) == []
