"""`safepoint run`: protect a program that writes restart files by itself and knows nothing of this."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Sequence

import click

from safepoint import words
from safepoint.errors import UsageError
from safepoint.manifest import parse
from safepoint.run.options import Options
from safepoint.run.speech import say
from safepoint.run.supervisor import Supervisor

logger = logging.getLogger("safepoint")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--dir", "directory", default=".", metavar="DIR", help="Where the manifest is, and the command runs.")
@click.option(
    "--until",
    default="",
    metavar="N|FILE|CMD",
    help="In segments: run the command again and again, and take a set whenever it has ended with status 0, until it "
    "has run N times, FILE exists, or CMD (with a space in it, or on the PATH) ends with status 0.",
)
@click.option(
    "--resume-command", default="", metavar="CMD", help="What to start instead of COMMAND when there is a set."
)
@click.option(
    "--check",
    default="",
    metavar="CMD",
    help="A set is only taken if this ends with status 0. It runs in DIR while the command stands still.",
)
@click.option(
    "--retries", default=0, metavar="N", help="Start a failed command again from the last set, up to N times in a row."
)
@click.option(
    "--tolerate",
    type=click.Choice(["status", "all"]),
    help="Which ends of processes do not make files suspect: those with a status other than 0 (as of grep -q), or "
    "kills too.",
)
@click.option("--keep", metavar="N", help="How many sets stay, and rules. Default: the manifest's setting, else 2.")
@click.option(
    "--time-limit",
    default="",
    metavar="TIME|auto",
    help="Tell the command to end before so much time has passed; auto: before the limit that the job scheduler set.",
)
@click.option(
    "--signal",
    "told_by",
    default="",
    metavar="NAME[@SECONDS]",
    help="The signal that tells it so, and how long before the limit (default: TERM@60). If given, it is also what the "
    "command gets when SIGTERM, SIGUSR1 or SIGUSR2 comes, and without --time-limit it means auto.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Run COMMAND once, unprotected, save nothing, and propose a manifest from the order in which it writes and "
    "closes its files. Ctrl-C after some iterations is enough.",
)
@click.option("--again", is_flag=True, help="Start although the run was finished, from the files as they are.")
@click.option("-v", "--verbose", is_flag=True, help="Say when a set was saved.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    directory: str, until: str, resume_command: str, check: str, retries: int, tolerate: str | None,
    keep: str | None, again: bool, explain: bool, time_limit: str, told_by: str, verbose: bool,
    command: tuple[str, ...],
) -> None:  # fmt: skip
    """Run COMMAND so that it can be killed at any moment: start it again with the same line, and it finds the files of
    the last complete set.

    The files are those of the manifest .safepoint; the program goes on writing them as ever. SAFEPOINT_STEP and
    SAFEPOINT_SET are in its environment when it was given a set. The exit status is that of the command, 128 + n if
    signal n killed it; 75 if it was told to end because of a limit or of --signal, and 79 after `safepoint halt`.
    """
    _speak(verbose)
    if explain:
        sys.exit(_explain(directory, command))
    options = Options(
        directory, list(command), shlex.split(resume_command), check, until, retries, tolerate or "", again, keep,
        time_limit, told_by,
    )  # fmt: skip
    status = Supervisor(options).run()
    if status and status not in (75, 79) and (hint := words.to_check(command)):
        say(hint)
    sys.exit(status)


def _explain(directory: str, command: Sequence[str]) -> int:
    """Its exit status; the proposal goes to stdout."""
    if sys.platform != "linux":
        raise UsageError("to watch a running program needs Linux; safepoint init proposes a manifest everywhere")
    from safepoint.run.explain import explain

    status, found = explain(directory, command)
    line = shlex.join(command)
    if not found.lines:
        said = [*found.remarks, "nothing to propose"]
    elif found.segments:
        said = [*found.remarks, "to be run in segments, each of which ends by itself with status 0:"]
        said.append(f"safepoint run --until N -- {line}")
    else:
        said = [f"{words.count(found.rounds, 'complete set')} seen", *found.remarks, "with this manifest:"]
        check = f"--check 'CMD: whether {', '.join(found.in_parts)} is whole' " if found.in_parts else ""
        said.append(f"safepoint run {check}-- {line}")
    if found.wrote:
        names = ", ".join(found.wrote[:5]) + " …" * (len(found.wrote) > 5)
        said.append(f"what it wrote lies here, and may be torn if it was interrupted: {names}")
        said.append("before the first protected run remove that, or begin in a clean copy")
    if found.lines:
        parse("\n".join(found.lines))  # what we propose must be a manifest
        click.echo("# .safepoint, as proposed from one run: read it before the first protected one")
        click.echo(os.fsencode("\n".join(found.lines) + "\n"), nl=False)
    for text in said:
        say(text)
    return 128 - status if status < 0 else status


def _speak(verbose: bool) -> None:
    logging.basicConfig(format="safepoint: %(message)s")  # if nobody has yet
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
