"""Locks, proofs and reports as other people's hands leave them: read whole, or refused with one sentence."""

import copy
import json
import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcrate.host.disk import documents
from graphcrate.model import codec, values
from graphcrate.model.errors import UNREADABLE, IntegrityError, RecipeError
from graphcrate.model.lock import Added, Drift, Lock, LockedFile, encode
from graphcrate.model.lock_proof import LockProof
from graphcrate.model.report import Artifact, BuildReport, LayerRecord, PackageBytes, SmokeReport
from ocilayout import spec
from tests import ROOT
from tests.made import refused

LOCK = (ROOT / "images/pyg/cu117/pypi.lock.json").read_bytes()
PROOF = (ROOT / "images/pyg/cu117/pypi.proof.json").read_bytes()
DIGEST = f"sha256:{'5' * 64}"
REPORT = encode(
    BuildReport(
        name="torch",
        tag="1.0",
        digest=DIGEST,
        artifact=Artifact(engine="embedded", kind="layout", reference="dist/torch/1.0/oci", digest=DIGEST, bytes=9),
        layout="dist/torch/1.0/oci",
        bytes=9,
        candidate="pypi",
        torch="1.0",
        torch_cuda="cpu",
        cuda="cpu",
        python="3.11",
        packages=(),
        smoke=SmokeReport(suite="torch", status="passed", device="cpu", seconds=1.0, metrics={"a": [1, 0.5]}),
        seconds=2.5,
        layers=(
            LayerRecord(
                title="base",
                digest=DIGEST,
                diff_id=DIGEST,
                size=9,
                unpacked_size=99,
                owners=(PackageBytes(name="debian", version="12", bytes=1),),
            ),
        ),
        lock_sha256="6" * 64,
    )
)


def small(lock):
    """A lock with one or two of each thing, for many tries."""
    compilation = lock.compilation
    toolkit = msgspec.structs.replace(
        compilation.toolkit, packages=compilation.toolkit.packages[:1], wheels=compilation.toolkit.wheels[:1]
    )
    base = msgspec.structs.replace(lock.base, packages=lock.base.packages[:2])
    compilation = msgspec.structs.replace(compilation, base=base, tools=compilation.tools[:1], toolkit=toolkit)
    packages = (*lock.packages[:1], next(one for one in lock.packages if one.build or one.compiled))
    added = Added(packages=("einops",), asked=("einops",))
    drift = (Drift(of="base", name="libc6", locked="2.36-9+deb12u10", taken=""),)
    return msgspec.structs.replace(
        lock, base=base, packages=packages, compilation=compilation, added=added, drift=drift
    )


SMALL = encode(small(codec.decode(LOCK, Lock)))
SEEDS = {"lock": (SMALL, Lock), "proof": (PROOF, LockProof), "report": (REPORT, BuildReport)}
CONFLICT = b"<<<<<<< HEAD\n%s=======\n%s>>>>>>> theirs\n"
RENEW = "./build.py lock pyg --cuda 11.7"


def inside(value):
    """Every struct in a value, itself included."""
    if isinstance(value, msgspec.Struct):
        yield value
        value = [getattr(value, field) for field in value.__struct_fields__]
    if isinstance(value, dict):
        value = list(value.values())
    for one in value if isinstance(value, list | tuple) else ():
        yield from inside(one)


def read_sane(data, kind):
    """Decode; what is taken has hashes, names and sizes that cannot do harm, and one form. Raises UNREADABLE."""
    value = codec.decode(data, kind)
    for one in inside(value):
        for field in one.__struct_fields__:
            held = getattr(one, field)
            if field.endswith("sha256"):
                assert re.fullmatch("[0-9a-f]{64}|", held), (field, held)
            elif field in ("digest", "diff_id") and not isinstance(one, Artifact):
                assert re.fullmatch("sha256:[0-9a-f]{64}|", held), (field, held)
            elif field in ("size", "unpacked_size", "bytes", "packed", "before"):
                assert 0 <= held < 1 << 53, (field, held)
        if isinstance(one, LockedFile):
            assert Path("/c", one.sha256, one.name).parts == ("/", "c", one.sha256, one.name)
            assert ".." not in (one.sha256, one.name)
            assert one.name.isprintable() or not re.search("[\0-\x1f\x7f]", one.name)
    if kind is Lock:
        assert re.fullmatch(r"3\.[0-9]+", value.python)
        for package in value.packages:
            assert re.fullmatch("[a-z0-9-]+", package.name), package.name
            assert not set(package.version) & set(" \t\n'\"$`;&|()<>\\/"), package.version
    written = encode(value)
    assert codec.decode(written, kind) == value
    assert encode(codec.decode(written, kind)) == written
    return value


