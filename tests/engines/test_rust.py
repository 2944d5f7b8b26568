"""docs/rust.md, with a real crate: a function in Rust (pyo3) is in an image that imports and calls it.

Its crates are those of Debian, packed as crates.io gives them and served on loopback, where CRATES_MIRROR points. So
nothing of crates.io has to be reached, and the bytes are the same on each machine.
"""

import gzip
import hashlib
import io
import os
import tarfile
import tomllib

import pytest

from graphcrate.inputs.bases import deb, debian, debs
from graphcrate.model.recipe import BaseSpec
from tests.engines.workplace import small_stack
from tests.loopback import Answers, Loopback
from tests.made import place

pytestmark = [pytest.mark.weekly, pytest.mark.network, pytest.mark.engine("user namespaces")]

#: what pyo3 needs with its default features, and what these need
CRATES = frozenset(
    """
    autocfg cfg-if indoc libc lock-api memoffset once-cell parking-lot parking-lot-core proc-macro2 pyo3
    pyo3-build-config pyo3-ffi pyo3-macros pyo3-macros-backend quote scopeguard smallvec syn target-lexicon
    unicode-ident unindent
    """.split()  # noqa: SIM905 (a list of 22 lines says no more)
)
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
FILES = {
    "pyproject.toml": """[build-system]
requires = ["maturin>=1,<2"]
build-backend = "maturin"
[project]
name = "small-crate"
version = "0.1.0"
""",
    "Cargo.toml": """[package]
name = "small-crate"
version = "0.1.0"
edition = "2021"
[lib]
name = "small_crate"
crate-type = ["cdylib"]
[dependencies]
pyo3 = { version = "0.17", features = ["extension-module"] }
""",
    "src/lib.rs": """use pyo3::prelude::*;
#[pyfunction]
fn total(degrees: Vec<u64>) -> u64 { degrees.iter().sum() }
#[pymodule]
fn small_crate(_py: Python<'_>, module: &PyModule) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(total, module)?)
}
""",
}
OWN = '[[package]]\nname = "small-crate"\nversion = "0.1.0"\ndependencies = ["pyo3"]\n'


class _Crates(Answers):
    def do_GET(self):
        self.server_asked.append(self.path)
        body = self.packed.get(self.path)
        self.answer(404 if body is None else 200, body or b"")


@pytest.fixture
def mirror():
    """A server of crates; `packed`: path → bytes."""
    with Loopback().start(_Crates, packed={}, server_asked=[]) as server:
        yield server


def unpacked_crates(cache, folder):
    """The folders of the crates that bookworm has, as /usr/share/cargo/registry has them."""
    there = place(cache, os.environ)
    names = {f"librust-{name}-dev" for name in CRATES}
    locked = debian.lock(BaseSpec(suite="bookworm", packages=tuple(sorted(names))), "3.11", there)
    wanted = [package for package in locked.packages if package.name in names]
    for number, path in enumerate(debs.fetch_debs(wanted, "bookworm", there)):
        plain = folder / f"{number}.deb"
        deb.extract(plain, deb.inflate_member(path, plain), folder / "files")
    return sorted((folder / "files/usr/share/cargo/registry").iterdir())


def packed(folder, name):
    """A crate as `cargo package` packs it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.name != ".cargo-checksum.json":
                info = tarfile.TarInfo(f"{name}/{path.relative_to(folder)}")
                info.size, info.mode = path.stat().st_size, 0o644
                archive.addfile(info, io.BytesIO(path.read_bytes()))
    return gzip.compress(raw.getvalue(), mtime=0)


def test_small_crate_with_pyo3_is_in_an_image_that_imports_and_calls_it(
    workplace, built_image, bookworm, mirror, tmp_path
):
    lines = ["version = 3"]
    for folder in unpacked_crates(bookworm.cache, tmp_path):
        about = tomllib.loads((folder / "Cargo.toml").read_text())["package"]
        name, version = about["name"], about["version"]
        content = packed(folder, f"{name}-{version}")
        mirror.server.RequestHandlerClass.packed[f"/{name}/{version}/download"] = content
        known = {"name": name, "version": version, "source": CRATES_IO, "checksum": hashlib.sha256(content).hexdigest()}
        lines += ["[[package]]", *(f'{key} = "{value}"' for key, value in known.items())]
    project = tmp_path / "small-crate"
    for name, text in {**FILES, "Cargo.lock": "\n".join([*lines, OWN])}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)

    report = workplace.having(CRATES_MIRROR=f"http://{mirror.address}").run(
        "image", *small_stack(), "--with", project, "--json"
    )
    assert [suite["suite"] for suite in report.json["suites"]][-1] == "imports"
    assert len(mirror.server.RequestHandlerClass.server_asked) == len(CRATES)
    called = "import small_crate; print(small_crate.total([1, 2, 3]))"
    done = workplace.run("run", workplace.layout(report.json), "--", "python", "-c", called).ok()
    assert done.out.strip() == "6"
