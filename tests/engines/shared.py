"""Things that take minutes to make, once for all of pytest's workers: the first that asks makes it, the others wait."""

import contextlib
import fcntl
import json
import os

from filelock import FileLock


class Shared:
    """A folder of one run of the tests, which all its workers share.

    The worker that starts a daemon keeps it until the last one has ended: `close` waits for that.
    """

    def __init__(self, folder):
        self.folder = folder
        self._daemons = contextlib.ExitStack()
        self._users = os.open(folder / "users", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._users, fcntl.LOCK_SH)
        (folder / f"entered-{os.getpid()}").touch()

    def made(self, name, make):
        """The value (JSON) that `make()` returns, called once. If it raises, it is not tried again."""
        record = self.folder / f"{name}.json"
        with FileLock(self.folder / f"{name}.lock"):
            if not record.exists():
                try:
                    told = {"made": make()}
                except Exception as error:
                    record.write_text(json.dumps({"failed": str(error)}))
                    raise
                record.write_text(json.dumps(told))
        told = json.loads(record.read_text())
        assert "made" in told, f"{name} failed before: {told['failed']}"
        return told["made"]

    def running(self, name, start):
        """The address of a daemon: what the context manager of `start()` gives, entered once, left at the end."""
        return self.made(name, lambda: self._daemons.enter_context(start()))

    @contextlib.contextmanager
    def turn(self, name, *, alone=False):
        """Hold a lock on something shared. `alone`: no other worker uses it meanwhile."""
        with locked(self.folder / f"{name}.turn", fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            yield

    def close(self):
        """Wait until no other worker uses anything here, then stop what this one started. True for the last one."""
        fcntl.flock(self._users, fcntl.LOCK_UN)  # two that both hold it would wait for each other
        fcntl.flock(self._users, fcntl.LOCK_EX)
        self._daemons.close()
        with (self.folder / "left").open("a+") as left:
            left.write("x")
            left.seek(0)
            last = len(left.read()) == len(list(self.folder.glob("entered-*")))
        os.close(self._users)
        return last


@contextlib.contextmanager
def locked(path, how):
    """Hold a lock (fcntl.LOCK_SH or LOCK_EX) on a folder or file. The kernel ends it with this process."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
