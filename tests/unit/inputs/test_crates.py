"""Sources in Rust: crates by the hashes of Cargo.lock, from crates.io or mirrors, laid out for cargo in the sandbox."""

import contextlib
import json
import re
import tomllib
from types import SimpleNamespace

import msgspec
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.assembly import summary, with_engine
from graphcrate.compat.facts import compile_time, compilers, crates
from graphcrate.compat.facts.crates import Crate
from graphcrate.compat.failures import missing
from graphcrate.compat.failures.first_error import first_error
from graphcrate.compat.plan import planning
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.inputs import extensions
from graphcrate.inputs.extensions import back_end, back_end_program, launcher
from graphcrate.inputs.wheels import project, sdist, sdist_archive
from graphcrate.model import codec, values
from graphcrate.model.errors import IntegrityError, NetworkError, UsageError
from graphcrate.model.lock import LockedCrate, LockedPackage, decode_lock, encode
from graphcrate.publish.bill import sbom
from graphcrate.render import texts
from graphcrate.resolve.sources import crates as house
from graphcrate.resolve.sources.fetch import fetch
from graphcrate.resolve.sources.request_sources import Sources
from tests import made
from tests.made import bookworm, deb, file_of, index_of, place, refused, wheel
from tests.unit import compiled_plans
from tests.unit.inputs.test_extensions import step
from tests.unit.proof_lock import SUBJECT
from tests.unit.wheel_server import sha256, small_crate, small_sdist

PYPROJECT = '[build-system]\nrequires = ["maturin>=1"]\nbuild-backend = "maturin"\n'
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
A = "a" * 64


def package(name, version="1.0.0", source=CRATES_IO, checksum=A):
    lines = [f"{key} = {json.dumps(value)}" for key, value in (("source", source), ("checksum", checksum)) if value]
    return "\n".join(["[[package]]", f"name = {json.dumps(name)}", f"version = {json.dumps(version)}", *lines, ""])


def cargo_lock(*packages):
    return "version = 3\n" + "\n".join(packages)


# What Cargo.lock says


def needs(*packages, manifest=""):
    return crates.needs({"Cargo.lock": cargo_lock(*packages).encode(), "Cargo.toml": manifest.encode()})


def test_crates_are_those_of_crates_io_and_not_the_sources_own():
    found = needs(package("libc", "0.2.139"), package("small", source=""), package("serde-json", "1.0.0-rc.1+abi"))
    assert found.crates == (Crate("libc", "0.2.139", A), Crate("serde-json", "1.0.0-rc.1+abi", A))
    assert found.obstacle == ""
    assert [crate.file for crate in found.crates] == ["libc-0.2.139.crate", "serde-json-1.0.0-rc.1+abi.crate"]
    assert needs(package("a", source="sparse+https://index.crates.io/")).crates


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (
            package("a", source="git+https://me:hunter2@example.com/a?rev=1#2"),
            "takes the crate a from a git repository",
        ),
        (package("a", source="registry+https://crates.example.com/index"), "the crate a from another registry"),
        (package("a", checksum=""), "has no hash of the crate a"),
    ],
)
def test_crate_that_no_hash_of_crates_io_names_is_an_obstacle(odd, words):
    found = needs(package("b"), odd)
    assert words in found.obstacle
    assert "hunter2" not in found.obstacle


def test_source_without_cargo_lock_is_an_obstacle():
    assert "has no Cargo.lock" in crates.needs({"Cargo.toml": b""}).obstacle


@pytest.mark.parametrize(
    "text",
    [
        "[[package]]\nname = 3\nversion = '1.0.0'\n",
        package("../../etc/passwd"),
        package("a/b"),
        package(".."),
        package("a", "1.0.0/../../x"),
        package("a", "1.0"),
        package("a", "1.0.0-"),
        package("a", checksum="A" * 64),
        package("a", checksum="abc"),
        package("a" * 65),
        package("a") + package("a", checksum="b" * 64),
        "package = 3",
        "no toml",
        "a = " + "[" * 5000,
        "\n".join(package(f"c{number}") for number in range(crates.MOST + 1)),
        package("a") + "#" * (1 << 20),
    ],
)
def test_malformed_cargo_lock_is_refused_by_the_name_of_the_source(tmp_path, text):
    name, content = small_sdist("demo", "1.0", pyproject=PYPROJECT, more={"Cargo.toml": "", "Cargo.lock": text})
    (tmp_path / name).write_bytes(content)
    with refused(IntegrityError, f"{name} is not a usable source archive"):
        sdist.read_cargo(tmp_path / name, name)


