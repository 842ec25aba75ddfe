"""The checkpoints of one run, one file a round, of which the last few are kept."""

import logging
import re
from contextlib import suppress
from pathlib import Path

from fedhaw.checkpoints.file import read, write
from fedhaw.checkpoints.parts import CheckpointError, DamagedCheckpoint, Part, Parts
from fedhaw.files import FileWriteError

logger = logging.getLogger(__name__)


class CheckpointStore:
    """A folder with files STEM-NUMBER.safetensors, one for each round that is kept.

    Whoever uses it sees to it that nobody else does at the same time.

    Args:
        folder: made when the first checkpoint is written.
        stem: how the files' names begin.
        keep: how many to keep, the last ones.
        afresh: how the user starts without the checkpoints, for the sentence that says that none
            can be used.
    """

    def __init__(self, folder: Path, stem: str, keep: int, afresh: str) -> None:
        self.folder = folder
        self._stem, self._keep, self._afresh = stem, keep, afresh

    def save(self, number: int, parts: Parts) -> Path:
        """The file of a new checkpoint; those that are too many are gone.

        Raises:
            FileWriteError: it cannot be written; those written before are untouched.
        """
        file = self.file(number)
        write(file, parts)
        for other, older in self._files()[: -self._keep]:
            # Never itself, where later ones have yet to go. One too many does no harm.
            if other < number:
                with suppress(OSError):
                    older.unlink()
        return file

    def file(self, number: int) -> Path:
        """Where the checkpoint of a round lies, if it is kept."""
        return self.folder / f"{self._stem}-{number:06d}.safetensors"

    @property
    def newest(self) -> int:
        """The last round of which there is a checkpoint, whole or not; -1 for none."""
        return max(dict(self._files()), default=-1)

    def latest(self) -> dict[str, Part] | None:
        """The last checkpoint that is whole; None when there are none at all.

        Raises:
            CheckpointError: there are some, and every one is damaged; or one is of a newer fedhaw.
        """
        damages = []
        for _, file in reversed(self._files()):
            try:
                return read(file)
            except DamagedCheckpoint as error:
                damages.append(f"{file.name}: {error.reason}")
                logger.warning(
                    "Checkpoint %s is damaged (%s); trying the one before.", file, error.reason
                )
        if damages:
            raise CheckpointError(
                f"Every checkpoint in {self.folder} is damaged ({'; '.join(damages)}); "
                f"{self._afresh}."
            )
        return None

    def at(self, number: int) -> dict[str, Part]:
        """The checkpoint that was made after a round.

        Raises:
            CheckpointError: it is not kept, or damaged.
        """
        files = dict(self._files())
        if number not in files:
            kept = f"only {', '.join(map(str, files))}" if files else "none at all"
            raise CheckpointError(
                f"There is no checkpoint of round {number} in {self.folder}, {kept}; choose one of "
                f"these, or {self._afresh}."
            )
        return read(files[number])

    def remove(self, after: int = -1) -> None:
        """Nothing is left of the rounds after a certain one, by default of all.

        Raises:
            FileWriteError: a file cannot be removed.
        """
        self._unlink([file for number, file in self._files() if number > after])

    def remove_leftovers(self) -> None:
        """Nothing is left of what killed runs had half-written.

        Raises:
            FileWriteError: a file cannot be removed.
        """
        # The first version of Flower's checkpoints had no number in their names.
        name = re.compile(rf"\.{re.escape(self._stem)}(-\d+)?\.safetensors\.\d+\.[0-9a-f]+\.tmp")
        self._unlink([file for file in self._all() if name.fullmatch(file.name)])

    def _files(self) -> list[tuple[int, Path]]:
        """Rounds and files, oldest round first."""
        name = re.compile(rf"{re.escape(self._stem)}-(\d{{6,}})\.safetensors")
        matches = [(name.fullmatch(file.name), file) for file in self._all()]
        return sorted((int(match[1]), file) for match, file in matches if match)

    def _all(self) -> list[Path]:
        return list(self.folder.iterdir()) if self.folder.is_dir() else []

    def _unlink(self, files: list[Path]) -> None:
        try:
            for file in files:
                file.unlink(missing_ok=True)
        except OSError as error:
            raise FileWriteError(
                f"Could not clear {self.folder}: {error.strerror}; choose another folder."
            ) from error
