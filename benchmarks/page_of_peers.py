"""What `peers.py` measured, as verdicts, as a page in Markdown, and as plots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from protagonists import WAYS

OURS, REPLACE, ROTATION, ASYNC, LIMIT = (
    "safepoint", "temporary, fsync, os.replace", "two directories in turn, fsync", "torch DCP async_save",
    "limit: write, fsync, rename",
)  # fmt: skip


def verdicts(places: list[Any]) -> Iterator[str]:
    """The goals, each with what was measured; ratios of medians of one run."""
    for place in places:
        for line in (*_blocked(place), *_durable(place), *_whole(place)):
            yield f"{place.name}: {line}"


def _blocked(place: Any) -> Iterator[str]:
    large, least, more = (place.cases.get(name) for name in ("512 MB", "1 MB", "1000 x 16 KB"))
    for way in (REPLACE, ROTATION, ASYNC):
        if large and way in large:
            ratio = median(large[way]["extra"]) / median(large[OURS]["extra"])
            yield f"512 MB, blocked by {way} : hide = {ratio:.0f}   goal >= 100"
    if place.durable and least and more:
        one, big, many = (median(place.durable[name]["hide"]) for name in ("1 MB", "512 MB", "1000 x 16 KB"))
        bare, renames = median(least[LIMIT]["renames"]), median(more[LIMIT]["renames"])
        yield f"hide of 512 MB : of 1 MB = {big / one:.2f}   goal <= 1.5"
        yield f"hide of 1 MB = {one * 1e6:.0f} µs = {one / bare:.1f} bare renames   goal <= 120 µs, or <= 8 renames"
        times = f"{many * 1e3:.0f} ms = {many / renames:.1f} times their bare renames"
        yield f"hide of 1000 files = {times}   goal <= 20 ms, or <= 8 times"


def _durable(place: Any) -> Iterator[str]:
    for name, times in place.durable.items():
        bare, record, hide, after = (median(times[key]) for key in times)
        also = f"with hide itself {(hide + after) / bare:.2f}; bare calls, record and checksum: {record / bare:.2f}"
        if name == "1000 x 16 KB":
            also = f"with hide itself {bare / (hide + after):.1f}; bare calls that keep a record: {bare / record:.1f}"
            yield f"{name} durable, fsync one by one : safepoint = {bare / after:.1f}   goal >= 8   ({also})"
        elif name != "1 MB":
            yield f"{name} durable, safepoint : fsync = {after / bare:.2f}   goal <= 1.15   ({also})"


def _whole(place: Any) -> Iterator[str]:
    if place.saves:
        plain, replace, ours = (1e3 * median(place.saves[name]) for name in ("plain", "replace", "safepoint"))
        told = f"plain {plain:.0f} ms, replace {replace:.0f} ms, safepoint {ours:.0f} ms"
        goal = f"<= plain + a quarter of what replace adds = {plain + max(replace - plain, 0) / 4:.0f} ms"
        yield f"heat equation, 40 saves of 8 MB: {told}   goal {goal}"
    if place.next_write:
        after, over = (median(times) for times in place.next_write.values())
        yield f"64 MB written after hide : over the old file = {after / over:.2f}   goal <= 1"
    if place.restored:
        goal = "0.5" if place.name == "xfs" else "1.3"
        ratio = median(place.restored["safepoint"]) / median(place.restored["cp"])
        yield f"restore of 512 MB : cp of it = {ratio:.2f}   goal <= {goal}"


def ms(values: list[float]) -> str:
    if not values or max(values) <= 0:
        return "–"
    digits = 2 if median(values) < 0.00995 else 1 if median(values) < 0.0995 else 0
    return f"{median(values) * 1e3:.{digits}f} ({min(values) * 1e3:.{digits}f}–{max(values) * 1e3:.{digits}f})"


def write_page(
    target: Path, day: str, places: list[Any], counted: dict[str, dict[str, int] | None], lacking: list[str],
    machine: list[str],
) -> None:  # fmt: skip
    lines = [f"# Saved, beside others: {day}", "", "Made by `make bench`; what each column means is said in "
             "`benchmarks/peers.py`. Milliseconds: median (least–most).", ""]  # fmt: skip
    lines += [f"- {text}" for text in machine]
    lines += [f"- {place.name}: {place.system}" for place in places]
    lines += [f"- left out: {text}" for text in lacking]
    lines += ["", "## What each way does", ""]
    lines += ["Calls of one save of 1 MB, by strace; and what is there if the power fails at any moment.", ""]
    lines += ["| way | fsyncs of files | of directories | renames | a power cut leaves |", "|---|---:|---:|---:|---|"]
    for way, calls in counted.items():
        numbers = " | ".join(str(n) for n in calls.values()) if calls else "? | ? | ?"
        lines.append(f"| {way} | {numbers} | {WAYS[way].told} |")
    for place in places:
        for name, found in place.cases.items():
            lines += ["", f"## {place.name}, {name}", "", "| way | write | blocked | extra | done | restore |",
                      "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
            for way, times in found.items():
                cells = " | ".join(ms(times[quantity]) for quantity in ("write", "blocked", "extra", "done", "restore"))
                lines.append(f"| {way} | {cells} |")
        for number, found in place.ranks.items():
            lines += ["", f"## {place.name}, {number} ranks x 64 MB (the slowest rank)", "",
                      "| way | write | blocked | extra | done |", "|---|---:|---:|---:|---:|"]  # fmt: skip
            for way, times in found.items():
                lines.append(f"| {way} | " + " | ".join(ms(values) for values in times.values()) + " |")
    lines += _other_tables(places)
    lines += ["", "## The goals", "", *(f"- {line}" for line in verdicts(places))]
    lines += ["", *(f"![{path.stem}]({path.name})" for path in draw(target, day, places))]
    (target / f"{day}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _other_tables(places: list[Any]) -> Iterator[str]:
    tables = {
        "all saves of a run: the heat equation on 1024 x 1024 points, 40 saves of 8 MB": "saves",
        "np.save of 64 MB": "next_write",
        "512 MB brought back from the page cache": "restored",
    }
    for place in places:
        for name, times in place.durable.items():
            yield from ("", f"## {place.name}, {name}: until durable", "", "| | |", "|---|---:|")
            yield from (f"| {way} | {ms(seconds)} |" for way, seconds in times.items())
    for title, name in tables.items():
        rows = [(place.name, way, times) for place in places for way, times in getattr(place, name).items()]
        if rows:
            yield from ("", f"## {title[0].upper()}{title[1:]}", "", "| | | |", "|---|---|---:|")
            yield from (f"| {where} | {way} | {ms(times)} |" for where, way, times in rows)


def draw(target: Path, day: str, places: list[Any]) -> Iterator[Path]:
    from matplotlib.figure import Figure

    place = places[0]
    sizes = {name: size for name, size in (("1 MB", 1), ("64 MB", 64), ("512 MB", 512)) if name in place.cases}
    if len(sizes) > 1:
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.subplots()
        for number, way in enumerate(WAYS):
            if way not in place.cases["1 MB"] or way.startswith("np.save"):
                continue
            blocked = [1e3 * median(_extra(place.cases[name][way])) for name in sizes]
            style = {"linewidth": 3, "color": "black"} if way == OURS else {"color": f"C{number}"}
            axes.plot(list(sizes.values()), [max(value, 0.01) for value in blocked], "o-", label=way, **style)
        axes.set(xscale="log", yscale="log", xlabel="size of the file, MB",
                 ylabel="ms that the protection keeps the program waiting", title=f"{place.name}, {day}")  # fmt: skip
        axes.legend(fontsize=8)
        axes.grid(which="both", alpha=0.2)
        yield _saved(figure, target / f"{day}-blocked.png")
    if "1000 x 16 KB" in place.cases:
        figure = Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
        found = place.cases["1000 x 16 KB"]
        names = list(found)
        for shift, quantity in ((-0.2, "blocked"), (0.2, "done")):
            values = [1e3 * median(found[way][quantity]) for way in names]
            axes.barh([k + shift for k in range(len(names))], values, 0.38, label=quantity)
        axes.set(xscale="log", xlabel="ms", title=f"1000 files of 16 KB, {place.name}, {day}")
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.legend(fontsize=8)
        yield _saved(figure, target / f"{day}-files.png")
    if place.ranks:
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for way in next(iter(place.ranks.values())):
            values = [1e3 * max(median(_extra(found[way])), 1e-5) for found in place.ranks.values()]
            axes.plot(list(place.ranks), values, "o-", label=way)
        axes.set(yscale="log", xlabel="ranks, 64 MB each", ylabel="ms blocked by the protection, slowest rank",
                 title=f"{place.name}, {day}")  # fmt: skip
        axes.set_xticks(list(place.ranks))
        axes.legend(fontsize=8)
        yield _saved(figure, target / f"{day}-ranks.png")


def _extra(times: dict[str, list[float]]) -> list[float]:
    """What is not the program's own writing; of a way that has no other, all of it."""
    return times["extra"] if times["extra"] else times["blocked"]


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    return path
