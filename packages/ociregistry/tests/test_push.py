"""Pushing to the strict registry of registry_server.py: what is sent, in which order, and who sees which secret."""

import contextlib
import random
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import pytest

from ocilayout import spec
from ociregistry import push, reference, upload
from ociregistry.credentials import Credential
from ociregistry.errors import BlobError, DamagedError, RefusedError
from ociregistry.repository import Repository
from ociregistry.upload import UploadBlob
from patienthttp.client import Client
from patienthttp.errors import HttpError
from tests.engines.fault_proxy import NOTICED, UNNOTICED, FaultProxy, first
from tests.made import refused
from tests.unit import small_layouts, tars
from tests.unit.registry_server import RegistryServer

ALICE = Credential(user="alice", password="wonder:land")
KIB = 1 << 10


@pytest.fixture
def layout(tmp_path):
    return layout_of(tmp_path, 80)


def layout_of(folder, small):
    """Two layers that nothing compresses: a large one, and one of so many KiB."""
    layers = [[tars.file("a", random.Random(size).randbytes(size * KIB))] for size in (600, small)]
    return small_layouts.layout(folder, *layers, types=(spec.LAYER_TAR,))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(upload, "SMALLEST", 16 * KIB)
    monkeypatch.setattr(upload, "LARGEST", 64 * KIB)
    monkeypatch.setattr(upload, "REFUSABLE", 8 * KIB)
    monkeypatch.setattr(upload, "PIECE", 4 * KIB)


def send(server, layout, name="team/image:v1", form="oci", *, credential=None, pauses=None, **more):
    """Push an image and name it; all of its bytes are shown."""

    def sleep(seconds):
        if pauses is not None and seconds != upload.LISTEN:
            pauses.append(seconds)

    where = reference.parse(f"{getattr(server, 'host', server)}/{name}")
    target = Repository(Client({}, sleep=sleep), where, lambda: credential, writes=True, **more)
    descriptors = (*layout.layers, layout.manifest.config)
    blobs = [UploadBlob(descriptor=one, path=layout.blob(one.digest)) for one in descriptors]
    document, kind = layout.blob(layout.digest).read_bytes(), spec.MANIFEST
    if form == "docker":
        document, kind = spec.docker_form(layout.manifest), spec.DOCKER_MANIFEST
    totals, done = [], []
    pushed = push.push_image(
        target, blobs, document, kind, lambda total: contextlib.nullcontext(totals.append(total) or done.append)
    )
    assert totals == [sum(done)]
    push.put_manifest(target, where.tag, document, kind)
    return pushed


def blob_bytes(layout):
    return sum(one.size for one in (*layout.layers, layout.manifest.config))


def whole(server, layout, name="team/image"):
    """Return whether the registry has each blob with the layout's bytes."""
    digests = [one.digest for one in (*layout.layers, layout.manifest.config)]
    return all(
        digest in server.homes[name] and server.blobs[digest] == layout.blob(digest).read_bytes() for digest in digests
    )


def upload_of(handler):
    """The uploads of the registry, and which of them a request is about."""
    return handler.registry.uploads, handler.path.partition("?")[0].rpartition("/")[2]


def once(kind, part, function):
    """A mood for the first request of this method whose path has `part`: its function is called with the handler."""
    left = [1]

    def mood(handler):
        if handler.command != kind or part not in handler.path or not left:
            return False
        left.pop()
        return function(handler) is not False

    return mood


def test_second_push_of_an_image_sends_no_blobs(registry, layout):
    pushed = send(registry, layout)
    assert whole(registry, layout)
    assert registry.order[-2:] == [layout.digest, "v1"]
    assert registry.documents["team/image/manifests/v1"] == (spec.MANIFEST, layout.blob(layout.digest).read_bytes())
    again = send(registry, layout)
    assert (pushed.digest, pushed.media_type) == (layout.digest, spec.MANIFEST)
    assert pushed.bytes_sent == blob_bytes(layout) + layout.descriptor.size
    assert (pushed.bytes_there, pushed.bytes_mounted) == (0, 0)
    assert (again.bytes_sent, again.bytes_there) == (layout.descriptor.size, blob_bytes(layout))
    assert registry.received == blob_bytes(layout)
    assert registry.chunk_lengths[0] < max(registry.chunk_lengths) == 64 * KIB, "little at first"


