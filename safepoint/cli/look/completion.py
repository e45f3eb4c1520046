"""What a shell completes."""

from __future__ import annotations

from typing import Any

import click

from safepoint.cli import terminal
from safepoint.cli.look.overview import look


def set_numbers(ctx: click.Context, param: click.Parameter, begun: str) -> list[Any]:
    """Those that a shell may complete: of the directory that is named so far, or the current one."""
    from click.shell_completion import CompletionItem

    try:
        sets = look(terminal.DISK, ctx.params.get("directory") or ".").sets
    except Exception:  # a completion has nobody to tell
        return []
    return [CompletionItem(str(s.number), help=f"step {s.step}, {s.state}") for s in sets
            if str(s.number).startswith(begun)]  # fmt: skip
