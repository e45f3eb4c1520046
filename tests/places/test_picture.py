"""The picture of a trace: one page that loads nothing, in which what blocks is the first thing to be seen."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("scipy")

from testbed.drawn import Drawn, Program, judged, pipeline, ring  # noqa: E402
from testbed.sweep import LONG  # noqa: E402

from safepoint.matching.matched import Ints, Matched, Site  # noqa: E402
from safepoint.places import picture  # noqa: E402

HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=2">\'"&\x00\x1b]]>-->'
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """What a browser would make of it: elements, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.inside.setdefault(self.elements[-1][0], []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def data(self) -> Any:
        return json.loads(self.inside["script"][0])


def page(drawn: Drawn, **how: float) -> Page:
    return Page(picture.page(drawn.matched, drawn.judgement, "run.trace", **how))


def by_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [each for each in root.iter() if name in each.get("class", "").split()]


def diagram(drawn: Drawn, **how: float) -> ElementTree.Element:
    return ElementTree.fromstring(picture.svg(drawn.matched, drawn.judgement, **how))


def words(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def titles(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}title")]


@pytest.fixture(scope="module")
def blocked() -> Drawn:
    return pipeline()


@pytest.fixture(scope="module")
def clean() -> Drawn:
    return pipeline(across=False)


# What is to be seen.


def test_what_blocks_is_red_with_both_lines_and_drawn_last(blocked: Drawn) -> None:
    root = diagram(blocked)
    over = by_class(root, "over")[0]
    red, label = list(over)[-2:]
    assert (red.get("class"), label.get("class")) == ("red", "said")
    assert words(label)[0] == "sent solver.py:20 → received solver.py:21"
    assert words(label)[1] == "this message blocks: rank 0 → rank 1, tag 9, 800 B"
    style = "".join(each.text or "" for each in root.iter(f"{SVG}style"))
    assert re.search(r"\.blocking \{ fill: none; stroke: #d3221b; stroke-width: 4.5; \}", style)


def test_the_page_says_first_what_blocks(blocked: Drawn) -> None:
    text = picture.page(blocked.matched, blocked.judgement, "run.trace")
    verdict = 'class="verdict bad">✗ sent solver.py:20 → received solver.py:21: this message blocks'
    assert text.index(verdict) < text.index('class="overview"') < text.index("<table>")


def test_of_several_that_block_the_worst_has_the_label_and_all_are_red(blocked: Drawn) -> None:
    ninth = np.flatnonzero(blocked.matched.messages["tag"] == 9)
    drawn = blocked._replace(judgement=blocked.judgement._replace(blocking=ninth[[3, 2, 4]]))
    root = diagram(drawn, begin=0, end=1)
    assert len(by_class(root, "red")) == 3 and len(by_class(root, "said")) == 1
    assert "It is one of 3." in picture.page(drawn.matched, drawn.judgement, "run.trace")


def test_a_run_with_nothing_wrong_has_no_red_in_it(clean: Drawn) -> None:
    root = diagram(clean)
    assert not by_class(root, "blocking") and not by_class(root, "bad")
    assert "✓ Each hide is at a legal place." in picture.page(clean.matched, clean.judgement, "run.trace")


def test_each_hide_has_a_flag_with_a_tick_or_a_cross(blocked: Drawn) -> None:
    root = diagram(blocked, begin=0, end=1)
    over = by_class(root, "over")[0]
    flags = [each for each in over if "hide" in each.get("class", "")]
    good = [each for each in flags if "good" in each.get("class", "")]
    assert (len(flags), len(good)) == (48, 4)
    corners = {each.get("class"): by_class(each, "sign")[0].get("d", "").count("L") for each in flags}
    assert corners == {"hide good": 2, "hide bad": 4}
    assert sum(title == "hide at solver.py:14: not legal" for title in titles(root)) == 44


def gaps_of(matched: Matched, place: Ints) -> tuple[Ints, Ints]:
    """From when to when the gap of each rank lasts."""
    zero = min(matched.enter.min(), matched.marks["enter"].min(initial=matched.enter.min()))
    begin, end = [], []
    for rank, gap in enumerate(place):
        own = slice(int(matched.begins[rank]), int(matched.begins[rank + 1]))
        begin.append(matched.leave[own][gap - 1] - zero if gap else 0)
        end.append(matched.enter[own][gap] - zero if gap < len(matched.enter[own]) else 2**60)
    return np.array(begin), np.array(end)


def test_a_place_passes_each_rank_within_its_gap_and_is_straight_where_it_can_be(blocked: Drawn) -> None:
    """At each rank a green line is between two neighbouring calls, and these are the gaps of a legal place."""
    matched, judgement = blocked
    root, data = diagram(blocked, begin=0, end=1), page(blocked, begin=0, end=1).data
    gaps = [gaps_of(matched, place) for place in judgement.places]
    left = float(next(root.iter(f"{SVG}clipPath"))[0].get("x", ""))
    scale = data["span"] / (1048 - left)
    lines = by_class(by_class(root, "over")[0], "place")
    assert len(lines) > 50
    for line in lines:
        stops = np.array([float(x) for x in re.findall(r"H(-?[\d.]+)", line.get("d", ""))])
        at = (stops - left) * scale
        fit = [(a, b) for a, b in gaps if (a <= at + 0.1 * scale).all() and (at - 0.1 * scale <= b).all()]
        assert fit and len(stops) == matched.ranks
        assert np.ptp(stops) < 0.2 or all(a.max() > b.min() for a, b in fit)


def random_program(seed: int) -> Matched:
    random = np.random.default_rng(seed)
    program = Program(int(random.integers(1, 5)), seed=seed)
    for _ in range(int(random.integers(1, 25))):
        rank, other = (int(n) for n in random.integers(0, program.ranks, 2))
        if random.random() < 0.2:
            program.collective("Barrier", 3)
        elif random.random() < 0.15:
            program.message(program.call(rank, "Isend", 4), None, to=other)
        else:
            sent = program.call(rank, "Send", 5)
            program.message(sent, program.call(other, "Recv", 6, after=sent))
    return program.matched()


@pytest.mark.parametrize("seed", range(2000 if LONG else 40))
def test_grey_is_where_a_rank_has_no_legal_gap_and_nowhere_else(seed: int) -> None:
    matched = random_program(seed)
    judgement = judged(matched, [], [], np.zeros(0, bool))
    data = page(Drawn(matched, judgement)).data
    grey = {(row, begin, end) for row, begin, end in data["closed"]}
    zero, span, expected = int(matched.enter.min()), data["span"], set()
    for rank in range(matched.ranks):
        own = range(int(matched.begins[rank]), int(matched.begins[rank + 1]))
        legal = set(judgement.places[:, rank].tolist())
        run: list[int] = []
        for gap in range(len(own) + 2):
            if gap <= len(own) and gap not in legal:
                run.append(gap)
            elif run:
                begin = matched.enter[own[run[0] - 1]] - zero if run[0] else 0
                end = matched.leave[own[run[-1]]] - zero if run[-1] < len(own) else span
                expected.add((rank, int(begin), int(end)))
                run = []
    assert grey == expected


@pytest.mark.parametrize("seed", range(2000 if LONG else 25))
def test_the_page_holds_all_calls_messages_and_places_of_a_small_trace(seed: int) -> None:
    matched = random_program(seed)
    judgement = judged(matched, [], [], np.zeros(0, bool))
    data = page(Drawn(matched, judgement)).data
    zero = matched.enter.min()
    enter = np.cumsum(data["enter"])
    assert (enter == matched.enter - zero).all() and (enter + data["lasts"] == matched.leave - zero).all()
    assert data["many"] == np.diff(matched.begins).tolist() and data["first"] == [0] * matched.ranks
    sites = [data["sites"][number][0] for number in data["site"]]
    assert sites == [str(matched.sites[number]) for number in matched.site]
    got = data["messages"]
    assert got["sent"] == matched.messages["sent"].tolist() and got["received"] == matched.messages["received"].tolist()
    gaps, rows, change = list(data["places"]["gaps"]), [], 0
    for many in data["places"]["changes"]:
        for _ in range(many):
            gaps[data["places"]["row"][change]] += data["places"]["by"][change]
            change += 1
        rows.append(list(gaps))
    assert rows == judgement.places.tolist()


KINDS = {
    "send": "Send Isend Bsend Ssend Rsend Ibsend Issend Irsend Send_init Psend_init Sendrecv Sendrecv_replace "
    "send isend",
    "receive": "Recv Irecv Mrecv Imrecv Recv_init Precv_init recv",
    "complete": "Wait Waitall Waitany Waitsome Test Testall Testany Testsome Cancel Request_free",
    "probe": "Probe Iprobe Mprobe Improbe",
    "memory": "Put Get Rput Rget Accumulate Get_accumulate Fetch_and_op Compare_and_swap Win_fence Win_create",
    "collective": "Barrier Ibarrier Bcast Ibcast Gather Gatherv Scatterv Allgatherv Alltoallw Allreduce Ireduce "
    "Reduce_scatter Reduce_scatter_block Scan Iexscan Bcast_init Neighbor_alltoall Ineighbor_allgather Comm_split "
    "Comm_dup Cart_create Dist_graph_create File_open File_write_all Init_thread Finalize Intercomm_create",
    "other": "Start Startall Pcontrol Wtime Get_count",
}


def test_each_function_of_the_standard_has_its_class() -> None:
    names = [(kind, name) for kind, some in KINDS.items() for name in some.split()]
    found = picture.kinds_of([name for _, name in names])
    assert [(picture.KINDS[number].name, name) for number, (_, name) in zip(found, names, strict=True)] == names


def test_classes_of_calls_differ_without_colour() -> None:
    shapes = [(kind.top, kind.high) for kind in picture.KINDS if kind.name != "memory"]  # which is hatched
    assert len(set(shapes)) == len(shapes) and len({kind.letter for kind in picture.KINDS}) == len(picture.KINDS)


# What a trace may hold.


def test_hostile_names_are_text_and_nothing_else() -> None:
    """The name of a file, a function, a communicator, of the trace and of a line of the table."""
    matched, judgement = pipeline(6, file=HOSTILE)
    matched = matched._replace(
        functions=[HOSTILE + name for name in matched.functions], objects=[HOSTILE], remarks=[HOSTILE],
        sites=[site._replace(function=HOSTILE) for site in matched.sites],
    )  # fmt: skip
    lines = [line._replace(where=HOSTILE, verdict=HOSTILE, site=Site(HOSTILE, 1, HOSTILE)) for line in judgement.lines]
    judgement = judgement._replace(lines=lines, heads=[HOSTILE], remarks=[HOSTILE])
    found = Page(picture.page(matched, judgement, HOSTILE))
    assert [attributes.get("type") for attributes in found.all("script")] == ["application/json", None]
    assert not found.all("img") and not [key for _, every in found.elements for key in every if key.startswith("on")]
    assert found.data["functions"][0].startswith(HOSTILE) and found.data["objects"] == [HOSTILE]
    assert any("</script>" in title for title in titles(ElementTree.fromstring(picture.svg(matched, judgement))))


def test_a_message_that_is_never_received_is_dashed_to_the_end() -> None:
    program = Program(2)
    program.message(program.call(0, "Send", 5), None, to=1)
    program.collective("Barrier", 7)
    matched = program.matched()
    matched.messages["bytes"] = 2**64 - 1
    root = diagram(Drawn(matched, judged(matched, [0], [], np.zeros(0, bool))))
    assert words(by_class(root, "said")[0]) == [
        "sent solver.py:5 → never received", "this message blocks: rank 0 → rank 1, tag 5",
    ]  # fmt: skip
    assert len(by_class(root, "lost")) == 1


def test_a_receive_without_its_send_comes_from_the_beginning() -> None:
    program = Program(2)
    program.call(0, "Barrier", 3)
    program.message(None, program.call(1, "Recv", 6))
    matched = program.matched()
    matched.messages["source"] = 0
    drawn = Drawn(matched, judged(matched, [0], [], np.zeros(0, bool)))
    assert words(by_class(diagram(drawn), "said")[0])[0] == "never sent → received solver.py:6"
    assert page(drawn).data["messages"]["begin"] == [0]


def test_a_message_to_itself_is_a_bow() -> None:
    program = Program(1)
    sent = program.call(0, "Isend", 5)
    program.message(sent, program.call(0, "Recv", 6))
    matched = program.matched()
    root = diagram(Drawn(matched, judged(matched, [0], [], np.zeros(0, bool))))
    line = by_class(by_class(root, "over")[0], "blocking")[0]
    x0, y0, _, bend, x1, y1 = map(float, re.findall(r"-?[\d.]+", line.get("d", "")))
    assert y0 == y1 > bend and x0 < x1


def test_a_call_that_has_not_returned_lasts_to_the_end() -> None:
    program = Program(2)
    program.call(0, "Recv", 5)
    program.call(1, "Barrier", 6, us=500)
    matched = program.matched()
    matched.leave[0] = 0
    drawn = Drawn(matched, judged(matched, [], [], np.zeros(0, bool)))
    assert page(drawn).data["lasts"][0] == -1
    bar = by_class(by_class(diagram(drawn), "row")[0], "receive")[0].get("d", "")
    x, wide = (float(number) for number in re.findall(r"[Mh](-?[\d.]+)", bar)[:2])
    assert x + wide == pytest.approx(1048, abs=0.2)


def test_an_empty_trace_has_a_page() -> None:
    program = Program(2)
    matched = program.matched()
    judgement = judged(matched, [], [], np.zeros(0, bool))
    found = Page(picture.page(matched, judgement, "run.trace"))
    assert found.data["many"] == [0, 0]
    assert ElementTree.fromstring(picture.svg(matched, judgement)).tag == f"{SVG}svg"


def test_with_no_legal_place_all_is_grey(blocked: Drawn) -> None:
    judgement = blocked.judgement._replace(places=blocked.judgement.places[:0])
    data = page(Drawn(blocked.matched, judgement)).data
    assert data["closed"] == [[row, 0, data["span"]] for row in range(4)] and data["places"]["at"] == []


# One page, from a disk, of bearable size.


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(blocked: Drawn) -> None:
    found = page(blocked)
    policy = next(each["content"] or "" for each in found.all("meta") if each.get("http-equiv"))
    hashes = {
        kind: f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for kind, text in (("style", found.inside["style"][0]), ("script", found.inside["script"][1]))
    }
    assert policy == (
        f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']}; base-uri 'none'; "
        "form-action 'none'"
    )
    assert not [key for _, every in found.elements for key in every if key in ("src", "href", "style", "srcset")]


def test_the_svg_alone_has_the_colours_of_paper_and_no_script(blocked: Drawn) -> None:
    text = picture.svg(blocked.matched, blocked.judgement)
    assert "var(" not in text and "@media" not in text and "<script" not in text and "url(http" not in text
    assert ElementTree.fromstring(text).find(f"{SVG}desc").text.startswith("4 ranks, 880 calls")  # type: ignore[union-attr]


def test_of_a_million_calls_the_page_is_small() -> None:
    large = ring(83_334, 4, late=50_000)
    assert large.matched.actions > 1_000_000
    text = picture.page(large.matched, large.judgement, "run.trace")
    assert len(text.encode()) < 3_000_000
    assert sum(Page(text).data["many"]) <= 20_004  # a call that is under way when the window begins is one more


@pytest.fixture(scope="module")
def long() -> Drawn:
    return ring(5_000, 4, late=3_000)


def test_a_long_trace_is_shown_around_what_blocks(long: Drawn) -> None:
    text = picture.page(long.matched, long.judgement, "run.trace")
    data = Page(text).data
    assert data["messages"]["labels"][0][0] == "sent ring.py:8 → received ring.py:9"
    begin = data["messages"]["begin"][0]
    assert data["view"][0] < begin < begin + data["messages"]["under_way"][0] < data["view"][1]
    assert "This page holds 0.13" in text


def test_without_a_message_that_blocks_it_is_around_the_first_hide_that_is_not_legal(long: Drawn) -> None:
    legal = long.judgement.marks_legal.copy()
    legal[[70, 30]] = False
    judgement = long.judgement._replace(blocking=long.judgement.blocking[:0], marks_legal=legal)
    data = page(Drawn(long.matched, judgement)).data
    enter = int(long.matched.marks["enter"][[70, 30]].min() - long.matched.marks["enter"].min())
    assert data["view"][0] + data["begin"] <= enter <= data["view"][1] + data["begin"]


def test_another_window_may_be_asked_for_and_is_cut_if_it_is_too_long(long: Drawn) -> None:
    data = page(long, begin=0.1, end=0.11).data
    assert (data["begin"], data["end"]) == (10**8, 10**7) and 1900 < sum(data["many"]) < 2100
    data = page(long, begin=0.05).data
    assert data["begin"] == 5 * 10**7 and 19_990 <= sum(data["many"]) <= 20_004
    assert data["messages"]["labels"] == []


def test_what_is_under_way_when_the_window_begins_is_drawn(long: Drawn) -> None:
    rank1 = slice(int(long.matched.begins[1]), int(long.matched.begins[2]))
    zero = int(long.matched.marks["enter"].min())
    call = 3000
    middle = (long.matched.enter[rank1][call] + long.matched.leave[rank1][call]) / 2 - zero
    assert page(long, begin=middle / 1e9, end=middle / 1e9 + 0.001).data["first"][1] == call


def test_bars_closer_than_a_pixel_are_one_and_say_of_how_many(long: Drawn) -> None:
    root = diagram(long, begin=0.14, end=0.22)
    for row in by_class(root, "row"):
        found = re.fullmatch(r"rank \d: (\d+) calls in view, drawn as (\d+) bars", row.get("aria-label", ""))
        assert found and int(found[1]) > 3900 and int(found[2]) < 3 * 1060
        drawn = sum(path.get("d", "").count("M") for path in row.iter(f"{SVG}path") if path.get("class") != "closed")
        assert drawn == int(found[2])
    assert any(re.fullmatch(r"\d+ legal places, too close to be drawn apart", title) for title in titles(root))


@pytest.fixture(scope="module")
def many() -> Drawn:
    return ring(400, 200, late=100, wide=7)


def test_of_very_many_ranks_each_band_shows_the_least_median_and_most_advanced(many: Drawn) -> None:
    data = page(many).data
    assert len(data["labels"]) <= 64
    found = [re.fullmatch(r"(\d+)–(\d+) (least|median|most): (\d+)", label) for label in data["labels"]]
    middle = int(many.matched.marks["enter"].min()) + data["begin"] + sum(data["messages"]["under_way"][:1]) // 2
    middle += data["messages"]["begin"][0]
    share = [int((many.matched.enter[a:b] < middle).sum())
             for a, b in zip(many.matched.begins[:-1], many.matched.begins[1:], strict=True)]  # fmt: skip
    bands: dict[tuple[int, int], dict[str, int]] = {}
    for each in filter(None, found):
        bands.setdefault((int(each[1]), int(each[2])), {})[each[3]] = share[int(each[4])]
    assert len(bands) == 16
    for (first, last), picked in bands.items():
        own = sorted(share[first : last + 1])
        assert picked["least"] == own[0] and picked["most"] == own[-1] and picked["median"] == own[len(own) // 2]


def test_the_ranks_of_what_blocks_always_have_a_row(many: Drawn) -> None:
    data = page(many).data
    assert {0, 1} <= set(data["ranks"]) and data["messages"]["labels"]
    assert "of 200 ranks are drawn" in picture.page(many.matched, many.judgement, "run.trace")


def test_the_visits_of_a_line_are_at_the_times_of_their_ranks(blocked: Drawn) -> None:
    data = page(blocked).data
    zero = min(blocked.matched.enter.min(), blocked.matched.marks["enter"].min())
    for got, line in zip(data["lines"], blocked.judgement.lines, strict=True):
        assert np.cumsum(got["times"], axis=1).tolist() == (line.times - zero).tolist()
        assert got["legal"] == line.legal.astype(int).tolist() and got["every"] == 1
    text = picture.page(blocked.matched, blocked.judgement, "run.trace")
    assert text.count('class="bad">✗ blocked</td>') == 2
    assert text.count('class="n">1 of 60</td>') == 1 and text.count('class="n">1 of 12</td>') == 1


def test_very_many_visits_are_thinned_and_counted(long: Drawn) -> None:
    got = page(long._replace(judgement=long.judgement._replace(lines=long.judgement.lines * 9))).data["lines"]
    assert all(line["every"] > 1 and line["seen"] > 1600 and line["visits"] == 5_000 for line in got)
    assert sum(len(line["times"]) * 4 for line in got) <= 60_000


def test_rows_can_be_reached_and_are_named_for_those_who_cannot_see(blocked: Drawn) -> None:
    root = diagram(blocked)
    rows = by_class(root, "row")
    assert [row.get("tabindex") for row in rows] == ["0"] * 4 and all(row.get("aria-label") for row in rows)
    said = root.find(f"{SVG}desc").text or ""  # type: ignore[union-attr]
    assert "rank 0 → rank 1" in said


@pytest.mark.parametrize("times", [1, 10**3, 10**6, 10**9])
def test_a_trace_of_any_length_has_a_page(times: int) -> None:
    matched, judgement = pipeline()
    marks = matched.marks.copy()
    for name in ("enter", "leave"):
        marks[name] *= times
    longer = matched._replace(enter=matched.enter * times, leave=matched.leave * times, marks=marks)
    assert "<svg" in picture.page(longer, judgement._replace(lines=[]), "long")
