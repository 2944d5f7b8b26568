"""Tables of pages that are generated: each stands between two markers, `<!-- NAME, generated -->` and its end."""

import re
from collections.abc import Mapping


def filled(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with fresh tables between their markers."""
    for name, content in tables.items():
        marked = re.compile(rf"(<!-- {name}, generated -->\n).*?(\n<!-- end of {name} -->)", re.DOTALL)
        assert marked.search(page), name
        page = marked.sub(lambda match: match[1] + content + match[2], page)  # noqa: B023  called at once
    return page