@pytest.mark.parametrize("granted", [True, False])
def test_push_mounts_layers_of_another_repository_or_sends_them(registry, layout, granted):
    registry.mounts = granted
    first = send(registry, layout, form="docker")
    kind, data = registry.documents["team/image/manifests/v1"]
    assert (kind, first.media_type, first.digest) == (spec.DOCKER_MANIFEST, kind, tars.sha256(data))
    pushed = send(registry, layout, "team/other:v1", mount_from=["team/empty", "team/image", "team/other"])
    assert whole(registry, layout, "team/other")
    assert pushed.bytes_mounted == blob_bytes(layout) * granted
    assert pushed.bytes_sent == blob_bytes(layout) * (not granted) + layout.descriptor.size
    assert len(registry.uploads) == 0, "uploads begun in vain are cancelled"


@pytest.mark.parametrize(
    ("limits", "least", "most"),
    [({"least": 200 * KIB}, 200 * KIB, 1 << 30), ({"most": 20 * KIB}, 0, 16 * KIB), ({"chunks": False}, 0, 1 << 30)],
    ids=["told how small", "found out how large: a power of two", "whole where there are no chunks"],
)
def test_push_chunks_keep_the_registrys_size_limits(layout, limits, least, most):
    with RegistryServer(strict=True, **limits) as server:
        pushed = send(server, layout)
        assert whole(server, layout)
    assert all(least <= length for length in server.chunk_lengths[:-1])
    assert all(length <= most for length in server.chunk_lengths)
    assert pushed.bytes_sent >= blob_bytes(layout)
    if "chunks" in limits:  # is believed at once: three blobs, two of them begun with a chunk
        assert sum(asked.method == "POST" for asked in server.asked) <= 5


def test_upload_request_size_grows_until_a_failure(monkeypatch):
    monkeypatch.undo()
    pace, mib, sizes = upload.RequestSize(512 << 20), 1 << 20, []
    for _ in range(5):
        sizes.append(pace.next(1 << 30, failed=False))
        pace.arrived()
    assert sizes == [mib, 4 * mib, 16 * mib, 32 * mib, 32 * mib]
    assert [pace.next(rest, failed=True) for rest in (1000, 1 << 30)] == [1000, mib]
    pace.least = 5 * mib
    assert pace.next(1 << 30, failed=True) == 5 * mib


@pytest.mark.parametrize("fault", UNNOTICED + NOTICED)
@pytest.mark.parametrize(
    ("method", "part", "tells"),
    [
        ("PATCH", "", True),
        ("PATCH", "", False),
        ("POST", "uploads", True),
        ("PUT", "uploads", True),
        ("PUT", "manifests", True),
    ],
)
def test_push_with_one_fault_retries_once_and_resends_at_most_a_chunk(registry, layout, fault, method, part, tells):
    registry.tells, pauses = tells, []
    with FaultProxy(registry.host, first(fault, method, part)) as between:
        send(between.address, layout, pauses=pauses)
        assert between.faults == [fault]
    assert whole(registry, layout)
    assert registry.documents["team/image/manifests/v1"][1] == layout.blob(layout.digest).read_bytes()
    assert len(pauses) == 1
    assert fault != "429 after" or pauses == [1.0]
    assert between.received < blob_bytes(layout) + 200 * KIB
    if tells and fault in NOTICED and "manifests" not in part:
        assert registry.received == blob_bytes(layout), "what had arrived was not sent again"


def test_forgotten_upload_session_starts_again(registry, layout):
    def forget(handler):
        """Each second chunk."""
        uploads, number = upload_of(handler)
        if handler.command != "PATCH" or not uploads.get(number):
            return False
        uploads.pop(number)
        handler.close_connection = True
        return True

    registry.forgets, registry.moods = True, [forget]
    send(registry, layout)
    assert whole(registry, layout)
    begun = [asked for asked in registry.asked if asked.method == "POST"]
    assert 5 <= len(begun) <= 7, "three blobs; of the two with chunks, after two losses they go whole"


