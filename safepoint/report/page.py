"""The report as one page: HTML that is XML too, with drawings and style inside, no script, and nothing to be loaded."""

from __future__ import annotations

from safepoint.ledger.lives import ENDINGS, Event, Run, Save
from safepoint.pace.interval import DALY, YOUNG
from safepoint.report.advice import FEW_FAILURES, Advice
from safepoint.report.bars import bars, binned
from safepoint.report.disk_use import disk_use
from safepoint.report.drawing import shown, time_line
from safepoint.report.markup import tag, text
from safepoint.report.sheet import sheet
from safepoint.report.spread import spread
from safepoint.report.steps import steps
from safepoint.words import count, moment, percent, precise, size

MOST_ROWS = 400  # rows, the first and the last half
SHORTEST_S = 1e-9  # no set was durable sooner: what says so is none of ours
TOLD_ALONE = 3  # so many sets in a row are told one by one; of more, all in one row


def page(run: Run, advice: Advice | None, version: str) -> str:
    """The whole report of a run."""
    name = run.work.rstrip("/").rpartition("/")[2] or run.work
    parts = [
        *_headline(run, name), *_time_line(run), *steps(run), *_sets(run), *disk_use(run), *spread(run),
        *_interval(run, advice), *_events(run), tag("footer", text(_small_print(run, version)))]  # fmt: skip
    return sheet(f"Save points of {name}", parts)


def headline(run: Run) -> list[str]:
    """What matters most, in sentences."""
    last = run.last
    reached = [life.reached for life in run.lives if life.reached is not None]
    number = sum(not save.error for save in run.saves)
    at, done = f"at step {last.reached}", f"step {last.reached} was reached"
    if last.reached is None:  # the program gives its sets no steps
        at, done = f"after {count(number, 'set')}", count(number, "set was saved", "sets were saved")
    first = {
        "finished": f"Finished, {at}.",
        "running": f"Still running: {done}.",
        "killed": f"Not finished: {done}, then the program was killed.",
        "error": f"Not finished: {done}, then the program ended by an error.",
        "stopped": f"Not finished: {done}, then the program was stopped in order.",
    }.get(run.state, f"Not finished: {done}, then the program ended.")
    if last.reached is not None and reached and max(reached) > last.reached:
        first += f" Step {max(reached)} had been reached before."
    starts = [life for life in run.lives if life.how != "roll-back"]
    ends = [f"{number} {words}" for kind, words in ENDINGS.items()
            if (number := sum(life.ending == kind for life in run.lives))]  # fmt: skip
    second = f"{count(len(starts), 'start')}: {', '.join(ends)}."
    third = f"{precise(run.wall)} from the first start to the last sign of life, {precise(run.alive)} of it at work."
    repeated = sum(life.repeated for life in run.lives)
    fourth = f"{count(repeated, 'step was', 'steps were')} computed again after a restart." if repeated else ""
    return [line for line in (first, second, third, fourth) if line]


def shares(run: Run) -> list[tuple[str, str, float, str]]:
    """Class, name, seconds, and a remark for each part of the time at work. Together they are all of it."""
    return [
        ("compute", "computing", sum(life.computing for life in run.lives), "what counts in the end"),
        ("blocked", "blocked in hide", sum(life.blocked for life in run.lives), "the program waited for its set"),
        ("restore", "restoring", sum(life.restoring for life in run.lives), "from init until the files were in place"),
        ("lost", "lost and computed again", sum(life.lost for life in run.lives), "seen in the log"),
        ("guess", "lost, estimated", sum(life.unseen for life in run.lives),
         "after the last line of the log: half an interval for each kill, if the next start was not sooner"),
    ]  # fmt: skip


def _headline(run: Run, name: str) -> list[str]:
    parts = [(kind, words, seconds, remark) for kind, words, seconds, remark in shares(run) if seconds > 0]
    whole = run.alive or 1.0
    strips, entries = [], []
    for kind, words, seconds, remark in parts:
        share = f"{words}: {percent(seconds / whole)} ({precise(seconds)})"
        strips.append(tag("span", class_=kind, style=f"flex: {seconds / whole:.6f}", title=share))
        entries.append(tag("li", tag("i", class_=kind), text(share), title=remark))
    first, *others = headline(run)
    return [
        tag("h1", text(f"Save points of {name}")),
        tag("p", text(run.work), class_="soft"),
        tag("p", tag("b", text(first)), " ", text(" ".join(others)), class_="lead"),
        tag("div", *strips, class_="shares"),
        tag("ul", *entries, class_="legend"),
    ]