@given(st.text(), st.text(), st.text())
def test_whatever_a_cargo_lock_says_a_crate_is_one_part_of_a_path(name, version, checksum):
    document = {"package": [{"name": name, "version": version, "source": CRATES_IO, "checksum": checksum}]}
    try:
        (found,) = codec.convert(document, crates._Lock).package
    except msgspec.ValidationError:
        return
    crate = Crate(found.name, found.version, found.checksum)
    assert values.is_file_name(crate.file)
    assert not crate.sha256 or values.is_sha256(crate.sha256)
    url = house.address("https://crates.example.com/dl", crate)
    assert url.startswith("https://crates.example.com/dl/")
    assert (url.count("/"), set(url) & set("?#@\\ \n")) == (6, set())


@given(st.binary(max_size=200))
def test_no_bytes_of_a_cargo_lock_end_in_another_error(content):
    with contextlib.suppress(ValueError, msgspec.ValidationError, RecursionError):
        crates.needs({"Cargo.lock": content, "Cargo.toml": content})


@pytest.mark.parametrize(
    ("manifest", "rust"),
    [
        ('[package]\nrust-version = "1.74"\n', "1.74"),
        ('[package]\nrust-version = "1.9"\n[workspace.package]\nrust-version = "1.83.0"\n', "1.83.0"),
        ("[package]\nrust-version.workspace = true\n", ""),
        ('[package]\nrust-version = "$(reboot)"\n', ""),
        ("", ""),
    ],
)
def test_rust_that_a_manifest_asks_for_is_the_newest_of_all(manifest, rust):
    assert needs(package("a"), manifest=manifest).rust == rust
    assert crates.numbers("1.74") < crates.numbers("1.74.1") < crates.numbers("1.83")


@pytest.mark.parametrize(
    ("paths", "named", "documents"),
    [
        (["Cargo.lock", "Cargo.toml", "src/lib.rs"], "", ["Cargo.lock", "Cargo.toml"]),
        (
            ["bindings/python/Cargo.lock", "bindings/python/Cargo.toml", "core/Cargo.lock", "core/Cargo.toml"],
            "./bindings/python/Cargo.toml",
            ["bindings/python/Cargo.lock", "bindings/python/Cargo.toml"],
        ),
        (
            ["Cargo.lock", "Cargo.toml", "src/rust/Cargo.toml"],
            "src/rust/Cargo.toml",
            ["Cargo.lock", "src/rust/Cargo.toml", "Cargo.toml"],
        ),
        (["rust/Cargo.lock", "rust/Cargo.toml"], "", ["rust/Cargo.lock", "rust/Cargo.toml"]),
        (["native/Cargo.toml", "other/Cargo.lock"], "", ["native/Cargo.toml"]),
    ],
)
def test_cargo_locks_that_count_are_in_the_folder_of_the_manifest_and_above(paths, named, documents):
    assert crates.documents(paths, crates.manifest_of(paths, named)) == documents


def test_setuptools_rust_takes_each_cargo_lock_but_those_of_tests(tmp_path):
    pyproject = '[build-system]\nrequires = ["setuptools-rust"]\nbuild-backend = "setuptools.build_meta"\n'
    more = {"src/_a/Cargo.lock": cargo_lock(package("a")), "b/Cargo.lock": cargo_lock(package("b"))}
    more |= {"tests/Cargo.lock": cargo_lock(package("c")), "src/_a/Cargo.toml": '[package]\nrust-version = "1.74"\n'}
    name, content = small_sdist("demo", "1.0", pyproject=pyproject, more=more)
    (tmp_path / name).write_bytes(content)
    found = sdist.read_cargo(tmp_path / name, name)
    assert ([crate.name for crate in found.crates], found.rust) == (["a", "b"], "1.74")
    assert sdist.read_sdist(tmp_path / name, name).asked.rust, "without a setup.py, too"


