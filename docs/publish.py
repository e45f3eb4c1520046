"""Builds what is to be published: `python docs/publish.py URL [DIRECTORY]`. Nothing is uploaded.

URL is where the repository can be seen, its files under URL/blob/TAG/. The repository itself names no such place. In a
copy of it the links of the long description become absolute, and the metadata name where everything is.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
MADE = (".venv", ".git", "build", "demo", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
BUILD = """
import sys
from setuptools import build_meta
out = sys.argv[1]  # setuptools has its own
print(build_meta.build_sdist(out), build_meta.build_wheel(out))
"""
PLACES = """
[project.urls]
Homepage = "{url}"
Documentation = "{url}/blob/{tag}/docs/tutorial.md"
Changelog = "{url}/blob/{tag}/CHANGELOG.md"
Issues = "{url}/issues"
"""


def absolute(text: str, place: str) -> str:
    """A page whose links to files of the repository lead to `place`."""
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({place}/", text)


def publishable(source: Path, url: str, tag: str) -> None:
    """Change a copy of the repository into what is to be built."""
    readme, project = source / "README.md", source / "pyproject.toml"
    readme.write_text(absolute(readme.read_text("utf-8"), f"{url}/blob/{tag}"), "utf-8")
    text = project.read_text("utf-8")
    head = "\n[project.scripts]"
    assert text.count(head) == 1, "pyproject.toml has another form"
    project.write_text(text.replace(head, PLACES.format(url=url, tag=tag) + head), "utf-8")


def main() -> None:
    if len(sys.argv) not in (2, 3) or not re.fullmatch(r"https://[^\s/\"]+[^\s\"]*[^\s/\"]", sys.argv[1]):
        sys.exit("usage: python docs/publish.py https://HOST/PROJECT [DIRECTORY]")
    url, out = sys.argv[1], Path(sys.argv[2] if len(sys.argv) == 3 else HOUSE / "build" / "dist").resolve()
    version = re.search(r'__version__ = "([^"]+)"', (HOUSE / "safepoint" / "session.py").read_text("utf-8"))
    assert version is not None
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        source = shutil.copytree(HOUSE, Path(directory, "source"), ignore=shutil.ignore_patterns(*MADE))
        publishable(source, url, f"v{version[1]}")
        command = [sys.executable, "-W", "ignore", "-c", BUILD, str(out)]
        done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    for name in done.stdout.split()[-2:]:
        print(out / name)


if __name__ == "__main__":
    main()
