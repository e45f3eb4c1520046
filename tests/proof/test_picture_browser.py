"""The page of a trace in a real browser: what is seen first, what mouse and keys do; nothing is loaded, nothing fails.

Chromium is driven through its own protocol on two pipes, so nothing but the browser is needed.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("scipy")

from testbed.drawn import Drawn, pipeline, ring  # noqa: E402

from safepoint.matching.matched import Site  # noqa: E402
from safepoint.places import picture  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("needs chromium (Debian: apt-get install chromium)", allow_module_level=True)
PATIENCE_S = 300
SHOTS = os.environ.get("SAFEPOINT_SHOTS")  # a directory that gets a picture of each page


class Browser:
    """One page of a browser without a window."""

    def __init__(self, directory: str) -> None:
        read, self.to = os.pipe()
        self.back, write = os.pipe()

        def ends() -> None:  # the browser reads from 3 and writes to 4
            low, high = os.dup(read), os.dup(write)
            os.dup2(low, 3)
            os.dup2(high, 4)

        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")
        command = [str(CHROMIUM), *flags, "--remote-debugging-pipe", f"--user-data-dir={directory}", "about:blank"]
        self.process = subprocess.Popen(
            command, preexec_fn=ends, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read)
        os.close(write)
        self.numbers, self.rest, self.session = itertools.count(1), b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.size(1280, 800)

    def ask(self, method: str, **how: Any) -> dict[str, Any]:
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": how} | (
            {"sessionId": self.session} if self.session else {}
        )
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            assert select.select([self.back], [], [], PATIENCE_S)[0], "the browser says nothing"
            more = os.read(self.back, 1 << 20)
            assert more, "the browser has gone"
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(line))

    def open(self, path: Path, *, script: bool = True) -> None:
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.read())
        if script:
            self.settle()
        self.ask("Emulation.setScriptExecutionDisabled", value=False)

    def settle(self) -> None:
        """Until what was asked for has been drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, script: str) -> Any:
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def size(self, width: int, height: int) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def mouse(self, kind: str, x: float, y: float, **how: Any) -> None:
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **how)
        self.settle()

    def drag(self, x: float, y: float, to: float) -> None:
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseMoved", to, y, button="left", buttons=1)
        self.mouse("mouseReleased", to, y, button="left", clickCount=1)

    def click(self, x: float, y: float) -> None:
        self.drag(x, y, x)

    def key(self, key: str) -> None:
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def box(self, selector: str, number: int = 0) -> tuple[float, float, float, float]:
        """Left, top, width, height of an element."""
        found = self.run(
            "(({ left, top, width, height }) => [left, top, width, height])"
            f"(document.querySelectorAll({json.dumps(selector)})[{number}].getBoundingClientRect())"
        )
        return tuple(found)

    def middle(self, selector: str, number: int = 0) -> tuple[float, float]:
        left, top, width, height = self.box(selector, number)
        return left + width / 2, top + height / 2

    def count(self, selector: str) -> int:
        return int(self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def view(self) -> tuple[float, float]:
        """What is seen of the trace, as shares of the overview."""
        x, width = self.run(
            "['x', 'width'].map((name) => Number(document.querySelector('.overview .view').getAttribute(name)))"
        )
        return x / 1000, (x + width) / 1000

    def shot(self, name: str) -> bytes:
        picture = base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])
        if SHOTS:
            Path(SHOTS, f"{name}.png").write_bytes(picture)
        return picture


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        browser = Browser(directory)
        yield browser
        browser.session = ""
        browser.ask("Browser.close")
        browser.process.wait(PATIENCE_S)
        os.close(browser.to)
        os.close(browser.back)


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """After each test: nothing was asked of any network, and the page complained of nothing."""
    chromium.size(1280, 800)
    yield chromium
    chromium.settle()
    wanted = {
        event["params"]["request"]["url"] for event in chromium.events if event["method"] == "Network.requestWillBeSent"
    }
    assert all(url.startswith("file:") and url.endswith("page.html") for url in wanted), wanted
    bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    assert [event["params"] for event in chromium.events if event["method"] in bad] == []


def show(browser: Browser, directory: Path, drawn: Drawn, *, script: bool = True) -> None:
    path = directory / "page.html"
    path.write_text(picture.page(drawn.matched, drawn.judgement, "run.trace"), "utf-8")
    browser.open(path, script=script)


@pytest.fixture
def blocked(browser: Browser, tmp_path: Path) -> Browser:
    show(browser, tmp_path, pipeline())
    return browser


