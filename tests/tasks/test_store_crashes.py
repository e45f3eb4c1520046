"""T1, T2, T3 of the store of tasks: it is killed, loses its power, or has a call fail, at each operation of a life with
small and large results, files, results that are not kept, forgetting and cleaning."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from testbed import sweep
from testbed.faultdisk import FaultDisk, images
from testbed.task_stories import SMALL, Story, check, key, store_of

from safepoint.tasks import journal, values
from safepoint.tasks.jobs import Record

pytestmark = pytest.mark.leaves_damage


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SMALL", SMALL)


def lived(directory: Path, **how: int) -> Story:
    directory.mkdir()
    return Story(FaultDisk(directory, **how)).run()  # type: ignore[arg-type]


def test_an_undisturbed_life_keeps_what_it_should(tmp_path: Path) -> None:
    story = lived(tmp_path / "w")
    assert story.finished, story.errors
    must, must_not = story.there(1 << 40, "handed")
    assert must_not == {"c", "d", "e", "two"}
    assert must == {*Story.VALUES, "file"} - must_not - {"loose"}
    check(str(tmp_path / "w"), must, must_not)


def test_killed_at_any_operation_no_result_that_was_handed_over_is_lost(tmp_path: Path) -> None:
    """T1, T3; forgetting and cleaning leave each result whole or gone."""
    whole = lived(tmp_path / "whole")
    points = sweep.sample(range(len(whole.disk.record.ops)), 5)
    for at in points:
        story = lived(tmp_path / f"{at}", kill_at=at)
        assert story.disk.dead and not story.errors
        try:
            check(str(tmp_path / f"{at}"), *story.there(1 << 40, "handed"))
        except AssertionError as error:
            pytest.fail(f"killed at {at} ({whole.disk.record.ops[at]}) [{points}]: {error}")
        shutil.rmtree(tmp_path / f"{at}")


def test_after_a_power_cut_at_any_operation_all_that_was_flushed_is_there(tmp_path: Path) -> None:
    """T2, T3."""
    whole = lived(tmp_path / "whole")
    ops = whole.disk.record.ops
    points = sweep.sample([*whole.disk.record.changing, len(ops)], 9, 3)
    for image in images(whole.disk.record, str(tmp_path), singles=1, most=4, at=points):
        try:
            check(image.directory, *whole.there(image.ops, "durable"))
        except Exception as error:
            pytest.fail(f"{image} ({[*ops, 'the end'][image.ops]}) [{points}]: {error!r}")
        shutil.rmtree(image.directory)


def test_what_a_killed_run_left_is_durable_once_the_next_one_has_begun(tmp_path: Path) -> None:
    """T1 and then T2: the next run counts on it, and says at its end that all is durable."""
    whole = lived(tmp_path / "whole")
    points = sweep.sample(range(len(whole.disk.record.ops)), 31, 3)
    for at in points:
        story = lived(tmp_path / f"{at}", kill_at=at)
        disk = FaultDisk(tmp_path / f"{at}", before=story.disk)
        with store_of(tmp_path / f"{at}", disk).held():
            pass
        disk.end()
        for image in images(disk.record, str(tmp_path / f"{at}"), singles=0, at=[len(disk.record.ops)]):
            try:
                check(image.directory, *story.there(1 << 40, "handed"))
            except AssertionError as error:
                pytest.fail(f"killed at {at} ({whole.disk.record.ops[at]}), then {image} [{points}]: {error}")
        shutil.rmtree(tmp_path / f"{at}")


def test_what_was_forgotten_stays_so_when_its_journals_are_rewritten(tmp_path: Path) -> None:
    """Tending: the blocks go for good before the block that takes them back; the power is cut at each operation."""
    directory = tmp_path / "w"
    directory.mkdir()
    disk = FaultDisk(directory)
    store = store_of(directory, disk)
    for name in ("a", "c"):
        with store.held():
            writer = store.writer("w", every=0)
            writer.put(Record(name, key(name), (), False), values.encode(Story.VALUES[name]))
            writer.close()
    with store.held():
        assert store.forget("c") == ["c"]
    begin = len(disk.record.ops)
    with store.held():
        store.clean(used=[key("a")])
    assert len(store.journals()) == 1
    disk.end()
    points = list(range(begin, len(disk.record.ops) + 1))
    for image in images(disk.record, str(tmp_path), at=points):
        found = store_of(image.directory)
        assert [record.vertex for record in found.records().values()] == ["a"], image
        shutil.rmtree(image.directory)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("from_then_on", [False, True])
def test_an_error_at_any_operation_costs_no_other_result(tmp_path: Path, code: int, from_then_on: bool) -> None:
    """What was handed over is there after it, and durable if the last flush said so."""
    whole = lived(tmp_path / "whole")
    points = sweep.sample(range(len(whole.disk.record.ops)), 31 if sweep.PROOF else 61, 5)
    for at in points:
        directory = tmp_path / f"{at}"
        story = lived(directory, fail_at=at, error=code, from_then_on=from_then_on)
        when = f"{errno.errorcode[code]} at {at} ({story.disk.failed}), errors {story.errors} [{points}]"
        try:
            handed, gone = story.there(1 << 40, "handed")
            check(str(directory), handed, gone)
            durable, gone = story.there(1 << 40, "durable")
            for image in images(story.disk.record, str(directory), singles=0, at=[len(story.disk.record.ops)]):
                check(image.directory, durable, gone)
        except Exception as error:
            pytest.fail(f"{when}: {error!r}")
        shutil.rmtree(directory)


def test_a_journal_whose_flush_failed_is_never_flushed_again(tmp_path: Path) -> None:
    """Put (3): the kernel may have dropped what a failed flush covered, and a second one would say that all is well."""
    whole = lived(tmp_path / "whole")
    at = next(n for n, op in enumerate(whole.disk.record.ops) if op.startswith("sync") and "/journal-" in op)
    story = lived(tmp_path / "failed", fail_at=at)
    ops = story.disk.record.ops
    assert story.disk.failed.startswith("sync") and "/journal-" in story.disk.failed
    assert ops.count(story.disk.failed) == 1
    assert not story.errors  # what it covered was written again, and that flush is the one that counts
    names = {op.split("/journal-")[1] for op in ops[at:] if op.startswith("sync") and "/journal-" in op}
    assert len(names) > 1
