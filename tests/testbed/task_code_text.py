"""The module that texts of graphs name in tests."""

from __future__ import annotations

from typing import Any


def read_wav(path: str = "") -> dict[str, int]:
    return {"left": 1, "right": 2}


def low_pass(x: Any = None, **more: Any) -> Any:
    return x


def head() -> int:
    return 1


def twice(x: int) -> int:
    return 2 * x


NOT_A_FUNCTION = 3
