"""False bases and layers from a registry; damaged files of images."""

import copy
import dataclasses
import json
import random
import re
import struct

from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import validate
from ocilayout import spec
from sifsquash.squashfs import MAGIC, NO_FRAGMENT, STORED, SUPERBLOCK
from tests.faults import project
from tests.faults.rows import ALL, Ended, Watch, row, rows
from tests.unit import tars
from tests.unit.artifacts.test_layer_cases import OUT, REFUSED

FOREIGN = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"


def relocked(origin, place, reference):
    """Lock and build on another base: what the command line says."""
    recipe = place.folder / "recipes/torch.toml"
    before = recipe.read_text()
    recipe.write_text(re.sub(r'reference = "[^"]*"', f'reference = "{reference}"', before))
    locks = {path: path.read_bytes() for path in (place.folder / "images").rglob("*.lock.json")}
    done = place.run("lock", "torch", "--cuda", "cpu")
    after = {path: path.read_bytes() for path in (place.folder / "images").rglob("*.lock.json")}
    recipe.write_text(before)
    return done, after == locks


WHITEOUT = [[tars.symlink("l", OUT)], [tars.file("l/.wh.secret")]]


@row(
    "Base and layers",
    "layers that lead out of the root, by names, links or whiteouts, or contradict themselves",
    "`lock` with a base of such layers, one after the other, then `image` with the locked one",
)
def test_hostile_layers(origin, warm):
    outside, codes = warm.cache.parent / "outside", []
    outside.mkdir()
    (outside / "secret").write_text("secret")
    for layers in (WHITEOUT, *(layers for layers, _ in REFUSED)):
        layers = copy.deepcopy(layers)
        for member, _ in (entry for layer in layers for entry in layer):
            member.linkname = member.linkname.replace(OUT, str(outside))
        origin.registry.image("faults/hostile", layers, "1", run={"Env": ["PATH=/usr/bin"]})
        done, unchanged = relocked(origin, warm, f"{origin.door.address}/faults/hostile:1")
        project.failed(warm, done, 4, 12)
        assert unchanged
        assert [path.name for path in outside.iterdir()] == ["secret"]
        codes.append(done.code)
    how = f"{len(codes)} of {len(codes)}: exit code 12 (4 where nothing of Python was left) and a sentence"
    return Ended(f"{how}; outside nothing has changed", project.goes_on(warm, origin.digest))


def malformed(**fields):
    def change(manifest):
        manifest["layers"][0] = {**manifest["layers"][0], **fields}

    return change


MANIFESTS = {
    "digest": ("a malformed digest", malformed(digest="sha256:../../../etc/passwd")),
    "no-digest": ("an empty digest", malformed(digest="")),
    "size": ("a size that is too small", malformed(size=10)),
    "large": ("a size that is too large", malformed(size=10**15)),
    "negative": ("a negative size", malformed(size=-1)),
    "type": ("zstd that says it is gzip", None),
    "unknown": ("a layer of an unknown type", malformed(mediaType="application/x-evil")),
    "foreign": (
        "a foreign layer with an address of its own",
        malformed(mediaType=FOREIGN, urls=["http://127.0.0.1:9/"]),
    ),
    "index": ("an index that says it is a manifest", lambda manifest: manifest.update(manifests=[], layers=None)),
    "config": (
        "a manifest whose configuration is a layer",
        lambda manifest: manifest.update(config=manifest["layers"][0]),
    ),
}


@rows("Base and layers", "`lock` with that base, then `image` with the locked one", MANIFESTS)
def test_malformed_manifest(origin, warm, case):
    types = (spec.LAYER_ZSTD,) if case is None else (spec.LAYER_GZIP,)
    image = origin.registry.image("faults/bad", [[tars.file("a")]], types=types, run={"Env": ["PATH=/usr/bin"]})
    _, data = origin.registry.documents[f"faults/bad/manifests/{image['digest']}"]
    manifest = json.loads(data)
    (case or malformed(mediaType=spec.LAYER_GZIP))(manifest)
    origin.registry.put("faults/bad", manifest, spec.MANIFEST, "1")
    done, unchanged = relocked(origin, warm, f"{origin.door.address}/faults/bad:1")
    project.failed(warm, done, 4, 5, 6, 8, 12)
    assert unchanged
    return Ended(f"exit code {done.code}: {project.said(done)}", project.goes_on(warm, origin.digest))