def test_what_blocks_is_in_view_red_thick_and_labelled(blocked: Browser) -> None:
    left, top, width, height = blocked.box(".over .label")
    assert left >= 0 and top >= 0 and left + width <= 1280 and top + height <= 800
    words = blocked.run("[...document.querySelectorAll('.over .said text')].map((each) => each.textContent)")
    assert words[0] == "sent solver.py:20 → received solver.py:21"
    style = blocked.run(
        "(({ stroke, strokeWidth }) => [stroke, strokeWidth])"
        "(getComputedStyle(document.querySelector('.over .blocking')))"
    )
    assert style == ["rgb(211, 34, 27)", "4.5px"]
    _, _, wide, high = blocked.box(".over .blocking")
    assert wide > 40 and high > 40
    blocked.shot("blocked-light")


def test_the_wheel_zooms_at_the_pointer(blocked: Browser) -> None:
    left, top, width, _ = blocked.box(".diagram .back")
    x = left + 0.6 * width
    name = blocked.run("Number(document.querySelector('#plot rect').getAttribute('x'))")
    share = (x - left - name) / (width - name)

    def pointed() -> float:
        begin, end = blocked.view()
        return begin + share * (end - begin)

    before, (begin, end) = pointed(), blocked.view()
    blocked.mouse("mouseWheel", x, top + 40, deltaX=0, deltaY=-300)
    near, far = blocked.view()
    assert far - near < 0.7 * (end - begin) and abs(pointed() - before) < 0.003 * (end - begin)
    blocked.mouse("mouseWheel", x, top + 40, deltaX=0, deltaY=400)
    assert blocked.view()[1] - blocked.view()[0] > far - near


def test_dragging_moves_the_diagram_with_the_pointer(blocked: Browser) -> None:
    blocked.key("ArrowRight")
    begin, end = blocked.view()
    left, top, width, _ = blocked.box(".diagram .back")
    blocked.drag(left + 600, top + 60, left + 400)
    after = blocked.view()
    name = blocked.run("Number(document.querySelector('#plot rect').getAttribute('x'))")
    assert after[0] - begin == pytest.approx(200 / (width - name) * (end - begin), rel=0.02)
    assert after[1] - after[0] == pytest.approx(end - begin, rel=1e-6)


def test_keys_zoom_move_and_show_all(blocked: Browser) -> None:
    views = [blocked.view()]
    for key in ("+", "-", "ArrowRight", "ArrowLeft", "0", "t"):
        blocked.key(key)
        views.append(blocked.view())
    wide = [end - begin for begin, end in views]
    assert wide[1] < wide[0] and wide[2] == pytest.approx(wide[0], rel=0.01)
    assert views[3][0] > views[2][0] and views[4][0] == pytest.approx(views[2][0], abs=1e-4)
    assert views[5] == (0, 1) and views[6] == pytest.approx(views[0], abs=1e-4)


def test_buttons_do_what_keys_do(blocked: Browser) -> None:
    first = blocked.view()
    for number, holds in ((0, lambda b, e: e - b < first[1] - first[0]), (4, lambda b, e: (b, e) == (0, 1))):
        blocked.click(*blocked.middle(".bar button", number))
        assert holds(*blocked.view())
    assert blocked.run("[...document.querySelectorAll('.bar button')].every((each) => each.ariaLabel)")


def test_a_click_on_a_line_shows_its_visits_and_another_hides_them(blocked: Browser) -> None:
    blocked.click(*blocked.middle("tr[data-line='1'] td", 2))
    visits = blocked.count(".visit")
    assert visits >= 4 and blocked.count(".spot.bad") + blocked.count(".spot.good") == visits
    assert blocked.run("document.querySelector(\"tr[data-line='1'] button\").ariaPressed") == "true"
    assert blocked.text("output") == "top of loop: 60 of 60 visits on this page"
    blocked.shot("visits")
    blocked.run("document.querySelector(\"tr[data-line='1'] button\").focus()")
    blocked.key("Enter")
    assert blocked.count(".visit") == 0


def test_hovering_tells_of_what_is_there(blocked: Browser) -> None:
    left, top, width, height = blocked.box(".over .blocking")
    blocked.mouse("mouseMoved", left + width / 2, top + height / 2)
    said = blocked.text(".tip")
    for words in (
        "This message blocks",
        "sent solver.py:20 at",
        "received solver.py:21 at",
        "tag 9",
        "800 B",
        "MPI_COMM_WORLD",
    ):
        assert words in said, said
    left, top, width, height = blocked.box(".row .send", 2)
    blocked.mouse("mouseMoved", left + 3, top + 5)
    said = blocked.text(".tip")
    assert said.startswith("Isend\nsolver.py:16 in step\nrank 2, at 0.0000") and "received solver.py:17" in said
    blocked.mouse("mouseMoved", *blocked.middle(".over .hide .pennant"))
    assert "hide, not legal\nsolver.py:14 in step, step 5, at" in blocked.text(".tip")
    blocked.mouse("mouseMoved", 4, 4)
    assert blocked.run("document.querySelector('.tip').hidden")


