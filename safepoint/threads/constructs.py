"""OpenMP constructs with their calls: regions, loops of two bodies, sections, and the rest.

A combined construct is written as two. What a parallel construct must make private for us, visits of nested regions and
flags of private scalars, is known when its body is written; its directive is put in then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from safepoint.threads.digests import Digested, digested, pieces_of
from safepoint.threads.directives import Clause, Directive, split
from safepoint.threads.doubling import can_double, targets
from safepoint.threads.emission import INTEGER, LOGICAL, joined
from safepoint.threads.insert import Statements, Where, bounds
from safepoint.threads.lines import Line
from safepoint.threads.sharing import assignments, blocks, do_variable, loop_variables
from safepoint.threads.structure import Block, Construct, Item, Stmt
from safepoint.threads.symbols import Scope
from safepoint.threads.uncertainty import order_names
from safepoint.threads.written import PURE, is_variable, names_in

PAIRS = {"single": (13, 14), "master": (15, 16), "masked": (15, 16), "critical": (17, 18), "ordered": (19, 20)}
SITES = {"masked": "master"}
SPLIT = {"parallel do", "parallel do simd", "parallel sections", "parallel workshare", "parallel master",
         "parallel masked", "parallel"}  # fmt: skip
SILENT = {"flush", "taskwait", "taskyield", "cancel", "cancellation point", "threadprivate"}


class Constructs(Statements):
    """Writes statements and constructs of one unit."""

    watched: tuple[str, ...] = ()

    def construct(self, given: Construct, where: Where) -> None:
        name, level = given.directive.construct, self.level(given.first)
        if name == "sp":
            self.own_sp(given, where)
        elif level == "off":
            self.copy(given.first, given.last + 1, where)
        elif name in SPLIT:
            self.parallel(given, where)
        elif name in ("do", "do simd"):
            self.loop(given, where, given.directive, combined=False)
        elif name == "sections":
            self.sections(given, where, given.directive, combined=False)
        elif name == "simd":
            self.simd(given, where)
        elif name in PAIRS and given.body:
            self.pair(given, where, given.directive)
        elif name == "atomic":
            self.atomic(given, where)
        elif name == "barrier":
            site = self.site("barrier", "", given)
            self.puts([self.event(site, 21)], given.first)
            self.writer.raw(given.first, given.last + 1)
        else:
            self.untouched([given], given.first, given.last + 1, where, f"in {name}: not compared")
            if name not in SILENT:
                self.said_untouched(given)

    def said_untouched(self, given: Construct) -> None:
        if given.body:
            text = f"{given.directive.construct}: passed through; what it does inside is not compared"
            self.numbering.warnings.append((self.writer.source.lines[given.first].line, text))

    def own_sp(self, given: Construct, where: Where) -> None:
        """`!$sp watch a, b`: their digests here, if no region is around, and at the end of each region from here on."""
        self.writer.raw(given.first, given.last + 1)
        found = re.match(r"watch\b(.*)", given.directive.text, re.I)
        names = [name.strip().lower() for name in found[1].split(",")] if found else []
        self.watched = (*self.watched, *(name for name in names if name))
        if names and not where.around:
            self.digest([Digested(name, given.first, "") for name in names], given.first, where)

    def site(self, type: str, name: str, given: Construct) -> int:
        clauses = " ".join(map(str, given.directive.clauses))
        return self.numbering.new(type, name, given.first, given.last, clauses=clauses, procedure=self.state.procedure)

    # Regions

    def parallel(self, given: Construct, where: Where) -> None:
        directive, halves = given.directive, split(given.directive)
        site = self.site("region", directive.construct, given)
        visit = self.needs.variable("v", INTEGER)
        if where.team is not None:
            where.team.append(visit)
        outermost = not any("parallel" in around.directive.construct.split() for around in where.around)
        self.puts([f"{visit} = {self.needs.runtime('region')}({site}_4)"], given.first)
        place, team = self.writer.later(), list[str]()
        inner = replace(where, around=(*where.around, given), team=team, flags={}, protected="",
                        order=order_names(given, where.scope, where.around))  # fmt: skip
        inner = replace(inner, flags=self.flagged(given, directive, inner))
        self.puts([self.call("enter", f"{site}_4", visit)], given.first)
        self.puts([f"{flag} = .false." for flag in inner.flags.values()], given.first)
        self.inside(given, inner, halves.inner, halves.clauses)
        self.puts([self.call("leave", f"{site}_4", visit)], given.last)
        clauses = list(halves.team)
        if directive.default in ("none", "private", "firstprivate"):
            clauses.append(Clause("shared", visit))
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
        if inner.construct:
            self.writer.parts += self.inner_directive(inner, given.first)
        self.copy(start, end, where)
        if inner.construct:
            self.writer.parts += self.writer.directive(f"end {inner.construct}", given.last)

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
            if found.name in self.uncertain_names:
                continue
            for piece, condition, why in pieces_of(found, where.scope):
                if why:
                    self.numbering.leaves(found.line, f"digest of {piece.text}: {why}")
                    continue
                site = self.numbering.new("array", piece.text.lower(), at, loose=found.loose, procedure=self.state.procedure)
                text = self.call("digest", f"{site}_4", piece.argument)
                self.puts([f"if ({condition}) {text}" if condition else text], at)

    # Work-sharing

    def loop(self, given: Construct, where: Where, directive: Directive, *, combined: bool) -> None:
        nest = nested(given, directive)
        if not nest:
            self.untouched_loop(given, directive, combined, where)
            return
        inner = where if combined else self.sharing(given, where)
        variables = [do_variable(block) for block in nest]
        clauses = " ".join(map(str, given.directive.clauses))
        site = self.numbering.new("loop", ",".join(variables), nest[0].first, nest[0].last, clauses=clauses,
                                  procedure=self.state.procedure)  # fmt: skip
        number = self.numbering.new("iteration", ",".join(variables), nest[0].first, nest[0].last,
                                    procedure=self.state.procedure)  # fmt: skip
        if not combined:
            self.reset(inner, where, given.first)
        for block in nest:
            self.puts(self.reading(block.open, block.open.node, self.level(block.first), where), block.first)
            where = replace(where, loops=where.loops | {do_variable(block)})
        self.puts([self.loop_call(site, nest, where.scope)], nest[0].first)
        if combined:
            self.writer.parts += self.inner_directive(directive, given.first)
        else:
            self.writer.raw(given.first, given.directive.last + 1)
        last = nest[-1]
        self.copy(given.directive.last + 1, last.open.last + 1, where)
        ends = frozenset(label for block in nest for label in targets(block.open.at.text))
        inner = replace(inner, loops=inner.loops | set(variables), ends=inner.ends | ends)
        self.two(last.body, last.open.last + 1, last.close.first if last.close else last.last + 1,
                 f"{self.needs.runtime('iter')}({number}_4, {', '.join(variables)})", inner)  # fmt: skip
        end = given.end.first if given.end else given.last + 1
        self.copy(last.close.first if last.close else last.last + 1, end, where)
        self.end_of(given, directive, combined)
        self.puts([self.call("loop_end", f"{site}_4")], given.last)

    def two(self, items: Sequence[Item], start: int, end: int, condition: str, where: Where) -> None:
        """Two bodies, or one that asks if there cannot be two."""
        if can_double(items, where.ends) and items:
            self.doubled(items, start, end, condition, where)
        else:
            self.writer.put(f"if ({condition}) continue", items[0].first if items else start - 1)
            self.body(items, start, end, replace(where, traced=False))

    def untouched_loop(self, given: Construct, directive: Directive, combined: bool, where: Where) -> None:
        if combined:
            start, end = given.directive.last + 1, given.end.first if given.end else given.last + 1
            self.wrapped(given, directive, start, end, where)
        else:
            self.copy(given.first, given.last + 1, where)
        self.leave(given, where, "in a loop whose iterations have no numbers")

    def end_of(self, given: Construct, directive: Directive, combined: bool) -> None:
        if combined:
            self.writer.parts += self.writer.directive(f"end {directive.construct}", given.last)
        elif given.end:
            self.writer.raw(given.end.first, given.end.last + 1)

    def sharing(self, given: Construct, where: Where) -> Where:
        """Inside a work-sharing construct that stands alone."""
        inner = replace(where, around=(*where.around, given), order={**where.order, **order_names(given, where.scope, where.around)})
        return replace(inner, flags=self.flagged(given, given.directive, inner))

    def reset(self, inner: Where, where: Where, at: int) -> None:
        flags = [flag for flag in inner.flags.values() if flag not in where.flags.values()]
        self.puts([f"{flag} = .false." for flag in flags], at)

    def loop_call(self, site: int, nest: Sequence[Block], scope: Scope) -> str:
        outer, arguments = set[str](), list[str]()
        for block in nest:
            given = bounds(block)
            names = {name for text in given for name in names_in(text)}
            calls = [name for text in given for name in re.findall(r"([a-z]\w*)\s*\(", text, re.I)]
            safe = all(name.lower() in PURE or is_array(name, scope) for name in calls)
            arguments += [f"int({text}, 8)" for text in given] if safe and not names & outer else ["0_8", "-1_8", "1_8"]
            outer.add(do_variable(block))
        name = "loop" if len(nest) == 1 else f"loop{len(nest)}"
        return self.call(name, f"{site}_4", *arguments)

    def sections(self, given: Construct, where: Where, directive: Directive, *, combined: bool) -> None:
        inner = where if combined else self.sharing(given, where)
        parts = sections_of(given)
        site = self.site("loop", "sections", given)
        if not combined:
            self.reset(inner, where, given.first)
        self.puts([self.event(site, 24, len(parts))], given.first)
        if combined:
            self.writer.parts += self.inner_directive(directive, given.first)
        else:
            self.writer.raw(given.first, given.directive.last + 1)
        start = given.directive.last + 1
        assert given.end is not None
        for number, (first, items) in enumerate(parts, 1):
            end = parts[number][0] if number < len(parts) else given.end.first
            opener = next((item for item in items if is_section(item)), None)
            at = opener.last + 1 if opener else start
            self.writer.raw(start, at)
            inside = [item for item in items if item is not opener]
            own = self.numbering.new("section", str(number), first, end - 1, procedure=self.state.procedure)
            condition = f"{self.needs.runtime('iter')}({own}_4, {number}_8)"
            self.two(inside, at, end, condition, inner)
            start = end
        self.end_of(given, directive, combined)
        self.puts([self.event(site, 25)], given.last)

    def pair(self, given: Construct, where: Where, directive: Directive, combined: bool = False) -> None:
        """SINGLE, MASTER, CRITICAL, ORDERED: an event inside at the beginning and at the end."""
        name = directive.construct
        inner = where if combined else self.sharing(given, where) if name == "single" else where
        inner = replace(inner, around=where.around if combined else (*where.around, given))
        if name == "critical":
            inner = replace(inner, protected="critical", order={**inner.order, **order_names(given, where.scope, where.around)})
        if not combined:
            self.reset(inner, where, given.first)
        site = self.site(SITES.get(name, name), directive.name or name, given)
        if combined:
            self.writer.parts += self.inner_directive(directive, given.first)
        else:
            self.writer.raw(given.first, given.directive.last + 1)
        first, last = PAIRS[name]
        assert given.end is not None
        self.puts([self.event(site, first)], given.first)
        self.body(given.body, given.directive.last + 1, given.end.first, inner)
        self.puts([self.event(site, last)], given.last)
        self.end_of(given, directive, combined)

    def atomic(self, given: Construct, where: Where) -> None:
        """Nothing may be put inside: the events and what was written stand around it."""
        site = self.site("atomic", "atomic", given)
        inner = replace(where, around=(*where.around, given), protected="atomic",
                        order={**where.order, **order_names(given, where.scope, where.around)})  # fmt: skip
        self.puts([self.event(site, 22)], given.first)
        self.copy(given.first, given.last + 1, where)
        after = list[str]()
        if self.level(given.first) in ("write", "full"):
            for item in given.body:
                if isinstance(item, Stmt):
                    for text in self.beside(item, item.node, "write", inner)[1]:
                        after.append(text)
                else:
                    self.leave(given, where, "in atomic")
        self.puts([*after, self.event(site, 23)], given.last)

    def simd(self, given: Construct, where: Where) -> None:
        """A traced body has the loop without its directive; one that asks is doubled."""
        if where.traced:
            inner = replace(where, around=(*where.around, given))
            self.body(given.body, given.directive.last + 1, given.end.first if given.end else given.last + 1, inner)
        elif self.is_apart(given.body, where):
            self.doubled([given], given.first, given.last + 1, self.on(), where)
        else:
            self.untouched([given], given.first, given.last + 1, where, "in simd: not compared")
            self.said_untouched(given)


def is_array(name: str, scope: Scope) -> bool:
    symbol = scope.find(name)
    return bool(symbol and symbol.rank) and is_variable(name, scope)


def is_section(item: Item) -> bool:
    return isinstance(item, Construct) and item.directive.construct == "section"


def sections_of(given: Construct) -> list[tuple[int, list[Item]]]:
    """The first line of each section and what is in it, its directive too; the first one may have none."""
    found = list[tuple[int, list[Item]]]()
    for item in given.body:
        if is_section(item) or not found:
            found.append((item.first, []))
        found[-1][1].append(item)
    return found


def nested(given: Construct, directive: Directive) -> list[Block]:
    """The loops that a construct takes, from the outside; empty if they are none that can be numbered."""
    items, found = list(given.body), list[Block]()
    if not 1 <= directive.collapse <= 3 or directive.argument("ordered"):
        return []
    for _ in range(directive.collapse):
        if len(items) != 1 or not isinstance(items[0], Block) or not items[0].is_do or not do_variable(items[0]):
            return []
        found.append(items[0])
        if found[-1].close is None and directive.collapse > 1:
            return []
        items = items[0].body
    return found
