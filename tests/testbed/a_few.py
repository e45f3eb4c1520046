"""One of each kind, for `tools/test_evidence.py`: nobody else collects them."""

import os

import pytest

from testbed import tally


def test_that_passes() -> None:
    tally.count("kills at random instants", "none, in fact", 7)


def test_that_fails() -> None:
    raise AssertionError("on purpose")


@pytest.fixture
def ends_badly():
    yield
    raise AssertionError("on purpose, at the end")


def test_that_fails_when_it_has_passed(ends_badly: None) -> None:
    pass


@pytest.mark.skip(reason="left out on purpose")
def test_that_is_left_out() -> None:
    raise NotImplementedError


def test_that_waits() -> None:
    """Until somebody opens the other end."""
    with open(os.environ["SAFEPOINT_GATE"]):
        pass