def test_calls_can_be_told_of_without_a_mouse(blocked: Browser) -> None:
    blocked.run("document.querySelectorAll('.row')[1].focus()")
    blocked.key(".")
    assert blocked.text("output").startswith("Isend · solver.py:16 in step · rank 1, at")
    blocked.key(".")
    assert blocked.text("output").startswith("Recv · solver.py:17 in step · rank 1, at")
    blocked.key(",")
    assert blocked.text("output").startswith("Isend") and not blocked.run("document.querySelector('.tip').hidden")


def test_a_million_calls_are_moved_through(browser: Browser, tmp_path: Path) -> None:
    drawn = ring(83_334, 4, late=50_000)
    show(browser, tmp_path, drawn)
    assert browser.count(".over .blocking") == 1
    browser.key("0")
    for _ in range(20):
        browser.key("+")
    browser.shot("million")
    left, top, width, height = browser.box(".overview")
    browser.click(left + width * 0.601, top + height / 2)
    first, last = browser.view()
    assert (first + last) / 2 == pytest.approx(0.601, abs=0.002)
    browser.click(left + width * 0.2, top + height / 2)
    assert browser.view() == (first, last) and "is not on this page: safepoint places --from" in browser.text("output")


def test_two_hundred_ranks_fit(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, ring(400, 200, late=100, wide=7))
    assert browser.count(".row") <= 64 and browser.count(".over .blocking") == 1
    assert browser.box(".diagram")[3] < 800
    browser.shot("ranks")


def test_dark_and_light_follow_the_system(blocked: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert blocked.run(ground) == "rgb(255, 255, 255)"
    blocked.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert blocked.run(ground) == "rgb(20, 24, 31)"
    blocked.settle()
    blocked.shot("blocked-dark")
    blocked.ask("Emulation.setEmulatedMedia", features=[])


def test_names_that_are_markup_do_nothing(browser: Browser, tmp_path: Path) -> None:
    hostile = '</script><script>window.hacked=1</script><img src="http://localhost:9/x" onerror="window.hacked=2">'
    matched, judgement = pipeline(6, file=hostile)
    lines = [line._replace(where=hostile, site=Site(hostile, 1, hostile)) for line in judgement.lines]
    matched = matched._replace(objects=[hostile], functions=[hostile + name for name in matched.functions])
    show(browser, tmp_path, Drawn(matched, judgement._replace(lines=lines, heads=[hostile], remarks=[hostile])))
    browser.mouse("mouseMoved", *browser.middle(".over .blocking"))
    browser.click(*browser.middle("tr[data-line='1'] td", 2))
    assert "window.hacked" in browser.text(".tip") + browser.text("output")
    assert browser.run("window.hacked === undefined") and browser.count("img") == 0


@pytest.mark.parametrize("which", ["blocked", "clean", "many ranks"])
def test_without_its_script_the_page_shows_the_same(browser: Browser, tmp_path: Path, which: str) -> None:
    """`picture.js` draws what `picture.py` does, as far as both are seen to the pixel."""
    seen = (
        "({ rows: [...document.querySelectorAll('.row')].map((each) => each.ariaLabel),"
        " paths: ['.over .place', '.over .blocking', '.over .message', '.row .closed', '.over .sign', '.row .send',"
        " '.grid', '.letter', '.over .label'].map((name) => [...document.querySelectorAll(name)].flatMap((each) =>"
        " [...(each.getAttribute('d') ?? ['x', 'x1'].map((key) => each.getAttribute(key) ?? '').join())"
        ".matchAll(/-?[\\d.]+/g)].map(Number))),"
        " width: document.querySelector('figure').clientWidth })"
    )
    drawn = ring(400, 200, late=100, wide=7) if which == "many ranks" else pipeline(across=which == "blocked")
    found = []
    browser.size(1321, 1300)  # the figure is as wide as the one in the file
    for script in (False, True):
        show(browser, tmp_path, drawn, script=script)
        found.append(browser.run(seen))
    assert found[0]["width"] == 840 and found[0]["rows"] == found[1]["rows"]
    for still, moving in zip(found[0]["paths"], found[1]["paths"], strict=True):
        assert sorted(still) == pytest.approx(sorted(moving), abs=0.2)


def test_it_prints(blocked: Browser) -> None:
    pdf = base64.b64decode(blocked.ask("Page.printToPDF", landscape=True, printBackground=False)["data"])
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type ?/Page\b", pdf)) <= 2
    if SHOTS:
        Path(SHOTS, "print.pdf").write_bytes(pdf)
