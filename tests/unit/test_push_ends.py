"""How a push ends before its time."""

import random
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphcrate.errors import NetworkError
from graphcrate.oci import push, spec
from tests.unit import small_layouts, tars
from tests.unit.test_push import KIB, once, send, small_pieces
from tests.unit.writable_registry import WritableRegistry

__all__ = ("small_pieces",)  # a fixture that every test here has


def test_the_first_error_ends_all_uploads(tmp_path, monkeypatch):
    """The smallest blob is refused while the largest one is on its way, which takes several requests."""
    begun, ended = threading.Event(), threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *arguments, **options):
            ended.set()  # the error is known, and the others were told
            super().shutdown(*arguments, **options)

    monkeypatch.setattr(push, "ThreadPoolExecutor", Pool)
    large, small = (random.Random(seed).randbytes(size * KIB) for seed, size in ((1, 600), (2, 30)))
    layout = small_layouts.layout(tmp_path, [tars.file("a", large)], [tars.file("b", small)], media_type=spec.LAYER_TAR)
    largest, smallest = layout.layers[0].digest, layout.manifest.config.digest

    def hold(handler):
        begun.set()
        ended.wait(10)
        return False

    def refuse(handler):
        begun.wait(10)
        handler.rfile.read(int(handler.headers["Content-Length"]))
        handler.leave(403)

    with WritableRegistry() as server:
        # a blob of one chunk is sent by PUT, so that the first PATCH is of the largest
        server.moods = [once("PATCH")(hold), once("PUT", urllib.parse.quote(smallest))(refuse)]
        with pytest.raises(NetworkError, match="refuses access") as caught:
            send(server, layout)
    assert "Not everybody may push there" in caught.value.cause
    assert begun.is_set()
    assert largest not in server.blobs
    assert "team/image/manifests/v1" not in server.documents