# A project's folder


def folder_of(tmp_path, pyproject, cargo='[package]\nname = "small"\nversion = "0.3.0-beta.1"\n', **more):
    files = {"pyproject.toml": pyproject, "Cargo.toml": cargo, "src/lib.rs": "", "target/big.rlib": "", **more}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("dynamic", [True, False])
def test_project_of_maturin_has_its_version_from_cargo_and_leaves_cargos_output(tmp_path, dynamic):
    version = 'dynamic = ["version"]' if dynamic else 'version = "0.3.0b1"'
    folder = folder_of(tmp_path / "p", f'{PYPROJECT}[project]\nname = "small"\n{version}\n')
    made_of = sdist.write_sdist(folder, project._files(folder), tmp_path)
    assert made_of.name == "small-0.3.0b1.tar.gz"
    assert "target/big.rlib" not in sdist_archive.read_files(made_of, made_of.name, lambda _: 0)


@pytest.mark.parametrize("manifest", ["/etc/passwd", "../Cargo.toml", "a/../../Cargo.toml"])
def test_manifest_outside_of_a_project_is_not_read(tmp_path, manifest):
    (tmp_path / "Cargo.toml").write_text('[package]\nversion = "9.9.9"\n')
    text = (
        f'{PYPROJECT}[project]\nname = "small"\ndynamic = ["version"]\n[tool.maturin]\nmanifest-path = "{manifest}"\n'
    )
    folder = folder_of(tmp_path / "p", text)
    assert sdist.write_sdist(folder, project._files(folder), tmp_path).name == "small-0.3.0b1.tar.gz"


@pytest.mark.parametrize("cargo", ["[package]\nversion.workspace = true\n", None])
def test_project_whose_version_nobody_knows_is_no_source_archive(tmp_path, cargo):
    folder = folder_of(tmp_path / "p", f'{PYPROJECT}[project]\nname = "small"\ndynamic = ["version"]\n', cargo or "")
    if cargo is None:
        (folder / "Cargo.toml").unlink()
    assert sdist.write_sdist(folder, project._files(folder), tmp_path) is None


def test_broken_manifest_of_a_project_is_named(tmp_path):
    folder = folder_of(tmp_path / "p", f'{PYPROJECT}[project]\nname = "small"\ndynamic = ["version"]\n', "no toml")
    with refused(IntegrityError, "Cargo.toml cannot be read"):
        sdist.write_sdist(folder, project._files(folder), tmp_path)


def test_malformed_build_requirement_of_a_project_is_named(tmp_path):
    folder = folder_of(tmp_path / "p", '[build-system]\nrequires = ["???"]\n')
    with refused(IntegrityError, "pyproject.toml cannot be read"):
        sdist.write_sdist(folder, project._files(folder), tmp_path)


# Where crates come from


@pytest.mark.parametrize(
    ("template", "url"),
    [
        (house.CRATES_IO, "https://static.crates.io/crates/pyo3-ffi/pyo3-ffi-0.1.0%2Ba.crate"),
        (house.RSPROXY, "https://rsproxy.cn/api/v1/crates/pyo3-ffi/0.1.0%2Ba/download"),
        ("http://h/dl/", "http://h/dl/pyo3-ffi/0.1.0%2Ba/download"),
        ("http://h/{lowerprefix}/{crate}/{sha256-checksum}", f"http://h/py/o3/pyo3-ffi/{A}"),
    ],
)
def test_address_of_a_crate_is_as_cargos_registries_say_it(template, url):
    assert house.address(template, Crate("pyo3-ffi", "0.1.0+a", A)) == url


@pytest.mark.parametrize(("name", "prefix"), [("a", "1"), ("ab", "2"), ("ABc", "3/A"), ("cargo", "ca/rg")])
def test_folder_of_a_crate_is_by_its_name(name, prefix):
    assert house.address("http://h/{prefix}/x", Crate(name, "1.0.0", A)) == f"http://h/{prefix}/x"


