"""An analysis as text, as JSON, for Graphviz, and as the skeleton of a graph of tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import PurePath
from textwrap import wrap
from typing import Any

from safepoint.tasks.deps.statements import ANTI, FLOW, IMPORT, LEAVING, OUTPUT, Analysis, Statement

WIDTH = 46  # columns of a statement's text
MOST_PLACES, MOST_REASONS = 24, 60  # columns of what it reads or writes, and of what binds it; longer ones are folded
TIED = "\N{NO-BREAK SPACE}"
STYLES = {FLOW: "solid", ANTI: "dashed", OUTPUT: "dotted"}


def lines(found: Analysis) -> Iterator[str]:
    """For people: a row for each statement, and the levels at the end."""
    inside = f", inside line {found.inside}" if found.inside else ""
    yield f"{found.file}: {found.function}({', '.join(found.parameters)}){inside}"
    rows = [_cells(found, number) for number in range(len(found.statements))]
    if not rows:
        yield "no statements"
        return
    widths = [max(len(line) for row in rows for line in row[column]) for column in range(len(rows[0]))]
    for row in rows:
        for cells in zip_longest(*row, fillvalue=""):
            first = cells[0].rjust(widths[0])
            padded = [first, *(cell.ljust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))]
            yield "  ".join(cell for cell, width in zip(padded, widths, strict=True) if width).rstrip()
    named = _names(found)
    yield "levels: " + " ".join("{" + " ".join(named[number] for number in level) + "}" for level in found.levels)
    yield f"pairs that only read the same: {found.alike} of {_pairs(found)}"
    if shared := [name for name in named if not name.isdigit()]:
        yield f"{shared[0]}: a further statement of the same line"


def _pairs(found: Analysis) -> int:
    return len(found.statements) * (len(found.statements) - 1) // 2


def _cells(found: Analysis, number: int) -> list[list[str]]:
    """Each with its lines."""
    each = found.statements[number]
    text = each.text if len(each.text) <= WIDTH else each.text[: WIDTH - 1] + "…"
    ins = _folded(" ".join(["in", *each.inputs]) if each.inputs else "", MOST_PLACES, "   ")
    outs = _folded(" ".join(["out", *each.outputs]) if each.outputs else "", MOST_PLACES, "    ")
    reasons = [why if len(why) > MOST_REASONS else why.replace(" ", TIED) for why in _reasons(found, number)]
    told = [line.replace(TIED, " ") for line in _folded(", ".join(reasons), MOST_REASONS, "")]
    return [[_names(found)[number]], [text], [each.kind], ins, outs, [f"weight {each.weight}"], told]


def _folded(words: str, most: int, indent: str) -> list[str]:
    return wrap(words, most, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _names(found: Analysis) -> list[str]:
    """Lines; where several statements share one: 7, 7b, 7c."""
    seen: dict[int, int] = {}
    names = []
    for each in found.statements:
        count = seen[each.line] = seen.get(each.line, 0) + 1
        names.append(str(each.line) if count == 1 else f"{each.line}{'bcdefghijklmnopqrstuvwxyz'[min(count - 2, 24)]}"
                     + (str(count) if count > 26 else ""))  # fmt: skip
    return names


def _reasons(found: Analysis, target: int) -> list[str]:
    """What binds it to those before it. `leaving` only where it is the only reason."""
    names, by = _names(found), dict[tuple[str, str], list[str]]()
    bound = {each.source for each in found.dependences if each.target == target and each.label != LEAVING}
    for each in found.dependences:
        if each.target == target and not (each.label == LEAVING and each.source in bound):
            by.setdefault((each.kind, each.label), []).append(names[each.source])
    return [f"{kind} on {label} from {' '.join(sources)}" for (kind, label), sources in by.items()]


def as_json(found: Analysis) -> dict[str, Any]:
    names = _names(found)
    return {
        "file": found.file, "language": found.language, "function": found.function, "inside": found.inside or None,
        "parameters": found.parameters,
        "statements": [
            {"name": name, "line": each.line, "end": each.end, "text": each.text, "kind": each.kind or "simple",
             "in": each.inputs, "out": each.outputs, "weight": each.weight, "leaves": each.leaves,
             "raises": each.raises, "visible": each.visible}
            for name, each in zip(names, found.statements, strict=True)
        ],
        "dependences": [
            {"kind": each.kind, "on": each.label, "from": names[each.source], "to": names[each.target]}
            for each in found.dependences
        ],
        "levels": [[names[number] for number in level] for level in found.levels],
        "in_in": found.shared,
    }  # fmt: skip


def dot(found: Analysis) -> Iterator[str]:
    """For Graphviz: levels from left to right; flow solid, anti dashed, output dotted."""
    yield f"digraph {_quoted(found.function)} {{"
    yield "  rankdir=LR; node [shape=box, fontname=monospace];"
    for number, (name, each) in enumerate(zip(_names(found), found.statements, strict=True)):
        yield f"  s{number} [label={_quoted(f'{name}  {each.text}')}];"
    for level in found.levels:
        yield "  { rank=same; " + " ".join(f"s{number};" for number in level) + " }"
    edges: dict[tuple[int, int, str], list[str]] = {}
    for found_one in found.dependences:
        edges.setdefault((found_one.source, found_one.target, found_one.kind), []).append(found_one.label)
    for (source, target, kind), labels in edges.items():
        yield f"  s{source} -> s{target} [style={STYLES[kind]}, label={_quoted(' '.join(labels))}];"
    yield "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# The skeleton of a graph.


def toml(found: Analysis) -> Iterator[str]:
    """A vertex for each statement, an edge for each value that flows, `after` for what binds the order alone.

    The functions `line_3`, … are still to be written, in the file that `code` names: each takes the values that `in`
    and `with` name, and returns a dict of those that it writes. Modules and what `with` opened cannot be handed on.
    """
    names = [f"line-{name}" for name in _names(found)]
    hidden = found.imported | found.opened
    given = sorted(set(found.parameters))
    yield f"# Made from {found.function} of {json.dumps(found.file)}. Still to be written: what `run` names."
    if given:
        yield f"# Parameters of it, for `with`: {', '.join(given)}"
    yield f"graph = {json.dumps(found.function.replace('/', '-'))}"
    yield f"code = {json.dumps(PurePath(found.file).stem + '_tasks.py')}"
    if found.imported:
        yield f"# To be imported there: {', '.join(sorted(found.imported))}"
    writers: dict[str, int] = {}
    before: dict[int, set[int]] = {}  # what each comes after, by any way
    opened: dict[str, str] = {}  # where
    for number, each in enumerate(found.statements):
        if each.kind == IMPORT:
            continue
        values = [name for name in _values(each) if name not in hidden]
        edges = {name: writers[name] for name in values if name in writers}
        yield ""
        yield f"[{json.dumps(names[number])}]  # {_printable(each.text)}"
        yield f'run = "{names[number].replace("-", "_")}"'
        yield f"weight = {float(each.weight)}"
        wanted = [name for name in values if name in given and name not in writers]
        if wanted:
            yield "# with = { " + ", ".join(f"{name} = …" for name in wanted) + " }"
        direct = {dep.source for dep in found.dependences if dep.target == number and dep.source in before}
        before[number] = direct.union(*(before[source] for source in direct))
        after = direct - set(edges.values()) - set().union(*(before[source] for source in direct))
        parts = [f"{name} = {json.dumps(f'{names[source]}.{name}')}" for name, source in edges.items()]
        if parts:
            yield "in = { " + ", ".join(parts) + " }"
        if after:
            yield "after = [" + ", ".join(json.dumps(names[source]) for source in sorted(after)) + "]"
        for name in _named(each.inputs):
            if name in opened:
                yield f"# uses {name} of {opened[name]}, which cannot be handed on: make one vertex of the two"
        if outs := [name for name in _named(each.outputs) if name not in hidden]:
            yield f"# returns a dict with: {', '.join(outs)}"
        writers |= dict.fromkeys(outs, number)
        opened |= {name: opened.get(name, names[number]) for name in _named(each.outputs) if name in found.opened}


def _values(each: Statement) -> list[str]:
    """What it reads, and what it changes in part."""
    return list(dict.fromkeys([*_named(each.inputs), *_named(each.outputs)]))


def _named(labels: list[str]) -> list[str]:
    found = [label.removesuffix("?").lstrip("*") for label in labels if label not in ("output", "output?", "volatile?")]
    return list(dict.fromkeys(name for name in found if name.isidentifier()))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
