"""Elements and text of a page that is HTML and XML at once. Whatever a log holds, the page stays well-formed."""

from __future__ import annotations

import re
from html import escape

EMPTY = ("meta", "rect", "line", "path", "circle", "polyline")  # elements with nothing in them
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def text(value: object) -> str:
    """Any text, for a page; what XML does not allow becomes a question mark."""
    return escape(_NOT_XML.sub("?", str(value)))


def tag(name: str, /, *inside: str, **attributes: object) -> str:
    """An element; `inside` is markup already. Of an attribute's name a last underscore goes, the others are hyphens."""
    pairs = []
    for key, value in attributes.items():
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        pairs.append(f' {key.rstrip("_").replace("_", "-")}="{text(shown)}"')
    body = "".join(inside)
    return f"<{name}{''.join(pairs)}/>" if name in EMPTY and not body else f"<{name}{''.join(pairs)}>{body}</{name}>"


def title(words: str) -> str:
    return tag("title", text(words))
