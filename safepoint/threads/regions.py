"""Parallel regions with their calls: the visit, the team, what is inside, the digests at the end.

What a parallel construct must make private for us, visits of nested regions and flags of private scalars, is known when
its body is written; its directive is put in then. A combined construct is written as two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from safepoint.threads.choices import NAME
from safepoint.threads.digests import Digested, digested, undigested
from safepoint.threads.directives import Clause, Directive, split
from safepoint.threads.elements import INDICES, Piece, pieces_of
from safepoint.threads.emission import INTEGER, LOGICAL, joined
from safepoint.threads.handed import filled, unsettled
from safepoint.threads.insert import Statements
from safepoint.threads.lines import Line, split_outside
from safepoint.threads.nests import ASKS, CONDITION, CONSTANT, asks, chunk_of, expressions, is_early, nested
from safepoint.threads.places import Early, State, Where
from safepoint.threads.sharing import assignments, blocks, constructs, do_variable, loop_variables, opens_tasks
from safepoint.threads.structure import Block, Construct
from safepoint.threads.teams import is_scratch
from safepoint.threads.through import through
from safepoint.threads.uncertainty import order_names

PAIRS = {"single": (13, 14), "master": (15, 16), "masked": (15, 16), "critical": (17, 18), "ordered": (19, 20)}
SPLIT = {"parallel do", "parallel do simd", "parallel sections", "parallel workshare", "parallel master",
         "parallel masked", "parallel"}  # fmt: skip


MAY_HAVE = "the number of a thread may be in it, or of threads in its extent"


class Regions(Statements):
    """Writes parallel regions; what is inside is for the class that knows it."""

    watched: tuple[str, ...] = ()

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.indices: list[str] = []

    def loop(self, given: Construct, where: Where, directive: Directive, *, combined: bool) -> None:
        raise NotImplementedError

    def sections(self, given: Construct, where: Where, directive: Directive, *, combined: bool) -> None:
        raise NotImplementedError

    def pair(self, given: Construct, where: Where, directive: Directive, combined: bool = False) -> None:
        raise NotImplementedError

    def said_untouched(self, given: Construct) -> None:
        if given.body:
            text = f"{given.directive.construct}: passed through; what it does inside is not compared"
            self.numbering.warnings.append((self.writer.source.lines[given.first].line, text))

    def own_sp(self, given: Construct, where: Where) -> None:
        """`!$sp watch a, b`: their digests here, if no region is around, and at the end of each region from here on."""
        self.writer.raw(given.first, given.last + 1)
        found = re.match(r"watch\b(.*)", given.directive.text, re.I)
        named = [name.strip().lower() for name in split_outside(found[1], ",")] if found else []
        names = [name for name in named if NAME.fullmatch(name) and where.scope.find(name.split("%")[0])]
        for name in dict.fromkeys(named):
            if name not in names:
                text = f"`!$sp watch {name}`: no variable of this name is known here, so it does nothing"
                self.numbering.warnings.append((self.writer.source.lines[given.first].line, text))
        self.watched = (*self.watched, *names)
        if names and not where.around:
            self.digest([Digested(name, given.first, "") for name in names], given.first, where)

    def site(self, type: str, name: str, given: Construct) -> int:
        clauses = " ".join(map(str, given.directive.clauses))
        loose = "task" if type == "region" and any(map(opens_tasks, constructs([given]))) else ""
        return self.numbering.new(type, name, given.first, given.last, clauses=clauses, procedure=self.state.procedure,
                                  loose=loose)  # fmt: skip

    def parallel(self, given: Construct, where: Where) -> None:
        directive, halves = given.directive, split(given.directive)
        site = self.site("region", directive.construct, given)
        visit = self.needs.variable("v", INTEGER)
        outermost = not any("parallel" in around.directive.construct.split() for around in where.around)
        early = Early(self.writer.later(), [])
        self.puts([f"{visit} = {self.needs.runtime('region')}({site}_4)"], given.first)
        place, team = self.writer.later(), list[str]()
        inner = replace(where, around=(*where.around, given), team=team, flags={}, protected="", early=early,
                        order=order_names(given, where.scope, where.around))  # fmt: skip
        chance = where.filled | set(filled(given, where.scope, where.around))
        inner = replace(inner, flags=self.flagged(given, directive, inner), filled=chance)
        self.puts([self.call("enter", f"{site}_4", visit)], given.first)
        self.puts([f"{flag} = .false." for flag in inner.flags.values()], given.first)
        self.inside(given, inner, halves.inner, halves.clauses)
        self.puts([self.call("leave", f"{site}_4", visit)], given.last)
        clauses = [self.asked(clause, given, inner) for clause in halves.team]
        if where.team is not None:
            where.team.extend([visit, *early.names])
        if directive.default in ("none", "private", "firstprivate"):
            clauses.append(Clause("shared", joined([visit, *early.names])))
        if team:
            clauses.append(Clause("private", joined(team)))
        if halves.inner or clauses != list(directive.clauses):
            place += self.writer.directive(" ".join(["parallel", *map(str, clauses)]), given.first)
        else:
            place += self.writer.source.lines[given.first : directive.last + 1]
        if halves.inner or not given.end:
            self.writer.parts += self.writer.directive("end parallel", given.last)
        else:
            self.writer.raw(given.end.first, given.end.last + 1)
        if outermost:
            self.state.handed |= set(unsettled(given, where.scope))
            for _, line, why in undigested(given, where.scope, self.state.uncertain):
                self.numbering.leaves(line, why)
            for each in through(given, where.scope):
                if each.why:
                    self.numbering.leaves(each.line, each.why)
            self.digest(digested(given, where.scope, self.state.uncertain, self.also()), given.last, where)
        self.puts([self.call("region_end", f"{site}_4", visit)], given.last)

    def also(self) -> tuple[str, ...]:
        return (*self.state.levels.settings.digest, *self.watched)

    def inside(self, given: Construct, where: Where, name: str, clauses: Sequence[Clause]) -> None:
        """What a parallel construct contains; a combined one has one construct in it."""
        settings, start = self.state.levels.settings, given.directive.last + 1
        end = given.end.first if given.end else given.last + 1
        depth = sum("parallel" in around.directive.construct.split() for around in where.around)
        inner = replace(given.directive, clauses=tuple(clauses), construct=name)
        if self.level(given.first) == "region" or (settings.depth and depth > settings.depth):
            self.wrapped(given, inner, start, end, where)
        elif name in ("do", "do simd"):
            self.loop(given, where, inner, combined=True)
        elif name == "sections":
            self.sections(given, where, inner, combined=True)
        elif name in PAIRS:
            self.pair(given, where, inner, combined=True)
        elif name:
            self.wrapped(given, inner, start, end, where)
            self.leave(given, where, f"in {name}: not compared")
        else:
            self.body(given.body, start, end, where)

    def wrapped(self, given: Construct, inner: Directive, start: int, end: int, where: Where) -> None:
        """As it is, between the directives of the inner construct."""
        nest = nested(given, inner) if "do" in inner.construct.split() else []
        inner, settled = self.settled(given, inner, nest, where)
        if inner.construct:
            self.writer.parts += self.inner_directive(inner, given.first)
        self.heads(nest, start, end, settled, where)
        if inner.construct:
            self.writer.parts += self.writer.directive(f"end {inner.construct}", given.last)

    def settled(
        self, given: Construct, inner: Directive, nest: Sequence[Block], where: Where
    ) -> tuple[Directive, dict[int, list[str]]]:
        """Of a combined construct the inner directive, and the bounds of loops by their line, where expressions are
        evaluated before the team begins and have names here."""
        found, outer, clauses = dict[int, list[str]](), set[str](), list[Clause]()
        for block in nest:
            texts = expressions(block, outer)
            if any(is_early(text, given.directive, where.scope) for text in texts):
                found[block.first] = [self.early(text, given, where) for text in texts]
            outer.add(do_variable(block))
        for clause in inner.clauses:
            kind, chunk = chunk_of(clause)
            if chunk and is_early(chunk, given.directive, where.scope):
                clause = Clause(clause.name, f"{kind}, {self.early(chunk, given, where, serial=False)}")
            clauses.append(clause)
        return replace(inner, clauses=tuple(clauses)), found

    def early(self, text: str, given: Construct, where: Where, *, serial: bool = True) -> str:
        """A variable that has the value of an expression before the team begins; constants stay. `serial`: without
        OpenMP, too."""
        if where.early is None or CONSTANT.fullmatch(text):
            return text
        name = self.needs.variable("b", INTEGER)
        where.early.names.append(name)
        texts = [f"{name} = {text}"]
        where.early.lines.extend(self.plain(texts, given) if serial else self.muted(texts, given))
        return name

    def plain(self, texts: Sequence[str], given: Construct) -> list[Line]:
        return [line for text in texts for line in self.writer.made(text, given.first)]

    def muted(self, texts: Sequence[str], given: Construct) -> list[Line]:
        """Statements with OpenMP alone. What they call is no event, as the serial program does not call it: within a
        visit of 0 nothing is recorded."""
        visit = f"{self.state.number}_4", "0_8"
        lines = self.plain([self.call("enter", *visit), *texts, self.call("leave", *visit)], given)
        free = self.writer.source.free
        return [line._replace(text=f"!$ {line.text.lstrip()}" if free else f"!${line.text[2:]}") for line in lines]

    def asked(self, clause: Clause, given: Construct, where: Where) -> Clause:
        """NUM_THREADS and IF with the value of what they call, from before the team begins."""
        found = CONDITION.match(clause.argument) if clause.name in ASKS else None
        if found is None or where.early is None or not asks(found[2], where.scope):
            return clause
        name = self.needs.variable("b", LOGICAL if clause.name == "if" else INTEGER)
        where.early.names.append(name)
        where.early.lines.extend(self.muted([f"{name} = {found[2]}"], given))
        return Clause(clause.name, f"{found[1]}{name}")

    def chunked(self, given: Construct, directive: Directive, where: Where) -> Directive:
        """Of a loop in a team, with the value of the chunk that its SCHEDULE calls for, of each thread."""
        clauses = list[Clause]()
        for clause in directive.clauses:
            kind, chunk = chunk_of(clause)
            if chunk and asks(chunk, where.scope):
                name = self.needs.variable("b", INTEGER)
                if where.team is not None:
                    where.team.append(name)
                self.writer.parts += self.muted([f"{name} = {chunk}"], given)
                clause = Clause(clause.name, f"{kind}, {name}")
            clauses.append(clause)
        return directive if clauses == list(directive.clauses) else replace(directive, clauses=tuple(clauses))

    def heads(self, nest: Sequence[Block], start: int, end: int, settled: Mapping[int, Sequence[str]],
              where: Where) -> None:  # fmt: skip
        """The user's lines, with other bounds where these are settled."""
        for block in (block for block in nest if block.first in settled):
            head, label = block.open.at.text.partition("=")[0], where.renames.label(block.open.at.label)
            text = where.renames.text(f"{head.rstrip()} = {', '.join(settled[block.first])}")
            self.copy(start, block.first, where)
            self.writer.put(f"{label} {text}".strip(), block.first)
            start = block.open.last + 1
        self.copy(start, end, where)

    def inner_directive(self, inner: Directive, at: int) -> list[Line]:
        return self.writer.directive(" ".join([inner.construct, *map(str, inner.clauses)]), at)

    def leave(self, given: Construct, where: Where, why: str) -> None:
        for found in assignments(given.body, where.scope, where.around):
            self.numbering.leaves(found.stmt.first, why)

    def flagged(self, given: Construct, directive: Directive, where: Where) -> dict[str, str]:
        """A flag for each private scalar that has no value at the beginning."""
        found, level = dict(where.flags), self.level(given.first)
        loops = {do_variable(block) for block in blocks([given])} | set(loop_variables(given))
        known = set(directive.names("firstprivate"))
        for name in directive.names("private", "lastprivate"):
            symbol = where.scope.find(name)
            scalar = symbol is not None and symbol.intrinsic and symbol.rank == 0
            if scalar and name not in loops | known and level == "full":
                flag = self.needs.variable("u", LOGICAL)
                if where.team is not None:
                    where.team.append(flag)
                found[name] = flag
        return found

    def digest(self, wanted: Sequence[Digested], at: int, where: Where) -> None:
        """One digest for each variable; what has none is noted."""
        if self.writer.source.lines[at].line in self.state.levels.untouched:
            return
        for found in wanted:
            symbol, unsure = where.scope.find(found.name.split("%")[0]), self.state.uncertain
            if found.name.split("%")[0] in unsure.names:
                if symbol and symbol.rank:
                    self.numbering.leaves(found.line, f"{found.name} is in no digest, as {MAY_HAVE}")
                continue
            for piece in pieces_of(found.name, where.scope):
                if is_scratch(piece.name, unsure.scratch, where.scope):
                    self.numbering.leaves(found.line, f"{piece.name} is in no digest, as {MAY_HAVE}")
                elif piece.why:
                    self.numbering.leaves(found.line, f"{piece.name} is in no digest: {piece.why}")
                else:
                    self.puts(self.digest_of(piece, found.loose, at), at)

    def digest_of(self, piece: Piece, loose: str, at: int) -> list[str]:
        site = self.numbering.new("array", piece.name.lower(), at, loose=loose, procedure=self.state.procedure)
        names = [self.index(number) for number in range(piece.loops)]
        lines = [*piece.before, self.call("digest", f"{site}_4", piece.argument), *piece.after]
        for place, name in zip(INDICES, names, strict=False):
            lines = [line.replace(place, name) for line in lines]
        return lines

    def index(self, number: int) -> str:
        """A variable for a loop over elements; one of this unit."""
        while len(self.indices) <= number:
            self.indices.append(self.needs.variable("i", INTEGER))
        return self.indices[number]
