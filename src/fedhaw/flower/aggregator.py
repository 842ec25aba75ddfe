"""The server's half of a federation without the network: model, rule and state.

Memory: one (K, P) matrix for rules that forget the clients' models, two for FedHAW, whose state
keeps the previous round's; they are used in turn and never copied.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedhaw.checkpoints import CheckpointError, Part, Parts
from fedhaw.flower.layout import STATISTICS, LayerOf, WireLayout
from fedhaw.flower.uploads import Uploads
from fedhaw.flower.wire import decoded, pack
from fedhaw.history import Learnt, finite, metrics_of
from fedhaw.loss_reasons import NOT_FINITE
from fedhaw.rules import (
    InvalidRound,
    InvalidRule,
    LengthGuard,
    Round,
    Rule,
    aggregate_surviving,
    pack_state,
    unpack_state,
)
from fedhaw.rules.buffers import averaged_buffers
from fedhaw.rules.private import Private

if TYPE_CHECKING:  # it needs torch, which most servers do without
    from fedhaw.flower.beside import Beside

ABSURD = 1e18
"""No model that can still learn holds such a number; its square all but leaves float32."""


@dataclass(frozen=True)
class Outcome:
    """What the rule made of a round.

    Attributes:
        refused: clients whose models the rule would not take, and why.
        weights: each client's weight in the new model; empty when nothing was aggregated.
        metrics: what the rule learnt, by name.
        note: what the rule has to say.
    """

    refused: Mapping[str, str]
    weights: Mapping[str, float]
    metrics: Mapping[str, Learnt]
    note: str | None


class Aggregator:
    """The global model and the rule's state, both moved on round by round.

    Attributes:
        layout: how the model's arrays lie in the vector; None before the first `adopt`.
        model: the learnt part of the global model; the rule's own result, never copied.
        averaged: the rest of the P numbers: running statistics.
        record: both as Flower's record.
        state: the rule's.
        guard: on long updates; knows how long recent ones were.
        beside: the client algorithm's part of the server, if it has one.
    """

    layout: WireLayout
    model: NDArray[Any]
    averaged: NDArray[Any]

    def __init__(
        self,
        rule: Rule[Any],
        layer_of: LayerOf | None = None,
        statistics: Sequence[str] = STATISTICS,
        guard: LengthGuard | None = None,
        beside: "Beside | None" = None,
    ) -> None:
        self.rule = rule
        self.guard = guard or LengthGuard()
        self.beside = beside
        self.state = rule.init()
        self.record: ArrayRecord | None = None
        self._layer_of = layer_of
        self._statistics = tuple(statistics)
        self._buffers: list[NDArray[Any]] = []

    def begin(self) -> None:
        """A return to before the first round: no model, a fresh state."""
        self.state, self.record = self.rule.init(), None
        self.guard = LengthGuard(self.guard.limit)

    @property
    def bytes(self) -> int:
        """The size of the global model as it travels."""
        assert self.record is not None
        return sum(len(array.data) for array in self.record.values())

    def adopt(self, arrays: ArrayRecord) -> None:
        """A change of the global model to `arrays`, if they are not what the last round returned.

        Raises:
            UnsupportedArrays: they are not something a rule can aggregate.
        """
        if arrays is self.record:
            return
        self.layout = WireLayout.of(arrays, self._layer_of, self._statistics)
        self.model, self.averaged = self.layout.vectors(arrays)
        self.record = arrays
        if self.beside is not None:
            self.beside.begin(self.layout.learnt)

    def matrix(self, rows: int) -> NDArray[Any]:
        """(at least `rows`, P) memory for a round's models that the state does not hold."""
        held = list(_arrays_of(self.state))
        shape = (rows, self.layout.size)
        free = [
            buffer
            for buffer in self._buffers
            if not any(np.may_share_memory(buffer, array) for array in held)
        ]
        for buffer in free:
            if buffer.shape[0] >= rows and buffer.shape[1] == shape[1]:
                return buffer
        # Too small, or none yet: what is free goes before anything new comes.
        self._buffers = [b for b in self._buffers if not any(b is unused for unused in free)]
        free.clear()
        self._buffers.append(np.empty(shape, self.layout.dtype))
        return self._buffers[-1]

    def aggregate(self, uploads: Uploads) -> Outcome:
        """A step of the model; a round that gives no usable model leaves it as it is."""
        if not uploads.received.any():
            return Outcome({}, {}, metrics_of(self.state), None)
        received = uploads.received.copy()
        refused: dict[str, str] = {}
        note = None
        if self.beside is not None:
            self.beside.stretch(self.beside.arrived(uploads, received, self.model))
        try:
            model, averaged, state = self._aggregate(uploads, received, refused)
        except InvalidRound as error:
            self._refuse_absurd(uploads, received, refused)
            try:
                model, averaged, state = self._aggregate(uploads, received, refused)
            except InvalidRound:
                model, averaged, state = self.model, self.averaged, self.state
                note = f"nothing aggregated: {error}"
        if note is None and not received.any():
            note = "every model was refused; the global model stays"
        if self.beside is not None and note is None:
            arrived = self.beside.arrived(uploads, received, self.model)
            model = self.beside.absorb(arrived, np.asarray(model))
        self.model, self.averaged, self.state = np.asarray(model), averaged, state
        taken = (c for c in uploads.contributions if c not in refused)
        first = next(taken, None)
        rest = self.layout.rest(self.record) if self.record is not None else {}
        if first is not None and not isinstance(self.rule, Private):
            # One client's own numbers are nothing that noise has hidden.
            rest = uploads.rest[first]
        self.record = self.layout.record(self.model, self.averaged, rest)
        weights: dict[str, float] = {}
        if note is None:
            weights = finite(state.clients, state.weights)
            note = getattr(state, "note", None)
        return Outcome(refused, weights, metrics_of(state), note)

    def _aggregate(
        self, uploads: Uploads, received: NDArray[np.bool_], refused: dict[str, str]
    ) -> tuple[Any, NDArray[Any], Any]:
        learnt = self.layout.learnt
        model, state, more = aggregate_surviving(
            self.rule,
            self.state,
            Round(
                global_model=self.model,
                client_models=uploads.models[:, :learnt],
                num_examples=uploads.examples,
                received=received,
                clients=uploads.clients,
                layers=self.layout.layers,
                late=uploads.late,
                refused=uploads.absurd,
            ),
        )
        model = self._checked(model, uploads)
        for client, reason in more.items():
            refused[str(client)] = reason
            row = uploads.clients.index(str(client))
            uploads.models[row, learnt:] = self.averaged
            received[row] = False
        averaged = self.averaged
        if averaged.size:
            averaged = averaged_buffers(
                uploads.models[:, learnt:], state, uploads.clients, uploads.examples
            )
        if _is_absurd(model) or (averaged.size and _is_absurd(averaged)):
            raise InvalidRound(f"The aggregated model holds NaN, or numbers beyond {ABSURD:g}.")
        return model, averaged, state

    def _checked(self, made: object, uploads: Uploads) -> NDArray[Any]:
        """What a rule made of the round, if it is a model, in numbers of the clients' kind."""
        wanted, dtype = self.model.shape, self.layout.dtype
        if not isinstance(made, np.ndarray) or made.shape != wanted or made.dtype.kind != "f":
            kind = getattr(made, "dtype", type(made).__name__)
            raise InvalidRule(
                f"The rule returned {kind} of shape {tuple(getattr(made, 'shape', ()))}; it must "
                f"return an array of {dtype} and shape {wanted}."
            )
        model: NDArray[Any] = made.astype(dtype, copy=False)
        # The next replies are decoded into the round's matrix, onto which nothing may be a window.
        return model.copy() if np.may_share_memory(model, uploads.models) else model

    def _refuse_absurd(
        self, uploads: Uploads, received: NDArray[np.bool_], refused: dict[str, str]
    ) -> None:
        """A search for those whose numbers, finite one by one, made the sum overflow or absurd."""
        for row, client in enumerate(uploads.clients):
            values = uploads.models[row]
            least, most = float(values.min()), float(values.max())
            if not (math.isfinite(least) and math.isfinite(most)):
                refused[client] = NOT_FINITE
            elif max(-least, most) > ABSURD:
                refused[client] = f"holds numbers beyond {ABSURD:g}"
            else:
                continue
            self.layout.join(self.model, self.averaged, out=uploads.models[row])
            received[row] = False

    # Checkpoints.

    def parts(self) -> dict[str, Part]:
        """What a checkpoint keeps of model and rule.

        Only a model with running statistics is copied; the state, which may be far larger, is not.
        """
        assert self.record is not None
        rest = {name: decoded(array) for name, array in self.layout.rest(self.record).items()}
        averaged = self.averaged
        model = np.concatenate([self.model, averaged]) if averaged.size else self.model
        beside = {} if self.beside is None else self.beside.parts()
        return {
            **beside,
            "model": Part({"": model}, {"arrays": self._described()}),
            "rest": Part(rest, {}),
            "state": pack_state(self.state),
            "guard": Part({}, self.guard.facts),
        }

    def restore(self, parts: Parts) -> None:
        """A return to where `parts` were taken; call `adopt` with the initial arrays before.

        Raises:
            CheckpointError: they are of another model or another rule.
        """
        if parts["model"].facts["arrays"] != self._described():
            raise CheckpointError(
                "The checkpoint is of a model with other arrays than the initial ones; give "
                "another checkpoint file, or start afresh with resume_from=0."
            )
        try:
            self.state = unpack_state(self.rule, parts["state"])
        except CheckpointError as error:
            raise CheckpointError(
                f"The checkpoint does not fit the rule: {error} Start afresh with resume_from=0."
            ) from error
        self.guard = self.guard.going_on(parts["guard"].facts)
        if self.beside is not None:
            self.beside.restore(parts)
        learnt, model = self.layout.learnt, parts["model"].arrays[""]
        self.model, self.averaged = model[:learnt], model[learnt:]
        rest = {
            piece.name: pack(parts["rest"].arrays[piece.name], piece.shape, piece.dtype)
            for piece in self.layout.whole
        }
        self.record = self.layout.record(self.model, self.averaged, rest)

    def _described(self) -> list[list[str]]:
        pieces = (*self.layout.floats, *self.layout.whole)
        return [[piece.name, str(piece.dtype), str(piece.shape)] for piece in pieces]


def _arrays_of(held: object) -> Iterator[NDArray[Any]]:
    """The arrays of a state, and of the states, mappings and sequences within it."""
    within: Iterable[object] = ()
    match held:
        case np.ndarray():
            yield held
        case Mapping():
            within = held.values()
        case list() | tuple():
            within = held
        case _ if is_dataclass(held):
            within = [getattr(held, item.name) for item in fields(held)]
    for inner in within:
        yield from _arrays_of(inner)


def _is_absurd(model: NDArray[Any]) -> bool:
    """Whether some number is NaN or beyond `ABSURD`; the sum of squares clears all sane models."""
    with np.errstate(over="ignore"):
        if float(model @ model) < ABSURD:
            return False
    return not max(-float(model.min()), float(model.max())) <= ABSURD