def test_committed_documents_round_trip_byte_for_byte():
    for data, kind in [*SEEDS.values(), (LOCK, Lock)]:
        assert encode(read_sane(data, kind)) == data


def places(value, path=()):
    """The path of every value within a document."""
    yield path
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*path, key))


DOCUMENTS = {name: json.loads(data) for name, (data, _) in SEEDS.items()}
PLACES = {name: [path for path in places(document) if path] for name, document in DOCUMENTS.items()}
ODD = st.one_of(
    st.sampled_from(
        [
            "",
            ".",
            "..",
            "/etc/passwd",
            "../../x",
            "a/b",
            "a\0b",
            "a\nb",
            "\x1b[2J",
            "x" * 300,
            "0" * 64,
            "A" * 64,
            "0" * 64 + "\n",
            -1,
            1 << 53,
            1 << 63,
            1 << 80,
            10**400,
            1.5,
            -0.0,
            True,
            None,
            [],
            {},
            "$(id)",
            DIGEST,
        ]
    ),
    st.text(max_size=70),
    st.integers(),
)


@pytest.mark.parametrize("name", SEEDS)
def test_document_with_random_values_is_valid_or_refused(name):
    @settings(max_examples=150)
    @given(st.lists(st.tuples(st.sampled_from(PLACES[name]), ODD), min_size=1, max_size=3))
    def attempt(changes):
        document = copy.deepcopy(DOCUMENTS[name])
        for path, value in changes:
            holder = document
            try:
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = copy.deepcopy(value)  # another change may go into it
            except (LookupError, TypeError):  # within what another change took
                continue
        data = json.dumps(document).encode()
        try:
            read_sane(data, SEEDS[name][1])
            said = ""
        except UNREADABLE as error:
            said = codec.explained(error, data)
        assert said.isprintable()

    attempt()


def replaced(pattern, text):
    changed = re.sub(pattern, text, LOCK, count=1)
    assert changed != LOCK
    return changed


