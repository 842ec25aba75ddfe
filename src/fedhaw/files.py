"""Writing files so that a reader, or a crash, never sees half of one."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from fedhaw.errors import FedhawError, shortened

# Windows has no such locks; two runs in one folder go unnoticed there.
_fcntl = import_module("fcntl") if find_spec("fcntl") else None


class FileWriteError(FedhawError, OSError):
    """A file could not be written; whatever stood there before is untouched."""


def is_path(path: object) -> bool:
    """Whether a value can be the path of a file or a folder."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    text = os.fspath(path)
    if not text or (b"\0" if isinstance(text, bytes) else "\0") in text:
        return False
    try:
        Path(os.fsdecode(text)).exists()
    except OSError:  # longer than the system allows
        return False
    return True


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, which is renamed onto `path` when the block succeeds.

    The data is flushed to disk before the rename, so after a power cut `path` holds either the old
    or the new content. Missing parent folders are made.
    """
    if not is_path(path):
        raise FileWriteError(
            f"{shortened(repr(path))} cannot be the path of a file; choose another."
        )
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush_to_disk(temporary, os.O_RDWR)  # Windows flushes only what may be written
        temporary.replace(target)
        _flush_folder_to_disk(target.parent)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        # Where the folder itself is wrong, the sentence above must not be lost to this.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """A file with `text` as UTF-8: all of it is written, or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """A file with `data`: all of it is written, or nothing."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A context in which nobody else holds the lock of this name; an empty file remains."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from error
    with file:
        lock(file, path)
        yield


def lock(file: IO[bytes], path: Path) -> None:
    """An open file's lock is taken, until the file is closed or the process ends."""
    if _fcntl is None:
        return
    try:
        _fcntl.flock(file.fileno(), _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FileWriteError(
            f"Another run is writing {path}; wait for it or choose another folder."
        ) from error
    except OSError:
        # Some network file systems have no locks.
        return


def unwritable(path: Path, error: OSError | ValueError) -> FileWriteError:
    """The sentence to raise when the system says that `path` cannot be written."""
    reason = getattr(error, "strerror", None) or error
    match getattr(error, "errno", None):
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            advice = "free some space or choose another folder"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            advice = "ask for the right to write there, or choose another folder"
        case errno.EISDIR | errno.EEXIST | errno.ENOTDIR:
            advice = "remove what stands there, or choose another name"
        case _:
            advice = "choose another folder"
    return FileWriteError(f"Could not write {path}: {reason}; {advice}.")


def _flush_folder_to_disk(folder: Path) -> None:
    """The new name of a file, made to outlive a power cut where the system can do that."""
    with suppress(PermissionError):  # Windows opens no folders
        _flush_to_disk(folder, os.O_RDONLY)


def _flush_to_disk(path: Path, mode: int) -> None:
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
