"""Writing files so that a reader, or a crash, never sees half of one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedhaw.errors import FedhawError


class FileWriteError(FedhawError, OSError):
    """A file could not be written; whatever stood there before is untouched."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and rename it onto `path` when the block succeeds.

    The data is flushed to disk before the rename, so after a power cut `path` holds either the old
    or the new content. Missing parent folders are made.

    Raises:
        FileWriteError: the disk is full, the folder is read-only, or the like.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush_to_disk(temporary)
        temporary.replace(target)
        _flush_to_disk(target.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileWriteError(
            f"Could not write {target}: {reason}; free some space or choose another folder."
        ) from error
    finally:
        # Where the folder itself is wrong, the sentence above must not be lost to this.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8, all of it or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data`, all of it or nothing."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
