"""The round loop: lose, train, aggregate, evaluate, write down.

`play` is the whole of it. Everything random in a round depends on (seed, round, client), and what
a round leaves behind is in `Progress`; so whoever has the progress after round t has the rest of
the run. Whose upload gets lost is known before anyone trains, and what nobody would hear of is not
computed.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedhaw.history import RoundRecord, finite, metrics_of
from fedhaw.loss_reasons import NOTHING_ARRIVED, UPLINK
from fedhaw.rules import LengthGuard, Rule
from fedhaw.rules.base import spared_by
from fedhaw.simulation.aggregation import ServerStep
from fedhaw.simulation.engines import ClientReport, Engine, TrainingRound
from fedhaw.simulation.engines.failures import same_exception
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.evaluation import ModelEvaluation
from fedhaw.simulation.exchange import Exchange, RoundExchange
from fedhaw.simulation.federation import Federation
from fedhaw.simulation.late_uploads import LateUploads
from fedhaw.simulation.participation import cohort_of
from fedhaw.simulation.stand_ins import LastModels, fill_with_global, move_received_up

Lost: TypeAlias = dict[Any, str]
"""Why each lost client of a round is lost."""

logger = logging.getLogger(__name__)

BYTES_A_NUMBER = 4


@dataclass
class Progress:
    """Where a run stands between two rounds.

    Attributes:
        next_round: the round to come.
        model: (P,) the global model.
        state: what the rule remembers.
        last: the memory behind the stand-in "last"; None for the others.
        guard: refuses absurdly long updates; knows how long recent ones were.
        exchange: what the client algorithm has besides models; None where it has nothing.
        late: the uploads on their way; None where the uplink delays none.
    """

    next_round: int
    model: Tensor
    state: Any
    last: LastModels | None = None
    guard: LengthGuard = field(default_factory=LengthGuard)
    exchange: Exchange | None = None
    late: LateUploads | None = None


@dataclass(frozen=True, eq=False)
class Loop:
    """One federation under one rule.

    Attributes:
        federation: what is simulated.
        rule: the server's.
        engine: trains the clients.
        evaluate: what is measured of a model.
    """

    federation: Federation
    rule: Rule[Any]
    engine: Engine
    evaluate: ModelEvaluation

    def play(
        self, progress: Progress, after_round: Callable[[RoundRecord, Progress], None]
    ) -> None:
        """The rounds from `progress.next_round` to the last, played; `progress` moves along."""
        federation, settings = self.federation, self.federation.settings
        rounds = settings["rounds"]
        buffer, spare = self._buffers()
        untried = progress.next_round == 0
        for t in range(progress.next_round, rounds):
            w, clock = progress.model, _Stopwatch()

            cohort = cohort_of(settings["seed"], t, federation.clients, settings["cohort"])
            beside = None if progress.exchange is None else progress.exchange.round(cohort)
            lost = self._lost(t, cohort)
            late_counts = progress.late is not None
            heard = [client for client in cohort if late_counts or client not in lost]
            rows = dict(zip(cohort, buffer.unbind(), strict=True))
            out = [rows[client] for client in heard]
            reports = self.engine.train(TrainingRound(t, w, heard, out, beside))
            if untried and reports:
                _refuse_a_mistake(reports)
                untried = False
            lost |= {r.client: r.failure for r in reports if r.failure is not None}
            W, said, late = buffer, list[str](), set[int]()
            lengths = {r.client: r.length for r in reports if r.client not in lost}
            if progress.late is not None:
                delayed = {r.client: r.length for r in reports if lost.get(r.client) == UPLINK}
                progress.late.send(t, w, cohort, buffer, delayed)
                arrivals = progress.late.arrive(t, lengths)
                cohort, W = _with_strangers(cohort, buffer, [u.client for u in arrivals])
                rows = dict(zip(cohort, W, strict=True))
                for upload in arrivals:
                    said.append(progress.late.move(upload, t, w, rows[upload.client]))
                    lost.pop(upload.client, None)
                    late.add(upload.client)
                    lengths[upload.client] = upload.length
            examples = {client: float(federation.holdings.size(client)) for client in lengths}
            absurd, progress.guard = progress.guard.judge(
                lengths, examples, spared_by(progress.state)
            )
            lost |= absurd
            clock.lap("train")

            step = self._round(w, cohort, W, lost, late, absurd, progress.last)
            if step is not None:
                before = progress.state
                if beside is not None:
                    beside.stretch(step, lost)
                new, progress.state, refused = step.aggregate(self.rule, before)
                learnt = _checked(new, w[: federation.layout.parameters], buffer)
                lost |= refused
                if beside is not None:
                    learnt = beside.absorb(step, lost, learnt)
                w = step.with_buffers(learnt, progress.state)
                if progress.last is not None:
                    progress.last.keep(cohort, W, lost)
                if progress.state is not before:
                    # The rule may keep this round's matrix until the next one is in.
                    buffer, spare = spare, buffer
            if beside is not None:
                beside.settle(lost)
            clock.lap("aggregate")

            _log_failures(t, lost)
            record = self._record(t, cohort, reports, lost, progress.state, beside, said)
            if (t + 1) % settings["evaluate_every"] == 0 or t + 1 == rounds:
                record = self.evaluate(w, record)
            clock.lap("evaluate")

            progress.model, progress.next_round = w, t + 1
            after_round(replace(record, seconds=clock.laps), progress)

    @property
    def _asked(self) -> int:
        """How many clients are asked in each round."""
        return min(
            self.federation.settings["cohort"] or self.federation.clients, self.federation.clients
        )

    def _buffers(self) -> tuple[Tensor, Tensor]:
        """Two (cohort, P) matrices: the round's own, and the one a rule may still be holding."""
        shape = (self._asked, self.federation.layout.size)
        device = self.federation.device
        return torch.empty(shape, device=device), torch.empty(shape, device=device)

    def _lost(self, t: int, cohort: Sequence[int]) -> Lost:
        """Those whose upload does not come in this round, however their training goes."""
        uplink = self.federation.uplink
        if uplink is None:
            return {}
        drops = np.asarray(uplink.lost(self.federation.settings["seed"], t, cohort))
        if drops.shape != (len(cohort),) or drops.dtype.kind not in "biu":
            raise InvalidSimulation(
                f"{type(uplink).__name__}.lost returned {drops.dtype} of shape {drops.shape}; it "
                f"must return one bool for each of the {len(cohort)} clients asked about."
            )
        return {client: UPLINK for client, gone in zip(cohort, drops, strict=True) if gone}

    def _round(
        self,
        w: Tensor,
        cohort: Sequence[int],
        W: Tensor,
        lost: Lost,
        late: Collection[int],
        refused: Collection[int],
        last: LastModels | None,
    ) -> ServerStep | None:
        """What is aggregated, the stand-ins in place; None when nothing arrived."""
        received = np.array([client not in lost for client in cohort], dtype=np.bool_)
        if not received.any():
            return None
        match self.federation.settings["stand_in"]:
            case "none":
                W = move_received_up(W, received)
                cohort = [client for client in cohort if client not in lost]
                received = np.ones(len(cohort), dtype=np.bool_)
            case "last" if last is not None:
                received = last.fill(cohort, W, received, w)
            case _:
                fill_with_global(W, received, w)
        return ServerStep(
            layout=self.federation.layout,
            global_model=w,
            client_models=W,
            num_examples=self.federation.sizes[np.asarray(cohort)],
            received=received,
            clients=cohort,
            late=late,
            refused=refused,
        )

    def _record(
        self,
        t: int,
        cohort: Sequence[int],
        reports: Sequence[ClientReport],
        lost: Lost,
        state: Any,
        beside: RoundExchange | None,
        said: Sequence[str],
    ) -> RoundRecord:
        idle = len(lost) == len(cohort)
        notes = [*said, NOTHING_ARRIVED if idle else getattr(state, "note", None)]
        up = down = self.federation.layout.size * BYTES_A_NUMBER
        if beside is not None:
            up, down = up + beside.bytes_up, down + beside.bytes_down
        return RoundRecord(
            round=t,
            metrics=metrics_of(state) | _means(reports),
            weights={} if idle else finite(state.clients, state.weights),
            lost={str(client): lost[client] for client in cohort if client in lost},
            client_loss=finite([r.client for r in reports], [r.loss for r in reports]),
            bytes={"up": (len(cohort) - len(lost)) * up, "down": self._asked * down},
            note="; ".join(filter(None, notes)) or None,
        )


