"""A page as one file: HTML that is XML too, with its style inside, no script, and nothing to be loaded."""

from __future__ import annotations

from collections.abc import Iterable

from safepoint.report.markup import tag, text

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2430; --soft: #5d6775; --line: #d9dee5; --compute: #7fa8d6;
  --blocked: #e07b00; --store: #2f9e8f; --restore: #9a77c7; --lost: #f3c5c0; --bad: #c0322b; --good: #2c8a4b; }
@media screen and (prefers-color-scheme: dark) { :root { --ground: #14181f; --ink: #e6e9ee; --soft: #9aa5b4;
  --line: #333b47; --compute: #47719f; --blocked: #f0962e; --store: #3fb3a3; --restore: #a98ad3; --lost: #5c2f2d;
  --bad: #ef6a62; --good: #55bd78; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 1080px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin: 0; } h2 { font-size: 1.15em; margin: 2em 0 .4em; } p { margin: .4em 0; max-width: 62em; }
.lead { font-size: 1.15em; } .soft, figcaption { color: var(--soft); } .bad-text { color: var(--bad); }
svg { display: block; width: 100%; height: auto; } .wide { overflow-x: auto; } .wide svg { min-width: 760px; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg .name { font-size: 13px; font-weight: 600; }
svg .tick { fill: var(--soft); } .middle { text-anchor: middle; } .end-at { text-anchor: end; }
.grid { stroke: var(--line); } .pause { fill: var(--line); opacity: .55; }
.compute { fill: var(--compute); background: var(--compute); }
.blocked { fill: var(--blocked); background: var(--blocked); }
.store { fill: var(--store); background: var(--store); }
.restore { fill: var(--restore); background: var(--restore); }
.lost { fill: var(--lost); background: repeating-linear-gradient(135deg, var(--lost) 0 4px, var(--bad) 4px 6px); }
.guess { background: repeating-linear-gradient(135deg, transparent 0 4px, var(--bad) 4px 6px); }
.size { fill: var(--compute); } .pale { opacity: .4; } .range { stroke: var(--soft); } .fail { fill: var(--bad); }
.hatch { stroke: var(--bad); stroke-width: 1.6; } .dark { stroke: var(--bad); stroke-dasharray: 2 4; }
.end { fill: none; stroke-width: 2.4; } .end.bad { stroke: var(--bad); } .end.good { stroke: var(--good); }
.steps { fill: none; stroke: var(--compute); stroke-width: 2; } .good-dot { fill: var(--good); }
.tooth { stroke: var(--bad); stroke-width: 1.6; stroke-dasharray: 2 4; }
.shares { display: flex; height: 22px; border-radius: 4px; overflow: hidden; margin: .8em 0 .3em; }
.shares span { min-width: 2px; } .legend { display: flex; flex-wrap: wrap; gap: .2em 1.4em; padding: 0; margin: .4em 0;
  list-style: none; font-size: .93em; } .legend i { display: inline-block; width: 1.1em; height: .8em;
  margin-right: .45em; border-radius: 2px; }
.many { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 1.2em 1.6em; }
table { border-collapse: collapse; font-size: .93em; } th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: .22em .9em .22em 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.when, th.when { white-space: nowrap; font-variant-numeric: tabular-nums; } td.say { overflow-wrap: anywhere; }
footer { margin-top: 2.5em; font-size: .88em; color: var(--soft); }
@media print { body { margin: 0; max-width: none; font-size: 11px; } svg, table, .shares, .legend i {
  print-color-adjust: exact; -webkit-print-color-adjust: exact; } figure, tr, svg { break-inside: avoid; }
  h2 { break-after: avoid; } .wide { overflow: visible; } .wide svg { min-width: 0; } }
figure { margin: .4em 0; }
"""


def sheet(name: str, parts: Iterable[str], style: str = "") -> str:
    """The whole page of these parts, which are markup already. `style` is added to the common one."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", text(name)),
        tag("style", STYLE + style),
    )
    body = tag("body", tag("main", *[f"{part}\n" for part in parts]))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
