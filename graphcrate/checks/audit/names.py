"""Names of symbols and versions, for people."""

import itanium_demangler

_LONGEST = 2000  #: characters of a symbol; nobody reads a longer one
_MOST_PARTS = 20_000  #: that references to earlier parts may add; a hundred characters can name millions of them


def demangled(symbol: str) -> str:
    """A C++ name as a person reads it, or the symbol itself."""
    if len(symbol) > _LONGEST or "L_Z" in symbol:  # a name within a name is read past the bounds of `_Bounded`
        return symbol
    try:
        parsed = itanium_demangler._parse_mangled_name(_Bounded(symbol))
        return str(itanium_demangler._expand_arg_packs(parsed)) if parsed else symbol
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError):  # names of a kind that it does not know
        return symbol


class _Bounded(itanium_demangler._Cursor):  # type: ignore[misc]
    """Counts the parts that references stand for, which double with each where they refer to references."""

    def __init__(self, raw: str) -> None:
        super().__init__(raw)
        self._left = _MOST_PARTS
        self._sizes: dict[int, int] = {}  # of parts that are kept, by their identity

    def resolve_subst(self, seq_id: int) -> object:
        found = super().resolve_subst(seq_id)
        self._spend(self._size(found))
        return found

    def add_subst(self, node: object) -> None:
        super().add_subst(node)
        if getattr(node, "kind", "") == "tpl_param":  # will be one of the arguments: of parts that were there before
            self._spend(max(map(self._size, self._substs.values()), default=0))

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise ValueError("a name of too many parts")

    def _size(self, node: object) -> int:
        if not isinstance(node, tuple):
            return 1
        if id(node) not in self._sizes:
            self._sizes[id(node)] = 1 + sum(map(self._size, node))
        return self._sizes[id(node)]