def _time_line(run: Run) -> list[str]:
    names = (
        ("compute", "computing"), ("blocked", "blocked in hide"), ("store", "storing in the background"),
        ("restore", "restoring"), *[("lost", "lost, computed again")] * any(life.kept < life.end for life in run.lives),
    )  # fmt: skip
    legend = [tag("li", tag("i", class_=kind), words) for kind, words in names]
    signs = [("good", "M2,6 l4,5 l7,-10", "finished"), ("bad", "M2,1 l10,10 m0,-10 l-10,10", "killed or failed")]
    for kind, shape, words in signs:
        path = tag("path", d=shape, class_=f"end {kind}")
        mark = tag("svg", path, viewBox="0 0 14 12", style="width: 1.1em; display: inline-block; margin-right: .45em")
        legend.append(tag("li", mark, words))
    hidden = len(run.lives) - len(shown(run))
    notes = f" The first {hidden} starts are not drawn." if hidden else ""
    whose = f" It is the log of rank {run.rank}, one of {run.ranks}." if run.ranks > 1 else ""
    caption = (
        f"One row for each start, up to its last sign of life. A dotted line: killed somewhere there; the log cannot "
        f"tell when. A thin line is a hide too short to be drawn to scale. Where they are too close to tell apart they "
        f"are drawn as one, and its height is their share of the time.{whose}{notes}"
    )
    drawing = tag("div", time_line(run), class_="wide")
    return [
        tag("h2", "Time line"),
        tag("ul", *legend, class_="legend"),
        tag("figure", drawing, tag("figcaption", text(caption))),
    ]


def _sets(run: Run) -> list[str]:
    saves = [save for save in run.saves if not save.error]
    if not saves:
        return [tag("h2", "Sets"), tag("p", "No set was saved.")]
    total, stored = sum(save.bytes for save in saves), sum(save.stored for save in saves)
    won = f", kept in {size(stored)}: {total / stored:.1f} to 1" if stored and total > 1.005 * stored else ""
    seconds = sum(save.seconds for save in saves)
    words = [f"{count(len(saves), 'set')} of {size(total / len(saves))} on average; {size(total)} in all{won}."]
    if seconds > SHORTEST_S:
        words.append(f"Made durable at {size(total / seconds)}/s.")
    slow = max((save for save in saves if save.slowest), key=lambda save: save.slowest or (0.0, 0), default=None)
    if slow and slow.slowest:
        rank = f" on rank {slow.slowest[1]}" if run.ranks > 1 else ""
        words.append(f"hide kept the program longest at {slow.name}{rank}: {precise(slow.slowest[0])}.")
    failed = len(run.saves) - len(saves)
    if failed:
        words.append(f"{count(failed, 'set')} could not be saved.")
    if gave_way := sum(life.superseded for life in run.lives):
        words.append(f"{gave_way + len(saves)} were hidden, {len(saves)} stored: newer ones took the others' place.")
    timed = [save for save in saves if save.seconds > SHORTEST_S]
    drawings = [
        bars("Size of a set, and what of it is kept", binned(saves, lambda s: s.bytes, lambda s: s.stored, size), size,
             "size"),
        bars("Written per second, until durable", binned(timed, _rate, None, _per_second), _per_second, "store"),
    ]  # fmt: skip
    blocked = [save for save in saves if save.slowest]
    if blocked:
        drawings.append(bars("Blocked in hide", binned(blocked, _blocked, None, precise), precise, "blocked"))
    drawings.append(bars("From hide to durable", binned(timed, lambda s: s.seconds, None, precise), precise, "store"))
    return [
        tag("h2", "Sets"),
        tag("p", text(" ".join(words))),
        tag("div", *[tag("figure", drawing) for drawing in drawings], class_="many"),
    ]


def _rate(save: Save) -> float:
    return save.bytes / save.seconds


def _per_second(value: float) -> str:
    return f"{size(value)}/s"


def _blocked(save: Save) -> float:
    return save.slowest[0] if save.slowest else 0.0


def _interval(run: Run, advice: Advice | None) -> list[str]:
    """What the interval should have been, and how far the log can tell."""
    heading, used = tag("h2", "How often to save"), run.interval
    if advice is None or used is None:
        lacking = "two sets in one start" if used is None else "how long hide kept the program waiting"
        return [heading, tag("p", f"Too little is known: the log does not have {lacking}.")]
    low, high = advice.range
    cost = (
        f"Each set kept the program waiting for {precise(advice.cost)} on average, and between two sets it computed "
        f"for {precise(used)} (the median). The log cannot tell how much storing in the background slows the program "
        f"down; that is not counted."
    )
    work = precise(advice.work)
    if advice.mean is None:
        unknown = (
            f"Nothing failed in {work} at work, so the best interval is not known. With a confidence of 95 % the mean "
            f"time between failures is above {precise(advice.low)}; then the best interval is above {precise(low)}."
        )
        return [heading, tag("p", text(cost)), tag("p", text(unknown)), *_sources()]
    failures = (
        f"{count(advice.failures, 'failure')} in {work} at work: one in {precise(advice.mean)}. "
        f"{'That is too few to tell much. ' * (advice.failures < FEW_FAILURES)}With a confidence of 90 % the true "
        f"mean lies between {precise(advice.low)} and {precise(advice.high)}, and the best interval between "
        f"{precise(low)} and {precise(high)}."
    )
    measured = (
        "The shares are those to be expected with that mean time between failures. Measured were "
        f"{percent(sum(life.blocked for life in run.lives) / run.alive)} blocked and "
        f"{percent(sum(life.lost + life.unseen for life in run.lives) / run.alive)} lost."
    )
    return [
        heading,
        tag("p", text(cost)),
        tag("p", text(failures)),
        tag("p", tag("b", text(verdict(used, advice)))),
        _choices(used, advice),
        tag("p", text(measured)),
        *_sources(),
    ]


