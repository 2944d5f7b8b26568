"""The base as an image for engines: its layers and nothing else, under the same name everywhere."""

from pathlib import Path

from graphcrate.engines.builders import base as foundation
from graphcrate.inputs.bases import Base
from graphcrate.oci.layer import LayerWriter
from graphcrate.oci.validate import validate


def make_layer(cache, name):
    with cache.folder() as folder:
        with (folder / "layer").open("wb") as stream:
            writer = LayerWriter(stream, 1)
            writer.data(f"usr/{name}", name.encode() * 1000, 0o644)
            record = writer.finish(name, [])
        cache.adopt(folder / "layer", cache.blob(record.digest))
    return record


def make_base(*layers):
    return Base(
        layers=layers,
        rootfs=Path("/nowhere"),
        python="/usr/bin/python3.11",
        python_version="3.11.2",
        glibc="2.36",
        environment={"PATH": "/usr/bin", "GPG_KEY": "1"},
        labels={"of": "the base"},
    )


def test_it_has_the_layers_and_the_variables_of_the_base_and_no_label(cache):
    base = make_base(make_layer(cache, "one"), make_layer(cache, "two"))
    made = foundation.layout(base, cache)
    validate(made)
    assert [layer.digest for layer in made.layers] == [layer.digest for layer in base.layers]
    assert dict(made.environment) == base.environment
    assert not made.labels
    assert made.config.run.entrypoint is None
    assert made.tag == foundation.TAG


def test_it_is_made_once(cache):
    base = make_base(make_layer(cache, "one"))
    first = foundation.layout(base, cache)
    index = first.path / "index.json"
    before = index.stat().st_ino
    assert foundation.layout(base, cache).digest == first.digest
    assert index.stat().st_ino == before


def test_another_layer_is_another_name(cache):
    one, two = make_layer(cache, "one"), make_layer(cache, "two")
    names = {
        foundation.reference(foundation.layout(make_base(*layers), cache)) for layers in ((one,), (two,), (one, two))
    }
    assert len(names) == 3
    assert all(len(name.removeprefix("graphcrate/base:")) == 12 for name in names)
