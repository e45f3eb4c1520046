"""`finish` and the end of a block: which files are the result, and when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.sessions import Death, Start, contents, sets, write

from safepoint import MissingFilesError, Session

pytestmark = pytest.mark.usefixtures("clean_slate")


def test_a_block_that_ends_normally_finishes(start: Start, work: Path) -> None:
    """G4."""
    with start("u.dat\n") as session:
        write(work, u_dat="0")
        session.hide(0)
        write(work, u_dat="1")
    assert (work / ".safepoint.d/finished.json").exists()
    point = start(restore=False).restore()
    assert point and point.finished
    assert contents(work) == {"u.dat": "1"}


@pytest.mark.parametrize("death", [Death, KeyboardInterrupt, SystemExit])
def test_a_block_that_ends_by_an_exception_keeps_the_sets(start: Start, work: Path, death: type[BaseException]) -> None:
    with pytest.raises(death), start("u.dat\n") as session:
        for step in range(2):
            write(work, u_dat=str(step))
            session.hide(step)
        write(work, u_dat="torn")
        raise death
    assert sets(work) == [1, 2]  # the one in flight was waited for
    point = start(restore=False).restore()
    assert point and (point.step, point.finished) == (1, False)
    assert contents(work) == {"u.dat": "1"}


def test_a_block_that_the_program_finished_itself_ends_quietly(start: Start, work: Path) -> None:
    with start("u.dat\n") as session:
        write(work, u_dat="0")
        session.finish(0)


@pytest.mark.parametrize("step", [None, 1])
def test_files_that_were_hidden_and_not_written_again_are_put_back_first(
    start: Start, work: Path, step: int | None
) -> None:
    """G4: also one that is packed, a directory, and beside files that stayed."""
    session = start("u.dat\nsub/big.dat compress\nrun.zarr/\nhistory.csv append\nparams.db copy\n")
    for n in range(2):
        write(work, u_dat=str(n), sub__big_dat=str(n) * 5000, history_csv="row\n" * n, params_db="p")
        write(work, run_zarr__a__0=str(n))
        expected = contents(work)
        session.hide(n)
    assert not (work / "u.dat").exists()
    session.finish(step)
    assert contents(work) == expected
    point = start(restore=False).restore()
    assert point and (point.step, point.finished) == (1, True)


def test_finish_with_some_of_the_files_names_the_missing_and_keeps_the_sets(start: Start, work: Path) -> None:
    session = start("u.dat\nv.dat\n")
    write(work, u_dat="0", v_dat="0")
    session.hide(0)
    write(work, u_dat="1")
    with pytest.raises(MissingFilesError, match=r"^missing: v\.dat \(line 2\), though u\.dat exists"):
        session.finish(1)
    assert sets(work) == [1]
    write(work, v_dat="1")
    session.finish(1)
    assert contents(work) == {"u.dat": "1", "v.dat": "1"}


def test_finish_of_nothing_at_all_is_an_error(start: Start, work: Path) -> None:
    session = start("u.dat\nv.dat\n")
    with pytest.raises(MissingFilesError) as caught:
        session.finish()
    told = "nothing to finish: there is no set, and none of these files exists: u.dat, v.dat"
    assert str(caught.value) == told
    assert not (work / ".safepoint.d/finished.json").exists()
    write(work, u_dat="u", v_dat="v")
    session.finish()


def test_finish_of_nothing_is_a_result_if_all_files_are_optional(start: Start, work: Path) -> None:
    start("u.dat optional\n").finish(3)
    point = start(restore=False).restore()
    assert point and (point.step, point.finished, point.files) == (3, True, ())


def test_finish_puts_back_what_was_hidden_even_if_all_of_it_is_optional(tmp_path: Path) -> None:
    """G4: an append file in place does not hide that the others were moved away."""
    (tmp_path / ".safepoint").write_text("fields/*.vtk optional\nhistory.csv append\n")
    (tmp_path / "fields").mkdir()
    (tmp_path / "fields/a.vtk").write_text("a")
    (tmp_path / "history.csv").write_text("row\n")
    session = Session(tmp_path)
    session.restore()
    session.hide(step=1)
    session.finish(step=1)
    assert (tmp_path / "fields/a.vtk").read_text() == "a"


def test_finish_puts_the_last_set_back_beside_optional_files_that_were_written_since(start: Start, work: Path) -> None:
    """Written first and hidden last, as the tutorial allows; what is optional goes with any set."""
    session = start("u.dat\nresult.txt optional\n")
    write(work, u_dat="0", result_txt="old")
    session.hide(0)
    write(work, result_txt="new")
    session.finish()
    assert contents(work) == {"u.dat": "0", "result.txt": "new"}
    point = start().restore()
    assert point and point.finished and point.step == 0


def test_finish_without_a_set_names_what_is_missing_beside_optional_files(start: Start, work: Path) -> None:
    session = start("u.dat\nresult.txt optional\n")
    write(work, result_txt="new")
    with pytest.raises(MissingFilesError, match=r"missing: u\.dat \(line 1\), though result\.txt exists"):
        session.finish()


def test_finish_with_a_part_of_what_is_required_is_an_error_whatever_is_optional(start: Start, work: Path) -> None:
    session = start("u.dat\nv.dat\nresult.txt optional\n")
    write(work, u_dat="0", v_dat="0")
    session.hide(0)
    write(work, u_dat="1", result_txt="new")
    with pytest.raises(MissingFilesError, match=r"missing: v\.dat"):
        session.finish()
