"""Files on their way: what is made of one begins when it has arrived, and waits for no other."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError

from graphcrate.host.parallel import StoppedError


class Arrivals:
    """Files by a name, and what waits for them. Safe from any thread."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._files: dict[str, Future[None]] = {name: Future() for name in names}
        self._is_stopped = False

    def of(self, names: Iterable[str]) -> Sequence[Future[None]]:
        """Return what to wait for, for these files; nothing for one that is not on its way."""
        return [self._files[name] for name in names if name in self._files]

    def arrived(self, name: str) -> None:
        """Let what waits for a file begin. A file may arrive again: a build tool is for the image and for compiles."""
        file = self._files.get(name)
        if file is not None and not file.done():
            file.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Let what still waits for a file end with this error."""
        for file in self._files.values():
            try:
                file.set_exception(error)
            except InvalidStateError:
                continue  # arrived

    def stop(self) -> None:
        """Nothing waits any more."""
        self._is_stopped = True

    def go_on(self) -> None:
        """Raise StoppedError where nothing waits any more."""
        if self._is_stopped:
            raise StoppedError