@pytest.fixture
def sources(channels, cache, progress, monkeypatch):
    """A request's sources, whose crates.io is a loopback server; further variables make others."""
    monkeypatch.setattr(house, "CRATES_IO", channels.url("/crates/{crate}/{crate}-{version}.crate"))
    monkeypatch.setattr(house, "PUBLIC", (channels.url("/public"),))

    def of(request=None, **environment):
        return Sources(request or SourceOptions(), cache, {**index_of(channels), **environment}, progress.note)

    return of


def served(server, name, version="1.0.0", root="/crates", **options):
    """Put a crate on the server; what a Cargo.lock says of it."""
    file, content = small_crate(name, version, **options)
    return Crate(name, version, server.put(f"{root}/{name}/{file}", content))


def test_crates_are_locked_by_hash_and_size_and_kept(channels, sources, cache):
    first, second = served(channels, "libc"), served(channels, "pyo3", "0.17.3")
    locked = house.lock_crates([first, second], sources(), "demo 1.0")
    assert [(crate.name, crate.version, crate.file.sha256) for crate in locked] == [first, second]
    for crate in locked:
        stored = cache.file(crate.file.sha256, crate.file.name)
        assert (sha256(stored.read_bytes()), stored.stat().st_size) == (crate.file.sha256, crate.file.size)
    asked = len(channels.asked)
    assert house.lock_crates([first, second], sources(), "demo 1.0") == locked
    assert len(channels.asked) == asked, "the cache has them"


def test_named_mirrors_are_asked_before_crates_io_and_public_ones_last(channels, sources):
    crate = served(channels, "libc", root="/public")
    channels.put("/public/libc/1.0.0/download", channels.bodies.pop("/public/libc/libc-1.0.0.crate"))
    own = channels.url("/own")
    house.lock_crates([crate], sources(CRATES_MIRROR=f"{own} {own}2", WHEEL_FALLBACK=""), "demo 1.0")
    assert channels.paths() == [
        "/own/libc/1.0.0/download",
        "/own2/libc/1.0.0/download",
        "/crates/libc/libc-1.0.0.crate",
        "/public/libc/1.0.0/download",
    ]


def test_mirror_of_wheels_that_has_crates_is_asked_first(sources):
    templates = [template for template, _ in house._templates(sources(SourceOptions(mirror="sjtu")))]
    assert templates[0].startswith("https://mirror.sjtu.edu.cn/crates.io/crates/{crate}/")


def test_crate_that_nobody_has_is_an_error_with_the_setting_of_a_mirror(sources):
    with refused(
        NetworkError,
        "the crate libc 1.0.0, with which demo 1.0 is compiled",
        "CRATES_MIRROR=https://rsproxy.cn",
        "never had",
    ):
        house.lock_crates([Crate("libc", "1.0.0", A)], sources(), "demo 1.0")


def test_crate_with_other_bytes_is_refused(channels, sources, cache):
    crate = served(channels, "libc")._replace(sha256=A)
    with refused(IntegrityError, "no server gives the crate libc 1.0.0", "Cargo.lock of the source says sha256 aaaa"):
        house.lock_crates([crate], sources(), "demo 1.0")
    assert not cache.file(A, crate.file).exists()


@pytest.mark.parametrize("mirror", ["rsproxy", "file:///etc", "https://"])
def test_mirror_that_is_no_address_is_refused(sources, mirror):
    with refused(UsageError, "CRATES_MIRROR is", "CRATES_MIRROR=https://rsproxy.cn/api/v1/crates make …"):
        house.lock_crates([Crate("libc", "1.0.0", A)], sources(CRATES_MIRROR=mirror), "demo 1.0")


def test_server_that_is_not_reached_is_asked_once(sources, progress, monkeypatch):
    dead = sources(CRATES_MIRROR="http://127.0.0.1:9/crates")
    monkeypatch.setattr(house, "CRATES_IO", "http://127.0.0.1:9/other")
    monkeypatch.setattr(house, "THREADS", 1)
    tried = []
    download = type(dead.client).download
    monkeypatch.setattr(
        type(dead.client), "download", lambda *args, **more: tried.append(args[1]) or download(*args, **more)
    )
    with refused(NetworkError, "no server gives the crate", "a firewall before crates.io"):
        house.lock_crates([Crate("libc", "1.0.0", A)], dead, "demo 1.0")
    assert len(tried) == 1


