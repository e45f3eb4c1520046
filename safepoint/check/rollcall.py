"""What is said of a program that stands still: where each rank is, who waits for whom, and what has not been sent."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from safepoint.check.named import Named
from safepoint.check.standing import ANY, Post, Standing
from safepoint.check.tail import Noted
from safepoint.check.waiting import All, Condition, Graph, stuck, targets, unmet
from safepoint.trace import record
from safepoint.trace.known import ranges

LISTED, CYCLE, MISSED = 6, 8, 6  # ranks in a list; ranks of a chain; messages that are missed
SPECIAL = {record.PROC_NULL: "PROC_NULL", record.ROOT: "ROOT", record.NONE: "no rank"}  # the last: bad-rank has which
INSIDE, COMPUTES, STOPPED, ENDED, DIED, LOST = "inside", "computes", "stopped", "ended", "died", "lost"


class Where(NamedTuple):
    """Of one rank at one moment."""

    state: str  # INSIDE a call that waits for others, …
    calls: tuple[Noted, ...]  # that it is in, each of another thread
    since: int  # ns
    how: str = ""  # it has ended
    stack: str = ""  # "solver.c:88 < main solver.c:140", if it has said so


class At(NamedTuple):
    """A call that a rank is in; or with which the operation was begun that it waits for."""

    rank: int
    function: str
    file: str
    line: int


class Hang(NamedTuple):
    """A program that stands still."""

    ranks: tuple[int, ...]  # that are inside of a call
    deadlock: bool  # nobody can ever go on: from a closed chain alone
    stuck: tuple[int, ...]
    text: str
    at: tuple[At, ...] = ()


def listed(ranks: Sequence[int]) -> str:
    """`0 1 3`; of many `0-63,65`."""
    return " ".join(map(str, ranks)) if len(ranks) <= LISTED else ranges(ranks)


def named(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {listed(ranks)}"


def unknown(ranks: Sequence[int], seconds: int) -> str:
    """Of a program of which all other ranks wait, or have ended."""
    one, verb = named(ranks), "are" if len(ranks) > 1 else "is"
    return f"{one} {verb} not followed, and nothing else moves since {seconds} s: whether this is a hang is not known"


def place(of: Named, site: int, cwd: str = "") -> str:
    """`halo.c:52`; empty if it is not known."""
    found = of.site(site)
    if not found.file or found.file == "?":
        return ""
    file = found.file
    if cwd and file.startswith(cwd.rstrip(os.sep) + os.sep):
        file = file[len(cwd.rstrip(os.sep)) + 1 :]
    elif os.path.isabs(file):
        file = os.path.basename(file)
    return f"{file}:{found.line}" if found.line else file


def said(standing: Standing, note: Noted) -> str:
    """`Recv(source=3, tag=5)`."""
    name, kind = standing.name(note), standing.kind(note)
    words = list[str]()
    if kind in ("send", "isend", "sendrecv"):
        words += [f"dest={SPECIAL.get(note.peer, note.peer)}", f"tag={note.tag}"]
    if kind in ("recv", "irecv", "probe", "mprobe", "sendrecv"):
        peer, tag = (note.got_peer, note.got_tag) if kind == "sendrecv" else (note.peer, note.tag)
        source = "ANY" if note.flags & record.WILD_SOURCE else SPECIAL.get(peer, peer)
        words += [f"source={source}", f"tag={'ANY' if note.flags & record.WILD_TAG else tag}"]
    if kind in ("coll", "icoll") and note.flags & record.ROOTED:
        words.append(f"root={SPECIAL.get(note.peer, note.peer)}")
    if kind == "wait" and len(posts := standing.wants(note).posts) == 1:
        post = posts[0]
        words.append(f"{said(standing, post.note)} {place(standing.named, post.note.site)}".strip())
    thing = standing.named.thing(note.comm)
    if thing is not None and note.comm != record.WORLD:
        words.append(thing.name or f"{thing.kind} of {ranges(sorted(thing.all()))}")
    return f"{name}({', '.join(words)})" if words else name


class Roll:
    """The roll call of one moment. `cwd`: that of the program, for short names of files."""

    def __init__(self, graph: Graph, where: Mapping[int, Where], now: int, cwd: str = "") -> None:
        self._graph, self._where, self._now, self._cwd = graph, where, now, cwd
        self._wants: dict[int, Condition] = {
            rank: graph.condition(rank, one.calls) for rank, one in where.items() if one.state == INSIDE and one.calls
        }
        over = {rank for rank in range(graph.size) if graph.is_final(rank)}
        self.stuck = stuck({rank: wants for rank, wants in self._wants.items() if rank not in over}, over,
                           range(graph.size))  # fmt: skip
        self._never = self.stuck | over

    def hang(self, quiet_s: float) -> Hang:
        """Nothing has happened for so long."""
        inside = tuple(sorted(rank for rank, one in self._where.items() if one.state == INSIDE))
        of = f"{len(inside)} of {self._graph.size} ranks {'is' if len(inside) == 1 else 'are'} inside MPI"
        text = [f"[hang] no progress for {quiet_s:.0f} s, {of}. Roll call at {time.strftime('%H:%M:%S')}"]
        text += [f"  {line}" for line in (*self._rows(), *self.chains(), *self._of_hide())]
        return Hang(inside, bool(self.stuck), tuple(sorted(self.stuck)), "\n".join(text), tuple(self._at()))

    def _at(self) -> Iterator[At]:
        for rank, one in sorted(self._where.items()):
            standing = self._graph.standings.get(rank)
            if standing is None or one.state != INSIDE:
                continue
            for call in one.calls:
                begun = [post.note for post in standing.wants(call).posts] if standing.kind(call) == "wait" else []
                for note in (call, *begun):
                    site = standing.named.site(note.site)
                    yield At(rank, standing.name(note), site.file, site.line)

    # The table.

    def _rows(self) -> list[str]:
        rows: dict[tuple[str, str, str], list[int]] = {}
        for rank, one in sorted(self._where.items()):
            rows.setdefault((*self._cells(rank, one), "since" if one.state in (INSIDE, COMPUTES) else ""), []).append(
                rank
            )
        found = list[tuple[str, str, str, str]]()
        for (what, at, since), ranks in rows.items():
            begun = min(self._where[rank].since for rank in ranks)
            word = f"since {max(0, self._now - begun) // 10**9} s" if since else ""
            found.append((f"rank{'s' if len(ranks) > 1 else ' '} {listed(ranks)}", what, at, word))
        widths = [max((len(row[at]) for row in found), default=0) for at in range(3)]
        return ["  ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)).rstrip()
                for row in found]  # fmt: skip

    def _cells(self, rank: int, one: Where) -> tuple[str, str]:
        standing = self._graph.standings.get(rank)
        if standing is None:
            return one.how or "has not called MPI", ""
        call = one.calls[0] if one.calls else standing.last
        at = one.stack or (self.place(rank, call) if call else "")
        if one.state == INSIDE and call is not None:
            return said(standing, call), at
        what = {COMPUTES: "computes, after", STOPPED: "is stopped, after", ENDED: "has ended", DIED: "died",
                LOST: "is followed no more"}[one.state]  # fmt: skip
        if one.state == DIED and one.calls and call is not None:
            return f"died in {said(standing, call)}", at
        return (f"{what} {standing.name(call)}" if one.state in (COMPUTES, STOPPED) and call else what), at

    def place(self, rank: int, call: Noted) -> str:
        return place(self._graph.standings[rank].named, call.site, self._cwd)

    # Who waits for whom.

    def chains(self) -> list[str]:
        """A sentence for each cycle, or chain to a rank that has ended; the rest in one."""
        found, told = list[str](), set[int]()
        for rank in sorted(self.stuck):
            if rank not in told:
                chain = self._chain(rank)
                if not told & set(chain):
                    found.append(self._sentence(chain))
                    told |= set(chain)
        rest = sorted(self.stuck - told)
        if rest:
            found.append(f"{named(rest)} {'wait' if len(rest) > 1 else 'waits'} for one of these ranks")
        return found

    def _chain(self, rank: int) -> list[int]:
        """From one rank to the next for which it waits, until one comes again or has ended; only what goes round."""
        chain = [rank]
        while chain[-1] in self._wants and chain[-1] in self.stuck:
            nexts = unmet(self._wants[chain[-1]], self._never)
            if not nexts:
                return chain
            again = [one for one in nexts if one in chain]
            if again:
                return [*chain[chain.index(again[-1]) :], again[-1]]
            chain.append(next((one for one in nexts if one in self.stuck), nexts[0]))
        return chain

    def _sentence(self, chain: list[int]) -> str:
        shown = chain if len(chain) <= CYCLE else [*chain[: CYCLE - 1], chain[-1]]
        words = list[str]()
        for order, (rank, other) in enumerate(itertools.pairwise(shown)):
            whom = targets(self._wants[rank]) if rank in self._wants else [other]
            text = f"rank {other}" if len(whom) == 1 or self._all_of(rank) else f"any of {named(whom)}"
            words.append(f"rank {rank} {'waits ' * (order == 0)}for {text}")
        if len(chain) > len(shown):
            words.insert(-1, f"… {len(chain) - len(shown)} more")
        last = chain[-1]
        end = "deadlock" if last in self.stuck else f"which {self._gone(last)}: none of them can go on"
        text = f"{', '.join(words)}{':' if last in self.stuck else ','} {end}"
        missed = list(dict.fromkeys(line for rank in dict.fromkeys(chain) for line in self._missed(rank)))
        return ". ".join([text, *missed[:MISSED]])

    def _all_of(self, rank: int) -> bool:
        return isinstance(self._wants[rank], All)

    def _gone(self, rank: int) -> str:
        where, standing = self._where.get(rank), self._graph.standings.get(rank)
        if where is not None and where.state == DIED:
            return "died"
        return "is in Finalize" if standing and standing.final and rank not in self._graph.ended else "has ended"

    def _missed(self, rank: int) -> list[str]:
        found = list[str]()
        where = self._where.get(rank)
        for call in where.calls if where is not None and rank in self.stuck else ():
            for post in self._graph.reasons(rank, call):
                found += self._of_post(rank, post)
        return found

    def _of_post(self, rank: int, post: Post) -> list[str]:
        graph = self._graph
        if post.what == "recv":
            source = "any" if post.peer == ANY else post.peer
            tag = "any tag" if post.tag == record.ANY_TAG else f"tag {post.tag}"
            text = f"Nobody has sent ({source} → {rank}, {tag})"
            others = {} if post.peer == ANY else graph.under_way(post.key, post.peer, rank)
            if others:
                tags = ", ".join(str(envelope[3]) for envelope in sorted(others, key=lambda one: one[3])[:3])
                text += f"; what rank {post.peer} has sent, and nobody has received, has tag {tags}"
            return [text]
        if post.what == "send":
            return [f"Nobody has received ({rank} → {post.peer}, tag {post.tag})"]
        if post.what == "coll":
            found = list[str]()
            if missing := graph.behind(rank, post.key, post.order, post.members):
                found.append(
                    f"{named(missing).capitalize()} {'have' if len(missing) > 1 else 'has'} not come to {post.name}"
                )
            for one in graph.elsewhere(post):
                call = self._where[one].calls[0] if one in self._where and self._where[one].calls else None
                if call is not None:
                    found.append(
                        f"Rank {one} is in {graph.standings[one].name(call)} where rank {rank} is in {post.name}"
                    )
            return found
        return []

    def _of_hide(self) -> list[str]:
        """Who waits in `hide`, and who never came."""
        standings = self._graph.standings
        waiting = [rank for rank, one in sorted(self._where.items()) if one.state == INSIDE and any(
            standings[rank].name(call) == "hide" for call in one.calls)]  # fmt: skip
        if not waiting:
            return []
        order = max(standings[rank].came["hide"] for rank in waiting)
        missing = self._graph.behind(-1, "hide", order, range(self._graph.size))
        found = [f"{named(waiting)} {'wait' if len(waiting) > 1 else 'waits'} in hide, number {order}"]
        for rank in missing[:LISTED]:
            standing = standings.get(rank)
            if standing is None or standing.hide is None:
                found.append(f"rank {rank} has never come to hide")
                continue
            hide = standing.hide
            step = f"step {hide.bytes}, " if hide.bytes < 1 << 63 else ""
            ago = max(0, self._now - hide.enter) // 10**9
            found.append(
                f"rank {rank} has not come: the last hide that it reached was number {standing.came['hide']}, "
                f"{step}{self.place(rank, hide)}, {ago} s ago".replace(", ,", ",")
            )
        if len(missing) > LISTED:
            found.append(f"{named(missing[LISTED:])} have not come either")
        return found
