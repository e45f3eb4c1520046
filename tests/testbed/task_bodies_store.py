"""Functions that tests of the store use as vertices: they have to be importable."""

from __future__ import annotations

from typing import Any


def number(x: float = 1.0, y: Any = None) -> float:
    return x


def loose(**any_name: Any) -> int:
    return len(any_name)


def other(x: float = 1.0, y: Any = None) -> float:
    return x + 1


def total(images: list[Any], **more: Any) -> Any:
    return sum(images)


def load_head() -> int:
    return 3


class Holder:
    def method(self) -> int:
        return 1

    @staticmethod
    def fixed(x: int) -> int:
        return x