# In a lock


def of_rust(*vendored, **more):
    return made.sdist("demo", "1.0", back_end=True, build=(wheel("maturin"),), crates=vendored, **more)


def locked_crate(name="libc", version="1.0.0", content=b"x"):
    return LockedCrate(name=name, version=version, file=file_of(f"{name}-{version}.crate", content))


def lock_of(package):
    lock = compiled_plans.lock(None, (package,))
    compilation = msgspec.structs.replace(lock.compilation, tools=())
    return msgspec.structs.replace(lock, request_sha256=A, compilation=compilation)


def test_crates_are_files_of_the_lock_and_come_with_what_a_compile_needs(channels, sources, cache, progress):
    crate = served(channels, "libc")
    file, content = small_crate("libc", "1.0.0")
    vendored = LockedCrate(name="libc", version="1.0.0", file=file_of(file, content))
    name, source = small_sdist("demo", "1.0", pyproject=PYPROJECT)
    channels.simple("demo", {name: source})
    package = made.locked((name, source), compiled=True, back_end=True, crates=(vendored,))
    lock = lock_of(package)
    assert decode_lock(encode(lock)) == lock
    assert lock.files()[crate.sha256] == vendored.file
    assert crate.sha256 not in lock.files({package.file.sha256}), "its wheel is there"
    files = fetch(lock, SourceOptions(), place(cache, index_of(channels), progress), compilation=True)
    assert files[crate.sha256].read_bytes() == content


@pytest.mark.parametrize(("name", "version"), [("../x", "1.0.0"), ("x", "1.0.0/.."), ("", "1.0.0"), ("x", "")])
def test_lock_with_an_odd_crate_is_not_read(name, version):
    lock = lock_of(of_rust(locked_crate()))
    assert decode_lock(encode(lock)) == lock
    text = encode(lock).decode().replace('"libc"', json.dumps(name)).replace('"1.0.0"', json.dumps(version))
    with pytest.raises(msgspec.ValidationError):
        decode_lock(text.encode())


def test_other_locks_are_as_they_were():
    assert b"crates" not in msgspec.json.encode(wheel("numpy"))
    assert not msgspec.json.decode(msgspec.json.encode(wheel("numpy")), type=LockedPackage).rust
    assert of_rust().rust, "without any crate"


def test_base_to_compile_in_has_the_rust_of_its_suite_where_something_is_in_rust():
    assert compilers.besides([of_rust()], "bookworm", ("swig",)) == ("swig", "cargo-web", "rustc-web")
    assert compilers.besides([wheel("numpy")], "bookworm") == ()
    base = bookworm(deb("libstd-rust-web-dev", "1.96.0+dfsg1"), deb("rustc-web", "1.85.0+dfsg3-1~deb12u3"))
    assert compilers.rust_of(base) == "1.85.0"
    assert compilers.rust_of(bookworm(deb("gcc-12"))) == ""


def test_wheelhouse_key_has_the_crates_and_the_rust():
    keys = set()
    for package in (of_rust(), of_rust(locked_crate())):
        for version in ("1.85", "1.96"):
            made_by = step(packages=(package,), base=bookworm(deb("rustc-web", version)))
            keys.add(extensions.origin(package, made_by))
    assert len(keys) == 4


def test_plan_says_how_many_crates_there_are_with_which_rust_and_how_long_they_take():
    package = of_rust(locked_crate(), locked_crate("pyo3", content=b"x" * 2_000_000))
    lock = lock_of(package)
    base = bookworm(deb("rustc-web", "1.96.0+dfsg1-1~deb12u2"))
    lock = msgspec.structs.replace(lock, compilation=msgspec.structs.replace(lock.compilation, base=base, toolkit=None))
    (line,) = [line for line in summary.plan_lines("a:b", lock, (), "", 0) if line.startswith("  compile ")]
    assert "demo 1.0 (with 2 crates, 2.0 MB)" in line
    assert line.endswith("with g++-11 and rustc 1.96.0")
    work = compile_time.of_package(package, ["src/lib.rs"], lock.compilation)
    assert list(compile_time.lines([work], 1)) == ["some a minute on 1 core: files of demo (2 crates)"]
    many = msgspec.structs.replace(package, crates=tuple(locked_crate(f"c{number}") for number in range(400)))
    assert compile_time.of_package(many, [], lock.compilation).seconds > 5 * work.seconds


