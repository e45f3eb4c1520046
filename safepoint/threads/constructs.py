"""OpenMP constructs with their calls: loops of two bodies, sections, and the rest.

Nothing may stand between a directive and its loop, or in ATOMIC: calls stand before the directive and after the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from safepoint.threads.directives import Directive
from safepoint.threads.doubling import can_double, targets
from safepoint.threads.nests import calls_in, nested
from safepoint.threads.places import Where
from safepoint.threads.regions import PAIRS, SPLIT, Regions
from safepoint.threads.sharing import bounds, do_variable
from safepoint.threads.structure import Block, Construct, Item, Stmt
from safepoint.threads.symbols import Scope
from safepoint.threads.uncertainty import order_names
from safepoint.threads.written import names_in

SITES = {"masked": "master"}
SILENT = {"flush", "taskwait", "taskyield", "cancel", "cancellation point", "threadprivate"}


class Constructs(Regions):
    """Writes statements and constructs of one unit."""

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
        elif name == "lock":
            self.lock(given, where)
        elif name == "barrier":
            site = self.site("barrier", "", given)
            self.puts([self.event(site, 21)], given.first)
            self.writer.raw(given.first, given.last + 1)
        else:
            self.untouched([given], given.first, given.last + 1, where, f"in {name}: not compared")
            if name not in SILENT:
                self.said_untouched(given)

    def loop(self, given: Construct, where: Where, directive: Directive, *, combined: bool) -> None:
        nest = nested(given, directive)
        if not nest:
            self.untouched_loop(given, directive, combined, where)
            return
        inner = where if combined else self.sharing(given, where)
        variables = [do_variable(block) for block in nest]
        whole = directive
        directive, settled = (
            self.settled(given, whole, nest, where) if combined else (self.chunked(given, whole, where), {})
        )
        clauses = " ".join(map(str, given.directive.clauses))
        site = self.numbering.new("loop", ",".join(variables), nest[0].first, nest[0].last, clauses=clauses,
                                  procedure=self.state.procedure)  # fmt: skip
        numbers = variables if len(nest) == 1 else [f"int({name}, 8)" for name in variables]
        number = self.numbering.new("iteration", ",".join(variables), nest[0].first, nest[0].last,
                                    procedure=self.state.procedure)  # fmt: skip
        if not combined:
            self.reset(inner, where, given.first)
        for block in nest:
            if block.first not in settled:
                self.puts(self.reading(block.open, block.open.node, self.level(block.first), where), block.first)
            where = replace(where, loops=where.loops | {do_variable(block)})
        self.puts([self.loop_call(site, nest, where.scope, settled)], nest[0].first)
        if combined or directive is not whole:
            self.writer.parts += self.inner_directive(directive, given.first)
        else:
            self.writer.raw(given.first, given.directive.last + 1)
        last = nest[-1]
        self.heads(nest, given.directive.last + 1, last.open.last + 1, settled, where)
        ends = frozenset(label for block in nest for label in targets(block.open.at.text))
        inner = replace(inner, loops=inner.loops | set(variables), ends=inner.ends | ends)
        self.two(last.body, last.open.last + 1, last.close.first if last.close else last.last + 1,
                 f"{self.needs.runtime('iter')}({number}_4, {', '.join(numbers)})", inner)  # fmt: skip
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
            start, inner = given.first, self.chunked(given, directive, where)
            if inner is not directive:
                self.writer.parts += self.inner_directive(inner, given.first)
                start = given.directive.last + 1
            self.copy(start, given.last + 1, where)
        self.leave(given, where, "in a loop whose iterations have no numbers")

    def end_of(self, given: Construct, directive: Directive, combined: bool) -> None:
        if combined:
            self.writer.parts += self.writer.directive(f"end {directive.construct}", given.last)
        elif given.end:
            self.writer.raw(given.end.first, given.end.last + 1)

    def sharing(self, given: Construct, where: Where) -> Where:
        """Inside a work-sharing construct that stands alone."""
        inner = replace(
            where, around=(*where.around, given), order={**where.order, **order_names(given, where.scope, where.around)}
        )
        return replace(inner, flags=self.flagged(given, given.directive, inner))

    def reset(self, inner: Where, where: Where, at: int) -> None:
        flags = [flag for flag in inner.flags.values() if flag not in where.flags.values()]
        self.puts([f"{flag} = .false." for flag in flags], at)

    def loop_call(self, site: int, nest: Sequence[Block], scope: Scope, settled: Mapping[int, Sequence[str]]) -> str:
        outer, arguments = set[str](), list[str]()
        for block in nest:
            given = settled.get(block.first) or bounds(block)
            names = {name for text in given for name in names_in(text)}
            safe = not any(calls_in(text, scope) for text in given)
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
            inner = replace(
                inner, protected="critical", order={**inner.order, **order_names(given, where.scope, where.around)}
            )
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

    def lock(self, given: Construct, where: Where) -> None:
        """As CRITICAL, from after what sets it to before what frees it, if that is a statement."""
        inner = replace(where, around=(*where.around, given), protected="critical",
                        order={**where.order, **order_names(given, where.scope, where.around)})  # fmt: skip
        first, last = given.body[0], given.body[-1]
        site, stops = self.site("critical", "lock", given), isinstance(last, Stmt)
        self.item(first, inner)
        self.puts([self.event(site, 17)], first.last)
        self.body(given.body[1:-1] if stops else given.body[1:], first.last + 1, last.first if stops else last.last + 1,
                  inner)  # fmt: skip
        self.puts([self.event(site, 18)], last.first if stops else last.last)
        if stops:
            self.item(last, inner)

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
