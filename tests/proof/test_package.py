"""What would be published: a wheel for a bare environment, and a source archive from which the tests run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from testbed.paths import HOUSE

URL = "https://code.example/safepoint"  # reserved for such use (RFC 2606)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive and the wheel."""
    pytest.importorskip("setuptools", minversion="77")
    out = tmp_path_factory.mktemp("package")
    command = [sys.executable, "-W", "ignore", HOUSE / "docs/publish.py", URL, out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    archive, wheel = done.stdout.splitlines()
    return Path(archive), Path(wheel)


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
    subprocess.run(program, cwd=tmp_path / "run", env=environment, timeout=300, check=True)
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
              "tests/conftest.py", "tests/testbed/faultdisk.py", "benchmarks/peers.py", ".ci/run",
              "mkdocs.yml", "docs/recipes/h5py.md"}  # fmt: skip
    assert wanted <= names, wanted - names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "build/"))]
    (top,) = tmp_path.iterdir()
    environment = {**os.environ, "PYTHONPATH": str(top)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/parts/test_codec.py", "tests/verbs/test_wait.py"],
        cwd=top, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def test_who_sees_it_in_an_index_finds_the_pages(built: tuple[Path, Path]) -> None:
    _, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode()
    places = dict(re.findall(r"^Project-URL: (\w+), (.*)$", text, re.M))
    assert places.keys() >= {"Homepage", "Documentation", "Changelog", "Issues"}
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 10 and all(link.startswith(("https://", "#")) for link in links), links
    inside = [link.partition("/blob/")[2].partition("/")[2] for link in [*links, *places.values()] if "/blob/" in link]
    assert all((HOUSE / link.partition("#")[0]).exists() for link in inside), inside
