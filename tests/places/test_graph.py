"""Legal cuts: what the components say is what the definition says, on random programs."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import numpy as np
import pytest
from testbed.ran_mpi import run
from testbed.random_mpi import program
from testbed.sweep import LONG, many

from safepoint.matching.matched import COLLECTIVE, MESSAGE, Matched
from safepoint.places import graph
from safepoint.places.graph import LEVELS, Order, order
from safepoint.places.oracle import Cut, Definition

COMPARISONS = 50_000 if LONG else many(1_200)  # of a program at a level
MOST_CUTS = 400


def ran(seed: int) -> Matched:
    """A run of a random program that has few enough cuts to try them all."""
    for events in range(9, 0, -1):
        written = program(seed, events=events, certain=seed % 4 == 0, cut_short=seed % 5 == 0)
        matched = run(written, seed).matched
        if np.prod(np.diff(matched.begins) + 1) <= MOST_CUTS:
            break
    return matched


def cuts_of(matched: Matched) -> list[Cut]:
    return list(product(*(range(count + 1) for count in np.diff(matched.begins).tolist())))


def ints(cut: Cut) -> np.ndarray:
    return np.array(cut, "i8")


def cut(gaps: np.ndarray | None) -> Cut | None:
    return None if gaps is None else tuple(gaps.tolist())


def least(cuts: list[Cut]) -> Cut | None:
    return tuple(map(min, zip(*cuts, strict=True))) if cuts else None


def greatest(cuts: list[Cut]) -> Cut | None:
    return tuple(map(max, zip(*cuts, strict=True))) if cuts else None


# Random programs.


@pytest.mark.hypothesis  # in make proof, too, with more of them
def test_the_linear_algorithm_says_of_random_programs_what_trying_all_cuts_says():
    for seed in range(-(-COMPARISONS // len(LEVELS))):
        matched, random = ran(seed), Random(seed)
        definition = Definition(matched)
        for level in LEVELS:
            legal = list(definition.algorithm_1(level))
            found = order(matched, level)
            try:
                compare_gaps(found, legal, random)
                compare_cuts(found, legal, definition, random)
                compare_chain(found, legal, definition)
                compare_forbidden(matched, level, legal, random)
                assert_lattice(legal, random)
            except AssertionError as error:
                raise AssertionError(f"program {seed}, level {level}") from error


def compare_gaps(found: Order, legal: list[Cut], random: Random) -> None:
    """(a), (b), (c): which gaps have a legal cut; the least and the greatest through one; several gaps at once."""
    counts = np.diff(found.matched.begins).tolist()
    for rank, count in enumerate(counts):
        with_one = {cut[rank] for cut in legal}
        assert np.flatnonzero(found.possible(rank)).tolist() == sorted(with_one)
        gap = random.randrange(count + 1)
        through = [cut for cut in legal if cut[rank] == gap]
        assert cut(found.least(rank, gap)) == least(through)
        assert cut(found.greatest(rank, gap)) == greatest(through)
    ranks = random.sample(range(len(counts)), random.randrange(2, len(counts) + 1))
    seen = random.choice(legal) if legal and random.random() < 0.7 else None
    gaps = [seen[rank] if seen and random.random() < 0.8 else random.randrange(counts[rank] + 1) for rank in ranks]
    wanted = dict(zip(ranks, gaps, strict=True))
    through = [cut for cut in legal if all(cut[rank] == gap for rank, gap in wanted.items())]
    assert cut(found.extended(ranks, gaps)) == least(through)
    pairs = [any(all(cut[rank] == wanted[rank] for rank in pair) for cut in legal) for pair in product(ranks, ranks)]
    assert all(pairs) == bool(through)


def compare_cuts(found: Order, legal: list[Cut], definition: Definition, random: Random) -> None:
    """Is it legal, what does it break; the least legal cut above it, the greatest below."""
    cuts, known = cuts_of(found.matched), set(legal)
    for one in random.sample(cuts, min(len(cuts), 8)) + random.sample(legal, min(len(legal), 2)):
        broken, inside = found.legal_cut(ints(one)), definition.inside(one)
        assert broken.legal == (one in known)
        groups = [
            number
            for number, group in sorted(definition.groups.items())
            if definition.started(group, inside) and not definition.complete(group, inside)
        ]
        assert broken.groups.tolist() == groups
        assert broken.messages.tolist() == [
            row for row, message in enumerate(definition.messages) if message["group"] in groups
        ]
        assert broken.never.tolist() == sorted(inside & set(definition.never))
        requests = [
            number for number, (post, done) in enumerate(definition.requests) if post in inside and done not in inside
        ]
        assert broken.requests.tolist() == (requests if found.level != "message" else [])
    one = random.choice(cuts)
    assert cut(found.above(ints(one))) == least([c for c in legal if all(a >= b for a, b in zip(c, one, strict=True))])
    assert cut(found.below(ints(one))) == greatest(
        [c for c in legal if all(a <= b for a, b in zip(c, one, strict=True))]
    )


def compare_chain(found: Order, legal: list[Cut], definition: Definition) -> None:
    """(e): legal places, each more than the one before, from the least to the greatest, with nothing left out."""
    chain = [tuple(found.place(number).tolist()) for number in range(found.places)]
    assert set(chain) <= set(legal)
    assert bool(chain) == bool(legal)
    if not chain:
        assert np.all(found.first == 0)
        return
    assert (chain[0], chain[-1]) == (least(legal), greatest(legal))
    longest: dict[Cut, int] = {}
    for one in sorted(legal, key=sum)[:120]:
        below = (longest[c] for c in longest if c != one and all(a <= b for a, b in zip(c, one, strict=True)))
        longest[one] = 1 + max(below, default=0)
    assert all(longest.get(place, number + 1) == number + 1 for number, place in enumerate(chain))
    for one, other in pairwise(chain):
        assert one != other and all(a <= b for a, b in zip(one, other, strict=True))
        assert not any(
            c not in (one, other) and all(a <= b <= d for a, b, d in zip(one, c, other, strict=True)) for c in legal
        )
    for number, place in enumerate(chain):
        assert set(np.flatnonzero(found.first <= number).tolist()) == definition.inside(place)


def compare_forbidden(matched: Matched, level: str, legal: list[Cut], random: Random) -> None:
    """(d): a forbidden gap is one arc more."""
    gaps = [(rank, gap) for rank, count in enumerate(np.diff(matched.begins).tolist()) for gap in range(count + 1)]
    forbidden = random.sample(gaps, min(len(gaps), random.randrange(1, 4)))
    found = order(matched, level, np.array(forbidden))
    left = [cut for cut in legal if not any(cut[rank] == gap for rank, gap in forbidden)]
    for rank in range(matched.ranks):
        assert np.flatnonzero(found.possible(rank)).tolist() == sorted({cut[rank] for cut in left})
    assert cut(found.above(np.zeros(matched.ranks, "i8"))) == least(left)
    for one in random.sample(legal, min(len(legal), 4)):
        named = [gap for gap in sorted(forbidden) if one[gap[0]] == gap[1]]
        assert found.legal_cut(ints(one)).forbidden.tolist() == [list(gap) for gap in named]


def assert_lattice(legal: list[Cut], random: Random) -> None:
    """The legal cuts are closed under the componentwise minimum and maximum."""
    known = set(legal)
    for _ in range(20 if legal else 0):
        pair = random.choices(legal, k=2)
        assert {least(pair), greatest(pair)} <= known


def test_algorithm_2_of_2006_finds_a_cut_through_the_same_gaps():
    for seed in range(0, 2_000 if LONG else many(200), 2):
        matched = ran(seed)
        definition, level = Definition(matched), LEVELS[seed // 2 % 3]
        found, by_pairs = order(matched, level), definition.algorithm_2(level)
        possible = [
            (rank, gap) for rank in range(matched.ranks) for gap in np.flatnonzero(found.possible(rank)).tolist()
        ]
        assert sorted(by_pairs) == possible, seed
        assert all(definition.legal(one, level) for one in by_pairs.values()), seed


def test_a_collective_call_binds_as_messages_between_all_its_members_do():
    """What the source says of collective calls: they are point-to-point messages there and back."""
    for seed in range(1_000 if LONG else many(120)):
        matched = ran(seed)
        rows = [(member, group) for member, group in zip(matched.member.tolist(), matched.group.tolist(), strict=True)]
        collective = [number for number, kind in enumerate(matched.kind.tolist()) if kind == COLLECTIVE]
        plain = [row for row in rows if row[1] not in collective]
        more = len(matched.kind)
        for number in collective:
            members = [member for member, group in rows if group == number]
            for one, other in pairwise(members):
                plain += [(one, more), (other, more)]
                more += 1
        member, group = np.array(plain, "i8").reshape(-1, 2).T
        as_messages = matched._replace(member=member, group=group, kind=np.full(more, MESSAGE))
        assert np.array_equal(order(matched).first, order(as_messages).first) or same_cuts(matched, as_messages), seed


def same_cuts(one: Matched, other: Matched) -> bool:
    return list(Definition(one).algorithm_1("files")) == list(Definition(other).algorithm_1("files"))


# Small ones, by hand.


def test_without_any_action_the_empty_cut_is_the_one_place():
    nothing = run(program(0, events=0, ranks=2)).matched
    found = order(nothing)
    assert (found.places, found.place(0).tolist(), found.possible(0).tolist()) == (1, [0, 0], [True])


@pytest.mark.parametrize("wrong", ["reversed", "each action its own"])
def test_labels_that_are_no_topological_order_are_refused(monkeypatch, wrong):
    """scipy does not promise it."""
    honest, matched = graph.connected_components, run(program(3, certain=True)).matched

    def labels(*args: object, **how: object) -> tuple[int, np.ndarray]:
        count, labels = honest(*args, **how)
        if wrong == "reversed":
            return count, count - 1 - labels
        own = np.concatenate([np.arange(1, gaps + 1) for gaps in np.diff(matched.begins)])
        return int(own.max()) + 2, np.append(own, [0, own.max() + 1])

    monkeypatch.setattr(graph, "connected_components", labels)
    with pytest.raises(AssertionError):
        order(matched)


def test_a_trace_whose_groups_are_in_no_order_is_judged_alike():
    matched = run(program(3, certain=True)).matched
    mixed = np.random.default_rng(3).permutation(len(matched.member))
    shuffled = matched._replace(member=matched.member[mixed], group=matched.group[mixed])
    for one in cuts_of(matched)[::7]:
        assert (
            order(shuffled).legal_cut(ints(one)).groups.tolist() == order(matched).legal_cut(ints(one)).groups.tolist()
        )
