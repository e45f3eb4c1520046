"""A hook of mkdocs: what the pages link to outside of `docs/`.

Links are written for the repository, where a reader meets the pages first. In the site a page or a picture from
outside, such as `../benchmarks/notes.md`, is taken in under its path in the repository. What lies in `build/site` is
there already. Any other file, such as a program, becomes its name: there is no public address that it could lead to.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

HOUSE = Path(__file__).parents[1]
SITE = "build/site/"
LINK = re.compile(
    r"^ *```.*?^ *```|`[^`\n]+`"  # code stays as it is
    r"|(?P<picture>!?)\[(?P<text>[^][]*)\]\((?P<link>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)",
    re.M | re.S,
)
TAKEN_IN = (".md", ".png", ".svg")
MADE = {"report-example.html": "build/report-example.html"}  # by the Makefile, for the site alone


def in_repository(page: str, link: str) -> str:
    """The path from the root of the repository that this link of a page means; the page is named as in the site."""
    home = posixpath.dirname(page if (HOUSE / page).exists() else f"docs/{page}")
    return posixpath.normpath(posixpath.join(home, link))


def in_site(path: str) -> str | None:
    """Where the site has a file of the repository; None: it has not."""
    if path == "README.md":
        return "index.md"  # the site begins with a page of its own
    if path.startswith(SITE):
        return path.removeprefix(SITE)
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    return path if path.endswith(TAKEN_IN) and (HOUSE / path).is_file() else None


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for name, path in MADE.items():
        files.append(File.generated(config, name, abs_src_path=str(HOUSE / path)))
    pages = [file.src_uri for file in files.documentation_pages()] + ["CHANGELOG.md"]
    for page in pages:  # it grows: by what is linked to
        name = page if (HOUSE / page).exists() else f"docs/{page}"
        if not files.get_file_from_path(page):
            source = str(HOUSE / name)
            files.append(File.generated(config, page, abs_src_path=source, inclusion=InclusionLevel.NOT_IN_NAV))
        text = (HOUSE / name).read_text("utf-8") if page.endswith(".md") else ""
        for match in LINK.finditer(text):
            found = match["link"] and "://" not in match["link"] and in_site(in_repository(page, match["link"]))
            if found and found not in pages and found.endswith(TAKEN_IN) and (HOUSE / found).is_file():
                pages.append(found)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return for_site(markdown, page.file.src_uri)


def for_site(markdown: str, page: str) -> str:
    """The text of a page, with links that lead somewhere in the site."""

    def changed(match: re.Match[str]) -> str:
        if not match["link"] or "://" in match["link"]:
            return match[0]
        path = in_repository(page, match["link"])
        there = in_site(path)
        if there is None:
            return match["text"] if (HOUSE / path).exists() else match[0]  # what is nowhere mkdocs complains of
        link = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"{match['picture']}[{match['text']}]({link}{match['anchor'] or ''})"

    return LINK.sub(changed, markdown)
