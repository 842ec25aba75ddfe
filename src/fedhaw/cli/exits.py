"""How the program ends.

0    done
1    a fault of fedhaw's own; the traceback is kept, because someone has to mend it
2    a mistake the user can mend, in their own code too: one sentence on standard error
130  interrupted by Ctrl-C (143: by SIGTERM); says how to go on
"""

import errno
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click
import typer

from fedhaw.errors import FedhawError
from fedhaw.names import blame

MISTAKE, INTERRUPTED, TERMINATED = 2, 130, 143


class Interrupted(Exception):
    """Work was interrupted; the message says how to go on."""


class Terminated(BaseException):
    """The process was asked to end by SIGTERM; unwinds like Ctrl-C, so that workers go too."""


@contextmanager
def interruptible(how_to_go_on: str) -> Iterator[None]:
    """A block in which Ctrl-C becomes an end that says how to go on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise Interrupted(how_to_go_on) from interrupt


def run_and_exit(app: typer.Typer, arguments: Sequence[str] | None) -> NoReturn:
    """A run of the app, after which the process ends with the exit code of what happened."""
    logging.basicConfig(format="fedhaw: %(message)s", level=logging.WARNING)
    before = signal.signal(signal.SIGTERM, _terminate)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us; nobody listens
            setattr(sys, name, io.StringIO())
    given = _with_scale(sys.argv[1:] if arguments is None else list(arguments))
    try:
        code = typer.main.get_command(app).main(given, prog_name="fedhaw", standalone_mode=False)
        sys.stdout.flush()
    except FedhawError as error:
        _say(str(error))
        code = MISTAKE
    except click.ClickException as error:
        code = MISTAKE
        if message := error.format_message():  # empty when there were no arguments: help was shown
            _say(_with_full_stop(message) + _hint(error))
    except Interrupted as interruption:
        _say(f"\nInterrupted. {interruption}")
        code = INTERRUPTED
    except (KeyboardInterrupt, click.Abort):
        _say("\nInterrupted.")
        code = INTERRUPTED
    except Terminated:
        _say("Ended by SIGTERM.")
        code = TERMINATED
    except SystemExit as ending:
        # click ends a broken pipe with exit code 1, which is kept for faults here.
        code = 0 if isinstance(ending.__context__, BrokenPipeError) else ending.code
    except BrokenPipeError:
        # Whoever read our output, `head` perhaps, has enough. Python would complain once more
        # when it flushes standard output at the very end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _say("Standard output is full; what was written to files is safe.")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = MISTAKE
    except Exception as error:
        sentence = blame(error)
        if sentence is None:
            raise
        _say(sentence)
        code = MISTAKE
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code if isinstance(code, int) else 0)


def _with_scale(arguments: list[str]) -> list[str]:
    """`--scale` alone means `--scale small`; typer has no options whose value may be left out."""
    given = []
    for place, word in enumerate(arguments, start=1):
        given.append(word)
        if word == "--scale" and (place == len(arguments) or arguments[place].startswith("-")):
            given.append("small")
    return given


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f" See `{context.command_path} --help`." if context is not None else ""


def _with_full_stop(message: str) -> str:
    return message if message.rstrip(")").endswith((".", "?", "!")) else f"{message}."


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
