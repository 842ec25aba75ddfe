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
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

import click
import typer

from fedhaw.errors import FedhawError, shortened, shown
from fedhaw.names import blame

MISTAKE, INTERRUPTED, TERMINATED = 2, 130, 143

LONGEST_MESSAGE = 500
"""Characters; what was typed stands in the parser's sentences, however long it is."""


class Interrupted(Exception):
    """Work was interrupted; the message says how to go on."""


class Terminated(BaseException):
    """The process was asked to end by SIGTERM; unwinds like Ctrl-C, so that workers go too."""


@contextmanager
def interruptible(out: Path) -> Iterator[None]:
    """A block in which Ctrl-C becomes an end that says how to go on with what is in a folder."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        command = shlex.join(["fedhaw", *sys.argv[1:]])
        raise Interrupted(
            f"What has been done is in {out}; to go on where it stopped, run again: {command}"
        ) from interrupt


def run_and_exit(app: typer.Typer, arguments: Sequence[str] | None) -> NoReturn:
    """A run of the app, after which the process ends with the exit code of what happened."""
    before = signal.signal(signal.SIGTERM, _terminate)
    given = _with_scale(sys.argv[1:] if arguments is None else list(arguments))
    try:
        with _forgiving_streams():
            logging.basicConfig(format="fedhaw: %(message)s", level=logging.WARNING)
            code = _run(app, given)
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code)


def _run(app: typer.Typer, given: list[str]) -> int:
    """The exit code of the app."""
    try:
        _refuse_empty(given)
        code = typer.main.get_command(app).main(given, prog_name="fedhaw", standalone_mode=False)
        sys.stdout.flush()
    except FedhawError as error:
        _say(_printable(str(error)))
        code = MISTAKE
    except click.ClickException as error:
        code = MISTAKE
        if message := error.format_message():  # empty when there were no arguments: help was shown
            _say(_with_full_stop(shortened(message, LONGEST_MESSAGE)) + _hint(error))
    except Interrupted as interruption:
        _say(f"\nInterrupted. {interruption}")
        code = INTERRUPTED
    except (KeyboardInterrupt, click.Abort):
        _say("\nInterrupted.")
        code = INTERRUPTED
    except Terminated:
        _say("Ended by SIGTERM.")
        code = TERMINATED
    except BrokenPipeError:
        _to_nowhere(sys.stdout)  # whoever read our output, `head` perhaps, has enough
        code = 0
    except (Exception, SystemExit) as error:
        if sentence := _sentence_on(error):
            _say(sentence)
            code = MISTAKE
        elif isinstance(error, SystemExit):
            # click ends a broken pipe with exit code 1, which is kept for faults here.
            code = 0 if isinstance(error.__context__, BrokenPipeError) else error.code
        else:
            raise
    return code if isinstance(code, int) else 0


def _sentence_on(error: Exception | SystemExit) -> str | None:
    """The sentence on an error that the user can mend; None where it is not known to be one."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        _to_nowhere(sys.stdout)
        return "Standard output is full; what was written to files is safe."
    leaving = isinstance(error, SystemExit) and isinstance(error.code, str)
    return blame(error) or (str(error) if leaving else None)


def _with_scale(arguments: list[str]) -> list[str]:
    """`--scale` alone means `--scale small`; typer has no options whose value may be left out."""
    given = []
    for place, word in enumerate(arguments, start=1):
        given.append(word)
        if word == "--scale" and (place == len(arguments) or arguments[place].startswith("-")):
            given.append("small")
    return given


def _refuse_empty(arguments: list[str]) -> None:
    """A check for words without content, such as a shell's variable that was never set.

    As a path such a word would be the present folder.
    """
    for place, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        if not word or (equals and not value and flag.startswith("--")):
            flag = flag or " ".join(arguments[max(0, place - 1) : place])
            raise FedhawError(f"What follows {shown(flag)} is empty; give it a value.")


def _printable(sentence: str) -> str:
    """The sentence on one line, whatever control characters a name in it has."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


class _Unheard(io.TextIOBase):
    """Standard error that may be full: what cannot be said there is not said.

    Progress and remarks must not end the work they speak of.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # rich draws lines only where this is UTF
        return self._stream.encoding

    def write(self, text: str) -> int:
        with self._unless_full():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._unless_full():
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @contextmanager
    def _unless_full(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            _to_nowhere(self._stream)


def _to_nowhere(stream: TextIO) -> None:
    """A stream's file becomes the null device: Python flushes it once more at the very end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _forgiving_streams() -> Iterator[None]:
    """A block in which standard output and error may be closed or know only ASCII."""
    before = sys.stdout, sys.stderr
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us; nobody listens
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stderr = _Unheard(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f" See `{context.command_path} --help`." if context is not None else ""


def _with_full_stop(message: str) -> str:
    return message if message.rstrip(")").endswith((".", "?", "!")) else f"{message}."


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
