"""What all tests share: a directory in memory, and a look at what they leave behind."""

from __future__ import annotations

import ctypes  # noqa: F401 - this, filelock and zstandard now: a test that drops its privileges could not do it later
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import filelock  # noqa: F401
import hypothesis
import pytest
import zstandard  # noqa: F401
from testbed.outcomes import pytest_addoption, pytest_configure  # noqa: F401
from testbed.sessions import clean_slate, said, start, work  # noqa: F401
from testbed.shares import pytest_collection_modifyitems, pytest_runtest_setup  # noqa: F401
from testbed.shares import said as said_of_shares
from testbed.sweep import ALL, many, turn

from safepoint.disk import Disk
from safepoint.restoring.verify import verify
from safepoint.root import Root

# Some environments forbid it: then each of thousands of processes would compile the package anew, and pytest all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
pytest_plugins = ["testbed.touched"]

# A shell without job control lets what it starts in the background ignore Ctrl-C, and all that is started by that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a busy machine is no fault. A failure prints what makes it happen again.
hypothesis.settings.register_profile("any load", deadline=None, max_examples=many(200), print_blob=True)
hypothesis.settings.load_profile("any load")


def pytest_report_header() -> list[str]:
    """What these tests cannot look at here; what a single one lacks it says when it is left out."""
    sweeps = "sweeps: all operations" if ALL else f"sweeps: every m-th operation from the k-th on, k = {turn()} mod m"
    sweeps += said_of_shares()
    place = os.path.realpath(tempfile.gettempdir())
    if Disk().page_cache(place).mount is None:
        return [sweeps, "G2k (nothing is lost by a kill) cannot be proven here, so kills are only tested for G2: "
                f"{place} is on a network file system, or Linux is older than 6.8"]  # fmt: skip
    return [sweeps]


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """In memory, where there is such a place: the tests are many, and those of real disks make their own.

    After every test no set that claims to be committed may be damaged, but where damage is the test.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        yield Path(directory).resolve()
        if request.node.get_closest_marker("leaves_damage") is None:
            for side in sorted(Path(directory).rglob(".safepoint.d")):
                if side.is_dir():
                    states = verify(Root(str(side.parent.resolve())))
                    assert set(states.values()) <= {"committed", "uncommitted"}, (side, states)