@pytest.mark.parametrize(
    ("mood", "message"),
    [
        ({"most": 0}, "HTTP 413"),
        ({"moods": [lambda handler: handler.command == "PATCH" and handler.leave(503) is None]}, "503"),
        ({"altered_digest": f"sha256:{'0' * 64}"}, "taken"),
    ],
    ids=["takes nothing", "stays away", "stores something else"],
)
def test_persistently_failing_push_sets_no_tag(layout, mood, message):
    with (
        RegistryServer(strict=True, **mood) as server,
        pytest.raises((RefusedError, DamagedError, HttpError), match=message),
    ):
        send(server, layout)
    assert "team/image/manifests/v1" not in server.documents


def test_push_with_an_altered_manifest_digest_sets_no_tag(registry, layout):
    """All blobs are there: what differs is the manifest alone."""
    send(registry, layout)
    registry.documents.clear()
    registry.altered_digest = f"sha256:{'0' * 64}"
    with refused(DamagedError, "the manifest of", "taken", registry.altered_digest):
        send(registry, layout)
    assert "team/image/manifests/v1" not in registry.documents


def test_partial_blob_on_the_registry_is_sent_again(registry, layout):
    send(registry, layout)
    cut = layout.layers[0].digest
    registry.blobs[cut] = registry.blobs[cut][:1000]
    pushed = send(registry, layout)
    assert whole(registry, layout)
    assert pushed.bytes_there == blob_bytes(layout) - layout.layers[0].size


def closes_empty(request):
    """A registry that takes no bytes with the request that closes an upload."""
    if request.command != "PUT" or "/blobs/" not in request.path or request.headers["Content-Length"] == "0":
        return False
    request.leave(400, {"errors": [{"code": "UNSUPPORTED", "message": "close it without a body"}]})
    return True


def test_push_closes_the_upload_with_an_empty_body_if_required(registry, layout):
    registry.moods.append(closes_empty)
    send(registry, layout)
    assert set(registry.homes["team/image"]) >= {one.digest for one in layout.layers}


def test_registry_that_refuses_whole_and_chunked_uploads_is_refused(registry, layout):
    registry.moods.append(closes_empty)
    registry.moods.append(lambda request: request.command == "PATCH" and (request.leave(405) or True))
    with pytest.raises(RefusedError) as caught:
        send(registry, layout)
    assert "close it without a body" in str(caught.value) or "405" in caught.value.failure.what


def test_blob_that_is_gone_or_cut_is_an_error_and_sets_no_tag(registry, layout):
    gone = layout.blob(layout.layers[1].digest)
    tars.overwrite(gone, gone.read_bytes()[:-1])
    with refused(BlobError, str(gone), "is shorter than its descriptor says"):
        send(registry, layout)
    gone.unlink()
    with refused(BlobError, str(gone), "cannot be read: No such file"):
        send(registry, layout)
    assert "team/image/manifests/v1" not in registry.documents


@pytest.mark.parametrize("at", [0, -1], ids=["first byte", "last byte"])
@pytest.mark.parametrize("whole", [False, True], ids=["in chunks", "in one request"])
def test_last_piece_of_a_damaged_blob_is_not_sent(registry, layout, at, whole, monkeypatch):
    registry.chunks = not whole
    # What goes in one request depends else on how many of other blobs' requests have arrived.
    most = layout.layers[0].size if whole else upload.PIECE
    monkeypatch.setattr(upload.RequestSize, "next", lambda self, rest, failed: min(rest, most))
    damaged = layout.blob(layout.layers[0].digest)
    data = bytearray(damaged.read_bytes())
    data[at] ^= 1
    tars.overwrite(damaged, bytes(data))
    with refused(BlobError, "other bytes", "its disk is faulty"):
        send(registry, layout)
    assert layout.layers[0].digest not in registry.homes.get("team/image", ())
    # Of other blobs an upload may have begun beside it.
    (received,) = (piece for piece in registry.uploads.values() if piece and data.startswith(piece))
    last = layout.layers[0].size % upload.PIECE
    without_last = layout.layers[0].size - last
    assert without_last < layout.layers[0].size
    # A connection that ends amid a request may lose what the registry has not read of it yet.
    assert len(received) <= without_last if whole else len(received) == without_last
    assert registry.received < blob_bytes(layout)


