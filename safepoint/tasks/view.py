"""The page of `safepoint tasks view`: a graph, its workers, its plan and its network, as one file without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safepoint.report.markup import tag, text
from safepoint.report.sheet import sheet
from safepoint.tasks.pictures.layers import NAMES, by_layer, graph, key, many, told
from safepoint.tasks.pictures.network import network
from safepoint.tasks.pictures.past import EARLIER, STATES, Past, read
from safepoint.tasks.pictures.totals import planned_and_real, problems, where_the_time_went
from safepoint.tasks.pictures.workers import MOST_STARTS, gantt, starts_shown
from safepoint.words import count, moment, precise

STYLE = """
:root { --inputs: #d79a2b; --saving: #6d5bb3; --body: #8fb3da; --edge: #6b7685; --earlier: #7fa8d6; }
@media screen and (prefers-color-scheme: dark) { :root { --inputs: #d9a441; --saving: #a594e6; --body: #4d78a8;
  --edge: #8d98a8; --earlier: #6b9bd1; } }
.state-finished { fill: var(--good); } .state-earlier { fill: var(--earlier); } .hole { fill: var(--ground); }
.state-running { fill: var(--blocked); } .state-waiting { fill: var(--ground); stroke: var(--soft); stroke-width: 1.5; }
.state-failed { fill: none; stroke: var(--bad); stroke-width: 3.2; }
.state-skipped { fill: var(--ground); stroke: var(--bad); stroke-width: 1.5; }
.bar-finished { fill: var(--good); } .bar-earlier { fill: var(--earlier); } .bar-running { fill: var(--blocked); }
.bar-waiting { fill: var(--ground); stroke: var(--soft); } .bar-failed { fill: var(--bad); stroke: var(--ink); }
.bar-skipped { fill: var(--ground); stroke: var(--bad); stroke-dasharray: 3 2; }
.hatch-state { stroke: var(--ink); stroke-width: .8; fill: none; opacity: .8; }
.edge { fill: none; stroke: var(--edge); stroke-width: 1; opacity: .55; } .many-edges { stroke-width: .6; opacity: .3; }
svg .tiny { font-size: 11px; paint-order: stroke; stroke: var(--ground); stroke-width: 3px; }
svg .in-bar { font-size: 10.5px; pointer-events: none; } svg .in-cell { font-size: 11px; }
svg .on-dark { fill: var(--ground); } .lane { fill: var(--line); opacity: .35; }
.part-body { fill: var(--body); background: var(--body); stroke: var(--ground); stroke-width: .5; }
.part-inputs { fill: var(--inputs);
  background: repeating-linear-gradient(135deg, var(--inputs) 0 4px, var(--ink) 4px 5px); }
.part-saving { fill: var(--saving); background: radial-gradient(var(--ground) 30%, var(--saving) 32%) 0 0 / 4px 4px; }
.waits { background: var(--line); } .hatch-inputs { stroke: var(--ink); stroke-width: .9; fill: none; }
.dot-saving { fill: var(--ground); } .planned { fill: none; stroke: var(--ink); stroke-width: 1; }
.done-before { stroke: var(--soft); stroke-dasharray: 2 3; }
.legend i.planned { border: 1px solid var(--ink); box-sizing: border-box; }
.start-line { stroke: var(--ink); stroke-width: 1.4; stroke-dasharray: 5 3; }
.end.open { stroke: var(--ink); stroke-width: 1.6; }
.link { fill: var(--ink); } .no-link { fill: none; stroke: var(--line); }
.corner { fill: var(--bad); stroke: var(--ground); }
summary { cursor: pointer; color: var(--soft); } details { margin: .6em 0; }
"""
KEY = "width: 1.1em; display: inline-block; margin-right: .45em; vertical-align: -.12em"  # of a sign in a legend
EMPTY = "Nothing is known of a graph in this directory: no graph.json, and no start in log.jsonl."


def page(directory: Path, net: Path | None) -> str:
    """The whole page. `directory`: W, in which the graph ran, or the store in it. `net`: what `bench-net` wrote;
    without it the network is the one of the plan. It only reads, and a run may be going on; what is torn is passed
    over. Raises `UsageError` or `FormatError` if `net` is no such file."""
    store = directory / ".safepoint.d" / "tasks"
    past = read(store if store.is_dir() else directory, net)
    name = past.graph or directory.resolve().name
    parts = [
        *_headline(past, name), *problems(past), *_graph(past), *_workers(past), *where_the_time_went(past.starts),
        *(network(past.machine, 0 if net else 1) if past.machine else []),
        tag("footer", "Made by safepoint tasks view from graph.json, log.jsonl and schedule.json."),
    ]  # fmt: skip
    return sheet(f"Graph {name}", parts, STYLE)


def _headline(past: Past, name: str) -> list[str]:
    parts = [tag("h1", text(f"Graph {name}"))]
    if past.code:
        parts.append(tag("p", text(past.code), class_="soft"))
    if not past.nodes and not past.starts:
        return [*parts, tag("p", EMPTY, class_="lead")]
    edges = sum(len(node.parents) for node in past.nodes)
    words = f"{count(len(past.nodes), 'vertex', 'vertices')}, {count(edges, 'edge')}: {told(past.nodes)}."
    parts.append(tag("p", text(words), class_="lead"))
    if not past.starts:
        return [*parts, tag("p", "It has not been started here yet.")]
    last = past.starts[-1]
    how = f"stopped ({last.stopped})" if last.stopped else "ended" if last.over else "is running, or was killed,"
    sentence = (
        f"{count(len(past.starts), 'start')}. The last one, of {moment(last.began)}, {how} after "
        f"{precise(last.seconds)}: {last.before:,} had finished before, {last.to_run:,} were to run, on "
        f"{count(last.workers, 'worker')}{f' ({last.engine})' if last.engine else ''}."
    )
    if last.expected_s:
        schedule = f" by the schedule {last.schedule}" if last.schedule else ""
        sentence += f" Expected{schedule} were {precise(last.expected_s)}."
    return [*parts, tag("p", text(sentence))]


def _graph(past: Past) -> list[str]:
    drawing, caption = graph(past.nodes)
    if not drawing:
        return []
    shown = {node.state for node in past.nodes}
    keys = {state: key(state, as_bar=many(past.nodes)) for state in STATES if state in shown}
    legend = [tag("li", _key(drawn), NAMES[state]) for state, drawn in keys.items()]
    details = tag("summary", "The layers as a table"), tag("div", by_layer(past.nodes), class_="wide")
    return [
        tag("h2", "Graph"),
        tag("ul", *legend, class_="legend"),
        tag("figure", tag("div", drawing, class_="wide"), tag("figcaption", text(caption))),
        tag("details", *details),
    ]


def _key(drawn: Sequence[str]) -> str:
    return tag("svg", *drawn, viewBox="0 0 16 16", aria_hidden="true", style=KEY)


def _workers(past: Past) -> list[str]:
    before = {node.name for node in past.nodes if node.state == EARLIER}
    drawing, hidden = gantt(past.starts, past.plan, before)
    if not drawing:
        return []
    keys = [("part-inputs", "inputs: they travel, or are read"), ("part-body", "body"), ("part-saving", "saving"),
            ("waits", "waiting"), *[("planned", "planned")] * bool(past.plan)]  # fmt: skip
    legend = [tag("li", tag("i", class_=kind), words) for kind, words in keys]
    signs = [("end bad", "M2,1 l10,10 m0,-10 l-10,10", "failed, or its worker died")]
    if "end open" in drawing:
        signs.append(("end open", "M4,1 l6,5 l-6,5", "no end in the log"))
    for kind, shape, words in signs:
        drawn_sign = tag("path", d=shape, class_=kind)
        mark = tag("svg", drawn_sign, viewBox="0 0 14 12", aria_hidden="true", style=KEY)
        legend.append(tag("li", mark, words))
    drawn = starts_shown(past.starts, past.plan)
    caption = (
        "A row for each worker. Attempts too short to be told apart are one column, as high as their share of the time."
    )
    if past.plan:
        caption += " The plan is that of the last start; dotted is what had finished before."
    if len(drawn) > 1:
        caption += " A dashed line is a start; long pauses between starts are cut out."
    if len(drawn) == MOST_STARTS < len(past.starts):
        caption += f" Only the last {MOST_STARTS} starts with work are drawn."
    if hidden:
        caption += f" {count(hidden, 'more worker is', 'more workers are')} not drawn; the table has them."
    parts = [tag("h2", "Workers"), tag("ul", *legend, class_="legend"),
             tag("figure", tag("div", drawing, class_="wide"), tag("figcaption", text(caption)))]  # fmt: skip
    return parts + (planned_and_real(past.plan, past.starts[-1]) if past.plan and past.starts else [])
