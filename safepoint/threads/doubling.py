"""Two bodies: which can stand twice, and the names and labels that the second one needs.

A name of a construct and a label stand once in a procedure. So a body that is written for a second time has other ones;
the untouched body keeps the user's, unless it stands in a traced one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from safepoint.threads.sharing import blocks, constructs, statements
from safepoint.threads.structure import Construct, Item

NO_DOUBLE = ("Format_Stmt", "Entry_Stmt", "Data_Stmt", "Namelist_Stmt", "Assign_Stmt", "Assigned_Goto_Stmt")
CONSTRUCT_NAME = re.compile(r"(\w+)\s*:(?!:)\s*(?:do|if|select|where|forall|block|associate|critical)\b", re.I)
TO_LABEL = re.compile(r"(\bgo\s*to\s*|^(?:\w+\s*:\s*)?do\s*|\b(?:err|end|eor)\s*=\s*)(\d+)(?![\w.])", re.I)
LISTED = re.compile(r"(\bgo\s*to\s*\()([\d\s,]+)(\))", re.I)
ARITHMETIC = re.compile(r"(\)\s*)(\d+\s*,\s*\d+\s*,\s*\d+)(\s*)$")
ONCE = {"cancel", "cancellation", "scan", "declare"}  # words of directives that must stand in one loop only


@dataclass(frozen=True)
class Renames:
    """Old name → new name, of constructs; the same of labels."""

    names: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names or self.labels)

    def text(self, text: str) -> str:
        """A statement with the new names and labels."""
        for old, new in self.names.items():
            text = re.sub(rf"(?<![\w%]){old}\b(?!\s*=)", new, text, flags=re.I)
        if self.labels:
            text = TO_LABEL.sub(lambda found: found[1] + self.label(found[2]), text)
            text = LISTED.sub(self._list, text)
            if text.lower().startswith("if"):
                text = ARITHMETIC.sub(self._list, text)
        return text

    def label(self, label: str) -> str:
        return self.labels.get(label.lstrip("0"), label)

    def _list(self, found: re.Match[str]) -> str:
        return found[1] + ", ".join(self.label(part.strip()) for part in found[2].split(",")) + found[3]


class Fresh:
    """New names and labels of one unit. `used`: the labels of its statements."""

    def __init__(self, prefix: str, used: set[str]) -> None:
        self.prefix, self.used, self.count, self.next = prefix, used, 0, 99999

    def renames(self, items: Sequence[Item], before: Renames) -> Renames:
        """For one more copy of these items."""
        names, labels = dict(before.names), dict(before.labels)
        for stmt, _ in statements(items):
            if found := CONSTRUCT_NAME.match(stmt.at.text):
                self.count += 1
                names[found[1].lower()] = f"{self.prefix}n{self.count}"
        for label in labels_in(items):
            while str(self.next) in self.used:
                self.next -= 1
            labels[label] = str(self.next)
            self.next -= 1
        return Renames(names, labels)


def labels_in(items: Sequence[Item]) -> list[str]:
    """The labels of statements, those at the end of loops too."""
    found = [stmt.at.label for stmt, _ in statements(items)]
    found += [block.close.at.label for block in blocks(items) if block.close]
    return list(dict.fromkeys(label.lstrip("0") for label in found if label))


def targets(text: str) -> list[str]:
    """The labels that a statement goes to."""
    found = [match[2] for match in TO_LABEL.finditer(text)]
    for match in [*LISTED.finditer(text), *(ARITHMETIC.finditer(text) if text.lower().startswith("if") else ())]:
        found += match[2].split(",")
    return [label.strip().lstrip("0") for label in found]


def can_double(items: Sequence[Item], ends: frozenset[str]) -> bool:
    """No FORMAT, ENTRY or DATA is in it, no end of a loop around (`ends`: their labels), and no directive that must
    stand in one loop only."""
    if any(stmt.kind in NO_DOUBLE for stmt, _ in statements(items)) or set(labels_in(items)) & ends:
        return False
    return all(fits(given) for given in constructs(items))


def fits(given: Construct) -> bool:
    """It may stand in both bodies."""
    name = given.directive.construct
    doacross = name == "ordered" and any(clause.name in ("depend", "doacross") for clause in given.directive.clauses)
    return not doacross and not ONCE & set(name.split())
