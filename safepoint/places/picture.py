"""The picture of a trace with its legal places: one HTML page that needs nothing else, and the diagram alone as SVG.

A row for each rank, time to the right; calls are bars, messages arrows. A legal place is a green line that steps from
rank to rank through one gap of each. Where a rank has no legal gap its row is grey. What blocks is red and thick.

(1) All text of a trace is escaped here, and the script makes elements, never markup: a file name could else run.
(2) The page loads nothing, and its policy names the one script and style by their hashes: it can be sent to anybody.

Without its script the page shows the same diagram, which then stands still.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from safepoint.matching.matched import NO_STEP, Ints, Matched
from safepoint.places.diagram import BOTTOM, KINDS, PAD, SLOT, TOP, flag, frame_of, inside, kinds_of, label_of, short
from safepoint.places.window import MOST_ACTIONS, Judgement, Line, Window, window
from safepoint.report.markup import tag, text, title
from safepoint.words import count, precise

__all__ = ["Judgement", "Line", "page", "svg"]

WIDTH, PAPER = 840.0, 1060.0  # px: of the diagram before the script has seen how wide the page is; of an SVG alone
BINS, STRIP = 400, 1000.0  # of the overview: how many columns, and how wide it is
MOST_VISITS = 50_000  # visits x rows that a page holds


def page(
    matched: Matched, judgement: Judgement, name: str, begin: float | None = None, end: float | None = None
) -> str:
    """The page, at most 3 MB. `name`: of the trace. `begin`, `end`: seconds since the trace began; without them it is
    about the worst of what blocks, or the first `hide` that is not legal, or all that fits."""
    drawn = window(matched, judgement, begin, end)
    style, script = _file("picture.css"), _file("picture.js")
    own = f"style-src {_hash(style)}; script-src {_hash(script)}"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    heading = f"Legal places of {name}"
    head = tag(
        "head", tag("meta", charset="utf-8"), tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", text(heading)), tag("style", style),
    )  # fmt: skip
    caption = tag("figcaption", *[tag("span", text(note), " ") for note in drawn.notes])
    figure = tag("figure", _overview(drawn), _diagram(drawn, WIDTH), _key(drawn, WIDTH)[0], caption)
    data = json.dumps(_data(drawn), separators=(",", ":"))
    for letter in "<>&":  # else a name could end the element that holds them
        data = data.replace(letter, f"\\u{ord(letter):04x}")
    parts = [
        tag("h1", text(heading)), *[tag("p", text(line)) for line in judgement.heads], _verdict(drawn),
        tag("main", figure, tag("aside", _table(judgement), _remarks(matched, judgement))),
        tag("script", data, type="application/json", id="data"), tag("script", script),
    ]  # fmt: skip
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', *parts), lang='en')}\n"


def svg(matched: Matched, judgement: Judgement, begin: float | None = None, end: float | None = None) -> str:
    """The diagram alone, as the page first shows it: for papers, so in the colours of paper."""
    drawn = window(matched, judgement, begin, end)
    colours, _, rules = _file("picture.css").partition("/* diagram */")
    known = dict(re.findall(r"--([\w-]+): ([^;]+);", colours))
    style = re.sub(r"var\(--([\w-]+)\)", lambda name: known[name[1]], rules.partition("/* overview */")[0])
    high = frame_of(drawn, PAPER).bottom + BOTTOM
    key, more = _key(drawn, PAPER)
    key = tag("g", key, transform=f"translate(0 {high:.0f})")
    return _diagram(drawn, PAPER, tag("style", style), key, high=high + more) + "\n"


def _file(name: str) -> str:
    return files("safepoint.places").joinpath(name).read_text("utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _summary(drawn: Window) -> str:
    worst = [label_of(drawn, int(number)) for number in drawn.judgement.blocking[:1]]
    said = f" Red: {worst[0][1]}; {worst[0][0]}." if worst else ""
    return (
        f"{count(drawn.matched.ranks, 'rank')}, {drawn.matched.actions:,} calls; a row for each rank, time to the "
        f"right. Green lines: {len(drawn.places):,} legal places.{said}"
    )


def _diagram(drawn: Window, width: float, style: str = "", key: str = "", high: float = 0.0) -> str:
    frame = frame_of(drawn, width)
    high = high or frame.bottom + BOTTOM
    named = tag("title", "Calls, messages and legal places", id="picture-name")
    said = tag("desc", text(_summary(drawn)), id="picture-text")
    return tag(
        "svg", named, said, style, inside(drawn, frame), key, xmlns="http://www.w3.org/2000/svg", class_="diagram",
        viewBox=f"0 0 {width:.0f} {high:.0f}", role="group", aria_labelledby="picture-name",
        aria_describedby="picture-text",
    )  # fmt: skip


def _key(drawn: Window, width: float) -> tuple[str, float]:
    """The legend, of what there is in this diagram; and how high it is."""
    entries = []
    for kind in (KINDS[number] for number in sorted(set(kinds_of(drawn.matched.functions).tolist()))):
        top, high = 2 + kind.top * 16, kind.high * 16
        shape = tag("rect", x=2, y=top, width=16, height=high, class_=kind.name)
        letter = tag("text", kind.letter, x=10, y=top + high / 2 + 3.5, class_=f"letter {kind.name}-letter")
        entries.append((shape + letter, kind.words))
    arrow = "M2,4L18,16M12.5,15L18,16L15.5,11"
    entries.append((tag("path", d=arrow, class_="message"), "message"))
    entries.append((tag("path", d="M7,0V10H13V20", class_="place"), "legal place"))
    entries.append((tag("rect", x=2, y=2, width=16, height=16, class_="closed"), "no legal place"))
    if len(drawn.judgement.blocking):
        line = tag("path", d="M1,3L12,12", class_="blocking") + tag("path", d="M18,17L7,15L14,6z", class_="head")
        entries.append((line, "message that blocks"))
    marks = drawn.matched.marks["hide"]
    for hide, legal in sorted({(bool(h), bool(g)) for h, g in zip(marks, drawn.judgement.marks_legal, strict=True)}):
        words = f"{'hide' if hide else 'mark'}, {'legal' if legal else 'not legal'}"
        entries.append((tag("g", flag(3, 0, 13, legal, hide, 1, words), transform="scale(1.5)"), words))
    x, y, items = 4.0, 2.0, []
    for shape, words in entries:
        wide = 40 + 6.3 * len(words)
        x, y = (x, y) if x + wide <= width else (4.0, y + 23)
        items.append(tag("g", shape, tag("text", words, x=24, y=14), transform=f"translate({x:.0f} {y:.0f})"))
        x += wide
    high = y + 24
    key = tag("svg", title("Legend"), *items, class_="key", role="img", width=width, height=high,
              viewBox=f"0 0 {width:.0f} {high:.0f}")  # fmt: skip
    return key, high


def _overview(drawn: Window) -> str:
    """How many calls of each kind at each time of the whole trace, where legal places are, and what is wrong."""
    matched, span = drawn.matched, drawn.clock.span
    column = np.minimum(drawn.clock.enter * BINS // span, BINS - 1)
    kind = kinds_of(matched.functions)[matched.function] if matched.functions else column
    many = np.bincount(column * len(KINDS) + kind, minlength=BINS * len(KINDS)).reshape(BINS, -1)
    heights = np.cumsum(many, axis=1) * 44 / max(1, int(many.sum(axis=1).max(initial=0)))
    step, marks = STRIP / BINS, []
    for number in reversed(range(len(KINDS))):
        if many[:, number].any():
            top = "".join(f"V{46 - high:.1f}h{step:g}" for high in heights[:, number])
            marks.append(tag("path", d=f"M0,46{top}V46z", class_=KINDS[number].name))
    rank = int(drawn.ranks[0]) if len(drawn.ranks) else 0
    own = drawn.clock.enter[matched.begins[rank] : matched.begins[rank + 1]] if matched.ranks else drawn.clock.enter
    times = np.append(own, span)[drawn.judgement.places[:, rank]]
    marks.append(tag("path", d=_columns(np.ones(BINS, bool), 48, 6), class_="shut"))
    marks.append(tag("path", title("legal places"), d=_columns(_binned(times, span), 48, 6), class_="open"))
    begin, _ = drawn.ends(drawn.judgement.blocking)
    wrong = matched.marks["enter"][matched.marks["hide"] & ~drawn.judgement.marks_legal] - drawn.clock.zero
    marks.append(tag("path", title("what blocks"), d=_columns(_binned(begin, span), 0, 46), class_="danger"))
    marks.append(tag("path", title("hide, not legal"), d=_columns(_binned(wrong, span), 56, 8), class_="danger"))
    for a, b in ((0, drawn.begin), (drawn.end, span)):
        marks.append(tag("rect", x=a / span * STRIP, y=0, width=(b - a) / span * STRIP, height=64, class_="beyond"))
    left, right = (at / span * STRIP for at in drawn.view)
    marks.append(tag("rect", x=left, y=1, width=max(2.0, right - left), height=62, class_="view"))
    said = f"Overview of the whole trace, {precise(span / 1e9)}: calls by kind; below them where legal places are"
    return tag("svg", title(said), *marks, viewBox=f"0 0 {STRIP:.0f} 64", preserveAspectRatio="none", class_="overview",
               role="img", aria_label=said)  # fmt: skip


def _binned(times: Ints, span: int) -> NDArray[np.bool_]:
    """The columns of the overview in which such a time is."""
    return np.bincount(np.clip(times * BINS // span, 0, BINS - 1), minlength=BINS) > 0


def _columns(which: NDArray[np.bool_], top: int, high: int) -> str:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], which, [False]]))) * STRIP / BINS
    return "".join(f"M{a:g},{top}H{b:g}v{high}H{a:g}z" for a, b in edges.reshape(-1, 2)) or "M0,0"


def _verdict(drawn: Window) -> str:
    """The one sentence that a reader must not miss."""
    if len(drawn.judgement.blocking):
        first, who = label_of(drawn, int(drawn.judgement.blocking[0]))
        others = len(drawn.judgement.blocking) - 1
        more = f" It is one of {others + 1}." if others else ""
        return tag("p", text(f"✗ {first}: {who}.{more}"), class_="verdict bad")
    marks = drawn.matched.marks["hide"]
    wrong = int((marks & ~drawn.judgement.marks_legal).sum())
    if wrong:
        return tag("p", f"✗ {wrong} of {int(marks.sum())} calls of hide are at no legal place.", class_="verdict bad")
    return tag("p", "✓ Each hide is at a legal place.", class_="verdict good") if marks.any() else ""


def _table(judgement: Judgement) -> str:
    heads = [("where", ""), ("legal", "n"), ("wait mean / p95", "n"), ("interval", "n"), ("", "")]
    rows = []
    for number, line in enumerate(judgement.lines):
        button = tag("button", text(line.where), type="button", aria_pressed="false")
        fine = "good" if len(line.legal) and line.legal.all() else "bad"
        cells = [
            tag("td", button, tag("small", text(short(line.site)), title=str(line.site))),
            tag("td", f"{int(line.legal.sum()):,} of {len(line.legal):,}", class_="n"),
            tag("td", f"{_unbroken(line.wait_mean)} / {_unbroken(line.wait_p95)}", class_="n"),
            tag("td", "–" if math.isnan(line.interval) else _unbroken(line.interval), class_="n"),
            tag("td", text(f"{'✓' if fine == 'good' else '✗'} {line.verdict}"), class_=fine),
        ]
        rows.append(tag("tr", *cells, data_line=number))
    head = tag("thead", tag("tr", *[tag("th", words, class_=kind, scope="col") for words, kind in heads]))
    return tag("h2", "Lines, and their visits") + tag("table", head, tag("tbody", *rows))


def _unbroken(seconds: float) -> str:
    return precise(seconds).replace(" ", "\u00a0")


def _remarks(matched: Matched, judgement: Judgement) -> str:
    items = [tag("li", text(remark)) for remark in (*matched.remarks, *judgement.remarks)]
    return tag("ul", *items, class_="remarks") if items else ""


def _data(drawn: Window) -> dict[str, object]:
    """All that the script draws. Lists of numbers, as differences where that makes them short."""
    matched, begin = drawn.matched, drawn.begin
    calls = np.concatenate([np.arange(a, b) for a, b in zip(drawn.first, drawn.last, strict=True)] or [drawn.first])
    marks = _marks(drawn)
    ends = _sites_of_messages(drawn)
    sites = np.concatenate([matched.site[calls], matched.marks["site"][marks], ends])
    used, site = np.unique(sites, return_inverse=True)
    enter, many = drawn.clock.enter[calls] - begin, drawn.last - drawn.first
    lasts = np.where(matched.leave[calls] < matched.enter[calls], -1, drawn.clock.leave[calls] - begin - enter)
    frame = frame_of(drawn, WIDTH)
    return {
        "slot": SLOT, "top": TOP, "bottom": BOTTOM, "pad": PAD, "left": frame.left, "tall": frame.tall,
        "kinds": [[kind.name, kind.letter, kind.top, kind.high] for kind in KINDS],
        "begin": begin, "end": drawn.end - begin, "span": drawn.clock.span, "view": [at - begin for at in drawn.view],
        "labels": drawn.labels, "first": (drawn.first - matched.begins[drawn.ranks]).tolist(), "many": many.tolist(),
        "ranks": drawn.ranks.tolist(), "enter": np.diff(enter, prepend=0).tolist(),
        "lasts": lasts.tolist(), "site": site[: len(calls)].tolist(), "function": matched.function[calls].tolist(),
        "sites": [[str(each), each.function, short(each)] for each in (matched.sites[number] for number in used)],
        "functions": matched.functions, "kind": kinds_of(matched.functions).tolist(), "objects": matched.objects,
        "messages": _message_data(drawn, calls, site[len(calls) + len(marks) :]), "places": _place_data(drawn),
        "closed": (drawn.closed - [0, begin, begin]).tolist(),
        "marks": _mark_data(drawn, marks, site[len(calls) :]), "lines": _visit_data(drawn),
    }  # fmt: skip


def _sites_of_messages(drawn: Window) -> Ints:
    """Of each message where it was sent, where its receive was posted, and where that was completed; 0 is not known."""
    rows = drawn.matched.messages[drawn.messages]
    site = np.append(drawn.matched.site, 0)  # the last is for NONE
    return np.concatenate([site[rows[name]] for name in ("sent", "posted", "received")])


def _message_data(drawn: Window, calls: Ints, sites: Ints) -> dict[str, object]:
    rows, many = drawn.matched.messages[drawn.messages], len(drawn.messages)
    begin, end = (at - drawn.begin for at in drawn.ends(drawn.messages))
    place = np.full(drawn.matched.actions + 1, -1)
    place[calls] = np.arange(len(calls))
    known, worst = rows["bytes"] != np.uint64(2**64 - 1), set(drawn.judgement.blocking.tolist())
    return {
        "sent": place[rows["sent"]].tolist(), "received": place[rows["received"]].tolist(),
        "begin": np.diff(begin, prepend=0).tolist(), "under_way": (end - begin).tolist(),
        "from": drawn.row_of(rows["source"]).tolist(), "to": drawn.row_of(rows["dest"]).tolist(),
        "sent_at": sites[:many].tolist(), "posted_at": sites[many : 2 * many].tolist(),
        "received_at": sites[2 * many :].tolist(), "tag": rows["tag"].tolist(), "comm": rows["comm"].tolist(),
        "bytes": np.where(known, rows["bytes"].astype(np.int64), -1).tolist(),
        "lost": ((rows["sent"] < 0) | (rows["received"] < 0) * 2).tolist(),
        "labels": [label_of(drawn, int(number)) for number in drawn.messages if number in worst],
    }  # fmt: skip


def _place_data(drawn: Window) -> dict[str, object]:
    """The first place, and what each one changes."""
    place, row = np.nonzero(np.diff(drawn.places, axis=0))
    return {
        "at": np.diff(drawn.at - drawn.begin, prepend=0).tolist(), "gaps": drawn.places[:1].ravel().tolist(),
        "changes": np.bincount(place + 1, minlength=len(drawn.at)).tolist(), "row": row.tolist(),
        "by": np.diff(drawn.places, axis=0)[place, row].tolist(),
    }  # fmt: skip


def _marks(drawn: Window) -> Ints:
    """Rows of `Matched.marks` in the window."""
    marks = drawn.matched.marks
    at = marks["enter"] - drawn.clock.zero
    return np.flatnonzero((drawn.row_of(marks["rank"]) >= 0) & (at >= drawn.begin) & (at <= drawn.end))[:MOST_ACTIONS]


def _mark_data(drawn: Window, which: Ints, sites: Ints) -> list[list[object]]:
    marks, legal = drawn.matched.marks[which], drawn.judgement.marks_legal[which]
    at = marks["enter"] - drawn.clock.zero - drawn.begin
    steps = [None if step == NO_STEP else int(step) for step in marks["step"]]
    columns = drawn.row_of(marks["rank"]), at, sites[: len(which)], marks["hide"].astype(int), legal.astype(int)
    return [[*map(int, row), step] for *row, step in zip(*columns, steps, strict=True)]


def _visit_data(drawn: Window) -> list[dict[str, object]]:
    """Of each line the visits in the window: the time at each row; of very many only each n-th."""
    found, lines = [], drawn.judgement.lines
    for line in lines:
        times = line.times - drawn.clock.zero
        seen = np.flatnonzero((times.min(axis=1) <= drawn.end) & (times.max(axis=1) >= drawn.begin))
        every = max(1, -(-len(seen) * len(drawn.ranks) * len(lines) // MOST_VISITS))
        rows = times[seen[::every]][:, drawn.ranks] - drawn.begin
        found.append({
            "where": line.where, "seen": len(seen), "every": every, "visits": len(line.legal),
            "legal": line.legal[seen[::every]].astype(int).tolist(), "times": np.diff(rows, axis=1, prepend=0).tolist(),
        })  # fmt: skip
    return found
