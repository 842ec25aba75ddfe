"""How named vectors lie in a row of bytes, as files and shared memory hold them."""

from torch import Tensor

from fedhaw.clients import Vectors

ALIGNMENT = 64
"""Bytes: every vector begins at a multiple of this, so sums over it are always formed alike."""


class RowLayout:
    """Where each of some named vectors lies in a row.

    Args:
        example: vectors with the names, shapes and types of all others.

    Attributes:
        size: bytes of a row.
    """

    def __init__(self, example: Vectors) -> None:
        self._example = dict(example)
        self._starts: dict[str, int] = {}
        self.size = 0
        for name, vector in self._example.items():
            self._starts[name] = self.size
            self.size += -(-vector.numel() * vector.element_size() // ALIGNMENT) * ALIGNMENT

    def views(self, row: Tensor) -> dict[str, Tensor]:
        """The vectors by name, as windows onto a row, (size,) bytes."""
        return {
            name: row[start : start + vector.numel() * vector.element_size()]
            .view(vector.dtype)
            .view(vector.shape)
            for (name, start), vector in zip(
                self._starts.items(), self._example.values(), strict=True
            )
        }

    def described(self) -> dict[str, object]:
        """Names, types and shapes in JSON."""
        return {
            name: [str(vector.dtype).removeprefix("torch."), list(vector.shape)]
            for name, vector in self._example.items()
        }


def copy_vectors(source: Vectors, target: Vectors) -> None:
    """The values of `source`, written over those of `target`, which has the same names."""
    for name, vector in target.items():
        vector.copy_(source[name])


def bytes_of(vectors: Vectors) -> int:
    """How many bytes travel when the vectors do."""
    return sum(vector.numel() * vector.element_size() for vector in vectors.values())