def test_blob_that_changes_between_two_upload_tries_is_refused(registry, layout):
    """Its first bytes were hashed before they changed; the registry notices, then they are read again."""
    damaged = layout.blob(layout.layers[0].digest)

    changed = []

    def change(handler):
        uploads, number = upload_of(handler)
        if changed or handler.command != "PATCH" or len(uploads.get(number, b"")) < 100 * KIB:
            return False
        data = damaged.read_bytes()
        tars.overwrite(damaged, bytes([data[0] ^ 1]) + data[1:])
        changed.append(uploads.pop(number))  # so that it is sent from its begin again
        return False

    registry.moods = [change]
    with refused(BlobError, "other bytes"):
        send(registry, layout)
    assert layout.layers[0].digest not in registry.homes.get("team/image", ())


@pytest.mark.parametrize(
    ("header", "there"),
    [
        *[("0-0", 0), ("0-1", 2), ("0-1023", 1024), ("bytes=0-1023", 1024), ("bytes 0-9", 10), (" 0-9 ", 10)],
        *[(wrong, None) for wrong in ("5-9", "0-", "-9", "0--9", "0-9/100", "", None)],
    ],
)
def test_arrived_bytes_are_read_from_the_range_header(header, there):
    assert upload.arrived_bytes(header) == there


def alter(handler):
    uploads, number = upload_of(handler)
    uploads[number][0] ^= 1
    return False


def clean_up(handler):
    handler.registry.homes.clear()
    return False


@pytest.mark.parametrize(("part", "happens"), [("/uploads/", alter), ("manifests", clean_up)])
def test_blob_altered_in_transit_or_garbage_collected_is_sent_again(registry, layout, part, happens):
    registry.moods = [once("PUT", part, happens)]
    send(registry, layout)
    assert whole(registry, layout)


def test_push_token_has_pull_and_push_scopes_and_is_renewed(layout):
    with RegistryServer(strict=True, login="bearer", user="alice", password="wonder:land", uses=12) as server:
        pushed = send(server, layout, credential=ALICE, mount_from=["team/base"])
        assert whole(server, layout)
    tokens = server.seen("/token")
    assert len(tokens) > 1
    assert "scope=repository%3Ateam%2Fbase%3Apull&scope=repository%3Ateam%2Fimage%3Apull%2Cpush" in tokens[0].path
    assert {asked.authorization for asked in tokens} == {ALICE.basic}
    assert ALICE.basic not in {asked.authorization for asked in server.seen("/v2/")}
    assert pushed.bytes_sent < 1.5 * blob_bytes(layout)


def test_blob_whose_storage_refuses_head_counts_as_absent(registry, layout):
    """HEAD is redirected to an address that is signed for GET alone."""
    with RegistryServer(strict=True, faults={"/storage/": [403] * 9}) as storage:
        registry.storage = f"http://{storage.host}"
        for one in (*layout.layers, layout.manifest.config):
            registry.home("team/image", layout.blob(one.digest).read_bytes())
        assert send(registry, layout).bytes_there == 0
    assert "team/image/manifests/v1" in registry.documents


def test_first_upload_error_ends_all_uploads(registry, tmp_path, monkeypatch):
    """The smallest blob is refused while the largest one is on its way, which takes several requests."""
    begun, ended = threading.Event(), threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *arguments, **options):
            ended.set()  # the error is known, and the others were told
            super().shutdown(*arguments, **options)

    monkeypatch.setattr("ociregistry.threads.ThreadPoolExecutor", Pool)
    layout = layout_of(tmp_path, 8)
    largest, smallest = layout.layers[0].digest, layout.manifest.config.digest
    assert all(blob.size <= upload.SMALLEST for blob in layout.layers[1:])

    def hold(handler):
        begun.set()
        ended.wait(10)
        return False

    def refuse(handler):
        begun.wait(10)
        handler.rfile.read(int(handler.headers["Content-Length"]))
        handler.leave(403)

    # a blob of one chunk is sent by PUT, so that the first PATCH is of the largest
    registry.moods = [once("PATCH", "", hold), once("PUT", urllib.parse.quote(smallest), refuse)]
    with pytest.raises(RefusedError, match="refuses access") as caught:
        send(registry, layout)
    assert "Not everybody may push there" in caught.value.failure.cause
    assert begun.is_set()
    assert largest not in registry.blobs
    assert "team/image/manifests/v1" not in registry.documents
