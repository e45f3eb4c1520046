"""Statements that are made up of templates: `{x} = {v}[0]`, in which each name stands for one of several."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

Choice = Sequence[str] | Callable[[], str]


def table(text: str) -> list[str]:
    """Templates between bars and at the ends of lines."""
    return [each.strip() for line in text.strip().splitlines() for each in line.split(" | ")]


def sampled(rng: random.Random, of: Sequence[str], wild: Sequence[str], tame_count: int, share: float) -> list[str]:
    """So many of the templates without a word of `wild`, and this share of those with one."""
    tame = [each for each in of if not any(word in each for word in wild)]
    rest = [each for each in of if each not in tame]
    return rng.sample(tame, min(len(tame), tame_count)) + rng.sample(rest, int(len(rest) * share))


class Templates:
    """Fill templates. A name that occurs twice in one of them stands for the same both times."""

    def __init__(self, rng: random.Random, names: Mapping[str, Choice]) -> None:
        self.rng, self.names = rng, names

    def with_(self, names: Mapping[str, Choice]) -> Templates:
        return Templates(self.rng, {**self.names, **names})

    def __call__(self, template: str, body: str = "") -> str:
        return template.format_map(_Drawn(self, {"body": body}))


class _Drawn(dict[str, str]):
    """What each name stands for in one template, drawn when it is first used."""

    def __init__(self, of: Templates, known: Mapping[str, str]) -> None:
        super().__init__(known)
        self.of = of

    def __missing__(self, name: str) -> str:
        choice = self.of.names[name]
        self[name] = choice() if callable(choice) else self.of.rng.choice(choice)
        return self[name]