def test_bill_of_materials_has_crates_in_the_package_that_is_made_of_them():
    document = sbom(lock_of(of_rust(locked_crate())), SUBJECT)
    (inside,) = next(item["components"] for item in document["components"] if item["name"] == "demo")
    assert (inside["purl"], inside["scope"]) == ("pkg:cargo/libc@1.0.0", "required")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) is None


def test_text_installs_the_rust_and_what_was_asked_for_to_compile_with():
    made = lock_of(of_rust(locked_crate()))
    compilation = msgspec.structs.replace(made.compilation, with_apt=("swig",))
    made = msgspec.structs.replace(made, compilation=compilation)
    candidate = compiled_plans.VARIANT.candidates[0]
    plan = planning.make_plan(compiled_plans.RECIPE, made, candidate, examples={"hello.py": "print(1)\n"})
    assert re.search(r"apt-get install .*\bswig\b[\s\S]*\bcargo-web\b[\s\S]*\brustc-web\b", texts.dockerfile(plan))
    assert "g++-11, swig, cargo-web, rustc-web, Python's headers" in texts.sources_text(plan)


def test_engine_that_compiles_no_rust_says_so():
    with refused(UsageError, "demo is in Rust, and docker does not compile that", "ENGINE=embedded"):
        with_engine._refuse_back_ends(SimpleNamespace(name="docker"), lock_of(of_rust()))


# In the sandbox


def test_cargo_takes_its_crates_from_a_folder_and_nothing_from_a_network(tmp_path):
    configuration = tomllib.loads(back_end.cargo_configuration())
    source = configuration["source"]
    assert source[source["crates-io"]["replace-with"]] == {"directory": "/build/crates"}
    assert configuration["net"] == {"offline": True}
    seen = back_end.for_cargo(3)
    assert (seen["CARGO_HOME"], seen["CARGO_NET_OFFLINE"], seen["CARGO_BUILD_JOBS"]) == ("/build/cargo", "true", "3")


def test_crates_are_laid_out_packed_and_a_bomb_among_them_is_refused(tmp_path):
    _, content = small_crate("libc", "1.0.0")
    (tmp_path / "libc").write_bytes(content)
    vendored = LockedCrate(name="libc", version="1.0.0", file=file_of("libc-1.0.0.crate", content))
    job = SimpleNamespace(files={vendored.file.sha256: tmp_path / "libc"})
    (tmp_path / "build").mkdir()
    orders = back_end._lay_out_crates(job, of_rust(vendored), tmp_path / "build")
    assert orders == {
        "packed": "/build/crates-packed",
        "folder": "/build/crates",
        "sha256": {"libc-1.0.0.crate": vendored.file.sha256},
    }
    assert (tmp_path / "build/crates-packed/libc-1.0.0.crate").read_bytes() == content
    assert (tmp_path / "build/cargo/config.toml").read_text() == back_end.cargo_configuration()
    (tmp_path / "libc").write_bytes(b"no archive")
    (tmp_path / "other").mkdir()
    with refused(IntegrityError, "libc-1.0.0.crate is not a usable source archive"):
        back_end._lay_out_crates(job, of_rust(vendored), tmp_path / "other")


