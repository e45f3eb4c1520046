"""All that is recorded is equal, and what is printed is not: does that count?

(1) Nothing that may be a race is taken for equal: what differs counts unless `build` knows why it may.
(2) What differs between two runs of B as well is a race, or may be another thing each time: then nothing can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from safepoint.threads import printed, runs
from safepoint.threads.printed import BEYOND, WORDS, Pair, Text

EQUAL, DIFFERENT, UNDECIDED = 0, 1, 2  # exit codes
MOST_LEFT = 1e-5  # of rounding, where values of about 1 cancel
CHANCE = "--runs 5 --noise 50"
UNKNOWN = (
    "nothing that is recorded differs, so the place is not known. Look at what `build` says is not recorded; name "
    f"arrays under digest in threads.toml; for a race {CHANCE}; for rounding --rtol, or --atol where sums cancel"
)
Verdict = tuple[int, str, list[str]]


class Screen:
    """`again`: what another run of A or B prints, of B with as many threads as are given."""

    def __init__(
        self, a: Sequence[str], rtol: float, atol: float, again: Callable[..., list[str]], *, ranks: bool
    ) -> None:  # fmt: skip
        self.shown, self.unknown, self.again, self.ranks = runs.shown(a), runs.unknown(a), again, ranks
        self.judge = printed.Judge(self.shown, rtol, atol)

    def first(self, a: Sequence[str], b: Sequence[str]) -> Pair | None:
        """The line that differs most, as far as it counts."""
        self.whole = a, b
        self.a, self.b = self._text(a), self._text(b)
        self.found = self.judge.compared(self.a, self.b)
        return _worst(self.found.pairs)

    def verdict(self) -> Verdict:
        """With what is to be said of it, the line first. After `first`."""
        beyond = [pair for pair in self.found.pairs if pair.how == BEYOND]
        if not beyond:
            return EQUAL, "equal", self._equal(self.found.pairs)
        again = self._text(self.again("A"))
        left = [pair for pair in beyond if not printed.chance(pair, "A", self.a, again)]
        if not left:
            said = [*self._excused(), "what they print differs only where two runs of A do, too"]
            return EQUAL, "equal", said
        return self._counts(left)

    def _text(self, lines: Sequence[str]) -> Text:
        return printed.text(lines, self.shown, unordered=self.ranks)

    def _equal(self, pairs: list[Pair]) -> list[str]:
        worst = _worst(pairs)
        if worst is None and self.found.excused:
            return self._excused()
        how = ", by rounding alone" if worst and worst.how != WORDS else ""
        return [*self._excused(), f"what they print differs, though{how}: {worst or 'the ends of lines'}"]

    def _excused(self) -> list[str]:
        return [f"what they print differs in {why}: it does not count" for why in self.found.excused]

    def _counts(self, left: list[Pair]) -> Verdict:
        """No run of A explains these lines."""
        again = self._text(self.again("B"))
        chance = [pair for pair in left if printed.chance(pair, "B", self.b, again)]
        certain = [pair for pair in left if pair not in chance and not pair.perhaps]
        if certain and not (why := self._explained(certain)):
            return DIFFERENT, "differs", [f"what they print differs: {certain[0]}", UNKNOWN]
        if certain:
            return UNDECIDED, "not known", [f"what they print differs: {certain[0]}", f"Cannot tell: {why}"]
        if chance and (unsaid := [pair for pair in chance if not pair.perhaps]):
            why = "two runs of B print other numbers there, too, and two runs of A the same ones: a race, or something "
            why += f"that is another in each run with OpenMP, such as a time; for a race {CHANCE}"
            return UNDECIDED, "not deterministic", [f"what they print differs: {unsaid[0]}", f"Cannot tell: {why}"]
        why = self._perhaps(list(dict.fromkeys(place for pair in left for place in pair.perhaps)))
        return UNDECIDED, "not known", [f"what they print differs: {left[0]}", f"Cannot tell: {why}"]

    def _perhaps(self, places: list[str]) -> str:
        """Why lines that these statements may have printed can be other ones in a program that is right."""
        made = [each.place for each in self.shown if each.made and each.place in places]
        if made:
            why = f"it is made of a number of threads, or of what each was given to do ({', '.join(made)}): it may be "
            return why + "another one in a program that is right, and in one that shares its work out wrongly"
        return (f"it may be a time, the number of a thread, or a line that OpenMP alone prints ({', '.join(places)}), "
                "or another number; words of its own in that line would tell it")  # fmt: skip

    def _explained(self, certain: list[Pair]) -> str:
        """What may make these lines differ in a program that is right; empty: nothing that is known."""
        if sorted(self.whole[0]) == sorted(self.whole[1]):
            return "the same lines are in another order, which is that of threads, or a mistake"
        least = min(self.judge.rtol, MOST_LEFT)
        if least and all(printed.is_left(pair, self.judge.rtol, least) for pair in certain):
            why = "it differs by no more than a sum of values of about 1 is rounded: what is left where sums cancel"
            return f"{why}, or a mistake; --atol {least:g} allows for it"
        moved = len(self.a.ordered) != len(self.b.ordered)
        if moved and (self.a.shifted or self.b.shifted):
            return "there may be lines among them that OpenMP alone prints, and others are moved by these"
        threads = runs.threads()
        others = threads - 1 if threads > 2 else threads + 1
        again = self._text(self.again("B", others))
        if all(printed.is_count(pair, threads, self.b, others, again) for pair in certain):
            return "it is how many threads there are, by chance or because that is printed"
        if self.unknown and all(printed.chance(pair, "B", self.b, again) for pair in certain):
            return (f"with {others} threads B prints other numbers there, and nobody knows what is printed by "
                    f"{', '.join(self.unknown)}")  # fmt: skip
        return ""


def _worst(pairs: list[Pair]) -> Pair | None:
    """The first of those that differ most."""
    return max(pairs, key=lambda pair: pair.how, default=None)
