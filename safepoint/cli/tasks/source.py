"""Whether a function is still what it was, from the file that it was in, without running that file."""

from __future__ import annotations

import ast
import functools
import os

from xxhash import xxh3_128_hexdigest

from safepoint.tasks import functions


def digest_now(path: str, name: str) -> str:
    """As in an identity; "" if the file, or the function in it, cannot be read."""
    try:
        found = os.stat(path)
        return _digest(path, name, (found.st_mtime_ns, found.st_size, found.st_ino))
    except (OSError, SyntaxError, ValueError):
        return ""


@functools.lru_cache(4096)
def _digest(path: str, name: str, stamp: tuple[int, ...]) -> str:
    found: ast.AST = _tree(path, stamp)
    for part in name.split("."):
        inside = [node for node in getattr(found, "body", []) if getattr(node, "name", None) == part]
        if not inside:
            return ""
        found = inside[-1]
    return xxh3_128_hexdigest("".join(functions.said(found)).encode("utf-8", "surrogatepass"))


@functools.lru_cache(16)
def _tree(path: str, stamp: tuple[int, ...]) -> ast.Module:
    """`stamp`: so that a file that was changed is read again."""
    with open(path, "rb") as file:
        return ast.parse(file.read(), path)
