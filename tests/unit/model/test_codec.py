"""Values from bytes on several threads at once: where msgspec alone decodes, this process ends with SIGSEGV."""

import re
import sys
import threading

import msgspec
import pytest

from graphcrate.model import codec
from tests import ROOT, modules_of_house

PARTS = 30


@pytest.fixture
def switching():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("read", [codec.decode, codec.unpack, codec.convert])
def test_codec_decodes_a_new_type_on_several_threads(switching, read):
    document = {f"f{number}": {"a": 1} for number in range(PARTS)}
    data = {codec.decode: msgspec.json.encode, codec.unpack: msgspec.msgpack.encode}.get(read, dict)(document)
    for _ in range(20):
        part = [msgspec.defstruct(f"Part{number}", [("a", int), ("c", tuple[int, ...], ())]) for number in range(PARTS)]
        whole = msgspec.defstruct("Whole", [(f"f{number}", part[number]) for number in range(PARTS)])
        made, gate = [], threading.Barrier(4)

        def decode(whole=whole, made=made, gate=gate):
            gate.wait()
            made.append(read(data, whole))

        threads = [threading.Thread(target=decode) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [value.f0.a for value in made] == [1] * 4


def test_only_model_codec_decodes_into_types():
    around = re.compile(r"msgspec\.(convert\(|(json|msgpack)\.(Decoder|decode\([^\n]*type=))")
    modules = [path for path in modules_of_house() if around.search(path.read_text())]
    assert modules == [ROOT / "graphcrate/model/codec.py"]
