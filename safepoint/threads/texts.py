"""What is said and written of an instrumented source: how much of it is recorded, and its sites."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safepoint import words
from safepoint.errors import UsageError
from safepoint.threads.sites import FORMAT, Site

SITES = ".sites.jsonl"  # after the name of a program, or of a text
TEXTS = ".instrumented"  # after the name of a program: the directory of its texts
AS_IT_IS = "the file is compiled as it is"  # of what cannot be read, or compiled with what was inserted
ONLY = "only with OpenMP"  # why a line is not recorded
MARK = "line.json"  # in that directory: it is one of ours, and how it was made


def instrument(source: Path, out: Path, settings: Any) -> tuple[str, list[str]]:
    """Write the text of one source, and its sites beside it. What is said of it, and warnings. Raises `UsageError` if
    it cannot be read, or written."""
    from safepoint.threads import fortran, owned

    owned.text(source, out)
    try:
        made = fortran.instrument(source, settings=settings)
    except fortran.Unreadable as error:
        raise UsageError(f"{source}:{error.line}: {error}; nothing was written") from error
    try:
        fresh = out.with_name(f"{out.name}.{os.getpid()}")
        fresh.write_text(made.text, "utf-8", errors="surrogateescape")
        os.replace(fresh, out)
        write_sites(out.with_name(out.name + SITES), made.sites)
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror}", error.errno) from error
    return f"{source}: {counted(made)}", [f"{source}:{number}: {text}" for number, text in made.warnings]


def counts(made: Any) -> dict[str, int]:
    kinds = Counter(site.type for site in made.sites)
    return {
        "statements": made.statements, "regions": kinds["region"], "loops": kinds["loop"], "recorded": made.recorded,
        "left out": len(made.left_out),
    }  # fmt: skip


def left(source: str, made: Any) -> list[tuple[str, int, str, str]]:
    """File, line and text of what is not recorded, and why."""
    lines = Path(source).read_text("utf-8", errors="replace").split("\n") if made.left_out else []
    return [(source, line, lines[line - 1].strip(), why) for line, why in made.left_out if line <= len(lines)]


def counted(made: Any) -> str:
    """What is recorded, and what is not, and why."""
    found = counts(made)
    text = (
        f"{words.count(found['statements'], 'statement')}, {words.count(found['regions'], 'region')}, "
        f"{words.count(found['loops'], 'parallel loop')}; {found['recorded']} recorded"
    )
    if not made.left_out:
        return text
    why: dict[str, set[int]] = {}
    for number, reason in made.left_out:
        why.setdefault(reason, set()).add(number)
    reasons = "; ".join(
        f"{reason}, {'line' if len(numbers) == 1 else 'lines'} {', '.join(map(str, sorted(numbers)))}"
        for reason, numbers in why.items()
    )
    return f"{text}, {len(made.left_out)} not ({reasons})"


def write_sites(path: Path, sites: Sequence[Site]) -> str:
    """Their id: the same sites have the same one, on any machine."""
    lines = [json.dumps(_row(site)) for site in sites]
    build_id = hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16] if sites else ""
    head = json.dumps({"format": FORMAT, "build": build_id})
    path.write_text("\n".join([head, *lines, ""]), "utf-8", errors="surrogateescape")
    return build_id


def _row(site: Site) -> dict[str, Any]:
    optional = {name for name, value in site._field_defaults.items() if getattr(site, name) == value}
    return {name: value for name, value in site._asdict().items() if name not in optional}
