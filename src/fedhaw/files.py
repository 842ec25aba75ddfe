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
    _check(path)
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            _flush_to_disk(temporary, os.O_RDWR)  # Windows flushes only what may be written
            temporary.replace(target)
            _flush_folder_to_disk(target.parent)
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
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
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


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block that writes to `path`: what the system says against it becomes one sentence."""
    _check(path)
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def allocate(descriptor: int, length: int) -> None:
    """Room on the disk for a file that is going to be mapped, found now and not when it is used."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, length)  # a mapping that finds none ends the process
    else:
        os.ftruncate(descriptor, length)


def _check(path: str | os.PathLike[str]) -> None:
    if not is_path(path):
        raise FileWriteError(
            f"{shortened(repr(path))} cannot be the path of a file; choose another."
        )


def _unwritable(path: Path, error: OSError) -> FileWriteError:
    reason = error.strerror or error
    match error.errno:
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