def _with_strangers(
    cohort: list[int], W: Tensor, clients: Sequence[int]
) -> tuple[list[int], Tensor]:
    """The cohort and its matrix with those of the clients that were not drawn for the round."""
    drawn = set(cohort)
    strangers = [client for client in clients if client not in drawn]
    if not strangers:
        return cohort, W
    return [*cohort, *strangers], torch.cat([W, W.new_empty((len(strangers), W.shape[1]))])


def _means(reports: Sequence[ClientReport]) -> dict[str, float]:
    """The means over clients of what their algorithm has to say."""
    said: dict[str, list[float]] = {}
    for report in reports:
        for name, value in report.metrics.items():
            said.setdefault(f"client/{name}", []).append(value)
    return {name: sum(values) / len(values) for name, values in said.items()}


def _refuse_a_mistake(reports: Sequence[ClientReport]) -> None:
    """A stop of a run whose every client fails alike from the start: that is no bad luck."""
    failure = same_exception([report.failure for report in reports])
    if failure is not None:
        raise InvalidSimulation(
            f"Every client failed in the first round ({failure}); correct the client update or the "
            "model."
        )


def _checked(new: Any, w: Tensor, buffer: Tensor) -> Tensor:
    """What a rule made of the round, if it is a model; never a window onto the round's matrix."""
    if not isinstance(new, Tensor) or new.shape != w.shape or new.dtype != w.dtype:
        raise InvalidSimulation(
            f"The rule returned {getattr(new, 'dtype', type(new).__name__)} of shape "
            f"{tuple(getattr(new, 'shape', ()))}; it must return a {w.dtype} tensor of shape "
            f"{tuple(w.shape)}, made of the tensors it was given."
        )
    # The sum tells at once; of large numbers it may overflow.
    if not new.sum().isfinite() and not new.isfinite().all():
        raise InvalidSimulation(
            "The rule returned a model that holds NaN or infinity, though no client's does; "
            "correct the rule, or choose smaller rates."
        )
    if new.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr():
        return new.clone()
    return new


def _log_failures(t: int, lost: Lost) -> None:
    failures = [f"client {c} ({reason})" for c, reason in lost.items() if reason != UPLINK]
    if failures:
        logger.warning("Round %d lost %s.", t, ", ".join(failures))


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._begin = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._begin, 6)
        self._begin = now
