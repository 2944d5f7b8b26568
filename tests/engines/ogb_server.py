"""ogbn-products in small, from a proxy on loopback that answers for OGB's own server.

Its size is told as 1.4 GB at first, since OGB's package asks a person before it downloads that much.
"""

import contextlib
import gzip
import io
import random
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NODES, EDGES, CLASSES, WIDTH = 300, 900, 47, 100
TOLD_SIZE = 1_481_000_000


def archive():
    """products.zip as OGB packs it."""
    draw = random.Random(1)
    rows = {
        "raw/edge": [(draw.randrange(NODES), draw.randrange(NODES)) for _ in range(EDGES)],
        "raw/node-feat": [[round(draw.gauss(0, 1), 3) for _ in range(WIDTH)] for _ in range(NODES)],
        "raw/node-label": [[draw.randrange(CLASSES)] for _ in range(NODES)],
        "raw/num-node-list": [[NODES]],
        "raw/num-edge-list": [[EDGES]],
        **{
            f"split/sales_ranking/{role}": [[node] for node in range(*ends)]
            for role, ends in {"train": (0, 100), "valid": (100, 150), "test": (150, NODES)}.items()
        },
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        packed.writestr("products/processed/", b"")
        packed.writestr("products/RELEASE_v1.txt", b"")
        for name, lines in rows.items():
            text = "".join(",".join(map(str, line)) + "\n" for line in lines)
            packed.writestr(f"products/{name}.csv.gz", gzip.compress(text.encode()))
    return stream.getvalue()


@contextlib.contextmanager
def ogb_server():
    """Variables that send a program's plain HTTP there, and the addresses that were asked for."""
    content, asked = archive(), []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(TOLD_SIZE if len(asked) == 1 else len(content)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield {"http_proxy": f"http://127.0.0.1:{server.server_port}", "no_proxy": ""}, asked
        finally:
            server.shutdown()
