"""What would be published: a wheel for a bare environment, and a source archive from which the tests run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from testbed.paths import HOUSE

BUILD = """
import sys
from setuptools import build_meta
out = sys.argv[1]  # setuptools has its own
print(build_meta.build_sdist(out), build_meta.build_wheel(out))
"""
NOT_COPIED = shutil.ignore_patterns(
    ".venv", ".git", "build", "demo", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive and the wheel."""
    pytest.importorskip("setuptools", minversion="77")
    top = tmp_path_factory.mktemp("package")
    source, out = shutil.copytree(HOUSE, top / "source", ignore=NOT_COPIED), top / "out"
    out.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, out], cwd=source, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    archive, wheel = done.stdout.split()[-2:]
    return out / archive, out / wheel


def test_the_wheel_works_in_a_bare_environment(built: tuple[Path, Path], tmp_path: Path) -> None:
    """An example is killed there, and goes on; without the packages of the command line its answer says what to do."""
    _, wheel = built
    names = zipfile.ZipFile(wheel).namelist()
    assert all(re.match(r"safepoint(-[\d.]+\.dist-info)?/", name) for name in names), names
    assert "safepoint/py.typed" in names and any(name.endswith("/LICENSE") for name in names)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    quiet = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*quiet, wheel, "numpy"], env=environment, capture_output=True, text=True, timeout=500)
    if done.returncode:
        pytest.skip(f"no index to install from: {done.stderr.splitlines()[-1]}")
    (tmp_path / "run").mkdir()
    program = [python, HOUSE / "examples/walk.py", "200"]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(program, cwd=tmp_path / "run", env=environment, timeout=0.9)
    subprocess.run(program, cwd=tmp_path / "run", env=environment, timeout=60, check=True)
    assert (tmp_path / "run/state.npz").exists()
    done = subprocess.run(
        [python, "-m", "safepoint", "status"], cwd=tmp_path / "run", env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1 and "the command line needs click and rich" in done.stderr
    assert "safepoint[" not in done.stderr  # nobody knows who has that name on an index


def test_the_source_archive_has_docs_examples_and_tests_that_run(built: tuple[Path, Path], tmp_path: Path) -> None:
    archive, _ = built
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
        if hasattr(tarfile, "data_filter"):
            tar.extractall(tmp_path, filter="data")
        else:
            tar.extractall(tmp_path)
    wanted = {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", "docs/tutorial.md", "examples/landscape.py",
              "tests/conftest.py", "tests/testbed/faultdisk.py", "benchmarks/peers.py", ".ci/run"}  # fmt: skip
    assert wanted <= names, wanted - names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "build/"))]
    (top,) = tmp_path.iterdir()
    environment = {**os.environ, "PYTHONPATH": str(top)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/parts/test_codec.py", "tests/verbs/test_wait.py"],
        cwd=top, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def test_no_page_or_message_tells_to_install_it_from_an_index() -> None:
    """It is not there, and somebody else may take the name."""
    texts = [*HOUSE.glob("*.md"), *(HOUSE / "docs").glob("*.md"), *(HOUSE / "safepoint").rglob("*.py")]
    wrong = [path.name for path in texts if re.search(r"pip install ['\"]?safepoint", path.read_text("utf-8"))]
    assert wrong == []
