"""Calls around statements: what is assigned after each, what is read before, in a body that is traced or that asks.

A *traced* body, beside an untouched one, runs only when it records. One that *asks* stands alone; loops are doubled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from safepoint.threads import locks, written
from safepoint.threads.directives import closing
from safepoint.threads.doubling import can_double, labels_in, targets
from safepoint.threads.emission import call
from safepoint.threads.handing import handed
from safepoint.threads.places import State, Where
from safepoint.threads.reaching import opens_region
from safepoint.threads.reading import reads_of
from safepoint.threads.sharing import assignments, constructs, do_variable, root_of, statements, status
from safepoint.threads.structure import Block, Construct, Item, Stmt
from safepoint.threads.teams import exits, is_scratch, marks, names_scratch
from safepoint.threads.texts import ONLY
from safepoint.threads.uncertainty import functions_in, gathers, is_uncertain
from safepoint.threads.written import Assigned, Target, assigned, inner_scope, is_action, names_in, pieces, target

DOUBLES = "simd", "critical", "atomic", "lock", "sp"
MASKED = ("Where_Construct_Stmt", "Forall_Construct_Stmt", "Forall_Stmt", "Where_Stmt")


class Statements:
    """Writes the statements of one unit."""

    def __init__(self, state: State) -> None:
        self.state, self.writer, self.needs, self.numbering = state, state.writer, state.needs, state.numbering

    def call(self, name: str, *arguments: object) -> str:
        return call(self.needs.runtime(name), *arguments)

    def event(self, site: int, kind: int, value: int = 0) -> str:
        return self.call("event", f"{site}_4", f"{kind}_4", f"{value}_8")

    def puts(self, texts: Sequence[str], at: int) -> None:
        for text in texts:
            self.writer.put(text, at)

    def level(self, at: int) -> str:
        return self.state.levels.at(at, self.state.procedure)

    def body(self, items: Sequence[Item], start: int, end: int, where: Where) -> None:
        """The items with what stands between them, in lines from `start` to `end`."""
        for item in items:
            if item.last < start:
                continue
            self.writer.raw(start, item.first)
            self.item(item, where)
            start = item.last + 1
        self.writer.raw(start, end)

    def item(self, item: Item, where: Where) -> None:
        if isinstance(item, Stmt):
            self.statement(item, where)
        elif isinstance(item, Block):
            self.block(item, where)
        else:
            self.construct(item, where)

    def construct(self, given: Construct, where: Where) -> None:
        raise NotImplementedError

    # Statements

    def statement(self, stmt: Stmt, where: Where) -> None:
        level = self.level(stmt.first)
        if stmt.at.conditional or level in ("off", "region") or not is_action(stmt):
            if stmt.at.conditional and assigned(stmt.node, where.scope):
                self.numbering.leaves(stmt.first, ONLY)
            self.own(stmt, where)
        elif stmt.kind == "If_Stmt":
            self.if_statement(stmt, level, where)
        else:
            if stmt.at.label and stmt.at.label.lstrip("0") in where.ends:
                self.untouched([stmt], stmt.first, stmt.last + 1, replace(where, flags={}), "ends a loop")
                return
            before, after = self.beside(stmt, stmt.node, level, where)
            self.puts(before, stmt.first)
            self.own(stmt, where)
            self.puts(after, stmt.first)

    def if_statement(self, stmt: Stmt, level: str, where: Where) -> None:
        """`if (c) x = y` becomes a block if something is to be put beside the assignment."""
        text = stmt.at.text
        close = closing(text, text.index("("))
        condition, action = text[: close + 1], text[close + 1 :].strip()
        if self.unstable(condition, where) or stmt.at.label.lstrip("0") in where.ends - {""}:
            self.untouched([stmt], stmt.first, stmt.last + 1, where, self.unstable(condition, where) or "ends a loop")
            return
        label = where.renames.label(stmt.at.label)
        asked = self.reading(stmt, stmt.node.children[0], level, where)
        before, after = self.beside(stmt, stmt.node.children[1], level, where)
        self.puts(asked, stmt.first)
        if not before and not after:
            self.own(stmt, where)
            return
        self.puts([f"{label} {condition} then".strip(), *before], stmt.first)
        self.puts([where.renames.text(action), *after, "end if"], stmt.first)

    def own(self, stmt: Stmt, where: Where) -> None:
        """The user's statement; its construct names and labels are other ones in a traced body."""
        self.copy(stmt.first, stmt.last + 1, where)

    def copy(self, start: int, end: int, where: Where) -> None:
        """The user's lines, with other construct names and labels if these stand a second time."""
        if where.renames:
            for given in self.writer.source.between(start, end):
                text, label = where.renames.text(given.text), where.renames.label(given.label)
                if not given.conditional and (text, label) != (given.text, given.label):
                    self.writer.raw(start, given.first)
                    self.writer.put(f"{label} {text}".strip(), given.first)
                    start = given.last + 1
        self.writer.raw(start, end)

    def beside(self, stmt: Stmt, node: object, level: str, where: Where) -> tuple[list[str], list[str]]:
        """What goes before and after a statement."""
        before = self.reading(stmt, node, level, where)
        if type(node).__name__ == "Return_Stmt" and self.state.events:
            before.append(self.event(self.state.number, 12))
        roots = {root_of(what.text, where.scope) for what in handed(stmt, where.scope)} if where.flags else set()
        after = [f"{where.flags[name]} = .true." for name in sorted(roots & set(where.flags))]
        for what in assigned(node, where.scope):
            after += self.record(what, stmt, where)
        return before, after

    def reading(self, stmt: Stmt, node: object, level: str, where: Where) -> list[str]:
        """Reads of an expression, or of what a statement needs."""
        found = list[str]()
        for text in reads_of(node, where.scope, where.loops) if level == "full" else ():
            root = root_of(text, where.scope)
            given = status(root, where.around, where.scope)
            inside = set(names_in(text)[1:])
            if root in where.order or given == "reduction" or inside & set(where.order):
                continue
            after = not where.around and root in self.state.handed
            if after or is_uncertain(text, stmt, self.state.uncertain.at(stmt.first), where.scope):
                continue
            private = given in ("private", "lastprivate", "firstprivate")
            loose = "reduction" if root in self.state.uncertain.rounded else ""
            site = self.value("variable-read", text, stmt, loose, private)
            if root in where.flags and text.lower() == root:
                found.append(f"if (.not. {where.flags[root]}) {self.event(site, 26)}")
            found.append(self.call("read", f"{site}_4", text))
        return found

    def value(self, type: str, text: str, stmt: Stmt, loose: str, private: bool) -> int:
        """The site of a value that is read or written."""
        procedure, name = self.state.procedure, text.lower()
        return self.numbering.new(type, name, stmt.first, stmt.last, loose=loose, private=private, procedure=procedure)

    def record(self, what: Assigned, stmt: Stmt, where: Where) -> list[str]:
        """The calls that record what was assigned; what cannot be recorded is noted."""
        root, scope = root_of(what.text, where.scope), where.scope
        flag = [f"{where.flags[root]} = .true."] if root in where.flags else []
        known = target(what.text, scope)
        if why := self.why_not(what, root, known, stmt, where):
            self.numbering.leaves(stmt.first, why)
            return flag
        given = status(root, where.around, scope)
        shared = where.around and given not in ("private", "firstprivate")
        if what.way == "call" and known.rank and known.whole and shared:
            self.numbering.records(stmt.first)  # by the digest at the end of the region
            return flag
        loose = self.loose(root, given, stmt, where)
        found = list[str]()
        for piece in pieces(known, scope):
            if why := piece.why or self.why_not(what._replace(text=piece.text), root, piece, stmt, where):
                self.numbering.leaves(stmt.first, why)
            else:
                asks = what.way in ("call", "input") or piece is not known
                found.append(self.written(piece, stmt, loose, given, asks, where))
        return [*found, *flag]

    def why_not(self, what: Assigned, root: str, known: Target, stmt: Stmt, where: Where) -> str:
        if {mark for mark, _ in marks(what.text, where.scope)} & self.state.uncertain.at(stmt.first).times:
            return "a time"
        if root in self.state.uncertain.threads:
            return "a number of a thread"
        if is_scratch(what.text, self.state.uncertain.scratch, where.scope):
            return "a place for each thread"
        if what.way == "assignment" and gathers(stmt, root, self.state.uncertain):
            return "a sum of what each thread has"
        if root in where.filled:
            return "it has an order of chance"
        if what.way == "pointer":
            return "assignment of a pointer"
        if known.why:
            return known.why
        inside = set(names_in(what.text)[1:])
        if inside & self.state.uncertain.threads:
            return "its subscript is a number of a thread"
        if not where.protected and {"critical", "atomic"} & {where.order.get(name) for name in inside}:
            return "its subscript depends on the order of threads"
        if root in inside and what.way != "call" and written.on_itself(what.text):
            return "its subscript depends on itself"
        if what.way == "masked" and "forall" in stmt.at.text.lower() and inside:
            return "assigned in FORALL"
        return ""

    def loose(self, root: str, given: str, stmt: Stmt, where: Where) -> str:
        if given == "reduction":
            return "reduction"
        if root in where.order:
            return where.order[root]
        if where.protected and given in ("shared", "outside"):
            return where.protected
        around = [where.order[name] for name in names_in(stmt.at.text) if name in where.order]
        return around[0] if around else self.rounding(root, stmt)

    def rounding(self, root: str, stmt: Stmt) -> str:
        """What is made of a sum of threads, here or in a procedure that is called; `total = 0` is not."""
        rounded, text = self.state.uncertain.rounded, stmt.at.text.partition("=")[2]
        return "reduction" if root in rounded and (stmt.kind == "Call_Stmt" or rounded & {*names_in(text)}) else ""

    def written(self, piece: Target, stmt: Stmt, loose: str, given: str, asks: bool, where: Where) -> str:
        """The call for one value or array; `asks`: it may be not allocated, or not given."""
        private = given in ("private", "lastprivate", "firstprivate")
        site = self.value("array" if piece.rank else "variable-write", piece.text, stmt, loose, private)
        self.numbering.records(stmt.first)
        text = self.call("digest" if piece.rank else "write", f"{site}_4", piece.argument)
        conditions = list[str]()
        if piece.symbol is not None and piece.symbol.has("optional") and asks:
            conditions.append(f"present({piece.root})")
        if piece.guard and asks:
            conditions.append(f"{piece.guard}({piece.text})")
        if piece.rank and not where.traced:
            conditions.append(f"{self.needs.runtime('on')}({self.state.number}_4)")
        for condition in reversed(conditions):
            text = f"if ({condition}) {text}" if text.startswith("call") else f"if ({condition}) then; {text}; end if"
        return text

    # Blocks

    def block(self, block: Block, where: Where) -> None:
        head = block.open
        why = self.unstable(head.at.text, where) if not head.at.conditional else "only with OpenMP"
        if block.is_do and re.search(r"\bconcurrent\b", head.at.text, re.I):
            why = "in DO CONCURRENT"
        if block.is_do and where.around and not why:
            why = next((why for text in exits(block) if (why := self.unstable(text, where))), "")
        if why and head.kind not in ("Associate_Stmt", "Block_Stmt"):
            self.untouched([block], block.first, block.last + 1, where, why)
        elif head.kind in MASKED:
            self.masked(block, where)
        elif block.is_do and not where.traced and self.is_apart([block], where) and self.has_calls(block):
            self.doubled([block], block.first, block.last + 1, self.on(), where)
        else:
            self.parts(block, where)

    def on(self) -> str:
        return f"{self.needs.runtime('on')}({self.state.number}_4)"

    def has_calls(self, block: Block) -> bool:
        """Something in it would be recorded."""
        return any(self.level(stmt.first) in ("write", "full") for stmt, _ in statements([block]))

    def parts(self, block: Block, where: Where) -> None:
        inner = replace(where, scope=inner_scope(block, where.scope))
        if block.is_do:
            label = re.match(r"(?:\w+\s*:\s*)?do\s*(\d+)", block.open.at.text, re.I)
            inner = replace(inner, loops=where.loops | {do_variable(block)},
                            ends=where.ends | {label[1].lstrip("0")} if label else where.ends)  # fmt: skip
        level = self.level(block.first)
        if not block.open.at.conditional and block.open.kind not in ("Block_Stmt", "Associate_Stmt"):
            self.puts(self.reading(block.open, block.open.node, level, where), block.first)
        heads = [head.first for head, _ in block.parts[1:]] + [block.close.first if block.close else block.last + 1]
        for (head, items), end in zip(block.parts, heads, strict=True):
            self.own(head, where)
            self.body(items, head.last + 1, end, inner)
        if block.close:
            self.own(block.close, where)

    def masked(self, block: Block, where: Where) -> None:
        """WHERE and FORALL as they are; what they assign is recorded after them."""
        self.copy(block.first, block.last + 1, where)
        if self.level(block.first) in ("off", "region"):
            return
        after, seen = list[str](), set[str]()
        for found in assignments([block], where.scope):
            if found.what.text in seen:
                continue
            seen.add(found.what.text)
            if block.open.kind == "Forall_Construct_Stmt" and "(" in found.what.text:
                self.numbering.leaves(found.stmt.first, "assigned in FORALL")
            else:
                after += self.record(found.what._replace(way="masked"), found.stmt, where)
        self.puts(after, block.last)

    def untouched(self, items: Sequence[Item], start: int, end: int, where: Where, why: str) -> None:
        """As it is, and said."""
        self.copy(start, end, where)
        flags = set[str]()
        for found in assignments(items, where.scope, where.around):
            self.numbering.leaves(found.stmt.first, why)
            flags.add(found.root)
        self.puts([f"{where.flags[name]} = .true." for name in sorted(flags & set(where.flags))], end - 1)

    def unstable(self, text: str, where: Where) -> str:
        """Why a condition or the bounds of a loop may differ in two right runs; empty if they may not."""
        functions = set(functions_in(text, where.scope))
        if locks.TRIES.search(text):
            return "depends on whether a lock is free"
        for name in names_in(text):
            if name in self.state.uncertain.threads or name in functions & written.THREADS:
                return "depends on the number of a thread"
            if name in self.state.uncertain.times or name in functions & written.TIMES:
                return "depends on a time"
            if name in where.order:
                return f"depends on the order of threads ({where.order[name]})"
        return "depends on the number of threads" if names_scratch(text, self.state.uncertain.scratch) else ""

    # Two bodies

    def doubled(self, items: Sequence[Item], start: int, end: int, condition: str, where: Where) -> None:
        """Traced if the condition holds, else the lines as they are."""
        at, last = items[0].first if items else start, max(end - 1, start)
        self.writer.put(f"if ({condition}) then", at)
        renames = self.state.fresh.renames(items, where.renames)
        self.body(items, start, end, replace(where, traced=True, renames=renames))
        self.writer.put("else", last)
        roots = {found.root for found in assignments(items, where.scope)} & set(where.flags)
        self.puts([f"{where.flags[name]} = .true." for name in sorted(roots)], at)
        self.copy(start, end, where)
        self.writer.put("end if", last)

    def is_apart(self, items: Sequence[Item], where: Where) -> bool:
        """It can be doubled, opens no parallel region, shares no work, and does not leave the procedure."""
        if not can_double(items, where.ends):
            return False
        if any(given.directive.construct not in DOUBLES for given in constructs(items)):
            return False
        own = set(labels_in(items))
        for stmt, _ in statements(items):
            text = stmt.at.text
            if re.search(r"\breturn\s*$", text, re.I):
                return False
            if opens_region(stmt, where.scope) or not own >= set(targets(text)):
                return False
        return True
