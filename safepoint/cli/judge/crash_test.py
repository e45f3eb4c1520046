"""`safepoint crash-test`: does a run that is killed and resumed end as the uninterrupted one?

Four runs, each in a copy of the directory: A undisturbed, R in which `hide` does nothing, since what it moves away may
be missed by a program that is never killed too, B killed again and again, and C undisturbed once more, as the control:
a program whose results differ by themselves says nothing about its restarts. All that counts is what the
ledgers say of each set and each watched value, and the files at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.judge.compare import DIFFERENT, UNDECIDED, atol, exclude, make_rules, rtol, tolerance
from safepoint.cli.judge.trial import ALONE, Ended, Trial, advice, check_source, links_outside
from safepoint.errors import SafepointError
from safepoint.ledger import verdict
from safepoint.ledger.compare import Comparison, Rules, compare
from safepoint.ledger.contents import Difference
from safepoint.ledger.contents import compare as compare_files
from safepoint.ledger.kept import Sets
from safepoint.ledger.sides import Side
from safepoint.threads import restarted

SLOWER = 10  # times as long as the undisturbed run a life may take
GRACE = 60.0  # seconds more
SCATTER = 3.0  # times as far as two undisturbed runs are apart is still taken for chance


@dataclass
class Result:
    """One run compared with A: by the ledgers, and file by file at the end (only those that differ)."""

    name: str
    ledger: Comparison
    files: dict[str, Difference | None] = field(default_factory=dict)  # None: only one of them has it
    same: int = 0
    unlisted: set[str] = field(default_factory=set)  # of these files, those that the manifest does not name
    region: str = ""  # the first wrong one of its last life, of a program whose regions are recorded

    @property
    def differs(self) -> bool:
        return self.ledger.differs or bool(self.files)


@dataclass
class Verdict:
    """`code`: 0 equal, 1 differs, 2 could not tell."""

    code: int
    name: str  # equal, differs, fails after a restart, not deterministic, no restart, no run
    text: str
    lines: list[str] = field(default_factory=list)
    look: str = ""
    result: Result | None = None


@click.command(
    "crash-test", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)  # fmt: skip
@click.option("--dir", "directory", default=".", metavar="DIR", help="Where the manifest is, and the command starts.")
@click.option("--kills", default=10, metavar="N", type=click.IntRange(min=1), help="How often to kill. Default: 10.")
@click.option("--seed", type=int, metavar="S", help="Of the random instants. Default: another one each time.")
@click.option("--one-rank", is_flag=True, help="Kill one rank at a time, not all processes.")
@click.option("--compare", "more", multiple=True, metavar="FILE", help="A file to compare at the end too; a glob.")
@rtol
@atol
@tolerance
@exclude
@click.option("--keep", default="all", metavar="N", help="How many sets a run keeps. Default: all, to compare values.")
@click.option("--time-limit", type=float, metavar="SECONDS", help="For each run. Default: ten times that of A.")
@click.option("--work", metavar="PATH", help="A new directory for the runs, which stays. Default: a temporary one.")
@terminal.as_json
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def crash_test(
    ctx: click.Context, directory: str, kills: int, seed: int | None, one_rank: bool, more: Sequence[str], rtol: float,
    atol: float, tolerances: Sequence[str], exclude: Sequence[str], keep: str, time_limit: float | None,
    work: str | None, as_json: bool, command: tuple[str, ...],
) -> None:  # fmt: skip
    """Does a run of COMMAND that is killed and resumed equal the uninterrupted one?

    COMMAND is run to its end four times, in copies of DIR, so it must name its files relative to it: A undisturbed; R
    where hide leaves all files alone; B killed N times at random instants and started again with the same line each
    time; C undisturbed. If R or B differs, the first step, file and value that does is named, and where in the program
    it was saved. Runs that differ stay, with all their sets, for a closer look. Exit code 0: equal; 1: not; 2: could
    not tell, as A and C differ too, no restart ever found a set, or A does not come to its end.
    """
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is not signal.SIG_IGN:
            # So that no run goes on, and no copy stays.
            before = signal.signal(number, lambda number, _: sys.exit(128 + number))
            ctx.call_on_close(partial(signal.signal, number, before or signal.SIG_DFL))
    rules = make_rules(rtol, atol, tolerances, exclude)
    check_source(directory, work or tempfile.gettempdir(), command)
    seed = int(time.time_ns() % 1_000_000) if seed is None else seed
    if work:
        os.mkdir(work, 0o700)  # as mkdtemp: the directory that is copied may be closed to others
    top = os.path.realpath(work or tempfile.mkdtemp(prefix="safepoint-crash-test-"))
    trials = {name: Trial(name, top, command) for name in f"{ALONE}ABCD"}
    test = CrashTest(trials, os.path.realpath(directory), keep, rules, tuple(more), time_limit)
    try:
        found = test.run(kills, seed, one_rank)
    except BaseException:
        if not work:
            shutil.rmtree(top, ignore_errors=True)
        raise
    stays = work is not None or found.code != 0
    if as_json:
        terminal.put(_json(found, test, seed, top if stays else None))
    else:
        _show(found, test, seed, top if stays else "")
    if not stays:
        shutil.rmtree(top, ignore_errors=True)
    ctx.exit(found.code)


@dataclass
class CrashTest:
    trials: dict[str, Trial]
    source: str
    keep: str
    rules: Rules
    more: tuple[str, ...]
    limit: float | None

    def run(self, kills: int, seed: int, one: bool) -> Verdict:
        a, b, c = (self.trials[name] for name in "ABC")
        for path in links_outside(self.source):
            _say(f"{path} is a link to elsewhere: all runs share it, and what they write there")
        try:
            self._undisturbed(a, "undisturbed")
            self._side("A")
        except (Ended, SafepointError) as error:
            return Verdict(UNDECIDED, "no run", f"the undisturbed run says nothing: {error}")
        limit = self.limit or SLOWER * a.seconds + GRACE
        if effect := None if a.sampled() else self._effect(limit):
            return effect
        _say(f"B, to be killed {words.count(kills, 'time')}: {' '.join(b.command)}")
        b.copy(self.source, self.keep)
        try:
            b.killed(a, kills, seed, one, limit, lambda text: _say(f"B: {text}"))
        except Ended as error:
            return self._failed(b, error)
        if not b.restarts():
            why = f"B was killed {words.count(len(b.kills), 'time')}, but no start of it has restored a set"
            return Verdict(UNDECIDED, "no restart", f"{why}: does it call restore, and save before it is killed?")
        found = self._compare("B")
        self._control(c, limit)
        control = self._compare("C")
        self._unlisted(found)
        if found.differs and not control.differs:  # chance may have made them equal
            _say("B differs; one more control, to be sure")
            self._control(self.trials["D"], limit)
            control = self._compare("D")
        return self._judge(found, control)

    def _effect(self, limit: float) -> Verdict | None:
        """What is otherwise at the end where no set was ever taken, and so nothing was moved away."""
        a, r = self.trials["A"], self.trials[ALONE]
        try:
            self._undisturbed(r, "without sets", limit)
        except Ended as error:
            return Verdict(UNDECIDED, "no run", f"without sets it does not come to its end: {error}")
        if not (found := self._at_the_end(Result(ALONE, Comparison()))).files:
            return None
        self._control(self.trials["C"], limit)
        if (control := self._compare("C")).files:
            return self._judge(found, control)
        text = "differs without any kill: the program does not end as it does if hide leaves its files alone"
        lines = [f"list {advice(path, r, a)}" for path in found.files]
        return Verdict(DIFFERENT, "differs without a kill", text, [*self._lines(found), *lines], result=found)

    def _unlisted(self, found: Result) -> None:
        """Files that nobody has listed, and that B has otherwise: they count if the control has them as A has."""
        a, b, c = (self.trials[name].others(self.more) for name in "ABC")
        for path in sorted(a.keys() & c.keys()):
            if not self.rules.excluded(path) and compare_files(a[path], c[path], path).same_bytes:
                if path not in b:
                    found.files[path] = None
                    found.unlisted.add(path)
                    continue
                difference = compare_files(a[path], b[path], path, *self.rules.tolerance(path))
                if not difference.equal:
                    found.files[path] = difference
                    found.unlisted.add(path)

    def _undisturbed(self, trial: Trial, how: str, limit: float | None = None) -> None:
        _say(f"{trial.name}, {how}: {' '.join(trial.command)}")
        trial.copy(self.source, self.keep)
        trial.run(limit or self.limit)
        _say(f"{trial.name}: {trial.seconds:.1f} s")

    def _control(self, trial: Trial, limit: float) -> None:
        try:
            self._undisturbed(trial, "undisturbed, as the control", limit)
        except Ended as error:
            raise SafepointError(f"the undisturbed run came to its end once, and not again: {error}") from error

    def _side(self, name: str) -> Side:
        return Side(self.trials[name].work)

    def _failed(self, b: Trial, error: Ended) -> Verdict:
        times = words.count(len(b.kills), "kill")
        text = f"after {times} and {words.count(b.restarts(), 'restart')} B does not come to its end: {error}"
        return Verdict(DIFFERENT, "fails after a restart", text)

    def _compare(self, name: str) -> Result:
        """A and this run."""
        sides = self._side("A"), self._side(name)
        sets = Sets(*sides)
        result = Result(name, compare(*sides, self.rules, sets))
        if result.ledger.sampled:  # the sets of `safepoint run` are those that were caught
            result.ledger = Comparison(sampled=True, restarts=result.ledger.restarts, ranks=result.ledger.ranks)
        verdict.explain(result.ledger, self.rules, sets)
        return self._at_the_end(result)

    def _at_the_end(self, result: Result) -> Result:
        """Compare the files of A and of this run."""
        of_a, of_b = (self.trials[n].results(self.more) for n in ("A", result.name))
        for path in sorted(of_a.keys() | of_b.keys()):
            if self.rules.excluded(path):
                continue
            difference = None
            if path in of_a and path in of_b:
                difference = compare_files(of_a[path], of_b[path], path, *self.rules.tolerance(path))
                if difference.equal:
                    result.same += 1
                    continue
            result.files[path] = difference
        return result

    def _judge(self, b: Result, control: Result) -> Verdict:
        compared = f"{words.count(b.ledger.steps, 'step')} and {words.count(b.same + len(b.files), 'file')}"
        if control.differs:
            text = "not deterministic even without restarts: two undisturbed runs differ too"
            return Verdict(
                UNDECIDED, "not deterministic", text, self._lines(control), self._scatter(b, control), control
            )
        if not b.ledger.steps and not b.same and not b.files:
            return Verdict(UNDECIDED, "no run", "there is nothing to compare: no step and no file of both")
        if b.ledger.late or (b.ledger.only[1] and not b.ledger.resumed):
            text = "B has saved at other steps than A since its first restart, so nothing of it can be compared"
            return Verdict(UNDECIDED, "no run", text, result=b)
        if not b.differs:
            within = ", within the tolerance" if b.ledger.tolerated else ""
            times = words.count(b.ledger.restarts[1], "time")
            text = f"equal: resumed {times}, and all of {compared} as in the uninterrupted run{within}"
            return Verdict(0, "equal", text, result=b)
        if b.ledger.differs:
            look = verdict.where_to_look(b.ledger, self._side("A"), Sets(self._side("A"), self._side("B")))
        else:
            look = self._look_at_the_end(b)
        text = "differs: a run that is killed and resumed does not end as the uninterrupted one"
        return Verdict(DIFFERENT, "differs", text, self._lines(b), look, b)

    def _look_at_the_end(self, b: Result) -> str:
        a, other = (self.trials[name].work for name in "AB")
        for path in b.files:
            if look := verdict.twice(path, *(verdict.small(os.path.join(work, path)) for work in (a, other))):
                return look
        if b.unlisted == set(b.files):
            names = ", ".join(sorted(b.unlisted)[:4])
            return (
                f"All that is listed is equal. A restart does not give back what is not in the manifest: list {names}."
            )
        return (
            "All sets are equal, only the end is not: what is written after the last set depends on more than what was "
            "restored."
        )

    def _lines(self, result: Result) -> list[str]:
        lines = verdict.told(result.ledger, ("A", result.name)) if result.ledger.differs else []
        for path, difference in result.files.items():
            listed = " (not in the manifest)" if path in result.unlisted else ""
            lines.append(f"at the end {path}{listed}: {difference.text if difference else 'only one of them has it'}")
        result.region = restarted.first_wrong(*(self.trials[name].trace for name in ("A", result.name)))
        return [*lines, result.region] if result.region else lines

    def _scatter(self, b: Result, control: Result) -> str:
        """Whether B is further from A than C is, and so perhaps wrong too."""
        beyond: list[str] = []
        within: list[str] = []
        for path, difference in b.files.items():
            chance = control.files.get(path)
            apart = (_largest(difference), _largest(chance))
            if None in apart:
                continue
            text = f"{path}: B by {apart[0]:.3g}, the control by {apart[1]:.3g}"
            (within if (apart[0] or 0) <= SCATTER * (apart[1] or 0) else beyond).append(text)
        if beyond:
            return (
                f"B is further from A than chance explains: {'; '.join(beyond)}. There may be a mistake in the restart "
                f"as well; make the program deterministic to see it."
            )
        if within:
            return f"B is no further from A than that: {'; '.join(within)}."
        if not b.differs:
            return "B happens to equal A."
        return "Nothing could be compared by value, so nobody can say whether B is further from A than that."


def _largest(difference: Difference | None) -> float | None:
    return difference.largest if difference and difference.largest is not None else None


def _say(text: str) -> None:
    """Progress; the report is on stdout."""
    click.echo(terminal.printable(text), err=True)


def _show(found: Verdict, test: CrashTest, seed: int, top: str) -> None:
    b = test.trials["B"]
    terminal.prose(found.text, "    ")
    for line in found.lines:
        terminal.prose(line, "    ")
    if found.look:
        terminal.prose(f"where to look: {found.look}" if found.code == DIFFERENT else found.look)
    if b.kills:
        terminal.say(f"B was killed {words.count(len(b.kills), 'time')}; --seed {seed} chooses the same instants")
    if top:
        terminal.say(f"the runs and what they printed: {top}")


def _json(found: Verdict, test: CrashTest, seed: int, top: str | None) -> dict[str, Any]:
    b, result = test.trials["B"], found.result
    files = [
        {"path": path, "text": difference.text if difference else "only one of them has it"}
        for path, difference in (result.files if result else {}).items()
    ]
    return {
        "verdict": found.name, "code": found.code, "text": found.text, "look": found.look, "seed": seed,
        "kills": [{"after": round(kill.after, 3), "process": kill.process} for kill in b.kills],
        "restarts": result.ledger.restarts[1] if result else 0,
        "seconds": {name: round(trial.seconds, 3) for name, trial in test.trials.items() if trial.seconds},
        "ledger": verdict.as_json(result.ledger) if result else None, "files": files, "work": top,
        "region": result.region or None if result else None,
    }  # fmt: skip
