"""Any of fedhaw's rules as a Flower strategy.

    strategy = RuleStrategy()
    result = strategy.start(grid, initial_arrays=arrays, num_rounds=10)

in place of Flower's `FedAvg()`; clients need no change. A client of the round's cohort that does
not return a usable model, for whatever reason, is lost: the rule sees the current global model in
its place, the round's metrics and the log name it with the reason, and the run goes on.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedhaw.flower.aggregator import Aggregator
from fedhaw.flower.cohort import Recruiter
from fedhaw.flower.evaluation import Evaluations
from fedhaw.flower.examples import LIMIT as EXAMPLES_LIMIT
from fedhaw.flower.examples import ExamplesLimit
from fedhaw.flower.exchange import exchange
from fedhaw.flower.layout import STATISTICS, LayerOf
from fedhaw.flower.metrics import MetricsFunction, weighted_mean
from fedhaw.flower.monitor import monitor_at
from fedhaw.flower.protection import LENGTH_LIMIT, beside_of, left_of, protected
from fedhaw.flower.recorder import RunRecorder
from fedhaw.flower.results import EvaluateFunction, Results
from fedhaw.flower.roster import Roster
from fedhaw.flower.settings import REPLY_LIMIT, StrategySettings, TooFew, check_kinds
from fedhaw.flower.training import Training
from fedhaw.history import RoundRecord
from fedhaw.late import ROUNDS as LATE_ROUNDS
from fedhaw.rules import FedHAWAuto, LengthGuard, Rule
from fedhaw.rules.base import suited
from fedhaw.rules.private import Privacy, Private
from fedhaw.settings import InvalidSetting
from fedhaw.uplink import Uplink

if TYPE_CHECKING:  # they need torch, which most servers do without
    from fedhaw.clients import ClientUpdate

ConfigOfRound = Callable[[int], ConfigRecord]
"""What clients are told in a round, counted from 1."""

log = logging.getLogger("flwr.fedhaw")


class RuleStrategy(Strategy):
    """A fedhaw rule as a Flower strategy.

    Arguments up to `evaluate_metrics_aggr_fn` are those of Flower's FedAvg.

    Args:
        rule: any of fedhaw's, or a rule of your own. Default: FedHAWAuto, which has nothing to set.
        fraction_train: share of the nodes that train in a round.
        fraction_evaluate: share of the nodes that evaluate after a round; 0 for none.
        min_train_nodes: train on at least so many.
        min_evaluate_nodes: evaluate on at least so many.
        min_available_nodes: nodes that must be there, in every round.
        weighted_by_key: the metric in which clients report their number of examples.
        arrayrecord_key: under which the model is sent.
        configrecord_key: under which the configuration is sent.
        train_metrics_aggr_fn: how clients' training metrics are put together; their contents come
            without the arrays, ordered by client. Default: mean weighted by examples.
        evaluate_metrics_aggr_fn: the same for evaluation.
        round_deadline: seconds after which a round goes on without those who have not answered.
            Flower itself notices a dead node after 60 s; choose less, but more than the slowest
            client needs. Default: the `timeout` given to `start`.
        nodes_at_start: nodes that the first round waits for, if more than every round needs;
            should they not come in time, the run begins without them.
        nodes_timeout: seconds that a round waits for the nodes it needs.
        too_few_nodes: what happens then. "stop": the run ends with an error, and goes on from its
            checkpoint when it is started again. "go on": the round is held with those who are
            there.
        late_rounds: for how many rounds a reply that missed its deadline is still taken, as an
            update that fades with its age; 0 for none. See `fedhaw.late`.
        forget_after: rounds for which a client that once took part and is not there any more counts
            as lost, and keeps its weight; only where every node is asked in every round.
        length_limit: how many times as long as is usual an update may be before it is refused, and
            counts as lost; 0 refuses none. See `fedhaw.rules.lengths`.
        examples_limit: how many times the median of a round a client's number of examples may
            count, because it is its own word and its weight; 0 for any. See
            `fedhaw.flower.examples`.
        max_examples: how many examples may count at most, whatever the others say.
        client_update: what the clients do, if it speaks to the server besides the model: the same
            SCAFFOLD, FedDyn, FedNova or algorithm of your own as in the clients' app. Needs torch.
        clip: the longest update that reaches the rule, in the unit of the model, or "median" for
            the median length of the round's; longer ones are shortened. See
            `fedhaw.rules.clipped`.
        privacy: differential privacy for clients: clipping, noise and the count of epsilon. What
            cannot hold with it is off: weights by examples, learnt weights and trust, replay, the
            limit on lengths. See `fedhaw.rules.private`.
        reply_limit: how many times as large as the model a reply may be, all its records together.
        stop_when_lost: the run stops with an error, and goes on from its checkpoint when it is
            started again, after so many rounds in a row without a single usable model; 0 for never.
        seed: of the draws when only a fraction of the nodes takes part.
        node_clients: which client each registered node speaks for, from the name under which
            `flwr supernode register` knows it; nobody else may then use these clients' ids.
        roll_call: ask every new node for its client's id and number of examples before it first
            takes part. Makes draws repeatable from the first round on, and gives a client its
            weight even if its first upload is lost. The app's `query` function answers; a node
            whose app has none logs an error.
        layer_of: the layer an array belongs to, by the array's name; for FedLWS.
        statistics: how the names of arrays end that are averaged and not learnt.
        uplink: losses to be had besides the real ones, as in the simulator.
        checkpoint: file in which model, rule state and round are kept; if it is there when `start`
            is called, the run goes on after the round it holds. FILE.safetensors is the last one;
            beside it lie the last few as FILE-000041.safetensors and so on.
        checkpoint_every: rounds between two checkpoints; the last round is always kept.
        checkpoints_kept: how many of them stay.
        resume_from: the round to go back to, one of those that are kept; 0 starts afresh. What came
            after it is removed, and the rule may have other options than it had, but not another
            privacy. Default: the last round, with the same rule.
        history: file for a history in the simulator's format.
        monitor: address at which Prometheus may ask how the run goes: a port of this machine, or
            "host:port". Needs the extra `monitor`.
        description: further entries of the history's first line: "name", "config", "clients".
    """

    def __init__(
        self,
        rule: Rule[Any] | None = None,
        *,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: MetricsFunction | None = None,
        evaluate_metrics_aggr_fn: MetricsFunction | None = None,
        round_deadline: float | None = None,
        nodes_at_start: int = 0,
        nodes_timeout: float = 600.0,
        too_few_nodes: TooFew = "stop",
        late_rounds: int = LATE_ROUNDS,
        forget_after: int = 20,
        length_limit: float = LENGTH_LIMIT,
        examples_limit: float = EXAMPLES_LIMIT,
        max_examples: float | None = None,
        client_update: "ClientUpdate | None" = None,
        clip: float | Literal["median"] | None = None,
        privacy: Privacy | None = None,
        reply_limit: float = REPLY_LIMIT,
        stop_when_lost: int = 10,
        seed: int = 0,
        node_clients: Mapping[str, str] | None = None,
        roll_call: bool = False,
        layer_of: LayerOf | None = None,
        statistics: Sequence[str] = STATISTICS,
        uplink: Uplink | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
        checkpoints_kept: int = 3,
        resume_from: int | None = None,
        history: str | os.PathLike[str] | None = None,
        monitor: str | int | None = None,
        description: Mapping[str, Any] | None = None,
    ) -> None:
        given = locals()
        check_kinds(given)
        self.settings = StrategySettings(
            **{item.name: given[item.name] for item in fields(StrategySettings)}
        )
        rule = suited(FedHAWAuto() if rule is None else rule, client_update)
        self.rule = protected(rule, clip, privacy)
        self.roster = Roster(bound=node_clients, doubts=examples_limit > 0)
        self._recruiter = Recruiter(self.roster, self.settings)
        # Whether an update is refused for its length depends on the others': privacy forbids it.
        guard = LengthGuard(length_limit if privacy is None else 0)
        beside = beside_of(client_update, privacy)
        self._aggregator = Aggregator(self.rule, layer_of, statistics, guard, beside)
        limit = ExamplesLimit(examples_limit, max_examples)
        self._training = Training(
            self._aggregator, self._recruiter, limit, train_metrics_aggr_fn or weighted_mean
        )
        self._evaluations = Evaluations(
            self._recruiter, limit, evaluate_metrics_aggr_fn or weighted_mean
        )
        self._monitor_at = monitor
        self._running = False

    @property
    def reports(self) -> list[RoundRecord]:
        """What happened, a record a round."""
        return self._training.rounds.records

    @property
    def cohorts(self) -> list[tuple[str, ...]]:
        """Who took part in the aggregation, lost clients included, a tuple a round."""
        return self._training.rounds.cohorts

    @property
    def state(self) -> Any:
        """The rule's state after the last round."""
        return self._aggregator.state

    def summary(self) -> None:
        """A few lines in the log about what this strategy does.

        Raises:
            InvalidSetting: another strategy is wrapped around this one.
        """
        if not self._running:
            # Flower's wrappers call this before the first round of a `start` of their own.
            raise InvalidSetting(
                "RuleStrategy cannot run inside another strategy, such as Flower's "
                "DifferentialPrivacy...: its deadline, checkpoint and history would be ignored, "
                "and noise made for a plain mean does not hide what a rule makes of it. Use "
                "RuleStrategy(privacy=Privacy(...)) instead."
            )
        log.info("\t├──> Rule: %s", self.rule)
        if isinstance(self.rule, Private):
            log.info(
                "\t├──> Private: %s; a metric of every round is epsilon", left_of(self.rule.rule)
            )
        log.info("\t├──> Round deadline: %s s", self._recruiter.deadline)
        log.info("\t└──> Checkpoint: %s", self.settings.checkpoint or "none")

    # The parts of a round, as Flower names them.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The messages to the cohort drawn for the round; a list, because Flower iterates twice."""
        return self._training.configure(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next global model, made by the rule from the decoded replies; the lost are counted.

        Returns the global model also when every client was lost; it is then the old one.
        """
        return self._training.aggregate(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The messages to the nodes drawn to evaluate the new model."""
        return self._evaluations.configure(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The clients' metrics put together, without those that cannot be used."""
        return self._evaluations.gather(server_round, replies)

    # The run.

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | ConfigOfRound | None = None,
        evaluate_config: ConfigRecord | ConfigOfRound | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """A run of the federation; arguments and result are those of Flower's strategies.

        With a checkpoint the run goes on after the round it holds; the result then has the metrics
        of the rounds that were run this time. `train_config` and `evaluate_config` may be functions
        of the round, counted from 1, so that a schedule goes on where it should.

        Raises:
            EverybodyLost: `stop_when_lost` rounds in a row gave no usable model.
        """
        training, deadline = self._training, min(timeout, self.settings.round_deadline or timeout)
        self._recruiter.deadline = deadline
        train_configs, evaluate_configs = _schedule(train_config), _schedule(evaluate_config)
        with (
            self._own(),
            closing(RunRecorder(self.settings, self._aggregator, self.roster)) as kept,
            closing(monitor_at(self._monitor_at)) as monitor,
        ):
            rounds = training.rounds
            log.info("Starting %s, %d rounds:", type(self).__name__, num_rounds)
            self.summary()
            done, arrays = kept.restore(initial_arrays, num_rounds)
            if done >= num_rounds:
                log.info("All %d rounds are done already: nothing is left to do.", num_rounds)
            elif done:
                self._recruiter.wait_for_all(kept.cohort)
                training.events = [f"the server was started again after round {done}"]
            monitor.begin(done, num_rounds)
            results = Results(Result(arrays=arrays), evaluate_fn)
            if done == 0:
                results.begin()
            for server_round in range(done + 1, num_rounds + 1):
                log.info("")
                log.info("[ROUND %d/%d]", server_round, num_rounds)
                config = train_configs(server_round)
                messages = self.configure_train(server_round, arrays, config, grid)
                replies = exchange(grid, messages, deadline, overdue=list(training.late.open))
                arrays = results.trained(server_round, *self.aggregate_train(server_round, replies))
                begin = time.perf_counter()
                config = evaluate_configs(server_round)
                messages = self.configure_evaluate(server_round, arrays, config, grid)
                replies = exchange(grid, messages, deadline)
                by_clients = self.aggregate_evaluate(server_round, replies)
                measured = results.evaluated(server_round, by_clients)
                rounds.evaluated(measured, time.perf_counter() - begin)
                # A server that goes on later waits for these; the dead would cost it its patience.
                alive = self.roster.answering(training.alive)
                kept.keep(rounds.records[-1], len(alive), server_round == num_rounds)
                monitor.show(rounds.records[-1], rounds.counts)
                rounds.stop_if_all_are_lost(self.settings.stop_when_lost)
            kept.end()
        return results.end(kept.seconds)

    @contextmanager
    def _own(self) -> Iterator[None]:
        """The time of a run that this strategy's own `start` began, from nothing known."""
        self._running = True
        self._training.begin()
        try:
            yield
        finally:
            self._running = False


def _schedule(config: ConfigRecord | ConfigOfRound | None) -> ConfigOfRound:
    """What clients are told, as a function of the round."""
    if callable(config):
        return config
    always = ConfigRecord() if config is None else config
    return lambda server_round: always