@row("Base and layers", "a base of 200 layers", "`lock` and `image`")
def test_many_layers(origin, cold):
    layers = [project.base_layer(), *([tars.file(f"opt/layer-{number}")] for number in range(199))]
    origin.registry.image("faults/many", layers, "1", run={"Env": ["PATH=/usr/sbin:/usr/bin"], "Cmd": ["sh"]})
    recipe = cold.folder / "recipes/torch.toml"
    recipe.write_text(recipe.read_text().replace("faults/base:1", "faults/many:1"))
    project.lock(cold)
    watch = Watch()
    done = cold.run(*project.IMAGE, "--json")
    made = project.report(cold, done)
    assert validate(read_layout(cold.layout(made))).faults == ()
    said = "127" in done.err
    return Ended(
        "the image is built" + (", with a warning that engines mount at most 127" if said else ""), watch.seconds
    )


@rows(
    "Base and layers",
    "`audit` of the file with bits flipped, cut off, or with other bytes, many times (seeded)",
    {
        "sqsh": ("a damaged squashfs", "sqsh"),
        "sif": ("a damaged SIF", "sif"),
        "tar": ("a damaged archive", "oci-archive"),
    },
)
def test_damaged_files(origin, warm, case):
    path = warm.folder / f"made.{case}"
    warm.run("convert", warm.layout(origin.report), "--to", case, "--output", path).ok()
    whole, random_, codes = path.read_bytes(), random.Random(case), []
    for number in range(100 if ALL else 6):
        data = bytearray(whole)
        if number % 3 == 2:
            del data[random_.randrange(len(data)) :]
        else:
            start = 0 if number % 3 else len(data) - 4096
            for _ in range(20):
                data[(start + random_.randrange(4096)) % len(data)] = random_.randrange(256)
        path.write_bytes(data)
        ended = warm.run("audit", path)
        assert "Traceback" not in ended.err, ended.err
        if ended.code not in (0, 15):
            project.failed(warm, dataclasses.replace(ended, out=""), *range(2, 13))
        codes.append(ended.code)
    told = sum(code not in (0, 15) for code in codes)
    return Ended(f"{told} of {len(codes)} ended with a sentence, in the others nothing that is read was damaged")


def squashfs(name, place):
    """A squashfs with an empty file, and beside it its root again where `place` is that. Nothing is compressed."""
    listing = struct.pack("<IIIHhHH", 0, 0, 1, place, 0, 1 if place else 2, len(name) - 1) + name
    file = struct.pack("<HHHHIIIIII", 2, 0o644, 0, 0, 0, 1, 0, NO_FRAGMENT, 0, 0)
    root = struct.pack("<HHHHIIIIHHI", 1, 0o755, 0, 0, 0, 2, 0, 2, len(listing) + 3, 0, 3)
    body, places = b"", []
    for table in (file + root, listing, struct.pack("<I", 0)):
        places.append(SUPERBLOCK.size + len(body))
        body += struct.pack("<H", STORED | len(table)) + table
    inodes, folders, ids = places
    end = SUPERBLOCK.size + len(body)
    rest = (len(file), end + 8, end, 2**64 - 1, inodes, folders, ids, 2**64 - 1)
    return SUPERBLOCK.pack(MAGIC, 2, 0, 4096, 0, 1, 12, 0, 1, 4, 0, *rest) + body + struct.pack("<Q", ids)


@rows(
    "Base and layers",
    "`audit` and `check` of the file",
    {
        "parent": ("a squashfs with a file `..`", squashfs(b"..", 0)),
        "slash": ("a squashfs with a file `../evil`", squashfs(b"../evil", 0)),
        "loop": ("a squashfs whose root is in itself", squashfs(b"again", 32)),
    },
)
def test_hostile_squashfs(warm, case):
    path = warm.folder / "evil.sqsh"
    path.write_bytes(case)
    before = sorted(warm.cache.parent.rglob("evil*"))
    for command in ("audit", "check"):
        done = warm.run(command, path)
        said = project.failed(warm, done, 12)
        assert "a folder" in said
    assert sorted(warm.cache.parent.rglob("evil*")) == before
    return Ended(f"exit code {done.code}: {project.said(done)}")
