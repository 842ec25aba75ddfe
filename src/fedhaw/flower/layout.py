"""How the arrays of a Flower app lie in one flat vector.

Floating-point arrays follow each other in the order of the app's ArrayRecord, those that are learnt
first and behind them those that are only averaged: batch norm's running means and variances, which
no gradient moves and no rule may scale. Their names tell. Whole-number arrays, such as batch norm's
counter of batches, have no place in a weighted sum: they travel beside the vector and stay whole.

FedLWS asks where layers begin. Named arrays tell: "conv1.weight" and "conv1.bias" are one layer
because they share "conv1". Arrays without such names
(an app that sends a list of NumPy arrays) begin a layer with every array of two or more dimensions,
since a bias follows its weights in every framework that sends lists.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedhaw.errors import shown
from fedhaw.flower.errors import UnsupportedArrays
from fedhaw.flower.wire import Unreadable, decoded, decoded_flat, npy_header, pack
from fedhaw.rules.threads import available_cores, share_out

WORTH_THREADS = 1_000_000
"""Numbers in a model from which on copying it is shared out over threads."""

CUT = 500_000
"""Numbers that a thread copies at a time: enough to be worth a call, few enough to share."""

IN_CACHE = 65_536
"""Numbers whose distance is measured at a time, so that what is in between stays in cache."""

STATISTICS = ("running_mean", "running_var")
"""How the names of arrays end that are averaged, not learnt, unless the app says otherwise."""

_T = TypeVar("_T")

MOST_THREADS = 4
"""More than these do not copy faster: memory is the limit."""

LayerOf: TypeAlias = Callable[[str], str]
"""The name of the layer an array belongs to; neighbours with equal names are one layer."""


@dataclass(frozen=True)
class Piece:
    """One array of the model: its name, shape and dtype, and its place in the vector if it has one.

    `start` and `stop` are both 0 for whole-number arrays.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int = 0
    stop: int = 0

    @cached_property
    def count(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    @cached_property
    def header(self) -> bytes:
        """What the array's bytes begin with if NumPy wrote them in row-major order."""
        return npy_header(self.shape, self.dtype.str)


@dataclass(frozen=True)
class WireLayout:
    """Where each array of an ArrayRecord lies in the flat vector.

    Attributes:
        floats: floating-point arrays, in the order of the vector: first what is learnt.
        whole: whole-number and boolean arrays.
        names: all names, in the order of the record.
        dtype: of the vector: float64 if any array is, otherwise float32.
        layers: one slice per layer, covering what is learnt in order.
        learnt: how many of the P numbers are learnt; the rest is averaged.
    """

    floats: tuple[Piece, ...]
    whole: tuple[Piece, ...]
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    layers: tuple[slice, ...]
    learnt: int

    @classmethod
    def of(
        cls,
        arrays: ArrayRecord,
        layer_of: LayerOf | None = None,
        statistics: Sequence[str] = STATISTICS,
    ) -> "WireLayout":
        """The layout of the global model.

        Args:
            arrays: the model's arrays.
            layer_of: which layer an array belongs to, by its name; default as described above.
            statistics: how the names of arrays end that are averaged and not learnt.

        Raises:
            UnsupportedArrays: an array is neither of floats nor of whole numbers, or there is none.
        """
        real: list[Piece] = []
        whole: list[Piece] = []
        for name, array in arrays.items():
            try:
                values = decoded(array)
            except Unreadable as error:
                raise UnsupportedArrays(
                    f"Array {name!r} of the initial arrays {error}; send NumPy arrays."
                ) from error
            dtype = values.dtype.newbyteorder("=")
            if dtype.kind == "f" and values.size:
                real.append(Piece(name, values.shape, dtype))
            elif dtype.kind in "iubf":
                whole.append(Piece(name, values.shape, dtype))
            else:
                raise UnsupportedArrays(
                    f"Array {name!r} of the initial arrays is of {dtype}; a rule aggregates real "
                    "numbers: convert it to float32, or keep it out of the record."
                )
        learnt = [piece for piece in real if not piece.name.endswith(tuple(statistics))]
        if not learnt:
            raise UnsupportedArrays(
                "The initial arrays hold no floating-point numbers to learn; pass the model's "
                "parameters as an ArrayRecord."
            )
        averaged = [piece for piece in real if piece.name.endswith(tuple(statistics))]
        floats = _one_after_the_other([*learnt, *averaged])
        widest = np.result_type(np.float32, *(piece.dtype for piece in floats))
        return cls(
            floats=tuple(floats),
            whole=tuple(whole),
            names=tuple(arrays.keys()),
            dtype=np.dtype(np.float64 if widest.itemsize > 4 else np.float32),
            layers=_layers(floats[: len(learnt)], layer_of),
            learnt=floats[len(learnt) - 1].stop,
        )

    @property
    def size(self) -> int:
        """P, the length of the vector."""
        return self.floats[-1].stop

    def read(
        self, arrays: ArrayRecord, out: NDArray[Any], sent: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """A copy of a record's floats in `out`, (P,), each straight from its bytes.

        Args:
            arrays: the record.
            out: (P,) where its floats go.
            sent: (learnt,) what the client was sent, to measure how far it went.

        Returns:
            The squared distances of its parts from `sent`, taken while each is in cache.

        Raises:
            Unreadable: the record does not hold exactly this model's arrays; nothing is written.
        """
        copy, squares = self._copies(arrays, out, sent)
        _together(copy, range(len(self._parts)), self.size)
        return squares

    def _copies(
        self, arrays: ArrayRecord, out: NDArray[Any], sent: NDArray[Any] | None
    ) -> tuple[Callable[[int], None], NDArray[np.float64]]:
        """The function that copies and measures a part of a record, which is checked first."""
        if set(arrays.keys()) != set(self.names):
            missing = sorted(set(self.names) - set(arrays.keys()))
            strange = sorted(set(arrays.keys()) - set(self.names))
            what = f"has an unknown array {shown(strange[0])}" if strange else ""
            what = f"lacks {missing[0]!r}" if missing else what
            raise Unreadable(f"wrong arrays: the model {what}")
        for piece in self.whole:
            _checked(piece, arrays[piece.name])
        found = [(piece, _checked(piece, arrays[piece.name])) for piece in self.floats]

        squares = np.zeros(len(self._parts))

        def copy(part: int) -> None:
            index, first, last = self._parts[part]
            piece, values = found[index]
            place = slice(piece.start + first, piece.start + last)
            out[place] = values[first:last]
            if sent is not None and piece.stop <= self.learnt:
                squares[part] = _squared_distance(out[place], sent[place])

        return copy, squares

    def vectors(self, arrays: ArrayRecord) -> tuple[NDArray[Any], NDArray[Any]]:
        """What is learnt and what is averaged, of a record that is known to fit."""
        vector = np.empty(self.size, self.dtype)
        self.read(arrays, vector)
        return vector[: self.learnt], vector[self.learnt :]

    def join(self, learnt: NDArray[Any], averaged: NDArray[Any], out: NDArray[Any]) -> None:
        """A copy of both parts of a model in `out`, (P,)."""
        out[: self.learnt] = learnt
        out[self.learnt :] = averaged

    def rest(self, arrays: ArrayRecord) -> dict[str, Array]:
        """The whole-number arrays of a record that is known to fit, as they travel."""
        return {piece.name: arrays[piece.name] for piece in self.whole}

    def record(
        self, learnt: NDArray[Any], averaged: NDArray[Any], rest: dict[str, Array]
    ) -> ArrayRecord:
        """The model's ArrayRecord, each array in its own dtype and in the original order.

        Args:
            learnt: the first part of the vector.
            averaged: the rest of it.
            rest: the whole-number arrays.
        """
        arrays = dict(rest)

        def write(piece: Piece) -> None:
            part, offset = (learnt, 0) if piece.stop <= self.learnt else (averaged, self.learnt)
            values = part[piece.start - offset : piece.stop - offset]
            arrays[piece.name] = pack(values, piece.shape, piece.dtype)

        # The largest first: whoever comes last should not have the longest way to go.
        _together(write, sorted(self.floats, key=lambda piece: -piece.count), self.size)
        record = ArrayRecord()
        for name in self.names:
            record[name] = arrays[name]
        return record

    @cached_property
    def _parts(self) -> list[tuple[int, int, int]]:
        """The float arrays, cut up: which one, from which of its numbers, to which."""
        return [
            (index, first, min(first + CUT, piece.count))
            for index, piece in enumerate(self.floats)
            for first in range(0, piece.count, CUT)
        ]


def _squared_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """|a - b|^2; infinite where it cannot be measured."""
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, len(a), IN_CACHE):
            apart = a[begin : begin + IN_CACHE] - b[begin : begin + IN_CACHE]
            total += float(apart @ apart)
    return total


def _one_after_the_other(pieces: Sequence[Piece]) -> list[Piece]:
    ends = list(accumulate(prod(piece.shape) for piece in pieces))
    starts = [0, *ends[:-1]]
    return [
        replace(piece, start=start, stop=stop)
        for piece, start, stop in zip(pieces, starts, ends, strict=True)
    ]


def _together(work: Callable[[_T], None], tasks: Sequence[_T], size: int) -> None:
    """The work on all tasks, for a large model by several threads: copying needs no interpreter."""
    waiting = iter(tasks)
    share_out(lambda: _each(work, waiting), _threads() if size >= WORTH_THREADS else 1)


def _threads() -> int:
    return min(MOST_THREADS, available_cores())


def _each(work: Callable[[_T], None], tasks: Iterator[_T]) -> None:
    for task in tasks:
        work(task)


def _checked(piece: Piece, array: Array) -> NDArray[Any]:
    """(size,) the array's values where they lie, if it is the array that it should be."""
    if piece.count:
        at_once = decoded_flat(array, piece.header, piece.count, piece.dtype)
        if at_once is not None:
            return at_once
    try:
        values = decoded(array)
    except Unreadable as error:
        raise Unreadable(f"unreadable: {piece.name!r} {error}") from error
    if values.shape != piece.shape:
        raise Unreadable(
            f"wrong shape: {piece.name!r} is {values.shape}, the global model's {piece.shape}"
        )
    if values.dtype.kind != piece.dtype.kind:
        # Floats of another precision are converted, as Flower does it.
        raise Unreadable(
            f"wrong dtype: {piece.name!r} is {values.dtype}, the global model's {piece.dtype}"
        )
    return values.reshape(-1)


def _layers(floats: list[Piece], layer_of: LayerOf | None) -> tuple[slice, ...]:
    keys: list[object] = []
    matrices = 0
    for piece in floats:
        if layer_of is not None:
            keys.append(layer_of(piece.name))
        elif "." in piece.name:
            keys.append(piece.name.rpartition(".")[0])
        else:
            matrices += len(piece.shape) >= 2
            keys.append(matrices)
    pairs = zip(keys, floats, strict=True)
    groups = [
        [piece for _, piece in group] for _, group in groupby(pairs, key=lambda pair: pair[0])
    ]
    assert all(prod(piece.shape) for group in groups for piece in group)
    return tuple(slice(group[0].start, group[-1].stop) for group in groups)