HALF = LOCK.index(b"\n", len(LOCK) // 2) + 1
#: what was done to a lock → its bytes, words of the error
DAMAGES = {
    "cut off": (LOCK[:5000], f"line {LOCK[:5000].count(10) + 1}, column "),
    "empty": (b"", "it is empty"),
    "only a line": (b"\n", "it is empty"),
    "another kind": (b"[]", "$: expected `object`, got `array`"),
    "zeros": (bytes(4096), r"line 1, column 1: no JSON: invalid character '\x00'"),
    "deep": (b'{"a":' * 100_000, "brackets within brackets"),
    "UTF-16": (LOCK.decode().encode("utf-16"), "line 1, column 1: text in UTF-16"),
    "a byte order mark": (b"\xef\xbb\xbf" + LOCK, "line 1, column 1: a byte order mark"),
    "another format": (LOCK.replace(b'"format": 1', b'"format": 2'), "$.format: another version of graphcrate"),
    "another number": (replaced(rb'"size": \d+', b'"size": 1e999'), "$.base.packages[0].file.size: number out of"),
    "no size": (
        replaced(rb'"size": \d+', b'"size": -1'),
        "$.base.packages[0].file.size: expected `int` >= 0; it is -1",
    ),
    "a path as hash": (
        replaced(rb'"sha256": "\w+"', b'"sha256": "/home/me/thesis.tex"'),
        '$.base.packages[0].file.sha256: expected a sha256 in 64 digits of lower-case hex; it is "/home/me/thesis.tex"',
    ),
    "a path as name": (replaced(rb'"name": "\w+_', b'"name": "../../x_'), "$.base.packages[0].file.name: expected the"),
    "Latin-1": (
        LOCK.replace(b'"recipe": "pyg"', b'"recipe": "\xfcpyg"'),
        "line 3, column 14: bytes that are not UTF-8",
    ),
    "more behind it": (LOCK + b"x", f"line {LOCK.count(10) + 1}, column 1: no JSON: trailing characters"),
    "a merge conflict": (
        LOCK[:HALF] + CONFLICT % (b'"a": 1,\n', b'"a": 2,\n') + LOCK[HALF:],
        f"an unresolved git merge conflict (<<<<<<< in line {LOCK[:HALF].count(10) + 1})",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_lock_is_one_error_with_location_and_command(tmp_path, monkeypatch, damage):
    data, words = DAMAGES[damage]
    (tmp_path / "pypi.lock.json").write_bytes(data)
    monkeypatch.chdir(tmp_path)
    with refused(RecipeError, f"pypi.lock.json: {words}" if "merge" not in damage else words, RENEW):
        documents.read_lock(tmp_path / "pypi.lock.json", RENEW)


def test_merge_conflict_in_a_lock_names_git_checkout(tmp_path):
    path = tmp_path / "my locks" / "pypi.lock.json"
    path.parent.mkdir()
    path.write_bytes(DAMAGES["a merge conflict"][0])
    with refused(RecipeError, f"git checkout --theirs '{path}'", "--ours", RENEW):
        documents.read_lock(path, RENEW)


def test_damaged_committed_lock_names_git_checkout(tmp_path):
    (tmp_path / ".git").mkdir()
    path = tmp_path / "pypi.lock.json"
    path.write_bytes(b"{")
    with refused(RecipeError, f"git checkout -- {path}", RENEW):
        documents.read_lock(path, RENEW, committed=True)
    with refused(RecipeError, "") as caught:  # beside an image, which nobody commits
        documents.read_lock(path, RENEW)
    assert caught.value.next_step == RENEW


def test_lock_that_is_a_folder_fifo_or_loop_is_an_error_at_once(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(documents.LARGEST + 1)
    for name, words in {"folder": "folder", "pipe": "pipe", "loop": "cannot be read", "large": "64 MB"}.items():
        with refused(RecipeError, words) as caught:
            documents.read_lock(tmp_path / name, RENEW)
        assert caught.value.next_step
    assert documents.read_lock(tmp_path / "none", RENEW) is None
    assert documents.read_lock(tmp_path / "large" / "below a file", RENEW) is None


@pytest.mark.parametrize("part", ["/etc/passwd", "..", ".", "", "a/b", "../x", "a\0", "a\n", "x" * 256])
def test_cache_path_outside_the_cache_is_refused(context, part):
    cache = context.cache
    for find in (
        lambda: cache.path("partial", part),
        lambda: cache.file(part, "x"),
        lambda: cache.file("0" * 64, part),
    ):
        with refused(IntegrityError, "cache"):
            find()
    with refused(IntegrityError, "cache"):
        cache.blob(f"sha256:{part}")


def test_document_patterns_have_descriptions_and_refuse_newline_and_paths():
    forms = {form: getattr(values, form) for form in dir(values) if hasattr(getattr(values, form), "__metadata__")}
    for form, kind in forms.items():
        if pattern := kind.__metadata__[0].pattern:
            assert not values.expected(pattern).startswith("a text like"), form
            assert not re.search(pattern, "0" * 64 + "\n"), f"{form}: $ fits before a final newline"
            assert not re.search(pattern, "/../../etc/passwd\0"), form


@pytest.mark.parametrize("digest", ["sha256:../../x", "sha256:", "x", "sha256:a/b", "sha256:a\0", "../sha256:a"])
def test_descriptor_digest_with_a_path_is_refused(digest):
    data = msgspec.json.encode({"mediaType": spec.MANIFEST, "digest": digest, "size": 1})
    with pytest.raises(msgspec.ValidationError):
        codec.decode(data, spec.Descriptor)
    codec.decode(data.replace(json.dumps(digest).encode(), b'"sha512:abc"'), spec.Descriptor)