def _choices(used: float, advice: Advice) -> str:
    """A table: what each interval may be expected to cost."""
    heads = ("computing between two sets", "blocked", "lost", "together")
    lines = [tag("tr", tag("th", "interval"), *[tag("th", words, class_="n") for words in heads])]
    rows = (
        ("used in this run", used),
        ("Young 1974, first order", advice.young),
        ("Daly 2006, higher order", advice.daly),
    )
    for words, value in rows:
        assert value is not None
        blocked, lost = advice.shares(value)
        cells = [precise(value), percent(blocked), percent(lost), percent(blocked + lost)]
        lines.append(tag("tr", tag("td", words), *[tag("td", cell, class_="n") for cell in cells]))
    return tag("div", tag("table", *lines), class_="wide")


def verdict(used: float, advice: Advice) -> str:
    """The interval of the run against the best one, in a sentence."""
    assert advice.daly is not None
    low, high = advice.range
    if low <= used <= high:
        best = f"{precise(advice.daly)} looks best, by Daly's formula"
        return f"The interval of {precise(used)} is as good as can be told from so few failures; {best}."
    (a, b), (c, d) = advice.shares(used), advice.shares(advice.daly)
    how = "more often" if used < low else "more seldom"
    return (
        f"Sets were taken {how} than pays: {precise(advice.daly)} looks better than {precise(used)}, and would cost "
        f"{percent(c + d)} instead of {percent(a + b)} of the time."
    )


def _sources() -> list[str]:
    entries = [tag("li", text(source)) for source in (YOUNG, DALY)]
    return [tag("ul", *entries, class_="soft")]


def _events(run: Run) -> list[str]:
    rows: list[str] = []
    pending: list[Event] = []

    def flush() -> None:
        if len(pending) <= TOLD_ALONE:
            rows.extend(_row(run, event) for event in pending)
        else:
            rows.append(_row(run, pending[0], pending[-1], len(pending)))
        pending.clear()

    life = 1
    for event in sorted([*run.events, *_kills(run)], key=lambda event: (event.at, event.life)):
        if event.life != life:
            flush()
            life = event.life
        if event.event == "saved" and event.rank == run.rank:
            pending.append(event)
            continue
        many = run.lives[event.life - 1].many if event.rank == run.rank else False
        if event.event == "adopted" or (many and event.event == "ended" and not event.bad):
            continue  # a process of a job script that went on; its set is what counts
        flush()
        rows.append(_row(run, event))
    flush()
    if len(rows) > MOST_ROWS:
        left_out = len(rows) - MOST_ROWS
        words = tag("td", f"… {left_out} rows left out; log.jsonl has them all", colspan=4, class_="soft")
        rows[MOST_ROWS // 2 : len(rows) - MOST_ROWS // 2] = [tag("tr", words)]
    heads = [tag("th", words, class_="when") for words in ("when", "into the run", "start", "what")]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *[f"{row}\n" for row in rows]))
    return [tag("h2", "What happened"), tag("div", table, class_="wide")]


def _row(run: Run, event: Event, last: Event | None = None, number: int = 1) -> str:
    words = f"{number} sets saved, {event.subject} to {last.subject}" if last else event.text
    if event.rank != run.rank:
        words = f"rank {event.rank}: {words}"
    when = moment(event.wall) if event.event != "killed" else ""
    return tag(
        "tr", tag("td", when, class_="when"), tag("td", precise(event.at), class_="when"), tag("td", str(event.life)),
        tag("td", text(words), class_="say bad-text" if event.bad else "say"),
    )  # fmt: skip


def _kills(run: Run) -> list[Event]:
    """What the killed lives could not write, each at its last sign of life."""
    found = []
    for number, life in enumerate(run.lives, 1):
        if life.ending == "killed":
            again = f"; {count(life.repeated, 'step')} computed again" if life.repeated else ""
            what = f"no further line: killed{again}"
            found.append(Event(life.end, 0.0, number, run.rank, "killed", what, "", bad=True))
    return found


def _small_print(run: Run, version: str) -> str:
    words = [f"Made by safepoint report {version} from log.jsonl of {count(run.ranks, 'rank')}."]
    if run.torn:
        words.append(f"{count(run.torn, 'line')} could not be read, as a power cut or a kill tears them.")
    if run.jumped > 0.5:
        words.append(f"The clock of the machine went back by {precise(run.jumped)} in all; times are put in order.")
    return " ".join(words)
