"""Image files in a folder or in a tar archive, read by name and decoded for a network."""

import hashlib
import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedhaw.data.errors import DataError, reading
from fedhaw.data.tars import members, opened

ENDINGS = (".jpg", ".jpeg", ".png")
FORMATS = ("JPEG", "PNG")
"""Only these decoders are offered a file; Pillow has some forty, each a door."""


@dataclass(frozen=True)
class ImageFolder:
    """Images in a folder and the folders within it.

    Attributes:
        folder: where they are.
    """

    folder: Path

    @cached_property
    def names(self) -> Sequence[str]:
        """Every image's path within the folder, with forward slashes, sorted."""
        return sorted(
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.suffix.lower() in ENDINGS and path.is_file()
        )

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    def read(self, name: str) -> bytes:
        """The bytes of one image file; only names that the folder lists are opened."""
        if name not in self._known:
            raise DataError(f"{self.folder} has no image {name!r}; complete the folder.")
        with reading(self.folder / name):
            return (self.folder / name).read_bytes()


@dataclass(frozen=True)
class ImageTar:
    """Images in a plain tar archive, read where they lie; nothing is unpacked to disk.

    Attributes:
        path: the archive.
        root: a folder within it that names are relative to.
    """

    path: Path
    root: str = ""

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """Where in the archive each image lies: its offset and length."""
        places = {}
        prefix = f"{self.root}/" if self.root else ""
        with opened(self.path, "r:") as archive:  # where a member begins is where it lies
            for member in members(archive, self.path):
                name = member.name.removeprefix("./").removeprefix(prefix)
                if member.isfile() and name.lower().endswith(ENDINGS):
                    places[name] = (member.offset_data, member.size)
        return places

    @cached_property
    def names(self) -> Sequence[str]:
        """Every image's path below the root, sorted."""
        return sorted(self._places)

    def read(self, name: str) -> bytes:
        """The bytes of one image file."""
        if name not in self._places:
            raise DataError(f"{self.path} has no image {name!r}; replace it by a fresh copy.")
        offset, length = self._places[name]
        with reading(self.path), self.path.open("rb") as file:
            file.seek(offset)
            content = file.read(length)
        if len(content) != length:
            raise DataError(f"{self.path} ends within {name}; replace it by a fresh copy.")
        return content


ImageStore: TypeAlias = ImageFolder | ImageTar


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Some images of a store, in order, with their labels.

    Attributes:
        store: where they are.
        names: which ones.
        labels: (N,) int64.
    """

    store: ImageStore
    names: Sequence[str]
    labels: NDArray[np.int64]

    def digest(self) -> str:
        """SHA-256 over the names and contents; labels do not enter, features do not need them."""
        total = hashlib.sha256()
        for name in self.names:
            content = hashlib.sha256(self.store.read(name))
            total.update(name.encode() + b"\0" + content.digest())
        return total.hexdigest()

    def batches(self, side: int, size: int) -> Iterator[NDArray[np.float32]]:
        """(B, 3, side, side) float32 inputs in [-1, 1], `size` images at a time."""
        for start in range(0, len(self.names), size):
            yield np.stack(
                [
                    decode(self.store.read(name), name, side)
                    for name in self.names[start : start + size]
                ]
            )


def decode(content: bytes, name: str, side: int) -> NDArray[np.float32]:
    """An image, decoded as the ViT's own preparation does it.

    To RGB, stretched to a square by bilinear interpolation, from 0..255 to [-1, 1].

    Args:
        content: the image file's bytes.
        name: of the file, for the message.
        side: of the square.

    Returns:
        (3, side, side) float32.

    Raises:
        DataError: not an image, damaged, or of an absurd size.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.filterwarnings("ignore", module="PIL", category=UserWarning)  # odd EXIF
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                square = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    except (
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise DataError(f"The image {name} cannot be decoded: {error}; replace it.") from error
    pixels = np.asarray(square, dtype=np.float32).transpose(2, 0, 1)
    return (pixels / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