def test_program_unpacks_crates_as_cargo_vendor_does(tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    for name in ("libc", "pyo3"):
        file, content = small_crate(name, "1.0.0")
        (packed / file).write_bytes(content)
    hashes = {"libc-1.0.0.crate": A, "pyo3-1.0.0.crate": "b" * 64}
    back_end_program.unpack_crates(str(packed), str(tmp_path / "crates"), hashes)
    assert sorted(path.name for path in (tmp_path / "crates").iterdir()) == ["libc-1.0.0", "pyo3-1.0.0"]
    assert 'name = "libc"' in (tmp_path / "crates/libc-1.0.0/Cargo.toml").read_text()
    checksum = json.loads((tmp_path / "crates/libc-1.0.0/.cargo-checksum.json").read_text())
    assert checksum == {"files": {}, "package": A}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["rustc", "-C", "target-cpu=native", "a.rs"], ["rustc", "a.rs"]),
        (["rustc", "-Ctarget-cpu=native", "-C", "opt-level=3"], ["rustc", "-C", "opt-level=3"]),
        (["rustc", "--codegen", "target-cpu=native"], ["rustc"]),
        (["rustc", "--codegen=target-cpu=native", "a.rs"], ["rustc", "a.rs"]),
        (["rustc", "-C", "target-cpu=x86-64-v3"], ["rustc", "-C", "target-cpu=x86-64-v3"]),
    ],
)
def test_launcher_leaves_out_code_for_this_processor_of_rustc(command, expected):
    assert launcher.command_for(command, "", (0,)) == expected


@pytest.mark.parametrize(
    ("output", "line", "library"),
    [
        (
            "error: failed to run custom build command for `openssl-sys v0.9.80`\n\nCaused by:\n  --- stdout\n"
            "  run pkg_config fail: exit status: 1\\nerror: could not find system library 'openssl' required by the "
            "'openssl-sys' crate\\n\n  --- stderr\n  thread 'main' panicked at find.rs:191:5:\n\n  Could not\n",
            "error: failed to run custom build command for `openssl-sys v0.9.80`: could not find system library "
            "'openssl' required by the 'openssl-sys' crate",
            "libssl-dev",
        ),
        (
            "error: failed to run custom build command for `z v1.0.0`\n  The system library `zlib` required by crate "
            "`z` was not found.\n",
            "error: failed to run custom build command for `z v1.0.0`: The system library `zlib` required by crate `z` "
            "was not found",
            "zlib1g-dev",
        ),
        (
            "error: failed to run custom build command for `a v1.0.0`\n  thread 'main' panicked at b.rs:1:\n  no x\n",
            "error: failed to run custom build command for `a v1.0.0`: no x",
            None,
        ),
        (
            "error: failed to run custom build command for `a v1.0.0`\n  signal: 9\n",
            "error: failed to run custom build command for `a v1.0.0`: signal: 9",
            None,
        ),
        (
            "error: rustc 1.96.0 is not supported by the following packages:\n  m@0.1.0 requires rustc 1.99\n  more\n",
            "error: rustc 1.96.0 is not supported by the following packages: m@0.1.0 requires rustc 1.99",
            None,
        ),
        (
            "   Compiling m v0.1.0\nerror[E0308]: mismatched types\n --> a.rs:1\n",
            "error[E0308]: mismatched types",
            None,
        ),
    ],
)
def test_failure_of_cargo_is_named_by_its_first_error_and_the_library_that_is_absent(output, line, library):
    assert first_error(output) == line
    absent = missing.missing(line)
    assert (absent.package if absent else None) == library


def test_launcher_gives_cargo_our_configuration_before_that_of_the_source(tmp_path, monkeypatch):
    """A project's own .cargo/config.toml may name a mirror in place of crates.io: cargo would ask that."""
    started = []
    monkeypatch.setattr(launcher.os, "execvpe", lambda *arguments: started.append(arguments[1]))
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / launcher.PROGRAMS).write_text(json.dumps({"cargo": "/usr/bin/cargo", "rustc": "/usr/bin/rustc"}))
    monkeypatch.delenv("CARGO_HOME", raising=False)
    launcher.main(["/build/compilers/cargo", "build", "--release"], tmp_path)
    monkeypatch.setenv("CARGO_HOME", "/build/cargo")
    launcher.main(["/build/compilers/cargo", "build", "--release"], tmp_path)
    launcher.main(["/build/compilers/rustc", "a.rs"], tmp_path)
    assert started == [
        ["/usr/bin/cargo", "build", "--release"],
        ["/usr/bin/cargo", "--config", "/build/cargo/config.toml", "build", "--release"],
        ["/usr/bin/rustc", "a.rs"],
    ]
    assert {"cargo", "rustc"} <= set(back_end_program.NAMES)
