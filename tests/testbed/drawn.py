"""Small programs that never ran, as matched traces with their judgement: what the picture is drawn of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from safepoint.matching.matched import ALIVE, COLLECTIVE, MARKS, MESSAGE, MESSAGES, NONE, Ints, Matched, Site
from safepoint.places.picture import Judgement, Line

US = 1000  # ns
Call = tuple[int, int]  # rank, and its number there


class Drawn(NamedTuple):
    matched: Matched
    judgement: Judgement


class Program:
    """Calls are added one by one, each when its rank is ready; `matched` numbers them through."""

    def __init__(self, ranks: int, file: str = "solver.py", seed: int = 1) -> None:
        self.ranks, self.file, self.random = ranks, file, np.random.default_rng(seed)
        self.clock = [1_000_000_000 + int(self.random.integers(40 * US)) for _ in range(ranks)]
        self.calls: list[list[tuple[int, int, int, int]]] = [[] for _ in range(ranks)]  # enter, leave, site, function
        self.sites, self.functions = [Site("", 0, "")], list[str]()
        self.groups: list[tuple[int, list[Call]]] = []
        self.messages: list[tuple[Call | None, Call | None, int, int, int, int]] = []
        self.marks: list[tuple[int, int, int, int, int, int, bool]] = []

    def work(self, rank: int, us: float) -> None:
        self.clock[rank] += int(us * US * self.random.uniform(0.8, 1.3))

    def site(self, line: int, function: str = "step") -> int:
        site = Site(self.file, line, function)
        if site not in self.sites:
            self.sites.append(site)
        return self.sites.index(site)

    def call(self, rank: int, name: str, line: int, us: float = 6, after: Call | None = None) -> Call:
        """`after`: it cannot return before that call has begun."""
        if name not in self.functions:
            self.functions.append(name)
        enter = self.clock[rank]
        self.work(rank, us)
        if after is not None:
            self.clock[rank] = max(self.clock[rank], self.calls[after[0]][after[1]][0] + 9 * US)
        self.calls[rank].append((enter, self.clock[rank], self.site(line), self.functions.index(name)))
        self.work(rank, 4)
        return rank, len(self.calls[rank]) - 1

    def message(self, sent: Call | None, received: Call | None, tag: int = 5, bytes_: int = 8192,
                to: int = -1) -> None:  # fmt: skip
        members = [call for call in (sent, received) if call]
        source, dest = sent[0] if sent else -1, received[0] if received else to
        self.messages.append((sent, received, source, dest, tag, bytes_))
        self.groups.append((MESSAGE, members))

    def collective(self, name: str, line: int) -> None:
        members = [self.call(rank, name, line) for rank in range(self.ranks)]
        last = max(self.calls[rank][number][0] for rank, number in members) + 8 * US
        for rank, number in members:
            enter, _, site, function = self.calls[rank][number]
            self.calls[rank][number] = (enter, last + rank * US // 2, site, function)
            self.clock[rank] = last + rank * US // 2 + 3 * US
        self.groups.append((COLLECTIVE, members))

    def mark(self, line: int, step: int, *, hide: bool) -> None:
        for rank in range(self.ranks):
            enter = self.clock[rank]
            self.work(rank, 12 if hide else 1)
            self.marks.append((rank, len(self.calls[rank]), self.site(line), enter, self.clock[rank], step, hide))

    def matched(self) -> Matched:
        begins = np.cumsum([0, *map(len, self.calls)])
        columns = np.array([call for calls in self.calls for call in calls], np.int64).reshape(-1, 4).T
        member, group = [], []
        for number, (_, members) in enumerate(self.groups):
            member += [begins[rank] + n for rank, n in members]
            group += [number] * len(members)
        of_message = [number for number, (kind, _) in enumerate(self.groups) if kind == MESSAGE]
        rows = []
        for number, (sent, received, source, dest, tag, size) in zip(of_message, self.messages, strict=True):
            ends = [begins[call[0]] + call[1] if call else NONE for call in (sent, received, received)]
            rows.append((*ends, number, source, dest, 0, tag, size, False, False))
        never = [begins[m[0][0]] + m[0][1] for kind, m in self.groups if kind == MESSAGE and len(m) == 1]
        return traced(
            begins, columns, (np.array(member, np.int64), np.array(group, np.int64)),
            np.array([kind for kind, _ in self.groups], np.int64), np.array(rows, MESSAGES),
            np.array(sorted(self.marks, key=lambda mark: (mark[0], mark[3])), MARKS),
            (self.sites, self.functions), never,
        )  # fmt: skip


def traced(
    begins: Ints, columns: Ints, groups: tuple[Ints, Ints], kind: Ints, messages: NDArray[np.void],
    marks: NDArray[np.void], tables: tuple[list[Site], list[str]], never: list[int],
) -> Matched:  # fmt: skip
    enter, leave, site, function = columns
    record = np.arange(begins[-1]) - np.repeat(begins[:-1], np.diff(begins))
    pairs = np.zeros((0, 2), np.int64)
    return Matched(
        begins, enter, leave, site, function, record, *groups, kind, pairs, pairs, np.array(never, np.int64), messages,
        marks, pairs, np.zeros(0, ALIVE), *tables, ["MPI_COMM_WORLD"], ["MPI_COMM_WORLD"], [],
    )  # fmt: skip


def chain(matched: Matched) -> Ints:
    """The longest chain of legal places: one more strongly connected component with each."""
    own = np.arange(1, matched.actions)
    own = own[~np.isin(own, matched.begins)]
    hub = matched.actions + matched.group
    ends = [(own, own - 1), (matched.member, hub), (hub, matched.member)]
    source, target = (np.concatenate(side) for side in zip(*ends, strict=True))
    size = matched.actions + len(matched.kind)
    graph = coo_matrix((np.ones(len(source), np.int8), (source, target)), (size, size))
    label = connected_components(graph, connection="strong")[1][: matched.actions]
    label = label if (np.diff(label)[own - 1] >= 0).all() else label.max() - label
    rank = np.repeat(np.arange(matched.ranks), np.diff(matched.begins))
    never = label[matched.never].min(initial=size)
    steps = np.unique(label[label < never], return_inverse=True)[1]
    added = np.zeros((steps.max(initial=-1) + 2, matched.ranks), np.int64)
    np.add.at(added, (steps + 1, rank[label < never]), 1)
    return np.cumsum(added, axis=0)


def judged(matched: Matched, blocking: list[int], lines: list[Line], marks_legal: NDArray[np.bool_]) -> Judgement:
    places = chain(matched)
    heads = [
        f"{matched.actions:,} actions, {matched.ranks} ranks, {len(matched.messages):,} messages; level files; "
        f"{len(places):,} legal places in a chain; all hold in every run",
        "needed before a restart there: MPI_COMM_WORLD only",
    ]
    return Judgement(places, marks_legal, np.array(blocking, np.int64), lines, heads, [])


def pipeline(steps: int = 60, *, across: bool = True, file: str = "solver.py") -> Drawn:
    """Four ranks that hand on halos; `across`: a message of rank 0 is received one visit later by rank 1."""
    program, visits, carried, blocking = Program(4, file), list[tuple[list[int], list[int]]](), None, list[int]()
    for step in range(steps):
        visits.append((list(program.clock), [len(calls) for calls in program.calls]))
        program.mark(11, step, hide=False)
        if step % 5 == 0:
            program.mark(14, step, hide=True)
        halo(program)
        sent = program.call(0, "Send", 20)
        if across and carried:
            blocking.append(len(program.messages))
        sender = carried if across else sent
        if sender:
            program.message(sender, program.call(1, "Recv", 21, after=sender), tag=9, bytes_=800)
        carried = sent
        if step % 6 == 5:
            program.collective("Allreduce", 24)
    if across and carried:
        program.message(carried, program.call(1, "Recv", 31, after=carried), tag=9, bytes_=800)
    matched = program.matched()
    legal = np.array([whole(matched, np.array(gaps)) for _, gaps in visits])
    times = [at for at, _ in visits]
    lines = [
        line("hide", program.sites[program.site(14)], legal[::5], times[::5]),
        line("top of loop", program.sites[program.site(11)], legal, times),
    ]
    return Drawn(matched, judged(matched, blocking[:1], lines, legal[matched.marks["step"]]))


def halo(program: Program) -> None:
    sent = [program.call(rank, "Isend", 16) for rank in range(4)]
    for rank in range(4):
        program.work(rank, 70)
        left = sent[(rank - 1) % 4]
        program.message(left, program.call(rank, "Recv", 17, after=left))
        program.call(rank, "Wait", 18)
    program.work(0, 30)


def whole(matched: Matched, gaps: Ints) -> bool:
    """Whether each group lies before these gaps with all of its actions, or with none."""
    rank = np.searchsorted(matched.begins, matched.member, "right") - 1
    before = np.bincount(matched.group, matched.member < (matched.begins[:-1] + gaps)[rank], len(matched.kind))
    return bool(((before == 0) | (before == np.bincount(matched.group, minlength=len(matched.kind)))).all())


def line(where: str, site: Site, legal: NDArray[np.bool_], times: list[list[int]]) -> Line:
    at = np.array(times, np.int64)
    waits = (at.max(axis=1) - at.min(axis=1)) / 1e9
    verdict = "legal" if legal.all() else "not legal" if not legal.any() else "blocked"
    interval = float(np.diff(at.min(axis=1)).mean() / 1e9)
    return Line(where, site, legal, at, float(waits.mean()), float(np.quantile(waits, 0.95)), interval, verdict)


def ring(steps: int, ranks: int, *, late: int = -1, wide: int = 1) -> Drawn:
    """Each rank sends to its right, receives from its left, and all reduce: 3 actions a step. `late`: rank 1 receives
    what rank 0 sends in this step in the next one. `wide`: so many ranks start late, as waves do."""
    random = np.random.default_rng(3)
    shape = (ranks, steps, 3)
    start = 10**9 + np.arange(steps) * 60 * US + (np.arange(ranks) % wide)[:, None] * 3 * US
    enter = start[:, :, None] + np.array([10, 22, 36]) * US + random.integers(0, 8 * US, shape)
    leave = enter + random.integers(US, 4 * US, shape)
    leave[:, :, 1] = np.maximum(leave[:, :, 1], np.roll(enter[:, :, 0], 1, axis=0) + 2 * US)
    leave[:, :, 2] = enter[:, :, 2].max(axis=0) + 3 * US
    number = np.arange(ranks * steps * 3).reshape(shape)
    sent, received = number[:, :, 0], np.roll(number[:, :, 1], -1, axis=0)
    messages = np.zeros(ranks * steps, MESSAGES)
    messages["source"] = np.repeat(np.arange(ranks), steps)
    messages["dest"], messages["tag"], messages["bytes"] = (messages["source"] + 1) % ranks, 5, 8192
    which = np.tile([0, 1, 2], ranks * steps)
    if late >= 0:
        which[[number[1, late, 1], number[0, late + 1, 0]]] = 3
        received[0, late] = received[0, late + 1]
        messages = np.delete(messages, late + 1)
        sent, received = np.delete(sent.ravel(), late + 1), np.delete(received.ravel(), late + 1)
    messages["sent"], messages["posted"], messages["received"] = sent.ravel(), received.ravel(), received.ravel()
    messages["group"] = own = np.arange(len(messages))
    member = np.concatenate([messages["sent"], messages["received"], number[:, :, 2].ravel()])
    group = np.concatenate([own, own, np.tile(len(messages) + np.arange(steps), ranks)])
    kind = np.repeat([MESSAGE, COLLECTIVE], [len(messages), steps])
    sites = [Site("", 0, ""), *(Site("ring.py", line, "step") for line in (8, 9, 12, 10, 5))]
    columns = np.array([enter.ravel(), leave.ravel(), which + 1, which])
    begins, tables = np.arange(ranks + 1) * steps * 3, (sites, ["Send", "Recv", "Allreduce", "Iprobe"])
    marks = hides(start)
    matched = traced(begins, columns, (member, group), kind, messages, marks, tables, [])
    legal = np.arange(steps) != late + 1 if late >= 0 else np.ones(steps, bool)
    lines = [line("top of loop", Site("ring.py", 7, "main"), legal, start.T.tolist())]
    return Drawn(matched, judged(matched, [late] if late >= 0 else [], lines, legal[marks["step"]]))


def hides(start: Ints) -> NDArray[np.void]:
    """Some 40 of them for each rank of a ring, at the beginning of a step."""
    ranks, steps = start.shape
    saves = np.arange(0, steps, max(1, steps // 40))
    marks = np.zeros(ranks * len(saves), MARKS)
    marks["rank"], marks["step"] = np.repeat(np.arange(ranks), len(saves)), np.tile(saves, ranks)
    marks["gap"], marks["site"], marks["hide"] = marks["step"] * 3, 5, True
    marks["enter"] = start[marks["rank"], marks["step"]] + US
    marks["leave"] = marks["enter"] + 2 * US
    return marks
