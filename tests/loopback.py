"""What every stand-in server starts from: HTTP on loopback, answered by threads."""

import threading
from http.server import ThreadingHTTPServer


class Loopback:
    """Use as a context manager, that `start` gives or whose own `__enter__` calls it."""

    kind = ThreadingHTTPServer

    def start(self, answers, context=None, **known):
        """Serve with this handler class, to which `known` attributes are added; with an SSL context by TLS."""
        self.server = self.kind(("127.0.0.1", 0), type("Bound", (answers,), known))
        self.server.daemon_threads = True
        if context is not None:
            plain = self.server.socket
            self.server.socket = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.server_address[1]}"
