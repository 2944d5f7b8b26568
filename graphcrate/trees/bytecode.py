"""Whether two `.pyc` files hold equal code, whatever Python made them and whatever Python runs this. Pure.

`marshal` marks an object for reuse, or names it again by number, depending on who else held it while the compiler
worked; so equal code comes in different bytes. Here both files are read into the same table of values, where equal
values have one number. Nothing is unmarshalled: the files may be anybody's, and `marshal` trusts its input.

Format: CPython's Python/marshal.c, versions 2 to 5; code objects of CPython 3.8 to 3.14.
"""

_HEADER = 16  #: magic number, flags (PEP 552), and time and size or hash of the source
_NEW_CODE = 3450  #: magic numbers from here on (3.11) have code objects with one table of local variables
_FLAG_REF = 0x80
_DEEPEST = 150  #: nested objects; real ones have a few dozen

#: objects that are their type alone: None, False, True, ..., StopIteration
_ALONE = "NFT.S"
#: numbers by their bytes: of 32 bits, float, complex
_FIXED = {"i": 4, "g": 8, "y": 16}
#: texts, equal whether they were interned or not: has its length in one byte, encoding
_TEXTS = {
    "z": (True, "latin-1"),
    "Z": (True, "latin-1"),
    "a": (False, "latin-1"),
    "A": (False, "latin-1"),
    "t": (False, "utf-8"),
    "u": (False, "utf-8"),
}


class MalformedError(ValueError):
    """Not a `.pyc`, or one of a Python that this does not know."""


def same_code(first: bytes, second: bytes) -> bool:
    """Whether headers are equal and code is. False where either cannot be read."""
    if first[:_HEADER] != second[:_HEADER]:
        return False
    table: dict[object, int] = {}
    try:
        return _Reader(first, table).whole() == _Reader(second, table).whole()
    except (IndexError, ValueError, RecursionError):
        return False


class _Reader:
    """Reads one file into `table`: (type, payload) → number, payloads of containers being numbers of their parts."""

    def __init__(self, data: bytes, table: dict[object, int]) -> None:
        self._data, self._table = data, table
        self._position = _HEADER
        self._references: list[int | None] = []
        magic = int.from_bytes(data[:2], "little")
        # (numbers before, objects before the first line's number, objects after it)
        self._code = (5, 8, 2) if magic >= _NEW_CODE else (6, 8, 1)

    def whole(self) -> int:
        """The number of the file's one object. Raises MalformedError where more follows, or less."""
        number = self._object(0)
        if number is None or self._position != len(self._data):
            raise MalformedError("not one whole object")
        return number

    def _object(self, depth: int) -> int | None:
        """The object's number; None for marshal's NULL, which ends a dictionary."""
        if depth > _DEEPEST:
            raise MalformedError("nested too deeply")
        byte = self._data[self._position]
        self._position += 1
        kind = chr(byte & ~_FLAG_REF)
        if kind == "r":
            return self._reference()
        if kind == "0":
            return None
        slot = None
        if byte & _FLAG_REF:
            # Numbered before its parts are, as marshal does.
            slot = len(self._references)
            self._references.append(None)
        number = self._number(self._value(kind, depth))
        if slot is not None:
            self._references[slot] = number
        return number

    def _reference(self) -> int:
        number = self._references[self._long()]
        if number is None:
            raise MalformedError("an object that holds itself")
        return number

    def _number(self, value: object) -> int:
        return self._table.setdefault(value, len(self._table))

    def _value(self, kind: str, depth: int) -> object:
        if kind in _ALONE:
            return kind
        if kind in _FIXED:
            return (kind, self._take(_FIXED[kind]))
        if kind in _TEXTS:
            short, encoding = _TEXTS[kind]
            return ("text", self._take(self._size(short)).decode(encoding, "surrogatepass"))
        if kind == "s":
            return ("s", self._take(self._long()))
        if kind == "l":
            digits = self._long()
            return ("l", digits, self._take(2 * abs(digits)))
        if kind in "()[<>":
            count = self._size(kind == ")")
            if not 0 <= count <= len(self._data):
                raise MalformedError("a container of impossible size")
            parts = [self._part(depth) for _ in range(count)]
            # The order of a set is that of its hashes, which may differ from process to process.
            return ("(" if kind == ")" else kind, *(sorted(parts) if kind in "<>" else parts))
        if kind == "c":
            return self._code_object(depth)
        if kind == ":":
            return (":", *(self._part(depth) for _ in range(3)))
        if kind == "{":
            return self._dictionary(depth)
        raise MalformedError(f"an object of unknown type {kind!r}")

    def _part(self, depth: int) -> int:
        number = self._object(depth + 1)
        if number is None:
            raise MalformedError("a part is missing")
        return number

    def _code_object(self, depth: int) -> object:
        before, objects, after = self._code
        numbers = tuple(self._long() for _ in range(before))
        head = tuple(self._part(depth) for _ in range(objects))
        line = self._long()
        return ("c", numbers, head, line, tuple(self._part(depth) for _ in range(after)))

    def _dictionary(self, depth: int) -> object:
        pairs = []
        while (key := self._object(depth + 1)) is not None:
            pairs.append((key, self._part(depth)))
        return ("{", *pairs)

    def _take(self, size: int) -> bytes:
        data = self._data[self._position : self._position + size]
        if size < 0 or len(data) != size:
            raise MalformedError("cut short")
        self._position += size
        return data

    def _long(self) -> int:
        return int.from_bytes(self._take(4), "little", signed=True)

    def _size(self, short: bool) -> int:
        return self._take(1)[0] if short else self._long()
