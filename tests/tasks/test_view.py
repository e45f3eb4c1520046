"""`safepoint tasks view`: the page tells what the files tell, is whole whatever they hold, and loads nothing."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from testbed.counted_work import assert_linear
from testbed.sweep import PROOF
from testbed.task_pasts import BEGAN, Pasts, layered, net

from safepoint import FormatError, UsageError
from safepoint.tasks.pictures.layers import MOST_NODES, layers
from safepoint.tasks.pictures.network import unlike
from safepoint.tasks.pictures.past import EARLIER, FAILED, RUNNING, SKIPPED, STATES, WAITING, Node, read
from safepoint.tasks.pictures.totals import totals
from safepoint.tasks.pictures.workers import lanes_of, rows_of
from safepoint.tasks.view import EMPTY, page

Element = ElementTree.Element
STORE = Path(".safepoint.d/tasks")
NASTY = "<b>&\"'</b><script>alert(1)</script>\x01"


def seconds(base: float, seed: int = 3) -> Callable[[str], float]:
    draw, known = random.Random(seed), dict[str, float]()
    return lambda name: known.setdefault(name, base * draw.uniform(0.5, 2))


def parsed(html: str) -> Element:
    """As XML, so that a tag that is not closed or a name that is not escaped is an error."""
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">')
    return ElementTree.fromstring(html.partition("\n")[2])


def whole(directory: Path, machine: Path | None = None) -> Element:
    root = parsed(page(directory, machine))
    pictures = [svg for svg in root.iter("svg") if svg.get("aria-hidden") != "true"]
    for svg in pictures:
        assert svg.get("role") == "img" and svg.get("aria-label") and svg.get("viewBox")
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    used = {use for element in root.iter() for use in re.findall(r"url\(#([\w-]+)\)", element.get("fill") or "")}
    assert used <= set(ids)
    return root


def picture(root: Element, kind: str) -> Element:
    (svg,) = (svg for svg in root.iter("svg") if kind in (svg.get("class") or "").split())
    return svg


def of_class(element: Element, kind: str) -> list[Element]:
    return [each for each in element.iter() if kind in (each.get("class") or "").split()]


def titles(element: Element) -> list[str]:
    return [each.text or "" for each in element.iter("title")]


def texts(element: Element) -> str:
    return " ".join(element.itertext())


def tables(root: Element) -> Iterator[list[list[str]]]:
    for table in root.iter("table"):
        yield [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


@pytest.fixture
def sky(tmp_path: Path) -> Path:
    """Killed in its first start; in the second one a vertex failed and the worker of another one died."""
    pasts = Pasts(layered([8, 8, 6, 4, 2, 1]))
    pasts.start(4, seconds(4.4), until=12.0)
    pasts.plan(4, seconds(4.0), net(5, [(1, 3)]))
    pasts.start(4, seconds(4.4), at=BEGAN + 4000, dies=["v1-4"], fails=["v2-3"])
    return pasts.write(tmp_path)


def states_drawn(root: Element) -> Counter[str]:
    """How many shapes of each state the graph has. The ring of one that had finished before is drawn in two."""
    graph = picture(root, "layers")
    return Counter({state: len(of_class(graph, f"state-{state}")) for state in STATES})


def test_each_vertex_of_a_small_graph_has_the_shape_of_its_state_and_its_name(sky: Path) -> None:
    root, past = whole(sky), read(sky / STORE)
    expected = Counter(node.state for node in past.nodes)
    assert states_drawn(root) == expected
    assert {expected[state] > 0 for state in ("finished", EARLIER, FAILED, SKIPPED)} == {True}
    said = titles(picture(root, "layers"))
    assert all(any(each.startswith(f"{node.name}: ") for each in said) for node in past.nodes)


def test_no_two_states_have_one_shape_so_that_black_and_white_tells_them_apart(tmp_path: Path) -> None:
    pasts = Pasts({f"v{number}": [] for number in range(6)})
    pasts.states = dict(zip(pasts.vertices, STATES, strict=True))
    graph = picture(whole(pasts.write(tmp_path)), "layers")
    shapes = set()
    for state in STATES:
        (mark,) = of_class(graph, f"state-{state}")
        moves = re.sub(r"-?\d+\.\d,-?\d+\.\d", "#", mark.get("d") or "", count=1)
        holed = any(mark in list(group) for group in graph.iter("g"))
        filled = state not in (WAITING, SKIPPED)  # by the style, which has ground and a border for those two
        shapes.add((mark.tag, moves, holed, filled))
    assert len(shapes) == 6


def test_vertices_begun_without_an_end_are_running_and_their_bars_are_open(tmp_path: Path) -> None:
    pasts = Pasts(layered([8, 4]))
    pasts.start(3, seconds(4.0), until=6.0)
    root = whole(pasts.write(tmp_path))
    running = states_drawn(root)[RUNNING]
    assert 1 <= running <= 3
    assert len(of_class(picture(root, "gantt"), "open")) == running
    assert "is running, or was killed," in texts(root)


def test_a_vertex_stands_in_the_layer_after_the_last_one_that_it_needs() -> None:
    needs = {"a": [], "b": ["a"], "c": ["b", "a"], "d": [], "e": ["d", "c"], "f": ["a"]}
    nodes = [Node(name, "", "", tuple(parents), WAITING) for name, parents in needs.items()]
    assert [[node.name for node in layer] for layer in layers(nodes)] == [["a", "d"], ["b", "f"], ["c"], ["e"]]
    circle = [Node("x", "", "", ("y",), WAITING), Node("y", "", "", ("x",), WAITING), Node("z", "", "", (), WAITING)]
    assert [[node.name for node in layer] for layer in layers(circle)] == [["z"], ["x", "y"]]


def test_each_edge_is_drawn_once_and_from_parent_to_child(sky: Path) -> None:
    (edges,) = of_class(picture(whole(sky), "layers"), "edge")
    past = read(sky / STORE)
    assert (edges.get("d") or "").count("M") == sum(len(node.parents) for node in past.nodes)
    for begin, end in re.findall(r"M(\d+),\d+C.*? (\d+),\d+(?=M|$)", edges.get("d") or ""):
        assert int(begin) < int(end)


def test_above_500_vertices_the_layers_are_counts(tmp_path: Path) -> None:
    sizes = [200, 250, 51]
    assert sum(sizes) == MOST_NODES + 1
    pasts = Pasts(layered(sizes))
    pasts.start(4, seconds(1.0), until=70.0)
    root = whole(pasts.write(tmp_path))
    graph = picture(root, "layers")
    assert not of_class(graph, "edge") and "as counts" in (graph.get("aria-label") or "")
    counted = [title for title in titles(graph) if title.startswith("layer ")]
    found: Counter[str] = Counter()
    for title in dict.fromkeys(counted):  # the hatching over a bar says the same again
        layer, number = re.findall(r"layer (\d+): ([\d,]+) ", title)[0]
        found[layer] += int(number)
    assert found == {"1": 200, "2": 250, "3": 51}
    table = next(rows for rows in tables(root) if rows[0][:2] == ["layer", "vertices"])
    assert [row[:2] for row in table[1:]] == [["1", "200"], ["2", "250"], ["3", "51"]]


def test_the_plan_stands_beside_what_really_was(sky: Path) -> None:
    root, past = whole(sky), read(sky / STORE)
    gantt = picture(root, "gantt")
    names = [text.text for text in of_class(gantt, "name")]
    assert names == ["planned", "real"] and past.plan is not None
    planned = [each for each in of_class(gantt, "planned") if each.tag == "rect"]
    assert len(planned) == len(past.plan.vertices)
    done = {node.name for node in past.nodes if node.state == EARLIER}
    dotted = {titles(box)[0].partition(":")[0] for box in planned if "done-before" in (box.get("class") or "")}
    assert dotted == done and done
    last = past.starts[-1]
    line = of_class(gantt, "start-line")[-1]
    assert abs(min(float(box.get("x") or 0) for box in planned) - float(line.get("x1") or 0)) < 0.1
    bodies = [title for title in titles(gantt) if ": finished" in title and "body" in title]
    assert len(bodies) == sum(attempt.how == "finished" for start in past.starts for attempt in start.attempts)
    table = next(rows for rows in tables(root) if "planned on" in rows[0])
    first = table[1][0]
    attempt = next(each for each in last.attempts if each.vertex == first and each.how == "finished")
    assert table[1][2] == attempt.worker


def test_a_bar_is_as_long_as_its_attempt_and_stands_where_it_was(tmp_path: Path) -> None:
    pasts = Pasts({"a": [], "b": ["a"]})
    pasts.start(1, lambda name: 10.0)
    gantt = picture(whole(pasts.write(tmp_path)), "gantt")
    (lane,) = of_class(gantt, "lane")
    scale, left = float(lane.get("width") or 0) / 20.0, float(lane.get("x") or 0)
    bodies = [(float(rect.get("x") or 0), float(rect.get("width") or 0)) for rect in of_class(gantt, "part-body")]
    places = [((x - left) / scale, wide / scale) for x, wide in bodies]
    assert places == [pytest.approx((0.0, 9.0), abs=0.05), pytest.approx((11.5, 7.5), abs=0.05)]
    assert [len(of_class(gantt, f"part-{kind}")) for kind in ("inputs", "saving")] == [1, 2]


def test_a_failed_attempt_and_a_dead_worker_have_a_cross_and_the_error_is_told(sky: Path) -> None:
    root = whole(sky)
    assert len(of_class(picture(root, "gantt"), "bad")) == 2
    table = next(rows for rows in tables(root) if rows[0][-1] == "error")
    assert table[1:] == [["v2-3", "rank 1", "1", "ValueError: negative variance at sky.py:31 in denoise"]]


def test_the_totals_are_all_of_the_workers_time(sky: Path) -> None:
    past = read(sky / STORE)
    sums = totals(past.starts)
    assert sums.all_s == pytest.approx(sum(4 * start.seconds for start in past.starts))
    assert sums.saved == 4_000_000 * sum(a.how == "finished" for start in past.starts for a in start.attempts)
    assert min(sums[:5]) > 0
    legend = texts(whole(sky))
    assert all(f"{name}: " in legend for name in ("body", "inputs", "saving", "waiting", "failed, or without an end"))


def test_a_worker_with_threads_has_a_row_for_each_and_a_new_process_takes_the_row_of_a_dead_one(tmp_path: Path) -> None:
    def row(vertex: str, worker: str, began: float, body: float, event: str = "finished") -> dict[str, Any]:
        end = {"time": BEGAN + began + body, "event": event, "vertex": vertex, "worker": worker, "host": "h"}
        return {**end, "attempt": 1, "began": BEGAN + began, "body_s": body}

    pasts = Pasts({name: [] for name in "abcd"})
    start = {"time": BEGAN, "event": "start", "graph": "sky", "run": "", "workers": 2}
    begin = {"time": BEGAN + 2.5, "event": "begin", "vertex": "c", "worker": "pid 7", "host": "h", "attempt": 1}
    pasts.rows = [start, row("a", "pid 5", 0, 2), row("b", "pid 5", 1, 3), begin,
                  row("c", "pid 7, SIGKILL", 2.5, 0.5, "died") | {"host": ""}, row("d", "pid 9", 4, 1)]  # fmt: skip
    past = read(pasts.write(tmp_path) / STORE)
    lanes = [(lane.name, [attempt.vertex for attempt in lane.attempts]) for lane in lanes_of(past.starts[0])]
    assert lanes == [("pid 5", ["a"]), ("pid 5", ["b"]), ("pid 7", ["c", "d"])]
    assert "c: its worker died, body 500 ms: SIGKILL" in titles(whole(tmp_path))


@pytest.mark.parametrize(("given", "drawn"), [(3, 3), (7, 0)])
def test_what_a_killed_start_had_given_out_stands_where_a_worker_was_free(
    tmp_path: Path, given: int, drawn: int
) -> None:
    """The log tells who ran a vertex when that ends. Of many that were given out most were queued: none is drawn."""
    pasts = Pasts({f"v{number}": [] for number in range(12)})
    at = {f"v{number}": BEGAN + number // 3 for number in range(12)}
    pasts.rows = [{"time": BEGAN, "event": "start", "graph": "sky", "run": "", "workers": 3}]
    for number in range(3 + given):
        pasts.rows.append(
            {"time": at[f"v{number}"], "event": "begin", "vertex": f"v{number}", "worker": "", "attempt": 1}
        )
    for number in range(3):
        done = {"worker": f"pid {number}", "attempt": 1, "began": BEGAN, "body_s": 1.0 + number / 10}
        pasts.rows.append({"time": BEGAN + 1.3, "event": "finished", "vertex": f"v{number}", **done})
    pasts.rows.append({"time": BEGAN + 2.0, "event": "torn afterwards"})
    past = read(pasts.write(tmp_path) / STORE)
    lanes = lanes_of(past.starts[0])
    assert [len(lane.attempts) for lane in lanes] == [1 + bool(drawn)] * 3
    assert all(lane.attempts[-1].ended == pytest.approx(BEGAN + 2.0) for lane in lanes if drawn)
    assert all(b.began >= a.ended for lane in lanes for a, b in zip(lane.attempts, lane.attempts[1:], strict=False))
    assert ("no end in the log" in texts(whole(tmp_path)).partition("Workers")[2].partition("Totals")[0]) == bool(drawn)


def test_processes_of_another_start_take_the_rows_in_order(tmp_path: Path) -> None:
    pasts = Pasts(layered([8, 4]))
    pasts.start(2, seconds(1.0), until=3.0)
    pasts.start(3, seconds(1.0), at=BEGAN + 100)
    for row in pasts.rows[10:]:
        if "worker" in row:
            row["worker"] = row["worker"].replace("rank", "pid")  # type: ignore[index]
    assert len(rows_of(read(pasts.write(tmp_path) / STORE).starts)) == 3


def test_the_network_is_a_matrix_and_a_link_that_is_slower_than_back_is_marked(sky: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    file.write_text(json.dumps(net(6, [(1, 4)])))
    root = whole(sky, file)
    matrices = [svg for svg in root.iter("svg") if "matrix" in (svg.get("class") or "").split()]
    assert [len(of_class(svg, "link")) for svg in matrices] == [30, 30]
    for svg in matrices:
        (corner,) = of_class(svg, "corner")
        (cell,) = (group for group in svg.iter("g") if corner in list(group))
        assert titles(cell)[0].startswith("rank 1 to rank 4: ")
    strong = [float(cell.get("fill-opacity") or 0) for cell in of_class(matrices[0], "link")]
    assert max(strong) <= 0.85 and min(strong) == 0.06
    (link,) = (g for g in matrices[1].iter("g") if "rank 1 to rank 4" in titles(g)[0])
    assert "5.0 times slower than back" in titles(link)[0] and "220" in texts(link)
    table = next(rows for rows in tables(root) if rows[0][0] == "rank")
    assert table[2][:2] == ["1", "node01"] and "to 4" in table[2]


def test_without_a_file_the_network_is_that_of_the_plan(sky: Path) -> None:
    """A schedule has the ranks that work: its first one is rank 1."""
    root = whole(sky)
    assert "5 ranks on 3 hosts" in texts(root)
    assert any(title.startswith("rank 2 to rank 4: ") and "slower than back" in title for title in titles(root))
    assert [row[0] for row in next(rows for rows in tables(root) if rows[0][0] == "rank")[1:]] == list("12345")


def test_of_many_ranks_a_row_of_the_matrix_stands_for_several(sky: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    file.write_text(json.dumps(net(100, per_host=4)))
    root = whole(sky, file)
    matrices = [svg for svg in root.iter("svg") if "matrix" in (svg.get("class") or "").split()]
    assert all(len(of_class(svg, "link")) <= 34 * 34 for svg in matrices)
    assert "stands for 3 ranks" in texts(root)


def test_a_link_is_unlike_only_where_it_is_the_slower_one() -> None:
    assert unlike(2.0, 1.0, larger_is_slower=True) == 2.0 and unlike(1.0, 2.0, larger_is_slower=True) == 1.0
    assert unlike(1.0, 2.0, larger_is_slower=False) == 2.0 and unlike(0.0, 2.0, larger_is_slower=False) == 1.0


def test_a_file_of_a_network_that_is_none_is_an_error_that_names_it(sky: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.json"):
        page(sky, tmp_path / "nothing.json")
    (tmp_path / "net.json").write_text('{"safepoint": "net 1", "speed": [1, "x"]}')
    with pytest.raises(FormatError, match=r"net\.json: speed"):
        page(sky, tmp_path / "net.json")


def test_the_page_loads_nothing_and_runs_nothing(sky: Path, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(json.dumps(net(4)))
    html = page(sky, tmp_path / "net.json")
    root = parsed(html)
    assert not [each.tag for each in root.iter() if each.tag in ("script", "link", "img", "iframe", "object", "image")]
    names = {name for each in root.iter() for name in each.attrib}
    assert not {name for name in names if name in ("src", "href") or name.startswith("on")}
    assert not re.search(r"https?:|//|@import|url\((?!#)", html)


def test_names_with_markup_are_text(tmp_path: Path) -> None:
    pasts = Pasts({NASTY: [], "child": [NASTY]}, graph=NASTY)
    pasts.plan(1, lambda name: 1.0)
    pasts.start(1, lambda name: 1.0, fails=[NASTY])
    for row in pasts.rows:
        row.update({name: NASTY for name in ("worker", "host", "error", "where") if name in row})  # type: ignore[attr-defined]
    root = whole(pasts.write(tmp_path))
    assert not list(root.iter("b")) and not list(root.iter("script"))
    shown = NASTY.replace("\x01", "?")
    assert texts(root).count(shown) >= 4 and any(shown in title for title in titles(root))


def test_an_empty_directory_and_an_empty_graph_give_a_page_that_says_so(tmp_path: Path) -> None:
    assert EMPTY in texts(whole(tmp_path))
    pasts = Pasts({})
    pasts.start(2, seconds(1.0))
    assert "0 vertices" in texts(whole(pasts.write(tmp_path)))


def test_a_graph_that_has_not_run_shows_its_plan(tmp_path: Path) -> None:
    pasts = Pasts(layered([3, 2]))
    pasts.plan(2, seconds(1.0))
    root = whole(pasts.write(tmp_path))
    assert "not been started" in texts(root)
    assert len([box for box in of_class(picture(root, "gantt"), "planned") if box.tag == "rect"]) == 5


STRANGE: list[Any] = [
    None, True, -1, 0, 1e300, 10**30, float("nan"), "", NASTY, [], [[]], {}, {"name": 1}, ["a", "b"], "\ud800",
]  # fmt: skip


def mutated(content: Any, draw: random.Random) -> Any:
    """The same with one thing in it that does not belong there, or without it."""
    if isinstance(content, dict) and content and draw.random() < 0.9:
        key = draw.choice(list(content))
        changed = {**content, key: mutated(content[key], draw)}
        if draw.random() < 0.2:
            del changed[key]
        return changed
    if isinstance(content, list) and content and draw.random() < 0.9:
        at = draw.randrange(len(content))
        return [*content[:at], mutated(content[at], draw), *content[at + 1 :]]
    return draw.choice(STRANGE)


def test_whatever_the_files_hold_the_page_is_whole(sky: Path, tmp_path: Path) -> None:
    """Rows that are torn or strange cost themselves; a wrong number draws no line out of the picture."""
    store, draw = sky / STORE, random.Random(7)
    files = {name: (store / name).read_text() for name in ("graph.json", "log.jsonl", "schedule.json")}
    for turn in range(60 if PROOF else 12):
        for name, before in files.items():
            lines = before.splitlines() if name.endswith("l") else [before]
            for _ in range(1 + turn % 8):
                at = draw.randrange(len(lines))
                lines[at] = json.dumps(mutated(json.loads(before.splitlines()[at]), draw))
                if draw.random() < 0.2:
                    lines[at] = lines[at][: draw.randrange(len(lines[at]) + 1)]
            (store / name).write_text("\n".join(lines))
        root = whole(sky)
        for element in of_class(root, "gantt"):
            for rect in element.iter("rect"):
                x, wide = float(rect.get("x") or 0), float(rect.get("width") or 0)
                assert 0 <= x <= 1060 and 0 <= wide <= 1060, ElementTree.tostring(rect)


def test_the_log_is_torn_at_each_byte_of_its_last_row(sky: Path) -> None:
    path = sky / STORE / "log.jsonl"
    data = path.read_bytes()
    for length in range(data[:-1].rindex(b"\n"), len(data), 7):
        path.write_bytes(data[:length])
        whole(sky)


def test_a_clock_of_another_host_that_is_wrong_puts_no_bar_outside_of_its_start(tmp_path: Path) -> None:
    for wrong_s in (-5000.0, 5000.0):
        pasts = Pasts(layered([4, 4]))
        pasts.start(2, seconds(2.0))
        for row in pasts.rows:
            row.update({"began": row["began"] + wrong_s} if row.get("worker") == "rank 2" and "began" in row else {})  # type: ignore[attr-defined]
        (start,) = read(pasts.write(tmp_path) / STORE).starts
        assert all(start.began <= each.began and each.ended <= start.ended + 1e-6 for each in start.attempts)


def test_a_second_attempt_that_ends_after_the_first_one_changes_nothing(tmp_path: Path) -> None:
    """Dask may run a vertex twice at a time: the first result stays."""
    pasts = Pasts({"a": []})
    pasts.start(1, lambda name: 1.0)
    late = {"time": BEGAN + 2, "event": "died", "vertex": "a", "worker": "rank 2", "host": "node02"}
    pasts.rows = [*pasts.rows[:-1], late]
    assert states_drawn(whole(pasts.write(tmp_path)))["finished"] == 1


def test_rows_of_another_graph_in_the_same_directory_are_not_drawn(tmp_path: Path) -> None:
    other, ours = Pasts({"other": []}, graph="night"), Pasts({"mine": []})
    other.start(1, lambda name: 1.0)
    ours.start(1, lambda name: 1.0, at=BEGAN + 50)
    ours.rows = [*other.rows, *ours.rows]
    past = read(ours.write(tmp_path) / STORE)
    assert [attempt.vertex for start in past.starts for attempt in start.attempts] == ["mine"]


def test_the_store_itself_may_be_named_instead_of_the_directory_of_the_run(sky: Path) -> None:
    assert page(sky / STORE, None) == page(sky, None)


@pytest.mark.proof
def test_a_page_of_many_vertices_and_workers_is_small_and_costs_as_much_as_they_are(tmp_path: Path) -> None:
    """Short attempts are put together in it: twice as many do not make it twice as long."""
    pages: list[str] = []

    def drawn(count: int) -> Callable[[], object]:
        pasts, directory = Pasts(layered([count // 20] * 20)), tmp_path / f"{count}"
        pasts.plan(64, seconds(1.0))
        pasts.start(64, seconds(1.1), until=count / 125)
        pasts.start(64, seconds(1.1), at=BEGAN + 900)
        pasts.write(directory)
        assert sum(len(start.attempts) for start in read(directory / STORE).starts) >= count
        return lambda: pages.append(page(directory, None))

    assert_linear(drawn, 2000)
    assert len(pages[1]) < min(1.7 * len(pages[0]), 3_000_000)
    columns = [each for each in titles(picture(parsed(pages[1]), "gantt")) if re.match(r"\d+ vertices, ", each)]
    assert columns, "short attempts were not put together"
