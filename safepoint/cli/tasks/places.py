"""The options that several verbs share, and the store that they work on."""

from __future__ import annotations

import os

import click

from safepoint.errors import NothingSavedError
from safepoint.tasks.running import tasks_directory
from safepoint.tasks.saved import Store

directory = click.option(
    "-C", "--directory", "directory", metavar="DIR", default=".", type=click.Path(exists=True, file_okay=False),
    help="Where results are kept: in DIR/.safepoint.d/tasks; by default DIR is the current directory.",
)  # fmt: skip
graph_file = click.argument("file", metavar="FILE.toml", type=click.Path(exists=True, dir_okay=False))


def store_of(directory: str) -> Store:
    """What is kept below this directory. `NothingSavedError` if that is nothing."""
    store = Store(tasks_directory(directory))
    if not os.path.isdir(store.directory):
        raise NothingSavedError(
            f"no graph of tasks has run here: {os.path.realpath(directory)} has no .safepoint.d/tasks"
        )
    return store
