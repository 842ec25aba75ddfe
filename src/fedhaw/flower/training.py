"""A round of training: whom to ask, and what to make of the answers."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedhaw.flower.aggregator import Aggregator
from fedhaw.flower.cohort import Recruiter
from fedhaw.flower.examples import ExamplesLimit
from fedhaw.flower.intake import Intake
from fedhaw.flower.judge import Judge
from fedhaw.flower.late import LateReplies
from fedhaw.flower.metrics import MetricsFunction, weighed
from fedhaw.flower.questions import Question
from fedhaw.flower.replies import Gate
from fedhaw.flower.roster import order
from fedhaw.flower.rounds import Rounds, flower_metrics
from fedhaw.flower.rows import Rows
from fedhaw.history import RoundRecord, finite
from fedhaw.loss_reasons import absent_since
from fedhaw.rules.base import spared_by
from fedhaw.rules.private import Private, unhidden
from fedhaw.settings import InvalidSetting

SMALL_REPLY = 1_000_000
"""Bytes; a model that is smaller counts as so large when a reply's size is judged."""

log = logging.getLogger("flwr.fedhaw")


@dataclass
class Training:
    """The rounds of a run, as far as training goes.

    Attributes:
        aggregator: holds model, rule and state.
        recruiter: finds nodes and draws cohorts; its roster knows who is who.
        examples_limit: bounds what clients say of their data.
        combine: how clients' metrics are put together.
        late: questions of earlier rounds that are still open.
        questions: whom the present round is about; none between rounds.
        alive: the nodes that the last round was about, without those that were silent.
        rounds: what happened so far.
        events: what is to be said of the next round, a sentence each.
    """

    aggregator: Aggregator
    recruiter: Recruiter
    examples_limit: ExamplesLimit
    combine: MetricsFunction
    late: LateReplies = field(init=False)
    questions: list[Question] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)
    rounds: Rounds = field(default_factory=Rounds)
    events: list[str] = field(default_factory=list)
    _absent: int = 0
    _bytes_sent: int = 0

    def __post_init__(self) -> None:
        self.settings, self.roster = self.recruiter.settings, self.recruiter.roster
        self.late = LateReplies(self.settings.late_rounds)

    def begin(self) -> None:
        """A return to before the first round, with nothing known."""
        self.rounds = Rounds()
        self.aggregator.begin()
        self.recruiter.begin()
        self.late.open.clear()

    def configure(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The messages to the cohort drawn for the round; a list, because Flower iterates twice."""
        settings = self.settings
        self.aggregator.adopt(arrays)
        if isinstance(self.aggregator.rule, Private) and self.aggregator.averaged.size:
            sentence = unhidden(beside=False, statistics=True)
            raise InvalidSetting(f"{sentence} Or say statistics=() to learn them like the rest.")
        if settings.fraction_train == 0:
            return []
        kind = MessageType.TRAIN
        present, cohort = self.recruiter.draw(grid, kind, server_round)
        content = settings.content(server_round, arrays, config)
        algorithm = self.aggregator.beside
        beside = None if algorithm is None else algorithm.questions(content)

        def content_for(node: int) -> RecordDict:
            return content if beside is None else beside(self.roster.name(node))

        asked, spared = self.recruiter.ask(cohort, content_for, kind, server_round)
        heard = self.roster.heard
        absent = self.roster.absent(present, since=server_round - settings.forget_after)
        missing = [Question(n, None, absent_since(heard[client])) for n, client in absent.items()]
        self._absent = len(missing)
        # A draw is of those who are there; where all are asked, the absent are lost.
        of_the_round = [*asked, *spared, *(missing if settings.fraction_train == 1 else [])]
        owing = self.late.nodes() - {question.node for question in of_the_round}
        self.questions = [*of_the_round, *(Question(node, None, drawn=False) for node in owing)]
        if len(self.questions) > len(asked):  # who is asked is in order already
            self.questions.sort(key=lambda q: (order(self.roster.name(q.node)), q.node))
        size = sum(len(array.data) for array in arrays.values())
        self._bytes_sent = size * len(asked)
        log.info(
            "configure_train: asking %d of %d nodes, %d are spared after not answering; %d clients "
            "are absent", len(asked), len(cohort), len(spared), len(missing),
        )  # fmt: skip
        return [question.message for question in asked if question.message is not None]

    def aggregate(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next global model, made by the rule from the decoded replies, and metrics."""
        begin, aggregator, settings = time.perf_counter(), self.aggregator, self.settings
        rounds = self.rounds
        intake = Intake(
            self.questions,
            Gate(
                self.roster,
                settings.weighted_by_key,
                most_bytes=int(settings.reply_limit * max(aggregator.bytes, SMALL_REPLY)),
                drops=partial(settings.drops, server_round),
            ),
            Rows(
                aggregator.layout,
                (aggregator.model, aggregator.averaged),
                aggregator.matrix(len(self.questions)),
                [question.node for question in self.questions],
            ),
            Judge(
                self.roster,
                self.examples_limit,
                aggregator.guard,
                aggregator.beside,
                spared_by(aggregator.state),
            ),
            self.late,
        )
        for reply in replies:
            complaint = intake.take(reply)
            if complaint is not None:
                log.warning("aggregate_train: %s", complaint)
        received = time.perf_counter()
        (uploads, taken), bytes_received = intake.finish(server_round), intake.rows.bytes
        del intake  # and with it the old model, before there is a new one
        aggregator.guard = taken.guard
        outcome = aggregator.aggregate(uploads)
        lost = {**taken.lost, **outcome.refused}
        survivors = {c: v for c, v in uploads.contributions.items() if c not in lost}
        events, self.events = [*self.events, *taken.events], []
        if aggregator.beside is not None:
            asked = {c: v.asked or server_round for c, v in survivors.items()}
            memories = {c: v.memory for c, v in survivors.items()}
            events += aggregator.beside.settle(asked, memories)
        losses = {c: v.loss for c, v in survivors.items() if v.loss is not None}
        record = RoundRecord(
            round=server_round - 1,
            metrics=outcome.metrics,
            weights=outcome.weights,
            lost=lost,
            client_loss=finite(losses.keys(), losses.values()),
            seconds={"train": received - begin, "aggregate": time.perf_counter() - received},
            bytes={"up": bytes_received, "down": self._bytes_sent},
            note="; ".join([*events, *filter(None, [outcome.note])]) or None,
        )
        counts = {
            "clients-asked": sum(question.drawn for question in self.questions),
            "clients-lost": len(lost),
            "clients-refused": taken.refused + len(outcome.refused),
            "clients-late": int(uploads.late.sum()),
            "clients-absent": self._absent,
            "clients-doubted": taken.doubted,
        }
        rounds.add(record, uploads.clients, counts, len(survivors))
        rounds.lost_in_a_row = 0 if survivors or not self.questions else rounds.lost_in_a_row + 1
        key = settings.weighted_by_key
        counted = dict(zip(uploads.clients, uploads.examples, strict=True))
        contents = [weighed(v.metrics, key, counted[c]) for c, v in survivors.items()]
        metrics = self.combine(contents, key) if contents else MetricRecord()
        metrics.update(flower_metrics(record, counts, set(metrics)))
        self.alive = self.roster.answering(question.node for question in self.questions)
        # The messages hold the model that was sent: they go before the next round begins.
        self.questions = []
        return aggregator.record, metrics
