"""A command with commands below it, of which none is loaded before it is used."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import click


class Verbs(click.Group):
    """Finds its commands in their modules. `verbs`: by name the module in `room`, and the first sentence of the help:
    the list of them needs none of the modules. `example`: a command with an option where options belong. `wrong`: the
    exit code of a command that was called wrongly, where click's own, 2, is an answer."""

    def __init__(
        self, *given: Any, room: str, verbs: Mapping[str, tuple[str, str]], example: str, wrong: int = 2, **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self._room, self._verbs, self._example, self._wrong = room, verbs, example, wrong

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._verbs:
            return None
        module = importlib.import_module(f"safepoint.cli.{self._room}.{self._verbs[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with self._coded():
            try:
                return super().parse_args(ctx, args)
            except click.NoSuchOption as error:
                text = f"No such option {error.option_name}; options stand after the command: {self._example}"
                raise click.NoSuchOption(error.option_name, text, ctx=ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        with self._coded():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def _coded(self) -> Iterator[None]:
        try:
            yield
        except click.UsageError as error:
            error.exit_code = self._wrong  # type: ignore[misc]
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._verbs.items()])
